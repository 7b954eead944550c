"""What the program of a page gets: operators column by column, curves, histograms; tables of numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from msdump.record import IO
from msdump.tools.report.collecting import DISTANCE, DumpReport
from msdump.tools.report.page import texts
from msdump.tools.report.page.encoding import NumberTable

_KEPT: Final = frozenset({DISTANCE, "max", "l2norm"})
_IMPORTANCE: Final = (DISTANCE, "max", "l2norm", "min", "avg", "nan count", "positive inf count")
_MOST_CURVES: Final = 64


def columns(report: DumpReport, rows: Sequence[int]) -> dict[str, Any]:
    """Return the part of the content that is no table of numbers.

    Args:
        report: The report.
        rows: The tensors that are in the page.
    """
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
            "time": [report.times.get(number) for number in range(len(operators))],
        },
        "tensors": {
            "operator": _steps([each.operator for each in tensors]),
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
        "memory": [asdict(each) for each in report.memory],
        "hasVerdicts": report.distances is not None,
    }
    shown: dict[str, Any] = texts.tree(content)  # type: ignore[assignment]
    return shown


def tensor_rows(report: DumpReport) -> list[int]:
    """Return the tensors that a page shows: those that stand for themselves."""
    return [row for row, each in enumerate(report.series.tensors) if each.is_shown]


def number_tables(report: DumpReport, rows: Sequence[int]) -> list[NumberTable]:
    """Return the tables of numbers of a page, the most important ones first; tables of one number alone."""
    tables: Mapping[str, np.ndarray] = {
        **({} if report.distances is None else {DISTANCE: report.distances}),
        **{name: values[rows] for name, values in report.series.numbers.items()},
    }
    ranked = sorted(tables, key=lambda name: _IMPORTANCE.index(name) if name in _IMPORTANCE else len(tables))
    return [NumberTable(name, tables[name], is_kept=name in _KEPT) for name in ranked]


def _coded(values: Iterable[str]) -> dict[str, list[Any]]:
    """Return texts that come again as numbers, and the texts."""
    numbers: dict[str, int] = {}
    codes = [numbers.setdefault(value, len(numbers)) for value in values]
    return {"texts": [*numbers], "codes": codes}


def _steps(values: Sequence[int]) -> list[int]:
    """Return growing numbers as the steps between them, which compress better."""
    return [value - before for before, value in zip((0, *values), values, strict=False)]


def _number(value: float) -> float | str | None:
    if math.isnan(value):
        return None
    return float(f"{value:.6g}") if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")
