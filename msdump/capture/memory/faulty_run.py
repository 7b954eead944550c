"""An observer of runs with faulty kernels, which write past their results whether a dump is on or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from msdump.capture.compiled.device_image import DeviceImage, GraphImage
from msdump.capture.memory.relay import Relay
from msdump.capture.steps.records import Memory, memory_of
from msdump.device.ascend import Ascend
from msdump.graph.graph import Graph
from msdump.graph.kernel.stomp import stomped_bytes
from msdump.observer import Arrays, Observer


class FaultyMemory:
    """The memory that the faulty kernels of a model write to, whatever graph they stand in."""

    def __init__(self, device: Ascend, memory: Memory) -> None:
        """Prepare the memory of a device.

        Args:
            device: The emulated device with the main graph.
            memory: Gives the addresses of the run that goes on.
        """
        self._image = DeviceImage()
        self._main = device.graph.index
        self._graphs = {
            inner.graph.index: GraphImage(inner, memory_of(inner, device, memory), self._image)
            for inner in device.walk()
        }

    def begin(self, capture: Observer | None) -> FaultyRun:
        """Return the observer of a run, which begins with empty memory; it passes on what a capture sees."""
        self._image.clear()
        return FaultyRun(self._graphs, self._main, Relay(capture))


def faulty_memory(device: Ascend, memory: Memory) -> FaultyMemory | None:
    """Return the memory that a model's faulty kernels write to, None where every kernel is sound."""
    nodes = (node for inner in device.graph.walk() for node in inner.nodes)
    return FaultyMemory(device, memory) if any(map(stomped_bytes, nodes)) else None


class FaultyRun:
    """Lets the faulty kernels of one graph overwrite memory, and passes on what a capture wants to see."""

    wants_outputs = True

    def __init__(self, graphs: Mapping[int, GraphImage], index: int, relay: Relay) -> None:
        """Join memory and a capture for the graph of an index."""
        self._graphs = graphs
        self._image = graphs[index]
        self._relay = relay
        self.watched: Sequence[bool] = (True,) * self._image.count
        self.holds_up = self.watched  # it changes values
        self.wants_inputs = relay.wants_inputs

    def starting(self, position: int, inputs: Arrays) -> None:
        """Let the capture see a collective that is about to run."""
        self._relay.starting(position, inputs)

    def ran(
        self, position: int, inputs: Arrays, outputs: Arrays, *, saturated: bool = False
    ) -> Mapping[str, np.ndarray] | None:
        """Let the capture see an operator, then write its results into memory and beyond."""
        # the operator's own files show what it computed; the harm shows in operators that read later
        self._relay.ran(position, inputs, outputs, saturated=saturated)
        return self._image.stomp(position, self._image.put(position, outputs))

    def looks_into(self, body: Graph) -> bool:  # noqa: ARG002 - the signature of an observer
        """Return True: every operator writes into memory."""
        return True

    def enter(self, body: Graph) -> FaultyRun:
        """Let faulty kernels and the capture see a branch or the body of a loop."""
        return FaultyRun(self._graphs, body.index, self._relay.inside(body))

    def failed(self, position: int, inputs: Arrays) -> None:
        """Let the capture see a failed operator."""
        self._relay.failed(position, inputs)
