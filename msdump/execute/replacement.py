"""Outputs of operators that a run replaces by tensors of the caller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from msdump import dtypes
from msdump.device import Ascend, held_type, numpy_cast
from msdump.errors import FormatError, InputError
from msdump.execute import values
from msdump.execute.program import Replaced
from msdump.graph import Graph, Value, ValueType
from msdump.read import describe_miss, find_operators
from msdump.record import IO


class Replaceable:
    """The outputs of a network that tensors can replace, by the names of their operators."""

    def __init__(self, graph: Graph, device: Ascend | None) -> None:
        """Take the operators of a network, of the device's graph where there is a device."""
        self._graph = graph if device is None else device.graph
        self._device = device
        self._nodes = {node.operator.full_name: node for inner in self._graph.walk() for node in inner.nodes}
        self._names = {
            full_name: {node.name, *(n for part in node.parts for n in (part.name, part.operator.full_name))}
            for full_name, node in self._nodes.items()
        }

    def find(self, name: str) -> tuple[int, int]:
        """Return operator position and output number of OPERATOR[:NUMBER]; InputError unless there is one."""
        graph, nodes, known = self._graph, self._nodes, self._names
        found, asked, slot = find_operators(name, known), name, 0
        head, _, number = name.rpartition(":")
        if not found and head and number.isdecimal():
            found, asked, slot = find_operators(head, known), head, int(number)
        if len(found) != 1:
            raise InputError(f"{graph.source}: replace: {describe_miss(asked, known, found)}")
        node, where = nodes[found[0]], f"{graph.source}: replace {name!r}: {found[0]}"
        if any(asked in {part.name, part.operator.full_name} for part in node.parts[:-1]):
            raise InputError(f"{where} is fused of it and others, and has the output of the last one alone")
        position = next((place for place, each in enumerate(graph.nodes) if each is node), None)
        if position is None:
            raise InputError(
                f"{where} is inside of a branch or loop, where each pass has tensors of its own;"
                " replace an output of the whole branch or loop"
            )
        if slot >= len(node.declared_outputs) or not node.outputs[slot]:
            there = [str(number) for number, output in enumerate(node.declared_outputs) if output]
            raise InputError(f"{where} has no output {slot}; it has output {', '.join(there) or 'none'}")
        return position, slot

    def type_of(self, name: str) -> ValueType:
        """Return the type of the output of a name, as ``find`` takes it."""
        position, slot = self.find(name)
        return self._graph.shown_type(self._graph.nodes[position].outputs[slot])

    def checked(self, tensors: Mapping[str, Any]) -> Replaced:
        """Return tensors, by names as for ``find``, as the device holds them; InputError for unfit ones."""
        replaced: dict[int, dict[int, Any]] = {}
        for name, item in tensors.items():
            position, slot = self.find(name)
            value = self._graph.nodes[position].outputs[slot]
            kind, shown = self._graph.type_of(value), self._graph.shown_type(value)
            try:
                given = item if shown.kind == "tensor" else np.asarray(item)
                array = values.checked(Value(value, shown), given, {})
                array = array if kind is shown or kind.dtype is None else array.astype(kind.dtype.numpy)
                host = dtypes.from_numpy(array.dtype)
            except (InputError, FormatError) as error:
                raise InputError(f"{self._graph.source}: replace {name!r}: {error}") from error
            placed = None if self._device is None else self._device.tensor(position, IO.OUTPUT, slot)
            if self._device is not None and placed is not None:
                array = numpy_cast(self._device.held(array, held_type(placed.dtype, host)), host)
            outputs = replaced.setdefault(position, {})
            if slot in outputs:
                raise InputError(f"{self._graph.source}: replace {name!r}: the output is given twice")
            outputs[slot] = values.owned(array)
        return replaced
