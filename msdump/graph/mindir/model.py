"""A MindIR file as an ONNX model: each kernel one operator, under its name, with its inputs by slot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from msdump import dtypes
from msdump.dtypes import DType
from msdump.errors import GraphError, UnsupportedOpError
from msdump.graph import names, primitives
from msdump.graph.graph import MINDSPORE_DOMAIN, ValueType
from msdump.graph.kernel.emulation import FLOAT32
from msdump.graph.mindir.backend import KernelGraph, kernel_graphs
from msdump.graph.mindir.composites import composite
from msdump.graph.mindir.file import MindIR
from msdump.graph.mindir.kernels import ITEMS, PASSING, TUPLES, Constant, Kernel, Operand, Variable
from msdump.graph.operators import update_of
from msdump.graph.primitives import COMPUTED, SLOTS, Call, function
from msdump.plan import Context

OPSET: Final = 21
IR_VERSION: Final = 10
"""The first one with overloads of functions."""


class TranslatedModel:
    """An ONNX model of a MindIR file, and what the message does not hold.

    Attributes:
        message: The model without weights.
        weights: Arrays of its initializers by name.
        bindings: By weight that operators write, the value that it has after a run.
        returns: Names of the results in order; a value may be returned several times.
        declared: By value, the element type that files show, where the kernel holds another one.
        notes: Sentences on what the reader passed over.
    """

    def __init__(self, file: MindIR, context: Context) -> None:
        """Translate a file.

        Raises:
            GraphError: A file that does not fit together.
            UnsupportedOpError: An operator that cannot run here.
        """
        writer = _Writer(file)
        try:
            writer.add(kernel_graphs(file, context)[0])
        except RecursionError as error:
            raise GraphError("tuples are nested too deeply in each other") from error
        self.message = writer.model()
        self.weights = writer.weights
        self.bindings = writer.bindings
        self.declared = writer.declared
        self.returns = writer.returns
        self.notes = file.notes


class _Writer:
    def __init__(self, file: MindIR) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._functions: dict[tuple[str, str], onnx.FunctionProto] = {}
        self._constants: dict[tuple[bytes, str, tuple[int, ...]], str] = {}
        self._infos: list[onnx.ValueInfoProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[str] = []
        self._current: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self.weights = {name.rpartition(":")[2]: array for name, array in file.weights.items()}
        self.bindings: dict[str, str] = {}
        self.declared: dict[str, DType] = {}
        self.returns: tuple[str, ...] = ()

    def add(self, graph: KernelGraph) -> None:
        """Add the kernels of the main graph, its inputs and results."""
        self._inputs = [_info(each.name, each.type) for each in graph.nodes.inputs]
        for kernel in graph.kernels:
            self._add_kernel(kernel)
        results = [name for item in graph.results for name in self._returned(item)]
        self._outputs = list(dict.fromkeys(results))
        self.returns = tuple(results)

    def _returned(self, operand: Operand) -> list[str]:
        """Return the names of the values of a result; each number of a constant tuple is one of its own."""
        members = operand.value if isinstance(operand, Constant) else None
        if isinstance(operand, Kernel) and operand.op_type in TUPLES:
            return [name for item in operand.inputs for name in self._returned(item)]
        if isinstance(members, tuple):
            return [name for item in members for name in self._returned(Constant(item))]
        return self._values(operand)

    def model(self) -> onnx.ModelProto:
        """Return the model."""
        known = {each.name: each for each in self._infos}
        made = [
            known.pop(name) if name in known else helper.make_empty_tensor_value_info(name)
            for name in dict.fromkeys((*self._outputs, *self.bindings.values()))
        ]
        graph = helper.make_graph(self._nodes, "main", self._inputs, made, value_info=list(known.values()))
        return helper.make_model(
            graph,
            producer_name="MindSpore",
            ir_version=IR_VERSION,
            opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(MINDSPORE_DOMAIN, 1)],
            functions=list(self._functions.values()),
        )

    def _add_kernel(self, kernel: Kernel) -> None:
        operands = kernel.operands()
        slots = SLOTS.get(kernel.op_type, ())
        inputs: list[str] = []
        unlisted: list[str] = []
        for slot, item in enumerate(operands):
            is_read = kernel.shows_all or slot >= len(slots) or slots[slot].is_read or slots[0].is_repeated
            unlisted += [] if is_read else [str(slot)]
            inputs += self._values(item) if is_read or not isinstance(item, Constant) else [""]
        while inputs and not inputs[-1]:
            inputs.pop()
        outputs = [
            kernel.name if slot == 0 else f"{kernel.name}:{slot}" for slot in range(len(kernel.outputs))
        ]
        values = [item.value if isinstance(item, Constant) else COMPUTED for item in operands]
        types = [_on_device(item.type, _source(item)) for item in operands]
        results = [_on_device(kind, kernel) for kind in kernel.outputs]
        call = Call(kernel.op_type, inputs, values, types, results, kernel.attributes)
        node = self._node(kernel, call, outputs)
        node.name = kernel.name
        shown = {
            name: value for name, value in kernel.attributes.items() if not isinstance(value, np.ndarray)
        }
        texts = {names.FULL_NAME: kernel.name, names.LISTED_NAME: kernel.listed_name}
        if shown:
            texts[names.ARGUMENTS] = json.dumps(shown, default=str)
        if unlisted:
            texts[names.UNLISTED_INPUTS] = " ".join(unlisted)
        for key, text in texts.items():
            node.metadata_props.add(key=key, value=text)
        self._nodes.append(node)
        for name, kind, held in zip(outputs, kernel.outputs, results, strict=False):
            if kind is not None and held is not None:
                self._infos.append(_info(name, held))
                if held.dtype is not kind.dtype and kind.dtype is not None:
                    self.declared[name] = kind.dtype
        self._take_updates(operands, node)

    def _node(self, kernel: Kernel, call: Call, outputs: list[str]) -> onnx.NodeProto:
        plain = primitives.PLAIN.get(kernel.op_type)
        entry = primitives.OPERATORS.get(kernel.op_type) or composite(kernel)
        if plain is None and entry is None:
            raise UnsupportedOpError(
                f"{kernel.listed_name or kernel.name}: primitive {kernel.op_type} is not known; "
                "docs/reference/primitives.md lists those that run"
            )
        try:
            written = plain(call) if plain is not None else None
            if written is not None:
                op_type, attributes = written
                return helper.make_node(op_type, call.names, outputs, **attributes)
            assert entry is not None, f"{kernel.op_type} needs a body beside its ONNX operator"
            structure = call.structure(entry)
            wide = call.in_float32(entry)
            element = FLOAT32 if wide else call.element(entry)
            body = function(wide or entry, len(call.names), structure, element, OPSET, call.computed(entry))
        except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
            raise UnsupportedOpError(
                f"{kernel.name}: primitive {kernel.op_type} cannot run with these arguments: {error}"
            ) from error
        outputs += [f"{kernel.name}:{slot}" for slot in range(len(outputs), len(body.output))]
        del outputs[len(body.output) :]
        known = self._function(body)
        node = helper.make_node(
            known.name, call.names, outputs, domain=MINDSPORE_DOMAIN, overload=known.overload
        )
        for name, value in structure.items():
            kind = onnx.AttributeProto.INTS if value == () else None
            node.attribute.append(helper.make_attribute(name, value, attr_type=kind))
        return node

    def _function(self, body: onnx.FunctionProto) -> onnx.FunctionProto:
        """Return a function, or an equal one that is known; functions that differ have other overloads."""
        overload = body.overload
        for number in count(1):
            known = self._functions.setdefault((body.name, body.overload), body)
            if known is body or known.SerializeToString(deterministic=True) == body.SerializeToString(
                deterministic=True
            ):
                return known
            body.overload = f"{overload}_{number}"
        raise AssertionError

    def _take_updates(self, operands: Sequence[Operand], node: onnx.NodeProto) -> None:
        """Let later readers of a variable that a kernel writes read the new value."""
        if any(each.name == "is_training" and not each.i for each in node.attribute):
            return  # the moving statistics of an inference stay as they are
        for slot, output in update_of(node.op_type, node.domain).new_values.items():
            variable = _source(operands[slot]) if slot < len(operands) else None
            if isinstance(variable, Variable) and output < len(node.output):
                self._current[variable.name] = node.output[output]
                if variable.name in self.weights:
                    self.bindings[variable.name] = node.output[output]

    def _values(self, operand: Operand, index: int | None = None) -> list[str]:
        """Return the names of the values that an operand is: several for a tuple, "" for no tensor."""
        if isinstance(operand, Variable):
            return [self._current.get(operand.name, operand.name)]
        if isinstance(operand, Constant):
            array = operand.array()
            return ["" if array is None else self._constant(array)]
        if operand.op_type in PASSING:
            return self._values(operand.inputs[0], index)
        if operand.op_type in ITEMS:
            place = operand.inputs[1]
            if not isinstance(place, Constant) or not isinstance(place.value, int):
                raise UnsupportedOpError(f"{operand.front_name}: the index of a tuple is computed")
            return self._values(operand.inputs[0], place.value)
        if operand.op_type in TUPLES:
            members = operand.inputs if index is None else operand.inputs[index : index + 1]
            return [name for item in members for name in self._values(item)]
        if not operand.runs:
            raise UnsupportedOpError(f"{operand.front_name}: {operand.op_type} is read as a tensor")
        places = range(len(operand.outputs)) if index is None else (index,)
        return [operand.name if place == 0 else f"{operand.name}:{place}" for place in places]

    def _constant(self, array: np.ndarray) -> str:
        key = (array.tobytes(), array.dtype.str, array.shape)
        if key not in self._constants:
            name = self._constants[key] = f"constant_{len(self._constants)}"
            tensor = numpy_helper.from_array(array, name)
            self._nodes.append(helper.make_node("Constant", [], [name], name=name, value=tensor))
        return self._constants[key]


def _source(operand: Operand) -> Operand:
    """Return the weight, input or kernel that an operand is behind nodes that only order or pick."""
    while isinstance(operand, Kernel) and operand.op_type in PASSING | ITEMS:
        operand = operand.inputs[0]
    return operand


def _on_device(kind: ValueType | None, source: Operand) -> ValueType | None:
    """Return the type in which a kernel holds an output of a declared type."""
    device = source.device if isinstance(source, Kernel) else None
    if kind is None or device is None or kind.dtype is not dtypes.from_name("float16"):
        return kind
    return replace(kind, dtype=device)


def _info(name: str, kind: ValueType | None) -> onnx.ValueInfoProto:
    if kind is None or kind.dtype is None:
        return helper.make_empty_tensor_value_info(name)
    return helper.make_tensor_value_info(name, kind.dtype.onnx, kind.shape)
