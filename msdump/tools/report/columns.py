"""``statistic.csv`` read column by column: many rows at once, and all that can be read of a damaged file."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from msdump import reading
from msdump.statistics.table import STATISTICS, Nature
from msdump.store.read import cells

Fault = Callable[[str], None]
"""Gets what cannot be read, in words."""

MeasuredName = tuple[str, str, str, int]
"""Type and name of an operator as files spell them, input or output, its number."""

CATEGORIES: Final = tuple(each.category for each in STATISTICS if each.nature is not Nature.DIGEST)
"""The statistics that are numbers, by the names of ``statistic_category``."""

_CATEGORY: Final = {each.title: each.category for each in STATISTICS if each.nature is not Nature.DIGEST}
_NAMES: Final = ("Op Type", "Op Name", "IO", "Slot")
_FIRST_TITLE: Final = _NAMES[0]
_TRUTHS: Final = {"True": 1.0, "False": 0.0}


@dataclass(frozen=True, slots=True)
class MeasuredColumns:
    """The tensors of one directory and their statistics, column by column.

    Attributes:
        names: Which tensors they are.
        times: Microseconds since the epoch, 0 where it is not known.
        forms: Element type and shape of each, ``("float32", "2x3")``.
        numbers: The statistics by category, float64; NaN also where one was not computed, which
            ``known`` tells apart.
        known: By category, which of them were computed.
    """

    names: list[MeasuredName] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    forms: list[tuple[str, str]] = field(default_factory=list)
    numbers: Mapping[str, np.ndarray] = field(default_factory=dict)
    known: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def has_repeats(self) -> bool:
        """Whether a tensor stands in several rows: of passes of a loop, or of several executions."""
        return len({*self.names}) < len(self.names)


def read(path: str, fault: Fault) -> MeasuredColumns:
    """Return the rows of a ``statistic.csv``; rows that do not fit their titles are told and left out.

    A last row without a line feed is no row: a run goes on, or was killed, while it was written.
    """
    try:
        data = reading.read_bytes(path)
    except OSError as error:
        fault(f"{path}: cannot be read: {error.strerror or error}")
        return MeasuredColumns()
    end = data.rfind(b"\n") + 1
    if end < len(data):
        fault(f"{path}: the last row has no line feed yet and is left out")
    text = data[:end].decode(errors="replace")
    parts = [_columns(titles, rows, path, fault) for titles, rows in _tables(_rows(text), path, fault)]
    return parts[0] if len(parts) == 1 else joined(parts)


def _rows(text: str) -> list[list[str]]:
    lines = text.split("\n")
    try:
        reader = csv.reader(lines)
        rows = [*reader]
        if len(rows) == len(lines):
            return rows
    except csv.Error:
        pass
    # a quote that is never closed swallows the lines behind it: one line at a time
    return [_cells(line) for line in lines]


def _cells(line: str) -> list[str]:
    if '"' not in line:
        return line.split(",") if line else []
    try:
        return next(csv.reader([line]), [])
    except csv.Error:  # a cell beyond the module's limit
        return [line]


def _tables(
    rows: Sequence[list[str]], path: str, fault: Fault
) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Yield the rows below each line of titles; a later run may have asked for other statistics."""
    starts = [number for number, row in enumerate(rows) if row and row[0] == _FIRST_TITLE]
    if not starts or any(rows[: starts[0]]):
        fault_text = "the first line has no titles of statistics; what stands before some is left out"
        if any(rows):
            fault(f"{path}: {fault_text}")
    if not starts:
        return
    for start, stop in zip(starts, [*starts[1:], len(rows)], strict=True):
        titles = rows[start]
        width, below = len(titles), rows[start + 1 : stop]
        # vendor: the reference ends every row, but not the titles, with a comma
        fitting = [
            row[:width] for row in below if len(row) == width or (len(row) == width + 1 and not row[-1])
        ]
        unfit = sum(map(bool, below)) - len(fitting)
        if unfit:
            fault(f"{path}: {unfit} row{'s' * (unfit > 1)} with another number of cells than titles left out")
        yield titles, fitting


def _columns(titles: Sequence[str], rows: Sequence[list[str]], path: str, fault: Fault) -> MeasuredColumns:
    if not rows:
        return MeasuredColumns()
    columns = dict(zip(titles, zip(*rows, strict=True), strict=False))
    if any(title not in columns for title in _NAMES):
        fault(f"{path}: lacks a column of {', '.join(_NAMES)}; its rows are left out")
        return MeasuredColumns()
    slots = _wholes(columns["Slot"])
    sides = map(str.lower, columns["IO"])
    size, nothing = len(rows), ("",) * len(rows)
    shape_column = columns.get("Shape", nothing)
    shown = {shape: shape.strip("()").replace(",", "x") for shape in {*shape_column}}
    shapes = map(shown.__getitem__, shape_column)
    times = columns.get("Timestamp")
    numbers = {_CATEGORY[title]: _numbers(column) for title, column in columns.items() if title in _CATEGORY}
    return MeasuredColumns(
        [*zip(columns["Op Type"], columns["Op Name"], sides, slots, strict=True)],
        [0] * size if times is None else _wholes(times),
        [*zip(map(str.lower, columns.get("Data Type", nothing)), shapes, strict=True)],
        {category: values for category, (values, _) in numbers.items()},
        {category: known for category, (_, known) in numbers.items()},
    )


def _wholes(column: Sequence[str]) -> list[int]:
    try:
        whole = [*map(int, column)]
        if 0 <= min(whole) <= max(whole) < 1 << 63:
            return whole
    except ValueError:
        pass
    return [*map(_whole, column)]


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < len(str(1 << 63)) else 0


def _numbers(column: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of a column, and which of its cells are some."""
    try:
        values = np.fromiter(map(float, column), np.float64, len(column))
    except ValueError:
        values = np.fromiter((_number(cell) for cell in column), np.float64, len(column))
        is_known = (cell.lower().lstrip("+-") == "nan" for cell in column)
        return values, ~np.isnan(values) | np.fromiter(is_known, np.bool_, len(column))
    return values, np.ones(len(column), np.bool_)


def _number(cell: str) -> float:
    try:
        return _TRUTHS[cell] if cell in _TRUTHS else float(cell)
    except ValueError:  # null, or no number at all
        return np.nan


def of_cells(
    rows: Iterable[tuple[MeasuredName, int, tuple[str, str], Mapping[str, cells.Cell]]],
) -> MeasuredColumns:
    """Return tensors as columns: names, times, element types and shapes, statistics by category."""
    given = [*rows]
    if not given:
        return MeasuredColumns()
    names, times, forms, statistics = (list(each) for each in zip(*given, strict=True))
    numbers, known = {}, {}
    for category in CATEGORIES:
        values = [row.get(category) for row in statistics]
        is_known = np.array([isinstance(value, int | float) for value in values], np.bool_)
        if is_known.any():
            numbers[category] = np.array(
                [_as_float(value) if isinstance(value, int | float) else np.nan for value in values]
            )
            known[category] = is_known
    return MeasuredColumns(names, times, forms, numbers, known)


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer beyond float64
        return np.inf if value > 0 else -np.inf


def joined(parts: Sequence[MeasuredColumns]) -> MeasuredColumns:
    """Return the rows of several tables in one."""
    parts = [part for part in parts if part.names]
    if not parts:
        return MeasuredColumns()
    categories = dict.fromkeys(category for part in parts for category in part.numbers)
    return MeasuredColumns(
        [name for part in parts for name in part.names],
        [time for part in parts for time in part.times],
        [form for part in parts for form in part.forms],
        {
            category: np.concatenate(
                [part.numbers.get(category, np.full(len(part.names), np.nan)) for part in parts]
            )
            for category in categories
        },
        {
            category: np.concatenate(
                [part.known.get(category, np.zeros(len(part.names), np.bool_)) for part in parts]
            )
            for category in categories
        },
    )
