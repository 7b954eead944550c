"""The data of a page: compressed, base64, small enough to be sent around.

A chunk is compressed alone, so that the least important ones can be left out where a page would grow too
large. Tables of float32 are taken apart into planes of bytes, which compress better: the two highest hold
two digits of a number, the third makes them nearly five.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

_FINE: Final = "fine"
_COARSE: Final = ("sign", "high")
_LEVEL: Final = 6
_HALF: Final = np.uint32(0x80)  # of the last place that is kept
_KEPT: Final = np.uint32(0xFFFFFF00)


@dataclass(frozen=True, slots=True)
class NumberTable:
    """A table of numbers that a page shows.

    Attributes:
        name: Its name, such as the category of a statistic.
        values: The numbers; NaN for none.
        is_kept: Whether it is in the page however large that grows.
    """

    name: str
    values: np.ndarray
    is_kept: bool


def compressed(data: bytes) -> str:
    """Return bytes as raw deflate in base64, which a browser's ``DecompressionStream`` reads."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return base64.b64encode(packer.compress(data) + packer.flush()).decode("ascii")


def document(value: Any) -> str:
    """Return a JSON value, compressed; it has no NaN and no infinities."""
    return compressed(json.dumps(value, separators=(",", ":"), allow_nan=False).encode())


def tables(numbers: Sequence[NumberTable], budget: int) -> tuple[dict[str, str], list[str]]:
    """Return the chunks of tables by name, and the names of tables that have no room.

    Args:
        numbers: The tables, the most important ones first.
        budget: Characters that all chunks may have; tables that are kept may pass it.
    """
    planes = {table.name: _planes(table.values) for table in numbers}
    chunks: dict[str, str] = {}
    left_out: list[str] = []
    used = 0
    for table in numbers:
        coarse = {f"{table.name}/{plane}": planes[table.name][plane] for plane in _COARSE}
        size = sum(map(len, coarse.values()))
        if table.is_kept or used + size <= budget:
            chunks |= coarse
            used += size
        else:
            left_out.append(table.name)
    for table in numbers:
        fine = planes[table.name][_FINE]
        if table.name not in left_out and used + len(fine) <= budget:
            chunks[f"{table.name}/{_FINE}"] = fine
            used += len(fine)
    return chunks, left_out


def _planes(values: np.ndarray) -> Mapping[str, str]:
    limit = float(np.finfo(np.float32).max)
    with np.errstate(over="ignore", invalid="ignore"):
        # what float32 cannot hold is shown as its largest number, infinities stay
        held = np.where(np.isfinite(values), np.clip(values, -limit, limit), values).astype("<f4")
    bits = np.ascontiguousarray(held).view("<u4").reshape(-1)
    is_rounded = np.isfinite(held).reshape(-1) & (bits & np.uint32(0x7FFFFF00) < np.uint32(0x7F7FFF00))
    bits = np.where(is_rounded, bits + _HALF, bits) & _KEPT
    octets = bits.astype("<u4").view(np.uint8).reshape(-1, 4)
    return {
        name: compressed(np.ascontiguousarray(octets[:, place]).tobytes())
        for name, place in (("sign", 3), ("high", 2), (_FINE, 1))
    }
