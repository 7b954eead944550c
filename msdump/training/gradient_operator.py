"""ONNX's own way to ask for gradients: the operator Gradient in the algorithm of ``training_info``.

    Gradient(x, w) <xs = ["w"], zs = ["x"], y = "loss"> -> (dloss_dw)

No runtime derives them; this module writes them into the step: forward operators, gradients where the
operator stands, and what the algorithm does with them, as one graph in the plain form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, shape_inference

from msdump.errors import GraphError
from msdump.graph import Graph, Node, loader, training_info
from msdump.training.files import OLDEST_OPSET, Model, converted, whole_message
from msdump.training.forward import ForwardWriter
from msdump.training.rules import BackwardPass
from msdump.training.writer import ROOT, StepTensor, StepWriter

_GRADIENT: Final = ("ai.onnx.preview.training", "Gradient")


def expanded(model: Model) -> onnx.ModelProto:
    """Return a model whose algorithm asks for gradients as a training step that has them as operators.

    Args:
        model: A path, an ``onnx.ModelProto``, or a serialised one, with one entry in ``training_info``.

    Raises:
        GraphError: The model is faulty, or a Gradient asks for what its graph does not have.
        UnsupportedOpError: An operator without a gradient rule; it is named with scope and source line.
    """
    message = whole_message(model)
    (training,) = message.training_info
    step = training_info.followed(message, training.algorithm)
    _declare_gradients(step)
    graph = loader.load(converted(step))
    bindings = {entry.key: entry.value for entry in training.update_binding}
    writer = StepWriter(max(graph.opsets.get("", 0), OLDEST_OPSET), batch_statistics=False)
    result = _Expansion(graph, writer, tuple(bindings)).model(bindings)
    result.training_info[0].initialization.CopyFrom(training.initialization)
    result.training_info[0].initialization_binding.extend(training.initialization_binding)
    return result


def _declare_gradients(step: onnx.ModelProto) -> None:
    """Declare the outputs of every Gradient, which have the types of what it differentiates by."""
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


class _Expansion:
    """One step under construction."""

    def __init__(self, graph: Graph, writer: StepWriter, variables: Sequence[str]) -> None:
        self._graph = graph
        self._op = writer
        self._forward = ForwardWriter(graph, writer, variables, {})

    def model(self, bindings: dict[str, str]) -> onnx.ModelProto:
        """Write the whole step."""
        for node in self._graph.nodes:
            if (node.domain, node.op_type) == _GRADIENT:
                self._derive(node)
            else:
                self._forward.lower(node, ROOT)
        tensor = self._forward.tensor
        self._op.bindings |= {name: tensor(value) for name, value in bindings.items()}
        bound = set(bindings.values())
        results = [tensor(value.name) for value in self._graph.outputs if value.name not in bound]
        return self._forward.assembled(results)

    def _derive(self, node: Node) -> None:
        """Write the gradients that a Gradient asks for; its outputs become theirs."""
        names = _texts(node, "xs")
        loss_name = str(node.attributes.get("y", ""))
        self._check(node, (*names, *_texts(node, "zs")), loss_name)
        loss = self._forward.tensor(loss_name)
        backward = BackwardPass(self._op, tuple(self._op.operators), names)
        backward.run(loss, self._op.constant(np.ones(loss.sizes(), loss.dtype.numpy)))
        for name, output in zip(names, node.outputs, strict=False):
            if output:
                tensor = self._forward.tensor(name)
                self._forward.alias(output, backward.gradient(tensor) or self._zeros(tensor))

    def _check(self, node: Node, names: Sequence[str], loss: str) -> None:
        """Refuse a Gradient that is to be taken elsewhere than where the graph has been."""
        title = node.operator.full_name
        missing = [name for name in (*names, loss) if name not in self._op.types]
        if missing:
            raise GraphError(f"{title}: no value {', '.join(map(repr, missing))} stands before it")
        if tuple(node.inputs) != tuple(names):
            raise GraphError(
                f"{title}: its inputs {list(node.inputs)} are not the values {list(names)} of xs and zs; "
                "gradients are taken where the graph itself has been"
            )

    def _zeros(self, tensor: StepTensor) -> StepTensor:
        """Return the gradient of a value that the loss does not depend on."""
        return self._op.constant(np.zeros(tensor.sizes(), tensor.dtype.numpy))


def _texts(node: Node, attribute: str) -> tuple[str, ...]:
    """Return an attribute of texts, empty where it is not there."""
    texts: Any = node.attributes.get(attribute, ())
    return tuple(map(str, texts))
