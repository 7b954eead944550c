"""The page of a report: one HTML file that needs no network and no server."""

from __future__ import annotations

import base64
import json
import math
import os
import zlib
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import markupsafe
import numpy as np

from msdump import reading
from msdump.errors import visible
from msdump.judge import answer
from msdump.judge.verdict import Verdict
from msdump.look.report.collecting import DISTANCE, DumpReport
from msdump.look.report.problems import ProblemKind, ReportedProblem
from msdump.record import IO

if TYPE_CHECKING:
    from jinja2 import Template

_OF_OPERATORS: Final = frozenset({ProblemKind.NONFINITE, ProblemKind.OVERFLOW, ProblemKind.VERDICT})
_BUDGET: Final = 1_500_000  # most characters of tables: so a page of 5,000 operators stays below 2 MB
_SHOWN_PROBLEMS: Final = 50  # of each kind; --json and --csv have all
_SHOWN_NEIGHBOURS: Final = 12
_SHOWN_FILES: Final = 12


_WORDS: Final = {
    "golden": "The reference side of the comparison.",
    "verdict": "The result of the comparison for an operator.",
    "distance": "The norm of the difference from golden divided by the norm of golden, of the worst output.",
    "own error": "The error that arises in the operator itself, without the error of its inputs.",
    "reaches": "The later operators that the error or the NaN of this operator reaches.",
    "non-finite": "NaN or infinities in the tensors of the operator.",
    "scope": "The modules that hold the operator: its full name without the last part.",
    "rank": "The number of the process that ran the operator.",
    Verdict.EQUAL: "All compared tensors are the same bit by bit.",
    Verdict.AGREES: "The tensors differ within their limits.",
    Verdict.HEALED: "An input differs, but the outputs agree.",
    Verdict.INHERITED: "The error of the outputs comes from the inputs.",
    Verdict.AMPLIFIED: "The operator enlarges the error of its inputs.",
    Verdict.ACCUMULATED: "Many small rounding errors exceed the limit together.",
    Verdict.OWN: "At fault: the output differs although the inputs agree.",
    Verdict.WEIGHT: "At fault: a weight or constant differs.",
    Verdict.NONFINITE: "At fault: NaN or infinities begin here.",
    Verdict.REPLACED: "At fault: golden has another operator here.",
    Verdict.SHAPE: "At fault: an output has another shape.",
    Verdict.DTYPE: "At fault: an output has another kind of elements.",
    Verdict.MISSING: "At fault: only golden has the operator.",
    Verdict.UNCHECKED: "There is nothing to compare with, or the values are random.",
    Verdict.UNREADABLE: "A file is damaged or missing.",
}
"""Meanings of the page's terms, shown as tooltips and as a list."""


@cache
def _template() -> Template:
    import jinja2

    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        # control characters of texts become visible, markup stays
        finalize=lambda value: (
            visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
        ),
    )
    return environment.from_string(_file("report.html.jinja"))


def _file(name: str) -> str:
    return reading.read_bytes(Path(__file__).with_name(name)).decode()


def page(report: DumpReport, folder: str) -> Iterator[str]:
    """Yield the text of a page, piece by piece.

    Args:
        report: The report.
        folder: The directory that the page will lie in; links to files are relative to it.
    """
    rows = [row for row, each in enumerate(report.series.tensors) if each.is_shown]
    tables = {name: values[rows] for name, values in report.series.numbers.items()}
    if report.distances is not None:
        tables[DISTANCE] = report.distances
    importance = [*_IMPORTANCE, *tables]
    in_order = {name: tables[name] for name in sorted(tables, key=importance.index)}
    chunks, left_out = encode_tables(in_order, _BUDGET)
    states = np.ascontiguousarray(report.series.states[rows])
    content = page_content(report, rows) | {"tables": [*chunks]}
    data = {
        "report": compress(json.dumps(content, separators=(",", ":"), allow_nan=False).encode()),
        "states": compress(states.tobytes()),
        **chunks,
    }
    # a JSON object without a character that means something in HTML
    text = json.dumps(data, indent=0).replace("<", "\\u003c")
    yield from _template().generate(
        report=report,
        words=_WORDS,
        kinds=_kinds(report, folder),
        left_out_tables=left_out,
        style=markupsafe.Markup(_file("report.css")),  # noqa: S704 - files of the package
        program=markupsafe.Markup(_file("report.js")),  # noqa: S704 - the same
        data=markupsafe.Markup(text),  # noqa: S704 - base64 and names of statistics
    )


def _kinds(report: DumpReport, folder: str) -> list[dict[str, Any]]:
    """Return tables of consecutive problems of one kind, without empty columns; a kind may have several."""
    readers: dict[int, list[int]] = {}
    for reader, operator in enumerate(report.operators):
        for place in operator.reads:
            readers.setdefault(place, []).append(reader)

    def alike(numbered: tuple[int, ReportedProblem]) -> Hashable:
        """Return a key that is equal for the same fault of operators of the same type: they share a row."""
        number, problem = numbered
        if problem.kind not in _OF_OPERATORS:
            return number
        fault = answer.kind_of_fault(problem.name, problem.op_type, problem.text.partition(":")[0])
        return problem.is_accused, fault

    kinds = []
    for kind, group in groupby(enumerate(report.problems), key=lambda each: each[1].kind):
        members = [*group]
        rows = answer.group_alike(members, lambda each: f"{each[1].name} {each[0]}", alike)
        shown = [_problem(report, readers, row, folder) for row in rows[:_SHOWN_PROBLEMS]]
        kinds.append(
            {
                "title": kind.title_text,
                "problems": shown,
                "hidden": sum(map(len, rows[_SHOWN_PROBLEMS:])),
                "has_ranks": any(each.rank is not None for _, each in members),
                "has_iterations": any(each.iterations for _, each in members),
                "has_errors": any(each.own_error is not None for _, each in members),
                "has_victims": any(each.victims for _, each in members),
            }
        )
    return kinds


def _problem(
    report: DumpReport,
    readers: Mapping[int, Sequence[int]],
    row: Sequence[tuple[int, ReportedProblem]],
    folder: str,
) -> dict[str, Any]:
    """Return the contents of a row: its first problem, and the operators of the others."""
    (number, problem), *others = row
    place = problem.operator
    operator = report.operators[place] if place >= 0 else None

    links = []  # targets relative to the page's directory, and their texts
    for path in problem.files[:_SHOWN_FILES]:
        target = ""
        if os.path.isabs(path):  # noqa: PTH117 - a text
            target = quote(os.fsencode(Path(os.path.relpath(path, folder)).as_posix()))
        links.append((target, path.removeprefix(f"{report.dump}/")))

    def listed(places: Sequence[int]) -> list[tuple[int, str]]:
        return [(each, report.operators[each].name) for each in places[:_SHOWN_NEIGHBOURS]]

    return {
        "number": number,
        "problem": problem,
        "alike": answer.alike_text(problem.name, problem.op_type, len(others)) if others else "",
        "others": [(each.operator, each.name) for _, each in others],
        "scope": problem.name.rpartition("/")[0] if operator is None else operator.scope,
        "reads": [] if operator is None else listed(operator.reads),
        "parameters": () if operator is None else operator.parameters[:_SHOWN_NEIGHBOURS],
        "readers": listed(readers.get(place, ())),
        "victims": listed(problem.victims),
        "victim_count": len(problem.victims),
        "files": links,
        "file_count": len(problem.files),
    }


_KEPT_TABLES: Final = frozenset({DISTANCE, "max", "l2norm"})
_IMPORTANCE: Final = (DISTANCE, "max", "l2norm", "min", "avg", "nan count", "positive inf count")
_MOST_CURVES: Final = 64


def page_content(report: DumpReport, rows: Sequence[int]) -> dict[str, Any]:
    """Return the part of the content that is no table of numbers."""
    operators = report.operators
    tensors = [report.series.tensors[row] for row in rows]
    verdicts = [report.verdicts.get(number) for number in range(len(operators))]
    content = {
        "iterations": [*report.series.iterations],
        "operators": {
            "name": [each.name for each in operators],
            "type": _coded(each.op_type for each in operators),
            "place": _coded(each.place for each in operators),
            "source": _coded(each.source_line for each in operators),
            "rank": [each.rank for each in operators],
            "order": [each.order for each in operators],
            "dumped": [int(each.is_dumped) for each in operators],
            "reads": [[number - place for place in each.reads] for number, each in enumerate(operators)],
            "parameters": _coded("\n".join(each.parameters) for each in operators),
            "verdict": _coded("" if each is None else str(each.worst.verdict) for each in verdicts),
            "accused": [int(each is not None and each.worst.is_accused) for each in verdicts],
            "distance": [_number(math.nan if each is None else each.distance) for each in verdicts],
            "own": [_number(math.nan if each is None else each.own_error) for each in verdicts],
        },
        "tensors": {
            # rising numbers are stored as differences, which compress better
            "operator": np.diff([each.operator for each in tensors], prepend=0).tolist(),
            "input": [int(each.io is IO.INPUT) for each in tensors],
            "slot": [each.slot for each in tensors],
            "form": _coded(f"{each.dtype} {each.shape or 'scalar'}" for each in tensors),
        },
        "problems": [
            {"operator": each.operator, "text": each.text, "accused": each.is_accused}
            for each in report.problems
        ],
        "curves": [
            asdict(each) | {"values": [_number(value) for value in each.values]}
            for each in report.curves[:_MOST_CURVES]
        ],
        "histograms": [asdict(each) for each in report.histograms],
        "hasVerdicts": report.distances is not None,
    }
    shown: dict[str, Any] = visible_tree(content)  # type: ignore[assignment]
    return shown


def _coded(values: Iterable[str]) -> dict[str, list[Any]]:
    """Dictionary-encode texts: return the distinct texts, and the index of each text."""
    numbers: dict[str, int] = {}
    codes = [numbers.setdefault(value, len(numbers)) for value in values]
    return {"texts": [*numbers], "codes": codes}


def _number(value: float) -> float | str | None:
    if math.isnan(value):
        return None
    return float(f"{value:.6g}") if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")


_NUMBERS: Final = frozenset({int, float, bool, type(None)})


def visible_tree(value: object) -> object:
    """Return a value of lists, dictionaries and texts with its texts visible."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible_tree(key): visible_tree(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        # long columns of numbers need no recursion
        is_plain = all(type(each) in _NUMBERS for each in value)
        return [*value] if is_plain else [visible_tree(each) for each in value]
    return value


_LEVEL: Final = 6
_DIGITS: Final = (3, 2)  # leading bytes of a float32 that are kept


def compress(data: bytes) -> str:
    """Return bytes as raw deflate in base64, which a browser's ``DecompressionStream`` reads."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return base64.b64encode(packer.compress(data) + packer.flush()).decode("ascii")


def encode_tables(tables: Mapping[str, np.ndarray], budget: int) -> tuple[dict[str, str], list[str]]:
    """Return the encoded tables by name, and the names of tables left out for lack of room.

    Numbers have three bytes each, or two if all tables would exceed the budget. If that is not enough, tables
    are left out from the last one on, except the ones that every page needs.
    """
    chunks: dict[str, str] = {}
    for digits in _DIGITS:
        chunks = {name: _encoded(values, digits) for name, values in tables.items()}
        if sum(map(len, chunks.values())) <= budget:
            return chunks, []
    left_out = []
    for name in reversed([*tables]):
        if name not in _KEPT_TABLES and sum(map(len, chunks.values())) > budget:
            del chunks[name]
            left_out.append(name)
    return chunks, left_out[::-1]


def _encoded(values: np.ndarray, digits: int) -> str:
    """Return numbers as float32 cut to some bytes: their count, all first bytes, all second ones, ..."""
    limit = float(np.finfo(np.float32).max)
    # finite numbers beyond float32's range become its largest number, infinities stay
    held = np.where(np.isfinite(values), np.clip(values, -limit, limit), values).astype("<f4")
    bits = np.ascontiguousarray(held).view("<u4").reshape(-1)
    half = np.uint32(1 << (31 - 8 * digits))  # half a unit of the last kept byte
    is_rounded = np.isfinite(held).reshape(-1) & (bits & np.uint32(0x7FFFFFFF) < np.uint32(0x7F7FFFFF) - half)
    octets = np.where(is_rounded, bits + half, bits).astype(">u4").view(np.uint8).reshape(-1, 4)
    return compress(bytes([digits]) + octets[:, :digits].T.tobytes())
