"""A measured table as JSON: the goals with their figures, and the machine."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from tests.bench.goals import Goal
from tests.bench.measure import Figure

FORMAT = 1
"""Number of the document's form: it changes where a reader must."""


class Verdict(StrEnum):
    """Outcomes of a goal."""

    HOLDS = "holds"
    MISSED = "missed"
    UNAVAILABLE = "not available"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table.

    Attributes:
        name: The row's name.
        what: The measured quantity.
        network: The network; "" where none is needed.
        threads: Of one operator.
        limit: The most that the figure may be, or the least.
        is_floor: Whether it is the least.
        verdict: Outcome of the goal.
        figure: The measurement; None where there is none.
        why: Why it is not available or failed.
    """

    name: str
    what: str
    network: str
    threads: int
    limit: float
    is_floor: bool
    verdict: Verdict
    figure: Figure | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """A measured table.

    Attributes:
        date: When it was measured: ISO 8601, UTC.
        machine: Facts by name.
        lines: The goals in the order of the table.
    """

    date: str
    machine: Mapping[str, Any]
    lines: tuple[Line, ...]


def line(goal: Goal, verdict: Verdict, figure: Figure | None = None, why: str = "") -> Line:
    """Return the line of a goal."""
    row = goal.row
    return Line(row.name, row.what, goal.on, goal.threads, row.limit, row.is_floor, verdict, figure, why)


def missed(lines: Sequence[Line]) -> list[Line]:
    """Return the lines of goals that were missed or failed."""
    return [each for each in lines if each.verdict in {Verdict.MISSED, Verdict.FAILED}]


def write(document: Document, path: Path) -> None:
    """Write a table, each line of the goals on one of the file."""
    head = {"format": FORMAT, "date": document.date, "machine": document.machine}
    lines = ",\n  ".join(json.dumps(dataclasses.asdict(each)) for each in document.lines)
    text = f'{json.dumps(head, indent=1)[:-2]},\n "goals": [\n  {lines}\n ]\n}}\n'
    path.write_text(text, encoding="utf-8")


def read(path: Path) -> Document:
    """Read a table.

    Raises:
        ValueError: It has another form.
    """
    content = json.loads(path.read_text(encoding="utf-8"))
    if content.get("format") != FORMAT:
        raise ValueError(f"{path}: format {content.get('format')!r} instead of {FORMAT}: measure again")
    lines = (_line(each) for each in content["goals"])
    return Document(content["date"], content["machine"], tuple(lines))


def _line(fields: Mapping[str, Any]) -> Line:
    figure = fields["figure"]
    if figure is not None:
        figure = Figure(**{**figure, "seconds": tuple(figure["seconds"])})
    return Line(**{**fields, "figure": figure, "verdict": Verdict(fields["verdict"])})
