"""Sums over pairs of elements, those of a tensor beside another one's, by the compiled pass (``compiled``).

Without it, and for elements that are not finite, who needs the sums takes them with numpy.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import threading
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

import numpy as np

from msdump.statistics import compiled
from msdump.statistics.compiled import address
from msdump.threads import spread, thread_count


class SideSums(NamedTuple):
    """What is found of one of two vectors: extremes, sum, sum of squares and of squared deviations."""

    low: float
    high: float
    total: float
    squares: float
    deviations: float


class Distance(NamedTuple):
    """How far two vectors x and y are apart, their distances taken in float32.

    Attributes:
        differences: Sum of ``(x - y)^2``.
        squares: Sum of ``y^2``.
        largest: Largest ``|x - y|``.
        most: Largest ``|y|``.
    """

    differences: float
    squares: float
    largest: float
    most: float


class Apart(NamedTuple):
    """How far two vectors x and y are apart, in float64.

    Attributes:
        low: Least y.
        high: Largest y.
        x_squares: Sum of ``x^2``.
        y_squares: Sum of ``y^2``.
        products: Sum of ``x * y``.
        differences: Sum of ``(x - y)^2``.
        largest: Largest ``|x - y|``.
    """

    low: float
    high: float
    x_squares: float
    y_squares: float
    products: float
    differences: float
    largest: float


@dataclass(frozen=True, slots=True)
class PairSums:
    """What is found of two vectors x and y.

    Attributes:
        count: Number of elements of each.
        x: Sums of the first.
        y: Sums of the second.
        products: Sum of ``x * y``.
        differences: Sum of ``(x - y)^2``.
        largest: Largest ``|x - y|``.
        largest_ratio: Largest ``|x / y - 1|`` where ``|y|`` counts, else 0; in float32.
        singles: Sums in float32 and in numpy's order: of ``x^2``, ``y^2``, ``(x - y)^2``, ``|x - y|`` and
            of the ratios.
    """

    count: int
    x: SideSums
    y: SideSums
    products: float
    differences: float
    largest: float
    largest_ratio: float
    singles: np.ndarray


class SideScale(NamedTuple):
    """What the elements of a side are divided by: by the norm, or by the extent once ``low`` is taken off."""

    norm: float
    low: float
    extent: float


class PairScale(NamedTuple):
    """Those of two vectors of finite elements.

    A unit is an element divided by the norm, a density how far it is in its range, at least ``least``.

    Attributes:
        x: That of the first, whose extent is not 0.
        y: That of the second, too.
        least: A float32 above zero.
    """

    x: SideScale
    y: SideScale
    least: float

    def packed(self) -> bytes:
        """Return them as the compiled passes read them."""
        return _SCALES.pack(*self.x, *self.y, self.least)


_PAIRS: Final = Struct("=14d")
_OF_BOTH: Final = ("products", "differences", "largest", "largest_ratio")  # behind those of each side
_DISTANCE: Final = Struct("=4d")
_APART: Final = Struct("=7d")
_SCALES: Final = Struct("=7f")
_SINGLE: Final = np.dtype(np.float32)
_SINGLES: Final = 5  # sums of pairs that are taken in float32
_SCALED: Final = 3  # those of scaled elements
_LANES: Final = Struct("=3f")
_SHARED: Final = 1 << 18  # elements of pairs that threads share: fewer take no longer than a thread to wake


class _Found(threading.local):
    """What the kernel reads and writes beside elements, in each thread."""

    def __init__(self) -> None:
        self.memory = ctypes.create_string_buffer(_PAIRS.size)


class PairKernel:
    """The compiled passes over pairs; any thread may use them, and other threads run meanwhile.

    All take two vectors of as many elements, which ``takes`` says of both.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        """Take a library of the right version."""
        vectors = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
        self._sums = library.msdump_sum_pairs
        self._sums.argtypes = (*vectors, ctypes.c_float, ctypes.c_void_p, ctypes.c_void_p)
        self._sums.restype = None
        self._distance = library.msdump_find_distance
        self._distance.argtypes = (*vectors, ctypes.c_void_p)
        self._distance.restype = None
        self._distances = library.msdump_find_distances
        self._distances.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p)
        self._distances.restype = None
        self._outside = library.msdump_find_outside
        self._outside.argtypes = (*vectors, ctypes.c_char_p, ctypes.c_void_p)
        self._outside.restype = ctypes.c_double
        self._scaled = library.msdump_sum_scaled
        self._scaled.argtypes = (*vectors, ctypes.c_char_p, ctypes.c_void_p)
        self._scaled.restype = None
        self._divided = library.msdump_divide_densities
        self._divided.argtypes = (*vectors, ctypes.c_char_p, *[ctypes.c_void_p] * 3)
        self._divided.restype = None
        self._units = library.msdump_most_units
        self._units.argtypes = (*vectors, ctypes.c_double)
        self._units.restype = ctypes.c_double
        self._apart = library.msdump_find_apart
        self._apart.argtypes = (*vectors, ctypes.c_size_t, ctypes.c_void_p)
        self._apart.restype = None
        self._found = _Found()

    @staticmethod
    def takes(vector: np.ndarray) -> bool:
        """Tell whether these are float32 elements one after the other, at any address."""
        return vector.dtype == _SINGLE and vector.flags.c_contiguous

    def distance(self, x: np.ndarray, y: np.ndarray) -> Distance:
        """Return how far two vectors are apart; an element that is NaN or infinite shows in the two sums."""
        memory = self._found.memory
        self._distance(address(x), address(y), x.size, memory)
        return Distance(*_DISTANCE.unpack_from(memory))

    def distances(
        self, vectors: Sequence[tuple[np.ndarray, np.ndarray]], *, is_shared: bool = True
    ) -> list[Distance]:
        """Return how far the two of each pair are apart.

        Args:
            vectors: The pairs.
            is_shared: Whether threads share the elements evenly; else this one takes them all.
        """
        places = ((address(x), address(y), x.size) for x, y in vectors)
        table = array("q", itertools.chain.from_iterable(places))
        total = sum(x.size for x, _ in vectors)
        parts = thread_count() if is_shared and total >= _SHARED else 1
        bounds = [total * part // parts for part in range(parts + 1)]
        found = np.zeros((parts, len(vectors), len(Distance._fields)))

        def find(part: int) -> None:
            begin, end = bounds[part : part + 2]
            self._distances(table.buffer_info()[0], begin, end, found[part].ctypes.data)

        spread(find, range(parts))
        sums, largest = found[..., :2].sum(axis=0), found[..., 2:].max(axis=0)
        return list(itertools.starmap(Distance, np.concatenate((sums, largest), axis=1).tolist()))

    def outside(
        self, x: np.ndarray, y: np.ndarray, mask: float, bottom: float, near: float
    ) -> tuple[Distance, int]:
        """Return how far two vectors are apart outside of masked lanes, and the number of elements in them.

        Args:
            x: Elements.
            y: As many.
            mask: Elements of masked lanes are no larger than this on both sides.
            bottom: Where both are no larger than this, the lane is masked.
            near: So far, relative to the one of ``y``, the elements of other masked lanes are apart at most.
        """
        memory = self._found.memory
        count = self._outside(address(x), address(y), x.size, _LANES.pack(mask, bottom, near), memory)
        return Distance(*_DISTANCE.unpack_from(memory)), int(count)

    def sums(self, x: np.ndarray, y: np.ndarray, nothing: float) -> PairSums | None:
        """Return the sums of two vectors, None where an element is not finite.

        Args:
            x: At least one element.
            y: As many.
            nothing: Up to this magnitude an element of ``y`` has no ratio.
        """
        memory, singles = self._found.memory, np.empty(_SINGLES, np.float32)
        self._sums(address(x), address(y), x.size, nothing, memory, singles.ctypes.data)
        found = _PAIRS.unpack_from(memory)
        both = dict(zip(_OF_BOTH, found[10:], strict=True))
        sums = PairSums(x.size, SideSums(*found[:5]), SideSums(*found[5:10]), **both, singles=singles)
        is_finite = math.isfinite(sums.x.total) and math.isfinite(sums.y.total)
        return sums if is_finite else None

    def apart(self, x: np.ndarray, y: np.ndarray, block: int) -> Apart | None:
        """Return how far two vectors are apart, None where an element is not finite.

        Args:
            x: At least one element.
            y: As many.
            block: Elements that are added before their sums are.
        """
        memory = self._found.memory
        self._apart(address(x), address(y), x.size, block, memory)
        found = Apart(*_APART.unpack_from(memory))
        # squares of float32 do not overflow float64
        is_finite = math.isfinite(found.x_squares) and math.isfinite(found.y_squares)
        return found if is_finite else None

    def scaled(self, x: np.ndarray, y: np.ndarray, scales: PairScale) -> np.ndarray:
        """Return sums in float32 and in numpy's order: of products of units, and of the densities of each.

        Args:
            x: Elements.
            y: As many.
            scales: Of the whole vectors of which these are parts.
        """
        totals = np.empty(_SCALED, np.float32)
        self._scaled(address(x), address(y), x.size, scales.packed(), totals.ctypes.data)
        return totals

    def divided(
        self, x: np.ndarray, y: np.ndarray, scales: PairScale, totals: np.ndarray, out: np.ndarray
    ) -> None:
        """Divide the densities by their totals, then those of ``x`` by those of ``y``.

        Args:
            x: Elements.
            y: As many.
            scales: Of the whole vectors.
            totals: Two float32: that of the densities of x and that of y.
            out: Gets the densities of x, and the quotients: two rows of as many float32.
        """
        written = (row.ctypes.data for row in out)
        self._divided(address(x), address(y), x.size, scales.packed(), totals.ctypes.data, *written)

    def most_units(self, x: np.ndarray, y: np.ndarray, least: float) -> float:
        """Return the largest ``|x - y|`` in units of the power of two up to ``|y|``, at least ``least``."""
        units: float = self._units(address(x), address(y), x.size, least)
        return units


def load(library: Path) -> PairKernel | None:
    """Return the compiled passes in a file, None where there are none that this process can use.

    >>> load(Path("/nowhere")) is None
    True
    """
    loaded = compiled.open_library(library)
    try:
        return None if loaded is None else PairKernel(loaded)
    except AttributeError:  # of an older source
        return None


PAIRS = load(compiled.LIBRARY)
"""The compiled passes of this installation, None where it has none."""
