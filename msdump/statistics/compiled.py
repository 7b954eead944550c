"""The compiled pass over a tensor's elements: one read for every statistic but the hashes.

``kernel/`` holds its source in C, which is compiled where msdump is installed and a C compiler is there
(``scripts/compile_kernel.py``). Without it numpy finds the same in several reads, see ``passes``.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import logging
from array import array
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from struct import Struct
from typing import Final

import ml_dtypes
import numpy as np

from msdump.statistics.totals import NOTHING, StatisticNeed, Totals

_log = logging.getLogger("msdump.statistics")

LIBRARY: Final = Path(__file__).parent / "kernel" / "_kernel.so"
"""Where the compiled pass stands."""

_VERSION: Final = 13  # other versions, left from older sources, are not used
TYPES: Final = {
    np.dtype(name): number
    for number, name in enumerate((
        *("float16", ml_dtypes.bfloat16, "float32", "float64", "int8", "uint8"),
        *("int16", "uint16", "int32", "uint32", "int64", "uint64"),
    ))
}  # fmt: skip
"""Numbers of the element types that the compiled pass knows."""

_C_TYPES: Final = {"double": "d", "int64_t": "q"}


Span = tuple[int, int, int]
"""Address, number and type of elements that lie one after the other, aligned; what holds them stays alive."""


class CompiledPass:
    """The compiled pass; thread-safe, and it releases the GIL."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Declare the functions of a library that ``load`` accepts."""
        # layout of the record that the pass writes for a tensor: the fields of Totals after ``count``
        self.found = _layout(library)
        self._struct = Struct("=" + "".join(self.found[name].char for name in self.found.names or ()))
        self._measure = library.msdump_measure
        self._measure.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
        self._measure.restype = None
        # measures the distances of pairs of vectors; see ``distances``
        self.find_distances = library.msdump_find_distances
        self.find_distances.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p)
        self.find_distances.restype = None

    def takes(self, dtype: np.dtype) -> bool:
        """Return whether the library measures an element type (in native byte order)."""
        return dtype in TYPES

    def span(self, elements: np.ndarray) -> Span:
        """Return address, number and type of elements."""
        return address(elements), elements.size, TYPES[elements.dtype]

    def totals(self, elements: np.ndarray, need: StatisticNeed) -> Totals:
        """Measure elements; zero extremes have the sign of the first zero."""
        data = elements if elements.flags.aligned else elements.copy()
        (found,) = self.of_spans((self.span(data),), need)
        return found

    def of_spans(self, spans: Sequence[Span], need: StatisticNeed) -> list[Totals]:
        """Measure several spans of elements in one call; see ``totals``."""
        given = array("q", itertools.chain.from_iterable(spans))
        found = array("q", bytes(self._struct.size * len(spans)))
        self._measure(given.buffer_info()[0], len(spans), wanted(need), found.buffer_info()[0])
        fields = self._struct.iter_unpack(found)
        return [Totals(size, *found) for (_, size, _), found in zip(spans, fields, strict=True)]


@functools.cache
def finds(need: StatisticNeed) -> bool:
    """Return whether the compiled pass measures all needed statistics; else numpy does (``passes``)."""
    return replace(need, extremes=False, counts=False, total=False, squares=False) == NOTHING


def wanted(need: StatisticNeed) -> int:
    """Return needs as the bit mask that the compiled pass takes."""
    return need.counts | need.total << 1 | need.squares << 2


def address(data: np.ndarray) -> int:
    """Return the address of the first element of an array."""
    flags = data.flags
    # ctypes accepts only such buffers
    if flags.writeable and flags.c_contiguous and data.size and data.dtype.isbuiltin == 1:
        # three times as fast as ``data.ctypes``
        return ctypes.addressof(ctypes.c_char.from_buffer(data))  # type: ignore[arg-type]  # as numpy's stubs say
    return data.ctypes.data


def _layout(library: ctypes.CDLL) -> np.dtype:
    """Return the layout of a tensor's record, parsed from the library's description."""
    library.msdump_found.restype = ctypes.c_char_p
    fields = (field.split() for field in library.msdump_found().decode().split(";") if field)
    return np.dtype([(name, _C_TYPES[c_type]) for c_type, name in fields])


def _fits(layout: np.dtype, size: int) -> bool:
    """Return whether a record has the stated size, and its fields are the first of Totals after ``count``."""
    names = layout.names or ()
    return layout.itemsize == size and names == tuple(Totals.__slots__[1 : 1 + len(names)])


def load(library: Path) -> CompiledPass | None:
    """Return the compiled pass in a file, None if the file is missing or not usable.

    >>> load(Path("/nowhere")) is None
    True
    """
    try:
        loaded = ctypes.CDLL(str(library))
    except OSError:  # missing, or built for another machine
        return None
    try:
        if loaded.msdump_kernel_version() == _VERSION and _fits(_layout(loaded), loaded.msdump_found_size()):
            return CompiledPass(loaded)
    except (AttributeError, KeyError):  # another version's interface
        pass
    _log.warning(
        "%s: is of another version of msdump, so numpy computes the statistics, more slowly;"
        " install msdump again, or run scripts/compile_kernel.py in a source tree",
        library,
    )
    return None


KERNEL = load(LIBRARY)
"""The compiled pass of this installation, None where it has none."""
