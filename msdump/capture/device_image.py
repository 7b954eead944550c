"""What lies in device memory while a graph runs, byte by byte, and what faulty kernels make of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump.capture.held import Arrays, Held, Holder
from msdump.capture.operator_files import device_tensor
from msdump.device import formats
from msdump.device.contents import Contents
from msdump.device.tasks import moves_nothing
from msdump.encode import dump_data
from msdump.encode.dump_data import TensorInfo
from msdump.graph.graph import Graph
from msdump.graph.stomp import stomped_bytes
from msdump.record import IO

_STOMP: Final = 0x5A  # what a faulty kernel writes


@dataclass(frozen=True, slots=True)
class Lying:
    """A result that lies in device memory.

    Attributes:
        value: Its name in the graph.
        held: How it was when it was made.
        info: What a file's header says of it.
    """

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
    """The results of one run at their addresses."""

    def __init__(self, graph: Graph, holder: Holder) -> None:
        """Begin with empty memory.

        Args:
            graph: The graph.
            holder: Shows tensors as the device holds them, and where.
        """
        self._nodes = graph.nodes
        self._stomps = tuple(map(stomped_bytes, graph.nodes))
        self._holder = holder
        self.clear()

    def clear(self) -> None:
        """Begin anew with empty memory."""
        self._contents = Contents()
        self._lying: dict[str, Lying] = {}
        self._overwritten: list[dict[str, np.ndarray]] = []

    def put(self, position: int, outputs: Arrays) -> tuple[Lying, ...]:
        """Write the results of an operator to their addresses; return those that have one."""
        node = self._nodes[position]
        made = tuple(
            Lying(node.outputs[held.slot], held, device_tensor(held)[0])
            for held in self._holder.hold(position, IO.OUTPUT, outputs)
            if held.address
        )
        is_view = moves_nothing(node)  # what lies there is the input, by another name
        for lying in made:
            self._contents.write(lying.held.address, device_tensor(lying.held)[1])
            for old in self._overlapping(lying.held.address, lying.end):
                if not (is_view and old.held.address == lying.held.address):
                    del self._lying[old.value]
            self._lying[lying.value] = lying
        return made

    def _overlapping(self, start: int, end: int) -> list[Lying]:
        return [lying for lying in self._lying.values() if lying.overlaps(start, end)]

    def stomp(self, position: int, made: Sequence[Lying]) -> dict[str, np.ndarray]:
        """Let a faulty kernel write past its last result; return the values that it changed.

        They read as memory does now, and stay so until the memory is cleared.
        """
        size = self._stomps[position]
        if not size or not made:
            return {}
        start = made[-1].end
        self._contents.fill(start, size, _STOMP)
        hit = self._overlapping(start, start + size)
        changed = {lying.value: self._host_array(lying) for lying in hit}
        self._overwritten.append(changed)
        return changed

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
