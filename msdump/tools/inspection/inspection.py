"""Looks at the elements of a tensor: extremes with their places, NaN and infinities, histogram, a slice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Final

import numpy as np

BINS: Final = 12
"""Bins of a histogram."""

MOST_PLACES: Final = 5
"""Places of NaN, and of each infinity, that are kept."""

_BLOCK: Final = 1 << 20  # elements that are looked at at once
_REAL_KINDS: Final = "biuf"
_SLICE: Final = 6  # rows and columns of a slice

NONFINITE: Final[Mapping[str, Callable[[np.ndarray], np.ndarray]]] = MappingProxyType(
    {"nan": np.isnan, "inf": np.isposinf, "-inf": np.isneginf}
)
"""The kinds of elements that are not finite, and what tells of each element whether it is one."""

Place = tuple[int, ...]
"""Indices of an element, one for each dimension."""


@dataclass(frozen=True, slots=True)
class Extreme:
    """The smallest or the largest finite element.

    Attributes:
        value: The element.
        place: Where the first such element stands.
    """

    value: float | int
    place: Place


@dataclass(frozen=True, slots=True)
class Strangers:
    """The elements of a tensor that are NaN, or inf, or -inf.

    Attributes:
        count: How many there are.
        places: The first of them.
    """

    count: int = 0
    places: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many finite elements lie in each of several intervals of equal width, one where they are all alike.

    Attributes:
        edges: The bounds of the intervals; the last interval holds its end.
        counts: The elements in each.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a tensor looks like.

    Attributes:
        smallest: Its smallest finite element; None where it has none.
        largest: Its largest finite element; None likewise.
        strangers: Its elements that are not finite, by ``nan``, ``inf`` and ``-inf``; all are there.
        histogram: Of the finite elements; None where there are none.
        slice: Some rows and columns of its last two dimensions, around the first element that is not finite,
            else the largest one.
        slice_at: Indices of the slice in the dimensions before the last two.
        slice_from: Where the slice begins in the last two dimensions.
    """

    smallest: Extreme | None
    largest: Extreme | None
    strangers: Mapping[str, Strangers]
    histogram: Histogram | None
    slice: np.ndarray
    slice_at: Place
    slice_from: Place


def inspect(array: np.ndarray) -> Inspection:
    """Look at a tensor, block by block.

    Args:
        array: Any shape, of any type; texts and complex numbers have neither extremes nor a histogram.
    """
    numbers = array.view(np.uint8) if array.dtype == np.bool_ else array
    smallest, largest = _extremes(numbers) if array.dtype.kind in _REAL_KINDS else (None, None)
    strangers = _strangers(array)
    histogram = None
    if smallest is not None and largest is not None:
        histogram = _histogram(numbers, float(smallest.value), float(largest.value))
    marked = [stranger.places[0] for stranger in strangers.values() if stranger.places]
    center = min(marked) if marked else largest.place if largest is not None else (0,) * array.ndim
    corner = array[center[:-2]]
    begin = tuple(_start(index, size) for index, size in zip(center[-2:], corner.shape, strict=True))
    shown = corner[tuple(np.s_[start : start + _SLICE] for start in begin)]
    return Inspection(smallest, largest, strangers, histogram, shown, center[:-2], begin)


def blocks(array: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the elements in the order of the host, some at a time, with the number of the first."""
    flat = array.reshape(-1)
    for start in range(0, len(flat), _BLOCK):
        yield start, flat[start : start + _BLOCK]


def _extremes(array: np.ndarray) -> tuple[Extreme | None, Extreme | None]:
    smallest: Extreme | None = None
    largest: Extreme | None = None
    for start, block in blocks(array):
        finite = np.isfinite(block)
        if not finite.any():
            continue
        # a block of finite elements alone, which most are, is looked at without a copy
        numbers = block if finite.all() else block[finite]
        low, high = numbers.min().item(), numbers.max().item()
        if smallest is None or low < smallest.value:
            smallest = Extreme(low, _place(start + int(np.argmax(block == low)), array))
        if largest is None or high > largest.value:
            largest = Extreme(high, _place(start + int(np.argmax(block == high)), array))
    return smallest, largest


def _strangers(array: np.ndarray) -> dict[str, Strangers]:
    counts = dict.fromkeys(NONFINITE, 0)
    places: dict[str, list[Place]] = {name: [] for name in counts}
    if array.dtype.kind == "f":
        for start, block in blocks(array):
            if np.isfinite(block).all():
                continue
            for name, is_such in NONFINITE.items():
                found = np.flatnonzero(is_such(block))
                counts[name] += len(found)
                room = MOST_PLACES - len(places[name])
                places[name] += [_place(start + int(number), array) for number in found[:room]]
    return {name: Strangers(count, tuple(places[name])) for name, count in counts.items()}


def _place(number: int, array: np.ndarray) -> Place:
    return tuple(int(index) for index in np.unravel_index(number, array.shape))


def _histogram(array: np.ndarray, low: float, high: float) -> Histogram:
    # not low + step * width: the range of all float64 would overflow
    edges = [low * (1 - step / BINS) + high * (step / BINS) for step in range(BINS)] + [high]
    if not all(left < right for left, right in pairwise(edges)):  # all the same, or large whole numbers
        edges = [low, high]
    counts = np.zeros(len(edges) - 1, np.int64)
    for _, block in blocks(array):
        numbers = block[np.isfinite(block)]
        if len(counts) == 1:
            counts += len(numbers)
        else:
            counts += np.histogram(numbers.astype(np.float64), edges)[0]
    return Histogram(tuple(edges), tuple(counts.tolist()))


def _start(index: int, size: int) -> int:
    """Return where a slice begins that shows an index of a dimension, of full length where that fits."""
    return max(0, min(index - _SLICE // 2, size - _SLICE))
