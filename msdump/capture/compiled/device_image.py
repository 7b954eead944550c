"""What lies in device memory while a graph runs, byte by byte, and what faulty kernels make of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump.capture.steps.device import to_device_memory
from msdump.capture.steps.records import Memory, OperatorRecords
from msdump.capture.writers import device_tensor
from msdump.device import formats
from msdump.device.ascend import Ascend
from msdump.device.contents import Contents
from msdump.device.tasks import moves_nothing
from msdump.encode import dump_data
from msdump.encode.dump_data import TensorInfo
from msdump.graph.kernel.stomp import stomped_bytes
from msdump.observer import Arrays
from msdump.record import IO, Buffer, TensorRecord

_STOMP: Final = 0x5A  # what a faulty kernel writes
_NO_TIME: Final = 0  # of results in memory; a file of them has a time of its own


@dataclass(frozen=True, slots=True)
class Lying:
    """A result that lies in device memory.

    Attributes:
        graph: Index of its graph.
        value: Its name there.
        record: How it was when it was made, as the host holds it; its address stays what it was then.
        info: What a file's header says of it.
    """

    graph: int
    value: str
    record: TensorRecord
    info: TensorInfo

    @property
    def start(self) -> int:
        """Address of its first byte."""
        return self.info.address

    @property
    def end(self) -> int:
        """Address behind its last byte."""
        return self.info.address + self.info.size

    def overlaps(self, start: int, end: int) -> bool:
        """Tell whether it has bytes in a range of addresses."""
        return self.start < end and start < self.end


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

    def write(self, lying: Lying, data: Buffer, *, is_view: bool) -> None:
        """Put the bytes of a result where it lies.

        What lay there is gone, unless the result is a view of it.
        """
        self._contents.write(lying.start, data)
        for old in self._overlapping(lying.start, lying.end):
            if not (is_view and old.start == lying.start):
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

    def record(self, lying: Lying) -> TensorRecord:
        """Return a result as memory reads now, in the device's type and the host's layout."""
        record = lying.record
        dtype = record.dtype if record.device is None else record.device.element_type(record.dtype)
        return record._replace(array=self._array(lying), dtype=dtype, host=record.array)

    def _array(self, lying: Lying) -> np.ndarray:
        info, part = lying.info, lying.record.device
        array = dump_data.tensor(info, memoryview(self._contents.read(info.address, info.size)))
        if part is None or info.shape == info.original_shape:
            return array.reshape(info.original_shape)
        return formats.decode(part.format, array, info.original_shape, part.groups)

    def _host_array(self, lying: Lying) -> np.ndarray:
        return self._array(lying).astype(lying.record.dtype.numpy, copy=False)


class GraphImage:
    """The results of one graph's operators in device memory."""

    def __init__(self, device: Ascend, memory: Memory, image: DeviceImage) -> None:
        """Look at a graph.

        Args:
            device: The emulated device with the graph.
            memory: Gives the addresses of the run that goes on.
            image: The memory.
        """
        self._index = device.graph.index
        self._nodes = device.graph.nodes
        self._stomps = tuple(map(stomped_bytes, self._nodes))
        self._records = OperatorRecords(device, memory)
        self._image = image

    @property
    def count(self) -> int:
        """Number of the graph's operators."""
        return len(self._nodes)

    def put(self, position: int, outputs: Arrays) -> tuple[Lying, ...]:
        """Write the results of an operator to their addresses; return those that have one."""
        node = self._nodes[position]
        is_view = moves_nothing(node)  # what lies there is the input, by another name
        made = []
        for record in self._records.of(node.operator, position, IO.OUTPUT, outputs, lambda: _NO_TIME):
            if record.device is None or not record.device.address:
                continue
            pinned = record._replace(device=record.device.pinned())
            shown = to_device_memory(pinned)
            lying = Lying(self._index, node.outputs[record.slot], pinned, device_tensor.info(shown))
            self._image.write(lying, device_tensor.contents(shown), is_view=is_view)
            made.append(lying)
        return tuple(made)

    def stomp(self, position: int, made: Sequence[Lying]) -> dict[str, np.ndarray]:
        """Let a faulty kernel write past its last result; return what faults have changed in the graph."""
        if self._stomps[position] and made:
            self._image.stomp(made[-1].end, self._stomps[position])
        return self._image.changed(self._index)
