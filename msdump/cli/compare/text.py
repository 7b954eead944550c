"""The output of ``msdump compare``: the table of operators, and the lines below it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Final

from msdump.cli.counts import plural
from msdump.record import IO
from msdump.tools.compare.verdict import report as divergence_report
from msdump.tools.compare.verdict.report import DifferenceReport, Located
from msdump.tools.compare.verdict.verdicts import TensorResult, Verdict

_COLOURS: Final = {
    Verdict.DIFFERENT: "red",
    Verdict.FAILED: "red",
    Verdict.UNREADABLE: "red",
    Verdict.ALONE: "dim",
}
_PIPED_WIDTH: Final = 160  # columns; rich takes 80 where there is no terminal, which folds every name
_COLUMNS: Final = ("#", "operator", "type", "shape", "cosine", "distance", "max error", "verdict")
_FOLDED: Final = frozenset({"operator", "verdict"})


def print_table(shown: Sequence[Located], *, has_labels: bool) -> None:
    """Print operators, each with the tensor that agrees least.

    Args:
        shown: The operators.
        has_labels: Whether they lie in several directories.
    """
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for title, is_folded in (("directory", True), *((title, title in _FOLDED) for title in _COLUMNS)):
        if title != "directory" or has_labels:
            table.add_column(title, overflow="fold", no_wrap=not is_folded)
    for located in shown:
        style = _COLOURS.get(located.result.verdict, "")
        table.add_row(*([located.label] if has_labels else ()), *_cells(located), style=style)
    # markup=False: names of operators may have square brackets, which rich takes for styles.
    Console(width=None if sys.stdout.isatty() else _PIPED_WIDTH, markup=False).print(table)


def _cells(located: Located) -> tuple[str, ...]:
    result, worst = located.result, located.result.worst
    shape = divergence_report.shape(worst)
    reason = divergence_report.reason(result, worst)
    verdict = f"{_whose(worst)}{worst.verdict}{f': {reason}' if reason else ''}"
    name = f"{result.name}{_pass(located)}"
    return (str(located.order), name, result.op_type, shape, *_numbers(worst), verdict)


def _numbers(tensor: TensorResult) -> tuple[str, str, str]:
    agreement = tensor.compared.agreement
    if agreement is None:
        return "", "", ""
    return f"{agreement.cosine:.6f}", f"{agreement.distance:.3g}", f"{agreement.largest:.3g}"


def _whose(tensor: TensorResult) -> str:
    """Return which tensor is shown, "" for the first output."""
    return "" if (tensor.io, tensor.slot) == (IO.OUTPUT, 0) else f"{tensor.io} {tensor.slot} "


def _pass(located: Located) -> str:
    return "" if located.result.number is None else f", pass {located.result.number}"


def lines(report: DifferenceReport, shown: int, origins: Sequence[str]) -> Iterator[str]:
    """Yield the lines below the table.

    Args:
        report: The verdicts.
        shown: Number of operators in the table.
        origins: Lines on the origin of the inputs of the first operator that differs.
    """
    yield from _first(report, origins)
    counts = report.tensors
    yield (
        f"compared  {plural(report.compared, 'tensor')} of {plural(len(report.operators), 'operator')}:"
        f" {report.agreeing:,} agree ({counts[Verdict.EQUAL]:,} exactly),"
        f" {counts[Verdict.DIFFERENT]:,} differ, {report.failed:,} failed"
    )
    if counts[Verdict.ALONE]:
        yield f"alone     {plural(counts[Verdict.ALONE], 'tensor')} without a counterpart"
    for uneven in report.uneven[:1]:  # mostly a whole loop ran more often: one of its operators is enough
        more = f", and so for {len(report.uneven) - 1} more" if len(report.uneven) > 1 else ""
        yield f"passes    {uneven.name} ran {_times(uneven.dumped)}, in golden {_times(uneven.golden)}{more}"
    if report.missing:
        yield f"missing   {plural(len(report.missing), 'operator')} of golden, such as {report.missing[0]}"
    if precision := report.precision():
        yield f"hint      --precision {precision}, if the device computed in it: that far its limits reach"
    hidden = len(report.operators) - shown
    if hidden:
        yield f"          {plural(hidden, 'more operator')} in the table (-v shows all)"


def _first(report: DifferenceReport, origins: Sequence[str]) -> Iterator[str]:
    first = report.first
    if first is None:
        yield f"first     {'no tensor' if report.uneven else 'nothing'} differs"
        return
    result = first.result
    directory = f" in {first.label}" if first.label else ""
    count = sum(each.label == first.label for each in report.operators)
    yield (
        f"first     {result.name} ({result.op_type}){_pass(first)}, operator {first.order} of"
        f" {count}{directory}: {first.fault()}"
    )
    reason = divergence_report.reason(result, result.worst)
    for line in (*([reason] if reason else ()), *origins):
        yield f"          {line}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"
