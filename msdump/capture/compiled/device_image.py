"""The bytes of device memory while a graph runs, which faulty kernels may overwrite."""

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

_STOMP: Final = 0x5A  # the byte that a faulty kernel writes
_NO_TIME: Final = 0  # of results in memory; a file of them has a time of its own


@dataclass(frozen=True, slots=True)
class StoredResult:
    """An operator's result that is stored in device memory.

    Attributes:
        graph: Index of its graph.
        value: Its name there.
        record: The result as the host holds it, with the address that it had when it was stored.
        info: Its fields in the header of a dump file: address, size, shape, format and type on the device.
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
        """Start with empty memory."""
        self.clear()

    def clear(self) -> None:
        """Empty the memory."""
        self._contents = Contents()
        self._results: dict[tuple[int, str], StoredResult] = {}
        # kept alive for the operators that read them: the observer's promise to the loop
        self._overwritten: list[dict[str, np.ndarray]] = []
        self._unreported: dict[int, dict[str, np.ndarray]] = {}

    def write(self, result: StoredResult, data: Buffer, *, is_view: bool) -> None:
        """Store the bytes of a result at its address.

        Results that were stored there before are gone, unless the new one is a view of them.
        """
        self._contents.write(result.start, data)
        for old in self._overlapping(result.start, result.end):
            if not (is_view and old.start == result.start):
                del self._results[old.graph, old.value]
        self._results[result.graph, result.value] = result

    def stomp(self, start: int, size: int) -> None:
        """Let a faulty kernel write past its last result; ``changed`` tells each graph what it hit."""
        self._contents.fill(start, size, _STOMP)
        for hit in self._overlapping(start, start + size):
            self._unreported.setdefault(hit.graph, {})[hit.value] = self._host_array(hit)

    def changed(self, graph: int) -> dict[str, np.ndarray]:
        """Return the values of a graph that were overwritten since the last call for it.

        They are arrays of their own, as the host would read the memory now; they live until it is cleared.
        """
        changed = self._unreported.pop(graph, {})
        if changed:
            self._overwritten.append(changed)
        return changed

    def _overlapping(self, start: int, end: int) -> list[StoredResult]:
        return [result for result in self._results.values() if result.overlaps(start, end)]

    def record(self, result: StoredResult) -> TensorRecord:
        """Return a result as memory reads now, in the device's type and the host's layout."""
        record = result.record
        dtype = record.dtype if record.device is None else record.device.element_type(record.dtype)
        return record._replace(array=self._array(result), dtype=dtype, host=record.array)

    def _array(self, result: StoredResult) -> np.ndarray:
        """Return a result as memory reads now, in the device's type; padding of its format is cut off."""
        info, part = result.info, result.record.device
        array = dump_data.tensor(info, memoryview(self._contents.read(info.address, info.size)))
        if part is None or info.shape == info.original_shape:
            return array.reshape(info.original_shape)
        return formats.decode(part.format, array, info.original_shape, part.groups)

    def _host_array(self, result: StoredResult) -> np.ndarray:
        return self._array(result).astype(result.record.dtype.numpy, copy=False)


class GraphImage:
    """The results of one graph's operators in device memory."""

    def __init__(self, device: Ascend, memory: Memory, image: DeviceImage) -> None:
        """Prepare the memory of a graph.

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

    def put(self, position: int, outputs: Arrays) -> tuple[StoredResult, ...]:
        """Store the results of an operator at their addresses; return those that have one."""
        node = self._nodes[position]
        is_view = moves_nothing(node)  # what lies there is the input, by another name
        results = []
        for record in self._records.of(node.operator, position, IO.OUTPUT, outputs, lambda: _NO_TIME):
            if record.device is None or not record.device.address:
                continue
            pinned = record._replace(device=record.device.pinned())
            shown = to_device_memory(pinned)
            result = StoredResult(self._index, node.outputs[record.slot], pinned, device_tensor.info(shown))
            self._image.write(result, device_tensor.contents(shown), is_view=is_view)
            results.append(result)
        return tuple(results)

    def stomp(self, position: int, results: Sequence[StoredResult]) -> dict[str, np.ndarray]:
        """Let a faulty kernel write past its last result; return what faults have changed in the graph.

        Args:
            position: Place of the kernel in the graph's execution order; a sound one writes nothing.
            results: Its own results, as ``put`` returned them.
        """
        if self._stomps[position] and results:
            self._image.stomp(results[-1].end, self._stomps[position])
        return self._image.changed(self._index)
