"""The page of a report: one file of HTML, which needs no network and no server."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import markupsafe
import numpy as np

from msdump import reading
from msdump.tools.report.collecting import DumpReport
from msdump.tools.report.page import content, encoding, texts
from msdump.tools.report.problems import ReportedProblem

if TYPE_CHECKING:
    from jinja2 import Template

_BUDGET: Final = 1_500_000  # characters of tables; with them a page of 5,000 operators is below 2 MB
_SHOWN_PROBLEMS: Final = 50  # of each kind, in full; the others stand in --json and --csv
_SHOWN_NEIGHBOURS: Final = 12
_SHOWN_FILES: Final = 12


def _shown(value: Any) -> Any:
    """Return what stands for a value: texts of the dump visible, files of the package as they are."""
    is_text = isinstance(value, str) and not hasattr(value, "__html__")
    return texts.visible(value) if is_text else value


@cache
def _template() -> Template:
    import jinja2

    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
    )
    return environment.from_string(_file("report.html.jinja"))


def _file(name: str) -> str:
    return reading.read_bytes(Path(__file__).with_name(name)).decode()


def page(report: DumpReport, folder: str, *, reload_seconds: float = 0.0) -> Iterator[str]:
    """Yield the text of a page, piece by piece.

    Args:
        report: The report.
        folder: The directory that the page will lie in; links to files are relative to it.
        reload_seconds: Seconds after which the page loads itself again, 0: never.
    """
    rows = content.tensor_rows(report)
    chunks, left_out = encoding.tables(content.number_tables(report, rows), _BUDGET)
    states = np.ascontiguousarray(report.series.states[rows])
    data = {
        "report": encoding.document(content.columns(report, rows) | {"tables": _names(chunks)}),
        "states": encoding.compressed(states.tobytes()),
        **chunks,
    }
    yield from _template().generate(
        report=report,
        kinds=_kinds(report, folder),
        left_out_tables=left_out,
        reload_seconds=reload_seconds,
        style=markupsafe.Markup(_file("report.css")),  # noqa: S704 - files of the package
        program=markupsafe.Markup(_file("report.js")),  # noqa: S704 - the same
        data=markupsafe.Markup(_data_text(data)),  # noqa: S704 - base64 and names of statistics
    )


def _data_text(data: Mapping[str, str]) -> str:
    """Return chunks as the text of a JSON object, which holds no character that HTML knows."""
    return json.dumps(data, indent=0).replace("<", "\\u003c")


def _names(chunks: Mapping[str, str]) -> list[str]:
    return [*dict.fromkeys(name.rpartition("/")[0] for name in chunks)]


def _kinds(report: DumpReport, folder: str) -> list[dict[str, Any]]:
    """Return problems by kind; of kinds that come again, such as the first culprit's, each run of it."""
    kinds = []
    numbered = enumerate(report.problems)
    for kind, group in groupby(numbered, key=lambda each: each[1].kind):
        members = [*group]
        shown = [_problem(report, number, each, folder) for number, each in members[:_SHOWN_PROBLEMS]]
        kind_shown = {"title": kind.title_text, "problems": shown, "hidden": len(members) - len(shown)}
        kinds.append(kind_shown | _columns([each for _, each in members]))
    return kinds


def _columns(problems: Sequence[ReportedProblem]) -> dict[str, bool]:
    """Return which columns a table of problems has: no empty ones."""
    return {
        "has_ranks": any(each.rank is not None for each in problems),
        "has_iterations": any(each.iterations for each in problems),
        "has_errors": any(each.own_error is not None for each in problems),
        "has_victims": any(each.victims for each in problems),
    }


def _problem(report: DumpReport, number: int, problem: ReportedProblem, folder: str) -> dict[str, Any]:
    operators = report.operators
    place = problem.operator
    readers = [other for other, each in enumerate(operators) if place >= 0 and place in each.reads]
    reads = operators[place].reads if place >= 0 else ()
    return {
        "number": number,
        "problem": problem,
        "scope": operators[place].scope if place >= 0 else problem.name.rpartition("/")[0],
        "reads": _listed(report, reads),
        "parameters": operators[place].parameters[:_SHOWN_NEIGHBOURS] if place >= 0 else (),
        "readers": _listed(report, readers),
        "victims": _listed(report, problem.victims),
        "victim_count": len(problem.victims),
        "files": [_link(path, folder, report.dump) for path in problem.files[:_SHOWN_FILES]],
        "file_count": len(problem.files),
    }


def _listed(report: DumpReport, places: Sequence[int]) -> list[tuple[int, str]]:
    return [(place, report.operators[place].name) for place in places[:_SHOWN_NEIGHBOURS]]


def _link(path: str, folder: str, dump: str) -> tuple[str, str]:
    """Return where a link to a file leads, from the page's directory, and its text."""
    if not os.path.isabs(path):  # noqa: PTH117 - a text
        return "", path
    below = path.removeprefix(f"{dump}/")
    relative = Path(os.path.relpath(path, folder)).as_posix()
    return quote(os.fsencode(relative)), below
