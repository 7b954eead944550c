"""What lies in device memory while a graph runs, byte by byte, and what faulty kernels make of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump.capture.compiled.held import Held, Holder
from msdump.capture.compiled.operator_writer import device_tensor
from msdump.device import formats
from msdump.device.contents import Contents
from msdump.device.tasks import moves_nothing
from msdump.encode import dump_data
from msdump.encode.dump_data import TensorInfo
from msdump.graph.graph import Graph
from msdump.graph.kernel.stomp import stomped_bytes
from msdump.observer import Arrays
from msdump.record import IO

_STOMP: Final = 0x5A  # what a faulty kernel writes


@dataclass(frozen=True, slots=True)
class Lying:
    """A result that lies in device memory.

    Attributes:
        graph: Index of its graph.
        value: Its name there.
        held: How it was when it was made.
        info: What a file's header says of it.
    """

    graph: int
    value: str
    held: Held
    info: TensorInfo

    @property
    def end(self) -> int:
        """Address behind its last byte."""
        return self.held.address + self.info.size

    def overlaps(self, start: int, end: int) -> bool:
        """Tell whether it has bytes in a range of addresses."""
        return self.held.address < end and start < self.end


class DeviceImage:
    """The results of one run at their addresses: of the main graph and of what runs inside it."""

    def __init__(self) -> None:
        """Begin with empty memory."""
        self.clear()

    def clear(self) -> None:
        """Begin anew with empty memory."""
        self._contents = Contents()
        self._lying: dict[tuple[int, str], Lying] = {}
        self._overwritten: list[dict[str, np.ndarray]] = []
        self._untold: dict[int, dict[str, np.ndarray]] = {}

    def write(self, lying: Lying, *, is_view: bool) -> None:
        """Put a result where it lies; what lay there is gone, unless the result is a view of it."""
        self._contents.write(lying.held.address, device_tensor(lying.held)[1])
        for old in self._overlapping(lying.held.address, lying.end):
            if not (is_view and old.held.address == lying.held.address):
                del self._lying[old.graph, old.value]
        self._lying[lying.graph, lying.value] = lying

    def stomp(self, start: int, size: int) -> None:
        """Let a faulty kernel write past its last result; what it changed is told to each graph."""
        self._contents.fill(start, size, _STOMP)
        for hit in self._overlapping(start, start + size):
            self._untold.setdefault(hit.graph, {})[hit.value] = self._host_array(hit)

    def changed(self, graph: int) -> dict[str, np.ndarray]:
        """Return the values of a graph that were overwritten since it was last told.

        They read as memory does now, and stay so until the memory is cleared.
        """
        changed = self._untold.pop(graph, {})
        if changed:
            self._overwritten.append(changed)
        return changed

    def _overlapping(self, start: int, end: int) -> list[Lying]:
        return [lying for lying in self._lying.values() if lying.overlaps(start, end)]

    def array(self, lying: Lying) -> np.ndarray:
        """Return what lies where a result was put, in the device's type and the host's layout."""
        held, info = lying.held, lying.info
        data = self._contents.read(held.address, info.size)
        array = dump_data.tensor(info, memoryview(data))
        if held.placed is None or info.shape == held.array.shape:
            return array.reshape(held.array.shape)
        return formats.decode(held.placed.format, array, held.array.shape, held.placed.groups)

    def _host_array(self, lying: Lying) -> np.ndarray:
        array, host = self.array(lying), lying.held.host
        return array if host is None else array.astype(host.numpy, copy=False)


class GraphImage:
    """The results of one graph's operators in device memory."""

    def __init__(self, graph: Graph, holder: Holder, image: DeviceImage) -> None:
        """Look at a graph.

        Args:
            graph: The graph.
            holder: Shows its tensors as the device holds them, and where.
            image: The memory.
        """
        self._index = graph.index
        self._nodes = graph.nodes
        self._stomps = tuple(map(stomped_bytes, graph.nodes))
        self._holder = holder
        self._image = image

    @property
    def count(self) -> int:
        """Number of the graph's operators."""
        return len(self._nodes)

    def put(self, position: int, outputs: Arrays) -> tuple[Lying, ...]:
        """Write the results of an operator to their addresses; return those that have one."""
        node = self._nodes[position]
        made = tuple(
            Lying(self._index, node.outputs[held.slot], held, device_tensor(held)[0])
            for held in self._holder.hold(position, IO.OUTPUT, outputs)
            if held.address
        )
        is_view = moves_nothing(node)  # what lies there is the input, by another name
        for lying in made:
            self._image.write(lying, is_view=is_view)
        return made

    def stomp(self, position: int, made: Sequence[Lying]) -> dict[str, np.ndarray]:
        """Let a faulty kernel write past its last result; return what faults have changed in the graph."""
        if self._stomps[position] and made:
            self._image.stomp(made[-1].end, self._stomps[position])
        return self._image.changed(self._index)
