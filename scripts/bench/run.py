"""Every goal of speed and memory, measured beside the other side of its ratio.

``python -m scripts.bench.run [--only NAMES] [--json FILE] [--seconds S]``, or ``make bench``. Each
measurement runs in a process of its own; the sides of a ratio take turns, and the median of the rounds'
ratios counts. Ends with 1 where a goal is missed, with 2 where ``--only`` chooses none.
"""

from __future__ import annotations

import argparse
import datetime as dt
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from scripts.bench import document, goals, work
from scripts.bench.document import Document, Line, Verdict
from scripts.bench.goals import Goal
from scripts.bench.measure import Case, Figure, UnavailableError

SECONDS = 8.0
"""Of the rounds of one figure, by default."""

_WIDTH = 150


def measured(picked: Sequence[Goal], seconds: float) -> Iterator[Line]:
    """Yield the line of each goal when it is measured."""
    build(picked)
    for goal in picked:
        try:
            figure = work.measured(goal.row.job, case(goal, seconds))
        except UnavailableError as error:
            yield document.line(goal, Verdict.UNAVAILABLE, why=str(error))
        except work.JobError as error:
            yield document.line(goal, Verdict.FAILED, why=str(error))
        else:
            verdict = Verdict.HOLDS if goal.holds(figure.value) else Verdict.MISSED
            yield document.line(goal, verdict, figure)


def case(goal: Goal, seconds: float) -> Case:
    """Return the case of a goal's job."""
    return Case(goal.network, goal.batch, goal.threads, Path(), seconds)


def build(picked: Sequence[Goal]) -> None:
    """Build the networks of goals, each in a process of its own: memory that it takes must not count."""
    for network, batch in dict.fromkeys((goal.network, goal.batch) for goal in picked if goal.network):
        command = [sys.executable, "-m", "scripts.bench.networks.files", network, str(batch)]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def cells(each: Line) -> tuple[str, ...]:
    """Return a line as text, cell by cell."""
    bound = f"{'>=' if each.is_floor else '<='} {each.limit:g}"
    value, spread = figure_texts(each.figure) if each.figure else ("", each.why)
    told = each.verdict.upper() if each in document.missed([each]) else str(each.verdict)
    return (each.name, each.title, each.network, str(each.threads), value, spread, bound, told)


def figure_texts(figure: Figure) -> tuple[str, str]:
    """Return a figure and its quartiles, with three digits or more where they are large."""
    value, low, high = (
        f"{number:,.0f}" if abs(number) >= 1000 else f"{number:#.3g}"
        for number in (figure.value, figure.low, figure.high)
    )
    return value, "" if low == high else f"{low} to {high}"


def parsed(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None
) -> tuple[argparse.Namespace, list[Goal]]:
    """Return the options of a command line and the goals that its ``--only`` chooses; exit where it errs."""
    parser.add_argument("--only", default="", help=goals.HOW_TO_CHOOSE)
    options = parser.parse_args(arguments)
    try:
        return options, goals.chosen(options.only)
    except ValueError as error:
        parser.error(str(error))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 where a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m scripts.bench.run", description=__doc__)
    parser.add_argument("--json", type=Path, help="a file for the table with facts of the machine")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of one figure's rounds (%(default)s)")
    options, picked = parsed(parser, arguments)
    work.end_on_signals()
    console = Console(width=_WIDTH)
    machine_facts = document.facts(work.scratch() or Path(tempfile.gettempdir()))
    date = dt.datetime.now(dt.UTC).isoformat(timespec="minutes")
    lines: list[Line] = []
    for each in measured(picked, options.seconds):
        lines.append(each)
        console.print(*cells(each), sep=" | ", soft_wrap=True, highlight=False, markup=False)
        if options.json:  # a run that is interrupted leaves its measurements
            document.write(Document(date, machine_facts, tuple(lines)), options.json)
    table = Table("name", "measured", "network", "threads", "figure", "quartiles", "goal", "")
    for each in lines:
        table.add_row(*cells(each))
    console.print(table)
    missed = document.missed(lines)
    console.print(f"{len(lines)} lines, {len(missed)} missed", highlight=False)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
