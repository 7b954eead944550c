"""Statistics of values that an onnxruntime session measures itself, by the custom operator Measure.

The compiled library contains the operator (``kernel/insession.h``). A node ``Measure`` after a value's
producer reads the value while it is in the cache, and passes it on in the same memory. Only the statistics
leave the session, with the same bits as from ``passes.measure``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.dtypes import DType
from msdump.statistics import compiled, passes
from msdump.statistics.totals import StatisticNeed, Totals, TotalsArray
from msdump.threads import thread_count

DOMAIN: Final = "msdump"
"""Domain of the operator."""

MEASURE: Final = "Measure"
"""The operator: ``Measure(value, addresses) -> value``."""

ADDRESSES: Final = 2
"""Number of the addresses that it is fed: of statistics, and of types and shapes."""

_FOUND: Final = np.dtype([]) if compiled.KERNEL is None else compiled.KERNEL.found
"""Layout of the statistics that a session writes for each value, as the compiled library states it."""

_MOST_DIMENSIONS: Final = 8
_KIND: Final = Struct(f"=2q{_MOST_DIMENSIONS}q")  # type, rank, dimensions
_KNOWN: Final = frozenset({*compiled.TYPES, np.dtype(np.bool_)})
"""Types that the compiled pass knows, and truth values, which it counts as the numbers that they are."""

_ELEMENTS: Final = {
    row.onnx: np.zeros((), row.numpy) for row in dtypes.DTYPES if row.onnx and row.numpy in _KNOWN
}
"""An element of each type by the runtime's number, which is ONNX's."""


def takes(dtype: DType | None) -> bool:
    """Return whether a session can measure values of an element type."""
    return dtype is not None and dtype.numpy in _KNOWN


def attributes(slot: int, need: StatisticNeed) -> dict[str, int]:
    """Return the attributes of a node ``Measure``."""
    return {"slot": slot, "need": compiled.wanted(need), "threads": thread_count(), "part": passes.PART}


class SessionMeasures:
    """Memory for the statistics of a session's last run."""

    __slots__ = ("_found", "_kinds", "addresses")

    def __init__(self, count: int) -> None:
        self._found = np.zeros(count, _FOUND)
        self._kinds = ctypes.create_string_buffer(_KIND.size * count)
        # addresses to which the session writes statistics, and types and shapes
        self.addresses = np.array([self._found.ctypes.data, ctypes.addressof(self._kinds)], np.int64)

    @property
    def kinds(self) -> bytes:
        """Types and shapes of the measured values in the last run, as bytes for comparison."""
        return self._kinds.raw

    def totals(self, arrays: Sequence[np.ndarray]) -> Iterator[Totals]:
        """Yield the statistics of each value; ``stand_ins(kinds)`` have the numbers of elements."""
        return (Totals(array.size, *each) for array, each in zip(arrays, self._found.tolist(), strict=True))

    def together(self, places: np.ndarray, counts: np.ndarray) -> TotalsArray:
        """Return the statistics of the values of some indices, with the number of elements of each."""
        found = self._found[places]  # a copy: the next run overwrites the memory
        return TotalsArray(counts, *(found[name] for name in _FOUND.names or ()))


def stand_ins(kinds: bytes) -> list[np.ndarray] | None:
    """Return distinct arrays, without elements, of the measured values' types and shapes (``kinds``).

    None if a value has too many dimensions.
    """
    arrays = []
    for kind, rank, *sizes in _KIND.iter_unpack(kinds):
        if rank > _MOST_DIMENSIONS:
            return None
        arrays.append(np.broadcast_to(_ELEMENTS[kind], sizes[:rank]))
    return arrays
