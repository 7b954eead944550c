"""The values of one run of a program, each in a slot of a list that its name in the graph tells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from msdump.execute import values
from msdump.execute.control import Frame
from msdump.execute.runtime import OrtValue
from msdump.execute.weights import WeightStore
from msdump.graph.graph import Graph, Node
from msdump.graph.order import reads
from msdump.observer import Array


class Frames:
    """Makes the frames of a program's runs, and finds values in them.

    Attributes:
        slots: The slot of every value.
        status: The slot of the device's overflow status after the last operator.
    """

    def __init__(self, graph: Graph, weights: WeightStore) -> None:
        """Lay out the slots of a graph."""
        self.slots = {name: slot for slot, name in enumerate(_value_names(graph))}
        self.status = len(self.slots)
        self._weights = weights
        self._initial: Frame = [None] * (self.status + 1)

    def new(self) -> Frame:
        """Return the values that stand before a run: weights that are fed."""
        return self._initial.copy()

    def place(self, names: Iterable[str], frame: Frame) -> None:
        """Let weights that are fed stand in every frame from now on, in one that is in use as well."""
        for name in names:
            slot = self.slots[name]
            if name in self._weights and self._initial[slot] is None:
                self._initial[slot] = self._weights.value(name)
                frame[slot] = frame[slot] if frame[slot] is not None else self._initial[slot]

    def value(self, name: str, frame: Frame) -> OrtValue | None:
        """Return a value of a frame, None for an absent one; a weight that nobody has fed yet is made one."""
        if not name:
            return None
        value = frame[self.slots[name]]
        return self._weights.value(name) if value is None and name in self._weights else value

    def fed(self, nodes: Iterable[Node], frame: Frame) -> dict[str, OrtValue | None]:
        """Return what operators read, without the weights that stand in no slot and what none has made."""
        slots = self.slots
        return {
            name: frame[slots[name]]
            for node in nodes
            for name in reads(node)
            if name not in self._weights or frame[slots[name]] is not None
        }

    def tensor(self, name: str, frame: Frame) -> Array:
        """Return a tensor of a frame as a view, None for what is absent or no tensor."""
        if not name:
            return None
        value = frame[self.slots[name]]
        if value is None:
            return self._weights.array(name) if name in self._weights else None
        if not isinstance(value, values.Native):
            return value if isinstance(value, np.ndarray) else None
        return values.to_array(value) if value.is_tensor() else None

    def shared_tensors(
        self, known: Mapping[str, Array] = MappingProxyType({})
    ) -> Callable[[str, Frame], Array]:
        """Return ``tensor`` for the operators of a segment, to which a value of several is one array.

        Args:
            known: Values that stand in no frame.
        """
        arrays: dict[str, Array] = dict(known)

        def tensor(name: str, frame: Frame) -> Array:
            if name not in arrays:
                arrays[name] = self.tensor(name, frame)
            return arrays[name]

        return tensor

    def kept(self, name: str, frame: Frame, *, is_foreign: bool) -> OrtValue:
        """Return the value of a tensor that outlasts the run, a copy where its memory is somebody else's."""
        value = self.value(name, frame)
        assert value is not None, name
        return values.owned(values.to_array(value)) if is_foreign else value

    def output(self, name: str, frame: Frame, *, is_fed: bool, is_foreign: bool) -> Any:
        """Return an output of the graph as an array, a list of arrays, or None.

        Args:
            name: The output.
            frame: The values at the end of the run.
            is_fed: Whether the caller has fed it.
            is_foreign: Whether it may lie in memory of the caller or of a weight.
        """
        result = values.to_python(frame[self.slots[name]])
        if (is_fed or is_foreign) and isinstance(result, np.ndarray):
            return result.copy()  # the array does not keep that memory alive
        if name in self._weights and not is_fed:
            return self._weights.array(name)
        return result


def _value_names(graph: Graph) -> Iterator[str]:
    names = dict.fromkeys(value.name for value in graph.inputs)
    names |= dict.fromkeys(graph.weights)
    for node in graph.nodes:
        names |= dict.fromkeys(filter(None, node.outputs))
    yield from names
