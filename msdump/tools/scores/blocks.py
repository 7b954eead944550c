"""Two tensors as blocks of float32 elements, with memory for intermediate results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np

from msdump.statistics import pairs
from msdump.statistics.elements import HALVES
from msdump.statistics.pairs import PairKernel

BLOCK: Final = 1 << 16
"""Elements that are looked at together; a few float32 blocks fit into a core's cache."""

FLOOR: Final = np.finfo(np.float32).eps
"""Least density of a Kullback-Leibler divergence."""

_LANES: Final = 8
"""Sums that numpy takes side by side."""

_PART: Final = 1 << 15  # elements of a block that are cast to float64 together


class BlockPair:
    """A block of each of two tensors, and memory for intermediate results.

    Attributes:
        x: Elements of the tensor that is examined, as float32.
        y: Those of the other one.
        both: Memory for twice as many elements.
        s: The first half of it.
        t: The second half.
        truths: Memory for as many truth values.
        floors: ``FLOOR`` as many times.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, spare: _Spare) -> None:
        """Put two vectors of the same length side by side."""
        self.x, self.y = x, y
        self.both = spare.floats[:, : len(x)]
        self.s, self.t = self.both
        self.truths = spare.truths[: len(x)]
        self.floors = spare.floors[: len(x)]
        self._doubles = spare.doubles

    @property
    def is_plain(self) -> bool:
        """Whether the compiled passes take both vectors."""
        return all(map(PairKernel.takes, (self.x, self.y)))

    def doubles(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield parts of the two vectors as float64, and memory for as many elements."""
        for start in range(0, len(self.x), _PART):
            x, y = (side[start : start + _PART] for side in (self.x, self.y))
            doubles = self._doubles[:, : len(x)]
            np.copyto(doubles[0], x)
            np.copyto(doubles[1], y)
            yield doubles[0], doubles[1], doubles[2]


class BlockPairs:
    """Blocks of two tensors as float32 vectors; iterating casts them.

    Attributes:
        count: Number of elements of each tensor; a complex one counts twice.
    """

    def __init__(self, dumped: np.ndarray, golden: np.ndarray) -> None:
        """Take two arrays of as many elements, at least one."""
        self._takes_any_address = pairs.PAIRS is not None  # numpy is slow where elements are not aligned
        self._sides = (_vector(dumped), _vector(golden))
        self.count = len(self._sides[0])
        self._length = min(BLOCK, self.count)
        self._cast = np.empty((2, self._length), np.float32)
        self._spare = _Spare(self._length)

    def __iter__(self) -> Iterator[BlockPair]:
        """Yield the blocks; the memory of one is used again for the next."""
        dumped, golden = self._sides
        stop = 0
        for length in _lengths(self.count):
            part = slice(stop, stop := stop + length)
            yield BlockPair(self._float32(dumped[part], 0), self._float32(golden[part], 1), self._spare)

    def _float32(self, block: np.ndarray, side: int) -> np.ndarray:
        is_placed = block.flags.aligned or (self._takes_any_address and block.flags.c_contiguous)
        if block.dtype == np.float32 and is_placed:
            return block
        cast = self._cast[side, : len(block)]
        _cast(block, cast)
        return cast


def total_of_blocks(sums: Iterable[Any], count: int) -> Any:
    """Return sums of float32 elements as numpy takes them, from those of each block of ``BlockPairs``.

    >>> elements = np.linspace(0, 1, 3 * BLOCK + 5, dtype=np.float32)
    >>> parts = np.split(elements, np.cumsum([*_lengths(len(elements))])[:-1])
    >>> bool(total_of_blocks(map(np.add.reduce, parts), len(elements)) == np.add.reduce(elements))
    True

    Args:
        sums: Those of each block, a float32 or an array of some.
        count: Number of all elements.
    """
    return _total_of_blocks(iter(sums), count) + np.float32(0)  # as numpy begins with 0: no sum is -0


def _total_of_blocks(sums: Iterator[Any], count: int) -> Any:
    if count <= BLOCK:
        return next(sums)
    half = _half(count)
    first = _total_of_blocks(sums, half)
    return first + _total_of_blocks(sums, count - half)


def _lengths(count: int) -> Iterator[int]:
    """Yield the lengths of the blocks of so many elements."""
    if count <= BLOCK:
        yield count
        return
    half = _half(count)
    yield from _lengths(half)
    yield from _lengths(count - half)


def _half(count: int) -> int:
    """Return the length of the first half in which numpy adds elements up."""
    return count // 2 - count // 2 % _LANES


class _Spare:
    """Memory for intermediate results, used again for every block."""

    def __init__(self, length: int) -> None:
        self.floats = np.empty((2, length), np.float32)
        self.doubles = np.empty((3, min(length, _PART)))
        self.truths = np.empty(length, np.bool_)
        self.floors = np.full(length, FLOOR)  # numpy takes the larger of two arrays faster than with a scalar


def _vector(array: np.ndarray) -> np.ndarray:
    """Return the elements as a vector; complex numbers as pairs of real ones."""
    flat = array.reshape(-1)
    return flat.view(flat.real.dtype) if flat.dtype.kind == "c" else flat


def _cast(block: np.ndarray, out: np.ndarray) -> None:
    """Cast elements to float32."""
    if block.dtype == out.dtype and block.flags.c_contiguous:  # not aligned: bytes are copied faster
        out.view(np.uint8)[:] = block.view(np.uint8)
        return
    # Finite float16 and bfloat16 are cast by integer arithmetic, three times faster than numpy casts them.
    halves = HALVES.get(block.dtype.name)
    if halves is not None and all(map(math.isfinite, halves.bounds(block))):
        block = halves.values(block)
    np.copyto(out, block, casting="unsafe")
