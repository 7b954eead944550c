"""The output of ``msdump compare``: the table of operators, and the lines below it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Final

from msdump.cli.counts import plural
from msdump.record import IO
from msdump.tools.compare.verdict import table as tables
from msdump.tools.judge import words
from msdump.tools.judge.findings import Finding, Report, TensorResult
from msdump.tools.judge.verdicts import TensorVerdict

_COLOURS: Final = {
    TensorVerdict.DIFFERS: "red",
    TensorVerdict.SHAPE: "red",
    TensorVerdict.DTYPE: "red",
    TensorVerdict.UNREADABLE: "red",
    TensorVerdict.UNCHECKED: "dim",
}
_PIPED_WIDTH: Final = 160  # columns; rich takes 80 where there is no terminal, which folds every name
_COLUMNS: Final = ("#", "operator", "type", "shape", "cosine", "distance", "max error", "verdict")
_FOLDED: Final = frozenset({"operator", "verdict"})


def print_table(shown: Sequence[Finding], *, has_labels: bool) -> None:
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
    for finding in shown:
        worst = finding.worst
        style = "" if worst is None else _COLOURS.get(worst.verdict, "")
        table.add_row(*([finding.place.label] if has_labels else ()), *_cells(finding), style=style)
    # markup=False: names of operators may have square brackets, which rich takes for styles.
    Console(width=None if sys.stdout.isatty() else _PIPED_WIDTH, markup=False).print(table)


def _cells(finding: Finding) -> tuple[str, ...]:
    place, worst = finding.place, finding.worst
    name = f"{place.name}{_pass(finding)}"
    if worst is None:
        return (str(place.order), name, place.op_type, "", "", "", "", finding.verdict)
    reason = tables.reason(finding, worst)
    verdict = f"{_whose(worst)}{worst.verdict}{f': {reason}' if reason else ''}"
    shape = tables.shape(worst)
    return (str(place.order), name, place.op_type, shape, *_numbers(worst), verdict)


def _numbers(tensor: TensorResult) -> tuple[str, str, str]:
    error = tensor.evidence.error
    if error is None:
        return "", "", ""
    cosine = f"{error.cosine:.6f}" if tensor.evidence.scores else ""  # statistics have none
    return cosine, f"{error.distance:.3g}", f"{error.largest:.3g}"


def _whose(tensor: TensorResult) -> str:
    """Return which tensor is shown, "" for the first output."""
    return "" if (tensor.io, tensor.slot) == (IO.OUTPUT, 0) else f"{tensor.io} {tensor.slot} "


def _pass(finding: Finding) -> str:
    return "" if finding.place.pass_number is None else f", pass {finding.place.pass_number}"


def lines(report: Report, shown: int, origins: Sequence[str]) -> Iterator[str]:
    """Yield the lines below the table.

    Args:
        report: The verdicts.
        shown: Number of operators in the table.
        origins: Lines on the origin of the inputs of the first operator that differs.
    """
    yield from _first(report, origins)
    counts = report.tensors
    yield (
        f"compared  {plural(report.compared, 'tensor')} of {plural(len(report.findings), 'operator')}:"
        f" {report.agreeing:,} agree ({counts[TensorVerdict.EQUAL]:,} exactly),"
        f" {counts[TensorVerdict.DIFFERS]:,} differ, {report.failed:,} failed"
    )
    if counts[TensorVerdict.UNCHECKED]:
        yield f"alone     {plural(counts[TensorVerdict.UNCHECKED], 'tensor')} without a counterpart"
    for uneven in report.uneven[:1]:  # mostly a whole loop ran more often: one of its operators is enough
        more = f", and so for {len(report.uneven) - 1} more" if len(report.uneven) > 1 else ""
        yield f"passes    {uneven.name} ran {_times(uneven.dumped)}, in golden {_times(uneven.golden)}{more}"
    if report.missing:
        operators = plural(len(report.missing), "operator")
        yield f"missing   {operators} of golden, such as {report.missing[0].name}"
    if precision := report.precision():
        yield f"hint      --precision {precision}, if the device computed in it: that far its limits reach"
    hidden = len(report.findings) - shown
    if hidden:
        yield f"          {plural(hidden, 'more operator')} in the table (-v shows all)"


def _first(report: Report, origins: Sequence[str]) -> Iterator[str]:
    first = report.first
    if first is None:
        yield f"first     {'no tensor' if report.uneven else 'nothing'} differs"
        return
    place = first.place
    directory = f" in {place.label}" if place.label else ""
    count = sum(each.place.label == place.label for each in report.findings)
    yield (
        f"first     {place.name} ({place.op_type}){_pass(first)}, operator {place.order} of"
        f" {count}{directory}: {words.fault(first)}"
    )
    reason = tables.reason(first, first.worst)
    for line in (*([reason] if reason else ()), *origins):
        yield f"          {line}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"
