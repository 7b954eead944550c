"""Reductions of the tensors of several ranks, element by element and always in rank order.

Integers and float types of four bytes and more are joined in their own type, the smaller float types in
float32, and rounded once, when all ranks are in: ``round(((r0 + r1) + r2) + r3)``. The order is that of the
ranks in the group, so every rank and every transport gets the same bits. ``max`` and ``min`` keep NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from msdump import dtypes

Joined = Callable[..., Any]

_JOINS: Final[Mapping[str, Joined]] = {
    "sum": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "prod": np.multiply,
}

_OWN: Final = frozenset(
    {
        *("float32", "float64", "int8", "int16", "int32", "int64"),
        *("uint8", "uint16", "uint32", "uint64"),
    }
)
_WIDENED: Final = frozenset(
    {"float16", "bfloat16"} | {row.name for row in dtypes.DTYPES if row.name.startswith("float8")}
)
REDUCIBLE: Final = _OWN | _WIDENED
"""Names of the element types that can be reduced."""


def reduce(op: str, parts: Sequence[np.ndarray], out: np.ndarray) -> None:
    """Join the same elements of all ranks.

    >>> out = np.zeros(2, np.float16)
    >>> reduce("sum", [np.array(part, np.float16) for part in ([2048, 1], [1, 2], [1, 3])], out)
    >>> out.tolist()
    [2050.0, 6.0]

    Args:
        op: sum, max, min or prod.
        parts: The elements of each rank, in rank order: flat arrays of one size and type.
        out: Takes the results; may be one of the parts.
    """
    join, first = _JOINS[op], parts[0]
    with np.errstate(over="ignore", invalid="ignore"):  # infinities and NaN are results like others
        if dtypes.from_numpy(out.dtype).name in _OWN:
            result = first
            for part in parts[1:-1]:
                result = join(result, part)
            if len(parts) > 1:
                join(result, parts[-1], out=out)
            else:
                out[:] = first
            return
        wide = first.astype(np.float32)
        for part in parts[1:]:
            join(wide, part.astype(np.float32), out=wide)
        out[:] = wide.astype(out.dtype)
