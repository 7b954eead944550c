"""Converts operators of opsets before 7, for which the runtime has few kernels, to opset 7."""

from __future__ import annotations

from typing import Final

import onnx
from onnx import helper, version_converter

OLDEST_OPSET: Final = 7
"""The oldest opset that the runtime guarantees."""

_BROADCASTING: Final = frozenset(
    {"Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor"}
)


def modern(data: bytes) -> bytes:
    """Return a one-node model of an old opset as a model of opset 7.

    Args:
        data: The model; its inputs and initializers have shapes.

    Raises:
        Exception: The operator has no counterpart that the converter knows.
    """
    model = onnx.ModelProto.FromString(data)
    node = model.graph.node[0]
    if node.op_type in _BROADCASTING:
        _broadcast(model, node)
    else:
        model = version_converter.convert_version(model, OLDEST_OPSET)
        del model.graph.value_info[:]  # the converter leaves types open there
    return bytes(model.SerializeToString())


def _broadcast(model: onnx.ModelProto, node: onnx.NodeProto) -> None:
    """Insert an Unsqueeze that aligns the second operand at the ``axis`` of opset 6 and before."""
    attributes = {attribute.name: attribute.i for attribute in node.attribute}
    ranks = _ranks(model.graph)
    left, right = (ranks[name] for name in node.input)
    # axes of the first operand behind those of the second; since opset 7 shapes are aligned at their ends
    behind = left - right - attributes.get("axis", left - right)
    # axis and broadcast are gone in opset 7
    del node.attribute[:]
    if attributes.get("broadcast") and behind > 0:
        axes = list(range(right, right + behind))
        model.graph.node.insert(0, helper.make_node("Unsqueeze", [node.input[1]], ["aligned"], axes=axes))
        model.graph.node[1].input[1] = "aligned"
    for opset in model.opset_import:
        if not opset.domain:
            opset.version = OLDEST_OPSET


def _ranks(graph: onnx.GraphProto) -> dict[str, int]:
    fed = {value.name: len(value.type.tensor_type.shape.dim) for value in graph.input}
    return fed | {tensor.name: len(tensor.dims) for tensor in graph.initializer}
