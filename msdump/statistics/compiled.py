"""The compiled pass over a tensor's elements: one read for every statistic but the hashes.

``kernel/`` holds its source in C, which is compiled where msdump is installed and a C compiler is there
(``scripts/compile_kernel.py``). Without it numpy finds the same in several reads, see ``passes``.
"""

from __future__ import annotations

import ctypes
import itertools
from array import array
from collections.abc import Sequence
from pathlib import Path
from struct import Struct
from typing import Final

import ml_dtypes
import numpy as np

from msdump.statistics.totals import StatisticNeed, Totals

LIBRARY: Final = Path(__file__).parent / "kernel" / "_kernel.so"
"""Where the compiled pass stands."""

_VERSION: Final = 12  # a library of another one, left from an older source, is not used
TYPES: Final = {
    np.dtype(name): number
    for number, name in enumerate((
        *("float16", ml_dtypes.bfloat16, "float32", "float64", "int8", "uint8"),
        *("int16", "uint16", "int32", "uint32", "int64", "uint64"),
    ))
}  # fmt: skip
"""Numbers of the element types that the compiled pass knows."""

FOUND: Final = Struct("=2d5q2d")
"""What the compiled pass writes: the fields of Totals behind its count, the squares last."""

_FIELDS: Final = 9
_SQUARES: Final = StatisticNeed(squares=True)


Span = tuple[int, int, int]
"""Address, number and type of elements that lie one after the other, aligned; what holds them stays alive."""


class CompiledPass:
    """The compiled pass; any thread may use it, and other threads run meanwhile."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Take a library that has the version."""
        self._measure = library.msdump_measure
        self._measure.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
        self._measure.restype = None

    def takes(self, dtype: np.dtype) -> bool:
        """Tell whether it knows an element type; it knows them in the byte order of the machine alone."""
        return dtype in TYPES

    def span(self, elements: np.ndarray) -> Span:
        """Return where elements lie.

        Args:
            elements: At least one element, contiguous, aligned, of a type that it takes.
        """
        return address(elements), elements.size, TYPES[elements.dtype]

    def totals(self, elements: np.ndarray, need: StatisticNeed) -> Totals:
        """Measure elements; zero extremes have the sign of the first zero.

        Args:
            elements: At least one element, contiguous, of a type that it takes.
            need: What to find out.
        """
        data = elements if elements.flags.aligned else elements.copy()
        (found,) = self.of_spans((self.span(data),), need)
        return found

    def of_spans(self, spans: Sequence[Span], need: StatisticNeed) -> list[Totals]:
        """Measure several spans of elements in one call; see ``totals``."""
        fields = FOUND.iter_unpack(self._found(spans, need))
        return [Totals(size, *found) for (_, size, _), found in zip(spans, fields, strict=True)]

    def squares(self, spans: Sequence[Span]) -> list[float]:
        """Return the sum of the squares of the elements of each of several spans; see ``totals``."""
        found = self._found(spans, _SQUARES)
        return array("d", found.tobytes())[_FIELDS - 1 :: _FIELDS].tolist()

    def _found(self, spans: Sequence[Span], need: StatisticNeed) -> array[int]:
        given = array("q", itertools.chain.from_iterable(spans))
        found = array("q", bytes(FOUND.size * len(spans)))
        self._measure(given.buffer_info()[0], len(spans), wanted(need), found.buffer_info()[0])
        return found


def wanted(need: StatisticNeed) -> int:
    """Return what to find out as the compiled pass is told it."""
    return need.counts | need.total << 1 | need.squares << 2


def address(data: np.ndarray) -> int:
    """Return where the first element of an array lies."""
    flags = data.flags
    # else no buffer that ctypes takes
    if flags.writeable and flags.c_contiguous and data.size and data.dtype.isbuiltin == 1:
        # in a third of the time of ``data.ctypes``, which makes objects of Python
        return ctypes.addressof(ctypes.c_char.from_buffer(data))  # type: ignore[arg-type]  # as numpy's stubs say
    return data.ctypes.data


def open_library(library: Path) -> ctypes.CDLL | None:
    """Return the compiled library in a file, None where there is none that this process can use."""
    try:
        loaded = ctypes.CDLL(str(library))
        return loaded if loaded.msdump_kernel_version() == _VERSION else None
    except (OSError, AttributeError):  # not there, of another machine, or of another interface
        return None


def load(library: Path) -> CompiledPass | None:
    """Return the compiled pass in a file, None where there is none that this process can use.

    >>> load(Path("/nowhere")) is None
    True
    """
    loaded = open_library(library)
    return None if loaded is None else CompiledPass(loaded)


KERNEL = load(LIBRARY)
"""The compiled pass of this installation, None where it has none."""
