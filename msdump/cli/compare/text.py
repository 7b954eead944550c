"""The output of ``msdump compare``: the table of operators, and the lines below it."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from msdump.cli.counts import plural
from msdump.record import IO
from msdump.tools.compare.verdict import table as tables
from msdump.tools.judge import words
from msdump.tools.judge.findings import Finding, Report, TensorResult
from msdump.tools.judge.grouping import Arrangement, FindingGroup
from msdump.tools.judge.verdicts import TensorVerdict, Verdict

_PIPED_WIDTH: Final = 160  # columns; rich takes 80 where there is no terminal, which folds every name
_COLUMNS: Final = ("#", "operator", "type", "shape", "source", "distance", "max error", "ulps", "verdict")
_FOLDED: Final = frozenset({"operator", "source", "verdict"})
_HEIRS: Final = frozenset({Verdict.INHERITED, Verdict.AMPLIFIED, Verdict.ACCUMULATED, Verdict.HEALED})


def print_table(shown: Sequence[Finding], *, has_labels: bool) -> None:
    """Print operators, each with the tensor that agrees least.

    Args:
        shown: The operators.
        has_labels: Whether they lie in several directories.
    """
    from rich.console import Console
    from rich.table import Table

    columns = _columns(shown, has_labels=has_labels)
    table = Table()
    for title in columns:
        is_folded = title in _FOLDED or title == "directory"
        table.add_column(title, overflow="fold", no_wrap=not is_folded)
    for finding in shown:
        table.add_row(*(_cells(finding)[title] for title in columns), style=_style(finding))
    # markup=False: names of operators may have square brackets, which rich takes for styles.
    Console(width=None if sys.stdout.isatty() else _PIPED_WIDTH, markup=False).print(table)


def print_groups(groups: Sequence[FindingGroup], arrangement: Arrangement) -> None:
    """Print a row for each scope or type.

    Args:
        groups: The groups.
        arrangement: What the operators of a group have in common.
    """
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for title in (str(arrangement), "operators", "at fault", "own error", "worst operator", "verdicts"):
        table.add_column(title, overflow="fold")
    for group in groups:
        worst = group.worst
        verdicts = ", ".join(f"{count:,} {verdict}" for verdict, count in group.verdicts.items())
        table.add_row(
            *(group.name or "(none)", f"{len(group.findings):,}", f"{group.accused:,}"),
            *(f"{worst.own_error:.3g}", worst.place.full_name or worst.place.name, verdicts),
            style=_style(worst),
        )
    Console(width=None if sys.stdout.isatty() else _PIPED_WIDTH, markup=False).print(table)


def _columns(shown: Sequence[Finding], *, has_labels: bool) -> tuple[str, ...]:
    """Return the titles of the columns; those that tell the same of all operators are left out."""
    without = set()
    if not any(finding.place.source for finding in shown):
        without.add("source")
    places = {title: {_cells(finding)[title] for finding in shown} for title in ("rank", "iteration")}
    told = tuple(title for title, values in places.items() if len(values) > 1)
    labels = ("directory",) if has_labels and not told else ()
    return (*labels, *told, *(title for title in _COLUMNS if title not in without))


def _style(finding: Finding) -> str:
    if finding.is_accused or finding.verdict is Verdict.UNREADABLE:
        return "red"
    if finding.verdict in _HEIRS:
        return "yellow"
    return "dim" if finding.verdict is Verdict.UNCHECKED else ""


def _cells(finding: Finding) -> dict[str, str]:
    place, worst = finding.place, finding.worst
    distance, largest, ulps = ("", "", "") if worst is None else _numbers(worst)
    return {
        "directory": place.label,
        "rank": "" if place.rank is None else str(place.rank),
        "iteration": "" if place.iteration is None else str(place.iteration),
        "#": str(place.order),
        "operator": f"{place.full_name or place.name}{_pass(finding)}",
        "type": place.op_type,
        "shape": "" if worst is None else tables.shape(worst),
        "source": place.source.partition(": ")[0],
        "distance": distance,
        "max error": largest,
        "ulps": ulps,
        "verdict": _verdict(finding),
    }


def _verdict(finding: Finding) -> str:
    """Return the verdict on an operator, and that on the tensor that agrees least."""
    worst = finding.worst
    if worst is None:
        return ": ".join(filter(None, (finding.verdict, finding.note)))
    reason = tables.reason(finding, worst)
    if not _whose(worst):
        return ": ".join(filter(None, (finding.verdict, reason)))
    return f"{finding.verdict}: {_whose(worst)}{worst.verdict}{f': {reason}' if reason else ''}"


def _numbers(tensor: TensorResult) -> tuple[str, str, str]:
    error = tensor.evidence.error
    if error is None:
        return "", "", ""
    ulps = "" if math.isnan(error.ulps) else f"{error.ulps:.3g}"  # statistics tell none
    return f"{error.distance:.3g}", f"{error.largest:.3g}", ulps


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
    if report.unasked:
        operators, example = plural(len(report.unasked), "operator"), report.unasked[0].name
        yield f"left out  {operators} of golden by mine's configuration, such as {example}"
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
