"""The csv file that acl writes instead of an operator's tensors (``dump_data`` stats): one row a tensor.

    Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,Nan Count,...
    Input,0,24,DT_FLOAT,ND,2x3,6,1,3.5,6,0,0,0

Numbers are printed as by a C++ stream of doubles: six significant digits. With the six default statistics
of ``dump_stats``, the column ``Count`` is the fourth; with any other choice it is the first.

    >>> print(*columns(DEFAULT_STATISTICS), sep=", ")
    Max, Min, Avg, Count, Nan, Negative Inf, Positive Inf
    >>> print(*columns(["Min", "Max"]), sep=", ")
    Count, Max, Min
    >>> info = TensorInfo(data_type=1, format=2, shape=(2, 3), original_shape=(2, 3), size=24)
    >>> row("input", 0, info, {"Max": 6.0, "Min": 1.0, "Count": 6}, ["Max", "Min"]).decode().strip()
    'Input,0,24,DT_FLOAT,ND,2x3,6,6,1'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from msdump.encode import dump_message
from msdump.encode.dump_data import TensorInfo
from msdump.plan import DEFAULT_STATISTICS, OperatorStatistic

_FIXED: Final = ("Input/Output", "Index", "Data Size", "Data Type", "Format", "Shape")

COUNT: Final = "Count"

TITLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        OperatorStatistic.MAX: "Max Value",
        OperatorStatistic.MIN: "Min Value",
        OperatorStatistic.AVG: "Avg Value",
        OperatorStatistic.NAN: "Nan Count",
        OperatorStatistic.NEGATIVE_INF: "Negative Inf Count",
        OperatorStatistic.POSITIVE_INF: "Positive Inf Count",
        OperatorStatistic.L2NORM: "l2norm",
    }
)
"""Title of the column of each statistic, in the order of the columns."""

_BEFORE_COUNT: Final = 3  # default columns before Count: Max, Min, Avg
_MISSING: Final = "NA"  # vendor: with the default columns, missing statistics are left empty instead

Cells = Mapping[str, float | int]
"""A number for each name of ``dump_stats``, and for ``Count``."""


def columns(chosen: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the columns behind the shape, in their order."""
    ordered = tuple(name for name in TITLES if name in chosen)
    # vendor: CANN's older engine has only these six statistics; their header is kept unchanged
    if ordered == DEFAULT_STATISTICS:
        return (*ordered[:_BEFORE_COUNT], COUNT, *ordered[_BEFORE_COUNT:])
    return (COUNT, *ordered)


def header(chosen: Sequence[str]) -> bytes:
    """Return the first line for names of ``dump_stats``."""
    titles = (TITLES.get(name, name) for name in columns(chosen))
    return f"{','.join((*_FIXED, *titles))}\n".encode()


def row(io: str, index: int, info: TensorInfo, cells: Cells | None, chosen: Sequence[str]) -> bytes:
    """Return the line of a tensor, a line feed at its end.

    The index counts the inputs or outputs of the file; ``cells`` is None for an element type without
    statistics, ``chosen`` are names of ``dump_stats``.
    """
    # vendor: a scalar has a hyphen for its shape
    shape = "x".join(map(str, info.shape)) or "-"
    fields = (
        *(io.capitalize(), str(index), str(info.size), dump_message.data_type_name(info.data_type)),
        *(dump_message.format_name(info.format), shape),
    )
    names = columns(chosen)
    missing = _MISSING if names[0] == COUNT else ""
    texts = (missing if cells is None else f"{cells[name]:.6g}" for name in names)
    return f"{','.join((*fields, *texts))}\n".encode()
