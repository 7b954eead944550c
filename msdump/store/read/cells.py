"""Cells of the tables of a dump (``statistic.csv``, acl's csv files), read as Python values."""

from __future__ import annotations

import re
from typing import Final

from msdump.statistics.table import STATISTICS, Nature

Cell = int | float | bool | str | None
"""A count, a number, a device's truth value, a text; None where the table says nothing."""

Row = dict[str, Cell]
"""The cells of a line by the titles of their columns."""

_TEXTS: Final = frozenset(
    {
        *("Op Type", "Op Name", "IO", "Input/Output", "Data Type", "Format", "Shape"),
        *(statistic.title for statistic in STATISTICS if statistic.nature is Nature.DIGEST),
        "Hash",
    }
)
"""Titles of the columns that hold text, whatever it looks like."""

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_MOST_DIGITS: Final = 400  # a float64 has 309 before its point; int() takes time with the square of them
_NOTHING: Final = frozenset({"", "null", "-", "NA"})
_TRUTHS: Final = {"True": True, "False": False}


def read(title: str, text: str) -> Cell:
    """Return the value of a cell; a text that is no number stays a text.

    >>> read("Max Value", "1.5"), read("Count", "6"), read("Min Value", "null"), read("Shape", "2x3")
    (1.5, 6, None, '2x3')

    Args:
        title: Title of its column.
        text: The cell.

    Raises:
        ValueError: A number of more digits than any statistic has.
    """
    if title in _TEXTS:
        return text
    if text in _NOTHING:
        return None
    if text in _TRUTHS:
        return _TRUTHS[text]
    if _INTEGER.fullmatch(text):
        return integer(text)
    try:
        return float(text)
    except ValueError:
        return text


def integer(text: str) -> int:
    """Return a decimal number.

    Raises:
        ValueError: It has more digits than any number of a dump.
    """
    if len(text) > _MOST_DIGITS:
        raise ValueError(
            f"a number of {len(text):,} digits ({text[:12]}...); at most {_MOST_DIGITS} are read"
        )
    return int(text)
