"""Types of what a single operator writes, by ONNX's shape inference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import onnx
from onnx import helper, numpy_helper, shape_inference

from msdump.errors import GraphError
from msdump.graph.builder import value_type
from msdump.training.symbols import StepTensor, info

IR_VERSION: Final = 10
"""The first one that knows overloads of functions."""


def output_types(
    node: onnx.NodeProto,
    inputs: Sequence[StepTensor | None],
    functions: Sequence[onnx.FunctionProto],
    opsets: Sequence[onnx.OperatorSetIdProto],
) -> tuple[StepTensor, ...]:
    """Return what an operator writes.

    Args:
        node: The operator.
        inputs: What it reads, None for what is absent.
        functions: The function that it calls, if it is one of MindSpore's.
        opsets: The operator sets of its graph.

    Raises:
        GraphError: It does not fit what it reads, or the rank of what it writes is not known.
    """
    model = _alone(node, inputs, functions, opsets)
    try:
        graph = shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
    except shape_inference.InferenceError as error:
        raise GraphError(f"{node.op_type}: {error}") from error
    types = {value.name: value_type(value.type) for value in graph.output}
    results = []
    for name in node.output:
        kind = types[name]
        if kind.dtype is None or kind.shape is None:
            raise GraphError(
                f"the rank of what {node.op_type} writes is not known; "
                "give the model's dynamic dimensions sizes"
            )
        results.append(StepTensor(name, kind.dtype, kind.shape))
    return tuple(results)


def _alone(
    node: onnx.NodeProto,
    inputs: Sequence[StepTensor | None],
    functions: Sequence[onnx.FunctionProto],
    opsets: Sequence[onnx.OperatorSetIdProto],
) -> onnx.ModelProto:
    """Return a model of one node, its constant inputs among the initializers."""
    present = {tensor.name: tensor for tensor in inputs if tensor is not None}
    graph = helper.make_graph(
        [node],
        "node",
        [info(tensor) for tensor in present.values() if tensor.value is None],
        [helper.make_empty_tensor_value_info(name) for name in node.output],
        [
            numpy_helper.from_array(tensor.value, name)
            for name, tensor in present.items()
            if tensor.value is not None
        ],
    )
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=IR_VERSION)
