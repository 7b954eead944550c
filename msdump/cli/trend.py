"""``msdump trend``: prints statistics of a tensor over the iterations of a dump, with a sparkline."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, TypeGuard

import click

from msdump.cli import messages, output, sections
from msdump.cli.output import Document, Shape
from msdump.cli.streams import can_print
from msdump.encode import statistic_csv
from msdump.look import TensorTrend, TrendPoint, TrendReport
from msdump.look import trend as tool
from msdump.read import Cell, open_dump


def _tensor(trend: TensorTrend) -> str:
    """Which input or output it is, "output:0"."""
    return "{}:{}".format(*trend.slot)


def _values(point: TrendPoint) -> dict[str, float | None]:
    """The statistics by category; null where one was not saved and cannot be measured, or read."""
    return {
        name: float(cell) if isinstance(cell, int | float) else None for name, cell in point.values.items()
    }


DOCUMENT: Final = Document(
    Shape(TrendReport, "series unreadable", name="TrendDocument"),
    Shape(TensorTrend, "operator op_type tensor rank network points", tensor=_tensor),
    Shape(TrendPoint, "iteration execution pass_number values", values=_values),
)

_MOST_ROWS: Final = 20  # iterations of a tensor that are listed; -v lists all
_WIDEST: Final = 60  # columns of a sparkline
_BARS: Final = "▁▂▃▄▅▆▇█"
_PLAIN_BARS: Final = "_.-~=+*#"  # for terminals that know ASCII alone
_NONFINITE: Final = "!"


@click.command(name="trend", cls=sections.Command)
@click.argument("dump", type=click.Path(), help="Dump directory.")
@click.argument(
    "operators",
    nargs=-1,
    required=True,
    metavar="OPERATOR...",
    help="Operators: full name, name in files, or last component; * and ? match.",
)
@sections.selection(
    "--slot",
    "slots",
    multiple=True,
    default=("output:0",),
    metavar="IO:NUMBER",
    help="Input or output. (repeatable)",
)
@sections.selection(
    "--stat",
    "statistics",
    default="max,min,l2norm,nan",
    metavar="NAME,...",
    help="Statistics, by their names in statistic_category; nan is short for 'nan count'.",
)
@output.option
@messages.verbose
def command(*, dump: str, operators: tuple[str, ...], slots: tuple[str, ...], statistics: str) -> None:
    """Print statistics of an operator over the iterations.

    Values are read from statistic.csv, or measured from the tensors. Each rank and each execution
    has a series. Each pass of a loop has a point. Sparklines show NaN and infinities as !.

    Examples:
        msdump trend dump Conv2D-op0
        msdump trend dump "*" --stat max,nan

    Exit codes:
        0  The statistics are printed.
        1  A file could not be read. Hyphens replace its values.
        2  The dump, an operator or an option is wrong.
    """
    categories = [tool.category(name) for name in statistics.split(",")]
    wanted = [tool.slot(text) for text in slots]
    report = tool.trends(open_dump(dump), operators, wanted, categories)
    output.show(DOCUMENT, report, _lines(report.series, categories))
    messages.say_each("error", report.unreadable)


def _lines(trends: Sequence[TensorTrend], categories: Sequence[str]) -> Iterator[str]:
    has_networks = len({each.network for each in trends}) > 1
    has_ranks = len({each.rank for each in trends}) > 1
    has_executions = len({each.points[0].execution for each in trends}) > 1
    for number, trend in enumerate(trends):
        if number:
            yield ""
        io, slot = trend.slot
        network = f", {trend.network}" if has_networks else ""
        rank = f", rank {trend.rank}" if has_ranks else ""
        execution = f", execution {trend.points[0].execution}" if has_executions else ""
        yield f"{trend.operator} ({trend.op_type}), {io} {slot}{network}{rank}{execution}"
        rows = [("iteration", *categories), *_rows(trend.points, categories)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        width = max(map(len, categories))
        for category in categories:
            values = [point.values[category] for point in trend.points]
            bars = _bars(values)
            shown = bars if can_print(bars) else bars.translate(str.maketrans(_BARS, _PLAIN_BARS))
            numbers = [cell for cell in values if _is_finite(cell)]
            ends = dict.fromkeys(statistic_csv.text(end(numbers)) for end in (min, max) if numbers)
            yield f"{category:<{width}}  {shown}  {' to '.join(ends)}".rstrip()


def _rows(points: Sequence[TrendPoint], categories: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each moment; of many the first and last ones, with -v all."""
    half = _MOST_ROWS // 2
    hidden = 0 if messages.verbosity() or len(points) <= _MOST_ROWS else len(points) - 2 * half
    for number, point in enumerate(points):
        if hidden and number == half:
            yield (f"... {hidden}", *("" for _ in categories))
        if not hidden or not half <= number < len(points) - half:
            number_of_pass = f" pass {point.pass_number}" if any(each.pass_number for each in points) else ""
            cells = (point.values[category] for category in categories)
            texts = ("-" if cell is None else statistic_csv.text(cell) for cell in cells)
            yield (f"{point.iteration}{number_of_pass}", *texts)


def _bars(values: Sequence[Cell]) -> str:
    """Return a line of bars, the highest for the largest number; of many numbers one for the largest of some.

    >>> _bars([0, 1, 2, float("nan"), 7, None])
    '▁▂▃!█ '
    """
    each = -(-len(values) // _WIDEST)
    numbers = [cell for cell in values if _is_finite(cell)]
    low, high = min(numbers, default=0.0), max(numbers, default=0.0)
    bars = ""
    for start in range(0, len(values), each):
        known = [float(cell) for cell in values[start : start + each] if isinstance(cell, int | float)]
        if all(map(math.isfinite, known)):
            share = (max(known, default=low) - low) / (high - low) if high > low else 0.0
            bars += _BARS[round(share * (len(_BARS) - 1))] if known else " "
        else:
            bars += _NONFINITE
    return bars


def _is_finite(cell: Cell) -> TypeGuard[float]:
    return isinstance(cell, int | float) and math.isfinite(cell)
