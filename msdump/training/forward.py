"""A model's graph written as the forward part of a step graph, and the model that comes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from msdump import dtypes
from msdump.errors import GraphError, InputError, UnsupportedOpError, name_hint
from msdump.graph import Graph, Node, names, rename_values
from msdump.graph.primitives import op
from msdump.training import operators  # noqa: F401 - they fill the tables
from msdump.training.losses import Loss
from msdump.training.mixed_precision import Layers, MixedPrecision
from msdump.training.operators.dense import dense_layers
from msdump.training.rules import lower
from msdump.training.writer import (
    IR_VERSION,
    WITH_LOSS,
    Place,
    StepOperator,
    StepTensor,
    absent_slots,
    backbone,
    info,
    place_of,
)

Slots = Mapping[str, tuple[int, ...]]

_STATE: Final[Slots] = {
    "BatchNormalization": (3, 4),  # moving statistics
    "RotaryEmbedding": (1, 2),  # cosines and sines
    "Attention": (3,),  # the mask
}
"""State and tables of operators, which have no gradient."""

_SETTINGS: Final[Slots] = {"Dropout": (1,), "Resize": (1, 2)}
"""Floating-point numbers of the program: scales of Resize, ratios."""

_SCALES_AND_SHIFTS: Final[Slots] = {
    "BatchNormalization": (1, 2),
    "InstanceNormalization": (1, 2),
    "LayerNormalization": (1, 2),
    "GroupNormalization": (1, 2),
    "RMSNormalization": (1,),
}


def scales_and_shifts(graph: Graph) -> frozenset[str]:
    """Return the weights that are scale or shift of a normalisation.

    MindSpore finds them by ``gamma`` or ``beta`` in names. PyTorch's names are ``bn1.weight``, ``bn1.bias``:
    weights in the slots of scale and shift count as well.
    """
    named = {name for name in graph.weights if "gamma" in name or "beta" in name}
    return _values_in_slots(graph, _SCALES_AND_SHIFTS) | named


def _values_in_slots(graph: Graph, slots: Slots) -> frozenset[str]:
    return frozenset(
        name
        for node in graph.nodes
        for slot in slots.get(node.op_type, ())
        for name in node.inputs[slot : slot + 1]
        if name
    )


def infer_outputs(
    node: Node, inputs: Sequence[StepTensor | None], names: Sequence[str]
) -> tuple[StepTensor, ...]:
    """Return the typed outputs of an operator, inferred from its inputs; GraphError for an unknown rank."""
    if node.op_type == "GroupNormalization" and not node.domain and inputs[0] is not None:
        return (replace(inputs[0], name=names[0], value=None),)  # a function, which ONNX does not infer
    if node.domain:
        raise GraphError(
            f"{node.operator.full_name}: the output of {node.domain}.{node.op_type} has an unknown type, "
            "but gradients need it; declare it in the model's value_info"
        )
    given = ["" if item is None else item.name for item in inputs]
    attributes: dict[str, Any] = dict(node.attributes)
    alone = helper.make_node(node.op_type, given, list(names), domain=node.domain, **attributes)
    return op.infer(alone, inputs)


class ForwardWriter:
    """Writes a model's operators into the step graph, in the form that they have in a training step."""

    def __init__(self, graph: Graph, trainable: Sequence[str] | None, names: Sequence[str]) -> None:
        """Declare inputs and weights, and reserve the names of all values of the model."""
        self.inputs: list[StepTensor] = []  # inputs of the step so far
        self.weights: dict[str, np.ndarray] = {}  # its initializers so far, by name
        self._graph = graph
        self._trainable = trainable
        op.reserve(name for node in graph.nodes for name in node.outputs)
        op.reserve(graph.weights)
        self._renamed = {
            value.name: name if name == value.name else op.free_name(name)
            for value, name in zip(graph.inputs, names, strict=False)
        }
        for value in graph.inputs:
            self.input(self._typed(value.name))
        settings = _values_in_slots(graph, _SETTINGS)
        for name, array in graph.weights.items():
            tensor = StepTensor(name, dtypes.from_numpy(array.dtype), array.shape)
            # axes, limits, ... are constants of the computation, no parameters
            is_number = name in graph.constants or not tensor.is_float or array.ndim == 0
            is_constant = name in settings or (is_number and name not in (trainable or ()))
            tensor = replace(tensor, value=array if is_constant else None)
            op.declare(tensor)
            if not is_constant:
                self.weights[name] = array

    def input(self, tensor: StepTensor) -> StepTensor:
        """Add an input."""
        self.inputs.append(op.declare(tensor))
        return tensor

    def network(self, layers: Layers) -> tuple[StepTensor, ...]:
        """Write all operators in the scope of a training cell; return the outputs, the first in float32."""
        around = backbone(self._graph)
        inputs = [item.name for item in self.inputs]
        precision = MixedPrecision(layers, around, inputs, self.weights)
        for operator in self._operators(around):
            if layers:
                precision.write(operator)
            else:
                with op.at(operator.place):
                    lower(operator)
        precision.check()
        first, *others = (self.tensor(value.name) for value in self._graph.outputs)
        return (precision.loss_input(first) if layers else first), *others

    def loss(self, loss: Loss, output: StepTensor, label: str) -> StepTensor:
        """Write a loss of the network's output, with labels as an input of that name; return it."""
        labels = output
        if loss.label is not None:
            dtype, shape = loss.label(output)
            labels = self.input(StepTensor(op.free_name(label), dtype, shape))
        with op.at(WITH_LOSS.inside(("_loss_fn", loss.cell))):
            return loss.write(output, labels)

    def _operators(self, around: Place) -> Iterator[StepOperator]:
        """Yield the operators of the model one by one: the inputs of each must be written before."""
        layers = dense_layers(self._graph)
        parts = {part.name for layer in layers.values() for part in layer.parts}
        for node in self._graph.nodes:
            if node.name in layers:
                layer = layers[node.name]
                operator = self._operator(node, layer.inputs, place_of(layer.product, around))
                attributes = {"transB": int(layer.is_transposed)}
                yield replace(operator, op_type="Gemm", primitive="Dense", attributes=attributes)
            elif node.name not in parts:
                yield self._operator(node, node.inputs, place_of(node, around))

    def _operator(self, node: Node, inputs: Sequence[str], place: Place) -> StepOperator:
        if node.bodies:
            raise UnsupportedOpError(
                f"{node.operator.full_name}: {node.op_type}, a branch or loop, has no gradient rule"
                f"{place.source}; export the model for one case, with loops unrolled"
            )
        tensors = tuple(self.tensor(name) if name else None for name in inputs)
        return StepOperator(
            node.name,
            node.op_type,
            node.domain,
            node.operator.op_type,
            tensors,
            self._outputs(node, tensors),
            node.attributes,
            place,
            absent_slots(node.outputs),
        )

    def _outputs(self, node: Node, inputs: Sequence[StepTensor | None]) -> tuple[StepTensor, ...]:
        names = [name for name in node.outputs if name]
        types = [self._graph.type_of(name) for name in names]
        if any(kind.dtype is None or kind.shape is None for kind in types):
            return infer_outputs(node, inputs, names)
        return tuple(self._typed(name) for name in names)

    def tensor(self, name: str) -> StepTensor:
        """Return the step's tensor for a value of the model; its operator must be written before."""
        return op.types[self._renamed.get(name, name)]

    def _typed(self, name: str) -> StepTensor:
        kind = self._graph.type_of(name)
        if kind.dtype is None or kind.shape is None:
            raise GraphError(
                f"{self._graph.source}: type and rank of value {name!r} are unknown, but "
                "gradients need them; "
                "declare it in the model's value_info"
            )
        return StepTensor(self._renamed.get(name, name), kind.dtype, kind.shape)

    def parameters(self) -> list[StepTensor]:
        """Return the trained parameters in the order of initializers; InputError for a name that is none."""
        state = _values_in_slots(self._graph, _STATE)
        candidates = {
            name: op.types[name] for name in self.weights if op.types[name].is_float and name not in state
        }
        if self._trainable is None:
            return list(candidates.values())
        unknown = [name for name in self._trainable if name not in candidates]
        if unknown:
            raise InputError(
                f"{self._graph.source}: no such parameters: {', '.join(unknown)}; there are "
                f"{', '.join(candidates)}"
            )
        return [tensor for name, tensor in candidates.items() if name in self._trainable]

    def state(self, name: str, array: np.ndarray, *, is_input: bool = False) -> StepTensor:
        """Add an initializer, or an input with this default; a name in use gets a number."""
        own = op.free_name(name)
        self.weights[own] = array
        tensor = op.declare(StepTensor(own, dtypes.from_numpy(array.dtype), array.shape))
        # an initializer that is listed as an input, too, is that input's default
        return self.input(tensor) if is_input else tensor

    def _no_variable(self, name: str) -> str:
        """Say why a value cannot have a new value after a step, and the remedy."""
        if name in _values_in_slots(self._graph, _STATE):
            return (
                f"{name!r}, a moving statistic, is not an initializer, and only initializers have new values "
                "after a step; make it an initializer, or set batch_statistics=False"
            )
        return (
            f"the step gives {name!r} a new value, but has no variable of this name"
            f"{name_hint(name, self.weights)}; use the names of the tensors that state() "
            "returns: a name of the "
            "model gets a number"
        )

    def assembled(self, results: Sequence[StepTensor]) -> onnx.ModelProto:
        """Return the model of the step; the new values of variables follow the results."""
        outputs = [*map(info, results), *(info(value) for value in op.bindings.values())]
        written = {value.name for value in outputs}
        op.nodes = _with_merged_sums(_with_merged_gradients(op.nodes), written)
        read = set(_names_read(op.nodes))
        constants = [
            helper.make_node(
                "Constant",
                [],
                [name],
                name=name,
                value=numpy_helper.from_array(np.ascontiguousarray(item.value).reshape(item.value.shape)),
            )
            for name, item in op.types.items()
            if item.value is not None and name in read
        ]
        graph = helper.make_graph(
            [*constants, *op.nodes],
            self._graph.name or "step",
            [info(tensor) for tensor in self.inputs],
            outputs,
            value_info=[info(tensor) for tensor in op.results() if tensor.name not in written],
        )
        others = (
            helper.make_opsetid(domain, version) for domain, version in self._graph.opsets.items() if domain
        )
        model = helper.make_model(
            graph,
            opset_imports=[*op.opsets(), *others],
            functions=[*op.functions.values(), *self._graph.proto.functions],
            ir_version=max(self._graph.ir_version, IR_VERSION),
            producer_name="msdump",
        )
        # added last: make_model copies the graph, and weights would be copied with it
        for name, array in self.weights.items():
            tensor = model.graph.initializer.add()
            if array.dtype.kind not in "fiub" or array.dtype.byteorder == ">":
                tensor.CopyFrom(numpy_helper.from_array(array, name))
            else:
                tensor.name = name
                tensor.data_type = dtypes.from_numpy(array.dtype).onnx
                tensor.dims.extend(array.shape)
                tensor.raw_data = array.tobytes()
        if op.bindings:
            model.training_info.add()
        for name, value in op.bindings.items():
            if name not in self.weights:
                raise GraphError(f"{self._graph.source}: {self._no_variable(name)}")
            model.training_info[0].update_binding.add(key=name, value=value.name)
        return model


def _names_read(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    """Yield the names of all values that nodes read, in their bodies as well."""
    for node in nodes:
        yield from node.input
        for attribute in node.attribute:
            yield from _names_read(attribute.g.node)


_LATER: Final = frozenset({"Cast", "OnesLike"})
"""Operators that MindSpore adds behind this pass: casts of kernels, ones of BCEWithLogitsLoss."""


def _with_merged_gradients(nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Return nodes without gradient operators that have type, attributes and inputs of an earlier one.

    Such are the gradients of two biases that are added to one tensor. Their readers read the earlier results.
    """
    kept, first = [], dict[bytes, onnx.NodeProto]()
    merged: dict[str, str] = {}
    for node in nodes:
        rename_values(node, merged)
        scope = names.metadata_of(node)[names.ONNXSCRIPT + "name_scopes"]
        if node.op_type in _LATER or not scope.startswith("['Gradients'"):
            kept.append(node)
            continue
        alike = onnx.NodeProto()
        alike.CopyFrom(node)
        for other in ("name", "output", "metadata_props"):
            alike.ClearField(other)
        earlier = first.setdefault(alike.SerializeToString(), node)
        if earlier is node:
            kept.append(node)
        else:
            merged.update(zip(node.output, earlier.output, strict=True))
    return kept


def _with_merged_sums(nodes: Sequence[onnx.NodeProto], outputs: Iterable[str]) -> list[onnx.NodeProto]:
    """Return nodes without each sum that one other sum alone reads, which has its operands instead.

    MindSpore's pass over AddN looks at the first operand of a sum and at the last one.
    """
    reads = Counter([*_names_read(nodes), *outputs])
    sums = {node.output[0]: node for node in nodes if node.op_type == "Sum" and not node.domain}
    merged = set()
    for node in sums.values():
        for place in (0, -1):
            name = node.input[place]
            if name in sums and reads[name] == 1:
                merged.add(name)
                operands = list(node.input)
                operands[operands.index(name) : operands.index(name) + 1] = sums[name].input
                node.input[:] = operands
    return [node for node in nodes if node.op_type != "Sum" or node.output[0] not in merged]
