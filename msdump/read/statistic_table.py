"""The table of statistics (statistic.csv, acl's csv files) and the statistics of one tensor."""

from __future__ import annotations

import codecs
import csv
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final

from msdump import dtypes
from msdump.encode import dump_message
from msdump.errors import DumpReadError, FormatError
from msdump.read import files
from msdump.statistics import BY_CATEGORY, STATISTICS, Nature, StatisticNeed

if TYPE_CHECKING:
    import numpy as np

    from msdump.statistics import Totals


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

_NUMBERS: Final = {each.title for each in STATISTICS if each.nature is not Nature.DIGEST} | {
    "Slot",
    "Timestamp",
}
"""Titles of the columns that hold numbers."""

_DUMP_PREFIX: Final = "DT_"
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_FIRST_TITLES: Final = frozenset({"Op Type", "Input/Output"})
_NOTHING: Final = frozenset({"", "null", "-", "NA"})
_TRUTHS: Final = {"True": True, "False": False}


def read_cell(title: str, text: str) -> Cell:
    """Return the value of a cell of a column; a text below an unknown title stays a text.

    >>> read_cell("Max Value", "1.5"), read_cell("Count", "6"), read_cell("Min Value", "null")
    (1.5, 6, None)

    Raises:
        ValueError: A number of more digits than any statistic has, or a text in a column of numbers.
    """
    if title in _TEXTS:
        return text
    if text in _NOTHING:
        return None
    if text in _TRUTHS:
        return _TRUTHS[text]
    if _INTEGER.fullmatch(text):
        return files.integer(text)
    try:
        return float(text)
    except ValueError:
        if title in _NUMBERS:
            raise ValueError(f"{title} is {text[:40]!r}, no number") from None
        return text


def read_dtype(cell: Cell) -> str:
    """Return the name of an element type, also of one in acl's words; an unknown one in lower case.

    >>> read_dtype("Float32"), read_dtype("DT_FLOAT"), read_dtype("Odd")
    ('float32', 'float32', 'odd')
    """
    name = str(cell)
    try:
        if name.startswith(_DUMP_PREFIX):
            return dtypes.from_dump(dump_message.DATA_TYPES[name.removeprefix(_DUMP_PREFIX)]).name
        return dtypes.from_name(name).name
    except (FormatError, KeyError):
        return name.lower()


def read_shape(cell: Cell) -> tuple[int, ...] | None:
    """Return the shape in a cell, None where it holds none.

    >>> read_shape("(2,3)"), read_shape("2x3"), read_shape("-"), read_shape("()")
    ((2, 3), (2, 3), (), ())
    """
    sizes = str(cell).strip("()-").replace("x", ",").split(",")
    if cell is None or not all(size.strip().isdecimal() or not size.strip() for size in sizes):
        return None
    return tuple(int(size) for size in sizes if size.strip())


def read_statistics(path: str) -> tuple[Row, ...]:
    """Return the rows of a ``statistic.csv``, cells by the titles of their columns.

    Numbers are numbers, digests and names are texts, a statistic that was not computed is None. A second
    line of titles, of a run with other statistics, holds for the rows below it.

    Raises:
        DumpReadError: The file cannot be read or is no table, a row does not fit its titles or holds
            something else than numbers in their columns.
    """
    rows, faults = read_whole_rows(path)
    if faults:
        raise faults[0]
    return rows


def read_whole_rows(path: str) -> tuple[tuple[Row, ...], list[DumpReadError]]:
    """Return the rows of a ``statistic.csv`` that can be read, and the errors of others, or of the file."""
    titles: list[str] = []
    rows: list[Row] = []
    faults: list[DumpReadError] = []
    try:
        if why := no_table(files.read_bytes(path)):
            return (), [DumpReadError(path, why)]
        for offset, line in files.read_rows(path):
            try:
                line_cells = _cells(path, offset, line)
                if line_cells and line_cells[0] in _FIRST_TITLES:
                    titles = line_cells
                else:
                    rows.append(_row(path, offset, titles, line_cells))
            except DumpReadError as error:
                faults.append(error)
    except DumpReadError as error:
        faults.append(error)
    return tuple(rows), faults


_SPREADSHEET: Final = (
    "{}: a spreadsheet has saved it; save it as CSV in UTF-8, with commas between cells and decimal points, "
    "or dump again"
)


_SEPARATORS: Final = {",": "", ";": "semicolons separate its cells", "\t": "tabs separate its cells"}
_MARKS: Final = codecs.BOM_UTF8 + codecs.BOM_UTF16_LE  # bytes of both marks of UTF-16, too


def no_table(data: bytes) -> str:
    r"""Return why the beginning of a file is no table of statistics, with the remedy; "" for a table.

    >>> no_table(b"Op Type;Op Name\n")[:30], no_table(b"Op Type,Op Name\n")
    ('semicolons separate its cells:', '')
    """
    if not data:
        return "the table is empty: it was emptied, or the program was killed before it wrote; dump again"
    line, end, _ = data.partition(b"\n")
    text = line.lstrip(_MARKS).replace(b"\0", b"").decode(errors="replace")
    for separator, fault in _SEPARATORS.items():
        if text.partition(separator)[0].strip('"\r') in _FIRST_TITLES:
            form = "UTF-16 text" if b"\0" in line else fault
            return form and _SPREADSHEET.format(form)
    # a killed program may leave half of the titles
    return "the first line has no titles of statistics; dump again" if end else ""


def _row(path: str, offset: int, titles: list[str], line_cells: list[str]) -> Row:
    if len(line_cells) == len(titles) + 1 and not line_cells[-1]:
        # vendor: the reference ends every row, but not the header, with a comma. An empty cell at the
        # end of a row as wide as the header is a statistic that was not computed.
        line_cells = line_cells[:-1]
    if len(line_cells) != len(titles):
        raise DumpReadError(path, f"a row has {len(line_cells)} cells, the header has {len(titles)}", offset)
    try:
        return {title: read_cell(title, text) for title, text in zip(titles, line_cells, strict=True)}
    except ValueError as error:
        raise DumpReadError(path, str(error), offset) from error


def _cells(path: str, offset: int, line: str) -> list[str]:
    try:  # one line at a time: a quote that is never closed would swallow all the rows behind it
        return next(csv.reader([line]), [])
    except csv.Error as error:
        raise DumpReadError(path, f"not a row of comma-separated cells: {error}", offset) from error


Load = Callable[[], "np.ndarray | None"]
"""Returns the elements of a tensor, None where they were not saved."""

_EVERYTHING: Final = StatisticNeed(extremes=True, counts=True, total=True, squares=True)


class Measurements(Mapping[str, Cell]):
    """The statistics of one tensor by the categories of ``statistic_category``: "max", "l2norm", "nan count".

    Statistics of ``statistic.csv`` are taken from there, with its six digits. The rest is measured in one
    pass over the elements when it is first needed; it is None where the elements were not saved, where there
    are none, and for text and complex numbers. Digests are the saved ones.
    """

    def __init__(self, row: Row | None, load: Load) -> None:
        """Take the tensor's row of ``statistic.csv``, None without one, and the loader of its elements."""
        saved = row or {}
        self._saved = {each.category: saved[each.title] for each in STATISTICS if each.title in saved}
        self._load = load

    def __getitem__(self, category: str) -> Cell:
        """Return a statistic.

        Raises:
            KeyError: No such category, or a digest that was not saved.
            DumpReadError: The elements cannot be read.
        """
        if category in self._saved:
            return self._saved[category]
        statistic = BY_CATEGORY[category]
        if statistic.nature is Nature.DIGEST:
            raise KeyError(category)
        if self._totals is None:
            return None
        return statistic.value(self._totals, lambda: memoryview(b""))  # digests alone read the bytes

    def __iter__(self) -> Iterator[str]:
        """Yield the categories: all numbers, and the digests that were saved."""
        for statistic in STATISTICS:
            if statistic.nature is not Nature.DIGEST or statistic.category in self._saved:
                yield statistic.category

    def __len__(self) -> int:
        """Return the number of categories."""
        return sum(1 for _ in self)

    @property
    def saved(self) -> Mapping[str, Cell]:
        """The statistics that ``statistic.csv`` holds."""
        return self._saved

    @property
    def max(self) -> Cell:
        """The largest element, NaN where one is NaN."""
        return self["max"]

    @property
    def min(self) -> Cell:
        """The smallest element, NaN where one is NaN."""
        return self["min"]

    @property
    def mean(self) -> Cell:
        """The mean of the elements."""
        return self["avg"]

    @property
    def l2norm(self) -> Cell:
        """The square root of the sum of squares."""
        return self["l2norm"]

    @property
    def has_nan(self) -> bool | None:
        """Whether an element is NaN; None if neither statistics nor elements show it."""
        count = self._saved.get("nan count")
        if count is None:
            extremes = [self._saved.get(name) for name in ("max", "min", "avg", "l2norm")]
            numbers = [cell for cell in extremes if isinstance(cell, int | float)]
            if numbers:
                return any(map(math.isnan, numbers))
            count = self["nan count"]
        return None if count is None else bool(count)

    @property
    def has_infinity(self) -> bool | None:
        """Whether an element is inf; -inf alone, with which attention is masked, does not count."""
        return self._reaches("positive inf count", "max", math.inf)

    @property
    def has_negative_infinity(self) -> bool | None:
        """Whether an element is -inf."""
        return self._reaches("negative inf count", "min", -math.inf)

    def _reaches(self, count_of: str, extreme: str, infinity: float) -> bool | None:
        count = self._saved.get(count_of)
        bound = self._saved.get(extreme)
        # an extreme that is NaN hides the other elements
        if count is None and isinstance(bound, int | float) and not math.isnan(bound):
            return bound == infinity
        count = self[count_of] if count is None else count
        return None if count is None else bool(count)

    @cached_property
    def _totals(self) -> Totals | None:
        from msdump.statistics import passes

        array = self._load()
        if array is None or not array.size:
            return None
        try:
            dtype = dtypes.from_numpy(array.dtype)
        except FormatError:
            return None
        return passes.measure(array, dtype, _EVERYTHING) if passes.is_measurable(dtype) else None

    def __repr__(self) -> str:
        """Return the numbers in a line, measured unless saved."""
        return f"<Measurements {', '.join(f'{name} {value}' for name, value in self.items())}>"
