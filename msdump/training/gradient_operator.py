"""ONNX's operator Gradient in the algorithm of ``training_info``, written out as the gradients' operators.

    Gradient(x, w) <xs = ["w"], zs = ["x"], y = "loss"> -> (dloss_dw)

No runtime has the operator. The result is one graph in the plain form: forward operators, gradients in the
operator's place, and the rest of the algorithm.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, shape_inference

from msdump.errors import GraphError
from msdump.graph import Node, loader, training_info
from msdump.training.files import OLDEST_OPSET, Model, converted, whole_message
from msdump.training.forward import ForwardWriter
from msdump.training.rules import BackwardPass
from msdump.training.tape import op, writing
from msdump.training.writer import StepWriter

_GRADIENT: Final = ("ai.onnx.preview.training", "Gradient")


def expanded(model: Model) -> onnx.ModelProto:
    """Return the training step of a model with the operator Gradient in its algorithm.

    Args:
        model: A path, an ``onnx.ModelProto``, or a serialised one, with one entry in ``training_info``.

    Raises:
        GraphError: The model is faulty, or a Gradient names a value that its graph does not have.
        UnsupportedOpError: An operator without a gradient rule; it is named with scope and source line.
    """
    message = whole_message(model)
    (training,) = message.training_info
    step = training_info.step_message(message, training.algorithm)
    _declare_gradients(step)
    graph = loader.load(converted(step))
    bindings = {entry.key: entry.value for entry in training.update_binding}
    with writing(StepWriter(max(graph.opsets.get("", 0), OLDEST_OPSET), batch_statistics=False)):
        forward = ForwardWriter(graph, tuple(bindings), {})
        for node in graph.nodes:
            if (node.domain, node.op_type) == _GRADIENT:
                _write_gradients(forward, node)
            else:
                forward.lower(node)
        op.bindings |= {name: forward.tensor(value) for name, value in bindings.items()}
        bound = set(bindings.values())
        result = forward.assembled(
            [forward.tensor(each.name) for each in graph.outputs if each.name not in bound]
        )
    result.training_info[0].initialization.CopyFrom(training.initialization)
    result.training_info[0].initialization_binding.extend(training.initialization_binding)
    return result


def _declare_gradients(step: onnx.ModelProto) -> None:
    """Declare the outputs of every Gradient: each has the type of the value in its slot of ``xs``."""
    graph = shape_inference.infer_shapes(step, data_prop=True).graph
    types = {value.name: value.type for value in (*graph.input, *graph.value_info, *graph.output)}
    for tensor in graph.initializer:
        types[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
    for node in step.graph.node:
        if (node.domain, node.op_type) != _GRADIENT:
            continue
        names = next((entry.strings for entry in node.attribute if entry.name == "xs"), ())
        step.graph.value_info.extend(
            helper.make_value_info(output, types[name.decode()])
            for name, output in zip(names, node.output, strict=False)
            if output and name.decode() in types
        )


def _write_gradients(forward: ForwardWriter, node: Node) -> None:
    """Write the gradients that a Gradient stands for; its outputs become theirs."""
    names, loss_name = _texts(node, "xs"), str(node.attributes.get("y", ""))
    read, title = (*names, *_texts(node, "zs")), node.operator.full_name
    missing = [name for name in (*read, loss_name) if name not in op.types]
    if missing:
        raise GraphError(f"{title}: no value {', '.join(map(repr, missing))} stands before it")
    if tuple(node.inputs) != read:
        raise GraphError(
            f"{title}: its inputs {list(node.inputs)} are not the values {list(read)} of xs and zs; "
            "gradients are taken where the graph itself has been"
        )
    loss = forward.tensor(loss_name)
    backward = BackwardPass(names)
    backward.run(loss, op.constant(np.ones(loss.sizes(), loss.dtype.numpy)))
    for name, output in zip(names, node.outputs, strict=False):
        if output:
            tensor = forward.tensor(name)
            gradient = backward.gradient(tensor)
            if gradient is None:  # the loss does not depend on it
                gradient = op.constant(np.zeros(tensor.sizes(), tensor.dtype.numpy))
            forward.alias(output, gradient)


def _texts(node: Node, attribute: str) -> tuple[str, ...]:
    texts: Any = node.attributes.get(attribute, ())
    return tuple(map(str, texts))
