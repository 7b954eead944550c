"""The emulated device memory: addresses of tensors, space reused after their last use.

Only addresses and sizes are kept, no contents.

    >>> memory = DeviceMemory()
    >>> first, second = memory.allocate("x", 100), memory.allocate("y", 600)
    >>> first.address - BASE, first.size, second.address - BASE, second.size
    (0, 512, 512, 1024)
    >>> memory.release("x")
    >>> memory.allocate("z", 4).address == first.address
    True
    >>> memory.in_use, memory.peak, memory.total
    (1536, 1536, 2048)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final

from msdump.errors import DeviceMemoryError
from msdump.graph import Graph, reads

BASE: Final = 0x12C0_C000_0000
"""Where the memory begins; any aligned number that looks like a device address would do."""

ALIGNMENT: Final = 512
"""Bytes; every address and every reserved size is a multiple of it."""


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of device memory."""

    address: int
    size: int

    @property
    def end(self) -> int:
        """Address behind its last byte."""
        return self.address + self.size


class DeviceMemory:
    """Gives out memory by best fit, the lowest address among equals; so equal runs give equal addresses.

    Attributes:
        limit: Bytes of the device, None: as many as needed.
        in_use: Bytes reserved now.
        peak: Most bytes that were reserved at one time.
        total: Bytes of all reservations so far, whether released or not.
        extent: Bytes from the beginning to the highest address ever used: the peak plus
            the cost of fragmentation.
    """

    def __init__(self, limit: int | None = None) -> None:
        """Begin with an empty memory."""
        self.limit = limit
        self.in_use = 0
        self.peak = 0
        self.total = 0
        self.extent = 0
        self._blocks: dict[Hashable, Block] = {}
        self._holes: list[tuple[int, int]] = []  # address and size, by address, never adjacent

    @property
    def blocks(self) -> Mapping[Hashable, Block]:
        """Reserved blocks by key."""
        return self._blocks

    def allocate(self, key: Hashable, nbytes: int, title: str = "") -> Block:
        """Reserve memory under a key; an empty tensor still gets an address of its own.

        Raises:
            DeviceMemoryError: The tensor does not fit.
            ValueError: The key already has memory.
        """
        if key in self._blocks:
            raise ValueError(f"{key!r} already has device memory; release it first")
        # an empty tensor takes a unit, so that its address is its own
        size = max(1, -(-nbytes // ALIGNMENT)) * ALIGNMENT
        block = Block(self._reserve(title or repr(key), nbytes, size), size)
        self._blocks[key] = block
        self.in_use += size
        self.total += size
        self.peak = max(self.peak, self.in_use)
        self.extent = max(self.extent, block.end - BASE)
        return block

    def release(self, key: Hashable) -> None:
        """Release the memory of a tensor."""
        block = self._blocks.pop(key)
        self.in_use -= block.size
        self._free(block)

    def _reserve(self, title: str, nbytes: int, size: int) -> int:
        # (size, address): min takes the smallest hole and of equals the lowest, in every run
        fitting = [(hole, address) for address, hole in self._holes if hole >= size]
        if not fitting:
            return self._grow(title, nbytes, size)
        hole, address = min(fitting)
        index = bisect_left(self._holes, (address, 0))
        self._holes[index : index + 1] = [(address + size, hole - size)] if hole > size else []
        return address

    def _grow(self, title: str, nbytes: int, size: int) -> int:
        """Extend the memory in use; return the address behind the last used byte."""
        address = self._end()
        if self.limit is not None and address + size - BASE > self.limit:
            raise DeviceMemoryError(self._refusal(title, nbytes))
        # the new block begins in the free hole at the end of memory
        if self._holes and self._holes[-1][0] == address:
            self._holes.pop()
        return address

    def _end(self) -> int:
        """Return the address behind the last used byte; a free hole may begin there."""
        # sum of (address, size): the address behind the hole
        if self._holes and sum(self._holes[-1]) == BASE + self.extent:
            return self._holes[-1][0]
        return BASE + self.extent

    def _refusal(self, title: str, nbytes: int) -> str:
        assert self.limit is not None
        # a hole at the end is one piece with the memory behind it, which was never in use
        inner = (size for address, size in self._holes if address != self._end())
        largest = max((self.limit - (self._end() - BASE), *inner))
        return (
            f"tensor {title} of {nbytes} bytes does not fit the device: {self.in_use} of {self.limit} bytes"
            f" are in use by {len(self._blocks)} tensors, the largest free block has {largest} bytes;"
            " raise max_device_memory"
        )

    def _free(self, block: Block) -> None:
        index = bisect_left(self._holes, (block.address, 0))
        first, last, address, end = index, index, block.address, block.end
        if index and sum(self._holes[index - 1]) == address:
            first, address = index - 1, self._holes[index - 1][0]
        if index < len(self._holes) and self._holes[index][0] == end:
            last, end = index + 1, sum(self._holes[index])
        self._holes[first:last] = [(address, end - address)]


def dead_values(graph: Graph) -> tuple[tuple[str, ...], ...]:
    """Return, for each operator, the values that no later operator reads: last read or made by this operator.

    Weights and graph outputs are never among them.
    """
    seen = {value.name for value in graph.outputs} | set(graph.weights)
    dead = []
    for node in reversed(graph.nodes):  # backwards, the first node that names a value is its last reader
        names = dict.fromkeys((*reads(node), *filter(None, node.outputs)))
        dead.append(tuple(name for name in names if name not in seen))
        seen.update(names)
    return tuple(reversed(dead))
