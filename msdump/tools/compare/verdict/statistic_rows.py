"""The comparison of two dumps of statistics: each row with the row of the same tensor in the other dump.

Statistics tell less than tensors: rows agree if every number that both have lies as near as the
element types allow, relative to the largest number of the tensor, and if they count the same NaN
and infinities. Digests and identical rows are equal bit for bit, as far as six digits tell.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from msdump.statistics.table import STATISTICS, Nature
from msdump.store.read import timeline
from msdump.store.read.cells import Cell, Row
from msdump.store.read.reader import open_iteration
from msdump.tools.judge.limits import Limits
from msdump.tools.judge.verdicts import TensorVerdict

Place = tuple[str, str, int, int]
"""The tensor of a row: operator, "input" or "output", its number, and the number of the operator's pass."""

_NATURES: Final = {statistic.title: statistic.nature for statistic in STATISTICS}
_NUMBERS: Final = frozenset({Nature.VALUE, Nature.AMOUNT})
_PRINTED: Final = 1e-5  # six significant digits on either side


@dataclass(frozen=True, slots=True)
class RowResult:
    """The verdict on the statistics of a tensor.

    Attributes:
        label: Label of its directory, "" where there is only one.
        place: The tensor.
        op_type: Type of its operator.
        verdict: The verdict.
        difference: Largest relative difference of a statistic, NaN where there is none.
        note: Which statistic differs most, or why nothing was compared.
    """

    label: str
    place: Place
    op_type: str
    verdict: TensorVerdict
    difference: float = math.nan
    note: str = ""


@dataclass(frozen=True, slots=True)
class RowSide:
    """The rows of one directory.

    Attributes:
        rows: Rows by the tensor that they measure, in the order of the execution.
        execution: Number of the execution whose rows these are.
        executions: Number of executions that left rows in the directory.
    """

    rows: Mapping[Place, Row]
    execution: int
    executions: int


def read(path: str, execution: int | None = None) -> RowSide:
    """Return the rows of a directory, those of one execution.

    Args:
        path: A directory with a ``statistic.csv``.
        execution: Number of the execution, None: the last one that is whole.

    Raises:
        DumpReadError: The table cannot be read, or there was no such execution.
    """
    iteration = open_iteration(path)
    if iteration is None:
        return RowSide({}, 0, 1)
    number = iteration.timeline.last_whole if execution is None else execution
    rows = iteration.execution(number).statistics
    return RowSide(dict(_placed(rows)), number, max(len(iteration.timeline.spans), 1))


def _placed(rows: Iterable[Row]) -> Iterator[tuple[Place, Row]]:
    rows = list(rows)
    tensors = [_tensor(row) for row in rows]
    for row, tensor, number in zip(rows, tensors, timeline.ordinals(tensors), strict=True):
        yield (*tensor, number), row


def _tensor(row: Row) -> tuple[str, str, int]:
    slot = row.get("Slot")
    return str(row.get("Op Name")), str(row.get("IO")), slot if isinstance(slot, int) else 0


def compare(label: str, dumped: RowSide, golden: RowSide, limits: Limits) -> Iterator[RowResult]:
    """Yield the verdict on each tensor of the examined side, in order, then on those that only golden has.

    Args:
        label: Label of the two directories.
        dumped: The rows that are examined.
        golden: The rows that they are compared with.
        limits: What counts as agreement.
    """
    for place, row in dumped.rows.items():
        golden_row = golden.rows.get(place)
        if golden_row is None:
            yield _alone(label, place, row, "golden")
        else:
            yield _result(label, place, row, golden_row, limits)
    for place, row in golden.rows.items():
        if place not in dumped.rows:
            yield _alone(label, place, row, "mine")


def _alone(label: str, place: Place, row: Row, side: str) -> RowResult:
    return RowResult(
        label, place, str(row.get("Op Type")), TensorVerdict.UNCHECKED, note=f"{side} has no such row"
    )


def _result(label: str, place: Place, dumped: Row, golden: Row, limits: Limits) -> RowResult:
    op_type = str(dumped.get("Op Type"))
    if dumped.get("Shape") != golden.get("Shape"):
        note = f"shape {dumped.get('Shape')} beside {golden.get('Shape')}"
        return RowResult(label, place, op_type, TensorVerdict.SHAPE, note=note)
    types = (str(dumped.get("Data Type")), str(golden.get("Data Type")))
    shared = _statistics(dumped, golden)
    if not shared:
        return RowResult(label, place, op_type, TensorVerdict.UNREADABLE, note="no statistic in common")
    same = all(_is_same(*cells) for cells in shared.values()) and types[0] == types[1]
    if same:
        return RowResult(label, place, op_type, TensorVerdict.EQUAL, 0.0)
    difference, title = max((_relative_difference(title, shared), title) for title in shared)
    allowed = limits.allowed(types, limits.precision)
    verdict = TensorVerdict.AGREES if difference <= max(allowed or 0.0, _PRINTED) else TensorVerdict.DIFFERS
    return RowResult(label, place, op_type, verdict, difference, title if difference else "")


def _statistics(dumped: Row, golden: Row) -> dict[str, tuple[Cell, Cell]]:
    """Return the statistics that both rows have; two configurations may choose different ones."""
    both = ((title, dumped.get(title), golden.get(title)) for title in dumped if title in _NATURES)
    return {
        title: (dumped_cell, golden_cell)
        for title, dumped_cell, golden_cell in both
        if dumped_cell is not None and golden_cell is not None
    }


def _is_same(dumped: Cell, golden: Cell) -> bool:
    is_nan = dumped != dumped and golden != golden  # noqa: PLR0124 - NaN is what differs from itself
    return dumped == golden or is_nan


def _relative_difference(title: str, shared: Mapping[str, tuple[Cell, Cell]]) -> float:
    """Return the difference of a statistic, relative to the golden tensor's largest number.

    It is infinite for counts that differ, and where only one side is finite.

    >>> shared = {"Max Value": (4.1, 4.0), "Min Value": (-8.0, -8.0), "NaN Count": (1, 0)}
    >>> round(_relative_difference("Max Value", shared), 4), _relative_difference("NaN Count", shared)
    (0.0125, inf)
    """
    (dumped, golden), nature = shared[title], _NATURES[title]
    if _is_same(dumped, golden) or nature is Nature.SIGN_COUNT:  # a value beside zero may change its sign
        return 0.0
    if nature is Nature.DIGEST:  # no distance: the numbers tell one
        return 0.0 if any(_NATURES[name] in _NUMBERS for name in shared) else math.inf
    if nature is Nature.COUNT or not (_is_finite(dumped) and _is_finite(golden)):
        return math.inf
    # A norm grows with the number of elements, so its scale is its own; minimum and average share theirs.
    cells = [golden] if nature is Nature.AMOUNT else _golden_values(shared)
    scale = max(abs(float(cell)) for cell in cells if _is_finite(cell))  # type: ignore[arg-type]
    difference = abs(float(dumped) - float(golden))  # type: ignore[arg-type]
    return difference / scale if scale else math.inf


def _golden_values(shared: Mapping[str, tuple[Cell, Cell]]) -> list[Cell]:
    return [golden for title, (_, golden) in shared.items() if _NATURES[title] is Nature.VALUE]


def _is_finite(cell: Cell) -> bool:
    return isinstance(cell, int | float) and math.isfinite(cell)
