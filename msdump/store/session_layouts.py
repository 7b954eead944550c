"""How a session lays out the values that it writes: the device's formats as the compiled library reads them.

The library (``statistics/kernel/layout.h``) follows an index rule of ``device.blocks`` from the shape that a
value has in a run. It does not know formats whose conversion is more than one rule.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Final

from msdump.device import formats
from msdump.device.blocks import Blocks
from msdump.errors import FormatError

_MOST_TERMS: Final = 15
_MOST_DIMENSIONS: Final = 8
_PARTS: Final = {"whole": 0, "block": 1, "place": 2}
_MISSING: Final = -1


class _Term(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int64) for name in ("axis", "part", "length", "ends"))


class SessionLayout(ctypes.Structure):
    """How values of one rank are laid out."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rank", "keeps", "count")),
        ("terms", _Term * _MOST_TERMS),
        ("dimensions", ctypes.c_int64 * _MOST_DIMENSIONS),
    )


@functools.lru_cache(maxsize=256)
def layout(format_name: str, rank: int, c0: int) -> SessionLayout | None:
    """Return how a session lays out values in a format, None where it cannot.

    Args:
        format_name: Name of a format that changes something.
        rank: Number of the dimensions of the values.
        c0: Length of the innermost blocks.
    """
    stages = formats.find(format_name).stages
    if len(stages) != 1 or not isinstance(stages[0], Blocks):
        return None
    is_vector = format_name == formats.FRACTAL_NZ and rank == 1
    try:
        dimensions = [_MISSING, 0] if is_vector else _dimensions(format_name, rank)
    except FormatError:
        return None
    axes = stages[0].terms(len(dimensions), c0)
    terms = [
        _Term(axis, _PARTS[part], length, (axis, part, length) == merged[-1])
        for merged in axes
        for axis, part, length in merged
    ]
    if len(dimensions) > _MOST_DIMENSIONS or len(terms) > _MOST_TERMS or axes[-1][-1].part != "place":
        return None
    return SessionLayout(rank, c0 if is_vector else 0, len(terms), tuple(terms), tuple(dimensions))


def _dimensions(format_name: str, rank: int) -> list[int]:
    """Return for each axis that a rule starts from the dimension of the values."""
    numbered = formats.padded(format_name, tuple(range(2, rank + 2)))
    return [_MISSING if number == 1 else number - 2 for number in numbered]
