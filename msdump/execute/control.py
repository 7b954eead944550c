"""The values of one run, and control flow: If, Loop and Scan with bodies that run operator by operator.

A body is a program of its own. Each run of a body has a new frame (a list with a slot for each value), into
which the captured values of outer graphs and the inputs from control flow are copied.
Results equal the results of onnxruntime's own If, Loop and Scan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np

from msdump import dtypes
from msdump.errors import ExecutionError
from msdump.execute import values
from msdump.execute.runtime import OrtValue
from msdump.execute.weights import WeightStore
from msdump.graph import LOOP_HEAD, Graph, Node, reads
from msdump.observer import Array, Observer

if TYPE_CHECKING:
    from msdump.execute.program import Program

Frame = list[OrtValue | None]
"""The values of one run of a program, by slot."""

Control = Callable[[Frame, Observer | None], Sequence[OrtValue | None]]
"""Runs a control flow node in the frame around it; gives all of its outputs in order."""

_REVERSED: Final = 1  # a direction of Scan
_BOOL: Final = np.dtype(np.bool_)
_INT64: Final = np.dtype(np.int64)


class RunnableBody:
    """A body that runs on values in the frames of the enclosing program."""

    def __init__(self, program: Program, around: Mapping[str, int]) -> None:
        graph, slots = program.graph, program.slots
        self._program = program
        # Captured values that only folded operators read have no slot any more.
        self._captured = tuple((around[name], slots[name]) for name in graph.outer & slots.keys())
        self._inputs = tuple(slots[value.name] for value in graph.inputs if value.name not in graph.outer)
        self.ranks = tuple(
            len(value.type.shape or ()) for value in graph.inputs if value.name not in graph.outer
        )

    def run(self, frame: Frame, inputs: Sequence[OrtValue | None], observer: Observer | None) -> Frame:
        """Run the body once; return its outputs."""
        program = self._program
        # at each run: the observer of a body belongs to one run of the enclosing graph
        inner = None if observer is None else observer.enter(program.graph)
        own_frame = program.frame()
        for source, target in self._captured:
            if frame[source] is not None:  # else a weight that the body's program has itself
                own_frame[target] = frame[source]
        for target, value in zip(self._inputs, inputs, strict=True):
            own_frame[target] = value
        program.execute(own_frame, inner)
        return program.results(own_frame)


@dataclass(frozen=True, slots=True)
class Site:
    """A control flow node with its bodies, and access to the enclosing program."""

    node: Node
    bodies: Mapping[str, RunnableBody]  # its bodies by attribute
    # returns a value of the frame by its name; None for an absent one
    read: Callable[[str, Frame], OrtValue | None]
    # runs the node as one operator of the runtime; gives all of its outputs
    whole: Callable[[Frame], Sequence[OrtValue | None]]

    def scalar(self, value: OrtValue | None, dtype: np.dtype, role: str) -> Any:
        """Return the one element of a tensor; ExecutionError if there are others, or it has another type."""
        array = values.to_python(value)
        if not isinstance(array, np.ndarray) or array.dtype != dtype:
            self.fail(f"{role} is not a tensor of {dtypes.from_numpy(dtype).name}")
        if array.size != 1:
            self.fail(f"{role} has {array.size} elements; must have exactly one")
        return array.item()

    def fail(self, reason: str) -> NoReturn:
        """Raise an ExecutionError that names the node."""
        raise ExecutionError(self.node.operator.full_name, reason)


def control(site: Site) -> Control:
    """Return the function that runs a control flow node."""
    return _CONTROLS[site.node.op_type](site)


class _If:
    def __init__(self, site: Site) -> None:
        self._site = site

    def __call__(self, frame: Frame, observer: Observer | None) -> Frame:
        site = self._site
        condition = site.scalar(site.read(site.node.inputs[0], frame), _BOOL, "its condition")
        return site.bodies["then_branch" if condition else "else_branch"].run(frame, (), observer)


class _Loop:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._body = site.bodies["body"]
        self._limit, self._condition = (*site.node.inputs, "", "")[:LOOP_HEAD]
        self._carried = site.node.inputs[LOOP_HEAD:]
        self._stacked = tuple(
            slot for slot, name in enumerate(site.node.outputs) if name and slot >= len(self._carried)
        )

    def __call__(self, frame: Frame, observer: Observer | None) -> Frame:
        limit, condition = self._start(frame)
        carried: Frame = [self._site.read(name, frame) for name in self._carried]
        rows: dict[int, Frame] = {slot: [] for slot in self._stacked}
        number, goes_on = 0, self._holds(condition)
        while goes_on and (limit is None or number < limit):
            # ONNX allows a counter of rank 0 or 1: the rank that the body declares
            counter = values.number(number, self._body.ranks[0])
            next_condition, *outputs = self._body.run(frame, [counter, condition, *carried], observer)
            carried = outputs[: len(carried)]
            for slot, row in rows.items():
                row.append(outputs[slot])
            if next_condition is not condition:  # unchanged if the body returns its condition input
                condition, goes_on = next_condition, self._holds(next_condition)
            number += 1
        if number == 0 and rows:  # no iteration: the runtime gives empty outputs
            return [*carried, *self._site.whole(frame)[len(carried) :]]
        return _joined(carried, {slot: _stacked(self._site, slot, row, 0) for slot, row in rows.items()})

    def _start(self, frame: Frame) -> tuple[int | None, OrtValue]:
        limit = None
        if self._limit:
            limit = self._site.scalar(self._site.read(self._limit, frame), _INT64, "its number of iterations")
        if self._condition:
            return limit, self._site.read(self._condition, frame)
        return limit, values.owned(np.full((1,) * self._body.ranks[1], fill_value=True))

    def _holds(self, condition: OrtValue | None) -> bool:
        return bool(self._site.scalar(condition, _BOOL, "its condition"))


class _Scan:
    def __init__(self, site: Site) -> None:
        node = site.node
        self._site = site
        self._body = site.bodies["body"]
        count: Any = node.attributes["num_scan_inputs"]
        states = len(node.inputs) - count
        self._states, self._inputs = node.inputs[:states], node.inputs[states:]
        self._stacked = tuple(slot for slot, name in enumerate(node.outputs) if name and slot >= states)
        self._input_ways = _axes_and_directions(node, "input", len(self._inputs))
        output_ways = _axes_and_directions(node, "output", len(node.outputs) - states)
        self._output_ways = {slot: output_ways[slot - states] for slot in self._stacked}

    def __call__(self, frame: Frame, observer: Observer | None) -> Frame:
        states: Frame = [self._site.read(name, frame) for name in self._states]
        tables = [
            self._rows(name, frame, axis, direction)
            for name, (axis, direction) in zip(self._inputs, self._input_ways, strict=True)
        ]
        lengths = {len(table) for table in tables}
        if len(lengths) != 1:
            self._site.fail(f"its inputs have {' and '.join(map(str, sorted(lengths)))} rows")
        (length,) = lengths
        rows: dict[int, Frame] = {slot: [] for slot in self._stacked}
        for number in range(length):
            slices = [values.owned(table[number, ...]) for table in tables]
            outputs = self._body.run(frame, [*states, *slices], observer)
            states = outputs[: len(states)]
            for slot, row in rows.items():
                row.append(outputs[slot])
        if length == 0 and rows:  # no iteration: the runtime gives empty outputs
            return [*states, *self._site.whole(frame)[len(states) :]]
        return _joined(states, {slot: self._output(slot, row) for slot, row in rows.items()})

    def _rows(self, name: str, frame: Frame, axis: int, direction: int) -> np.ndarray:
        """Return an input of Scan with the scanned axis first, reversed if the direction is."""
        array = values.to_python(self._site.read(name, frame))
        if not isinstance(array, np.ndarray) or not -array.ndim <= axis < array.ndim:
            self._site.fail(f"value {name!r} has no axis {axis} to scan")
        table = np.moveaxis(array, axis, 0)
        return table[::-1] if direction == _REVERSED else table

    def _output(self, slot: int, rows: Frame) -> OrtValue:
        axis, direction = self._output_ways[slot]
        return _stacked(self._site, slot, rows[::-1] if direction == _REVERSED else rows, axis)


def _axes_and_directions(node: Node, side: str, count: int) -> tuple[tuple[int, int], ...]:
    axes: Any = node.attributes.get(f"scan_{side}_axes", (0,) * count)
    directions: Any = node.attributes.get(f"scan_{side}_directions", (0,) * count)
    return tuple(zip(axes, directions, strict=True))


def _stacked(site: Site, slot: int, rows: Frame, axis: int) -> OrtValue:
    """Stack the values of all iterations for one output along a new axis."""
    arrays = [values.to_python(row) for row in rows]
    shapes = sorted({np.shape(array) for array in arrays})
    if len(shapes) > 1:
        site.fail(f"the iterations returned several shapes for output {slot}: {', '.join(map(str, shapes))}")
    return values.owned(np.stack(arrays, axis=axis))


def _joined(first: Frame, others: Mapping[int, OrtValue]) -> Frame:
    last = max(others, default=len(first) - 1)
    return [*first, *(others.get(slot) for slot in range(len(first), last + 1))]


_CONTROLS: Final[Mapping[str, Callable[[Site], Control]]] = {"If": _If, "Loop": _Loop, "Scan": _Scan}


class Frames:
    """Makes frames (the list of all values of one run of a program), and looks values up in frames."""

    def __init__(self, graph: Graph, weights: WeightStore) -> None:
        self.slots = {name: slot for slot, name in enumerate(_value_names(graph))}  # the slot of every value
        self.status = len(self.slots)  # the slot of the device's overflow status after the last operator
        self._weights = weights
        self._initial: Frame = [None] * (self.status + 1)

    def new(self) -> Frame:
        """Return a new frame: empty but for weights that sessions take as feeds, not initializers."""
        return self._initial.copy()

    def place(self, names: Iterable[str], frame: Frame) -> None:
        """Put weights that a session needs as feeds into all future frames, and into one that is in use."""
        for name in names:
            slot = self.slots[name]
            if name in self._weights and self._initial[slot] is None:
                self._initial[slot] = self._weights.value(name)
                frame[slot] = frame[slot] if frame[slot] is not None else self._initial[slot]

    def value(self, name: str, frame: Frame) -> OrtValue | None:
        """Return a value of a frame, also of a weight that is not in the frame; None if it is absent."""
        if not name:
            return None
        value = frame[self.slots[name]]
        return self._weights.value(name) if value is None and name in self._weights else value

    def replacement(self, name: str, frame: Frame) -> OrtValue | None:
        """Return the value that the caller fed in the place of a weight; None if it fed none."""
        value = frame[self.slots[name]]
        return None if value is None or value is self._weights.value(name) else value

    def values_read(self, nodes: Iterable[Node], frame: Frame) -> dict[str, OrtValue | None]:
        """Return the values that operators read, by name, without weights that no session takes as feeds."""
        slots = self.slots
        return {
            name: frame[slots[name]]
            for node in nodes
            for name in reads(node)
            if name not in self._weights or frame[slots[name]] is not None
        }

    def tensor(self, name: str, frame: Frame) -> Array:
        """Return a tensor of a frame as a view, None if the value is absent or no tensor."""
        if not name:
            return None
        value = frame[self.slots[name]]
        if value is None:
            return self._weights.array(name) if name in self._weights else None
        if not isinstance(value, values.Native):
            return value if isinstance(value, np.ndarray) else None
        return values.to_array(value) if value.is_tensor() else None

    def kept(self, name: str, frame: Frame, *, is_foreign: bool) -> OrtValue:
        """Return a tensor's value so that it outlasts the run: a copy if the memory belongs to others."""
        value = self.value(name, frame)
        assert value is not None, name
        return values.owned(values.to_array(value)) if is_foreign else value

    def output(self, name: str, frame: Frame, *, is_fed: bool, is_foreign: bool) -> Any:
        """Return an output of the graph as an array, a list of arrays, or None.

        A copy if the caller has fed it, or if it may lie in memory of the caller or of others.
        """
        result = values.to_python(frame[self.slots[name]])
        if (is_fed or is_foreign) and isinstance(result, np.ndarray):
            return result.copy()  # the array would not keep the caller's or the weight's memory alive
        if name in self._weights and not is_fed:
            return self._weights.array(name)
        return result


def _value_names(graph: Graph) -> Iterator[str]:
    names = dict.fromkeys(value.name for value in graph.inputs)
    names |= dict.fromkeys(graph.weights)
    for node in graph.nodes:
        names |= dict.fromkeys(filter(None, node.outputs))
    yield from names
