"""A report without code lines and absolute paths, for those who may not see either."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from msdump.graph.graph import SourceLine
from msdump.tools.report.collecting import DumpReport
from msdump.tools.report.facts import RunFact
from msdump.tools.report.operators import ReportedOperator
from msdump.tools.report.problems import ReportedProblem

_PATH: Final = re.compile(r"(?<![\w.<>/:])/[^\s\"',;:()\[\]]+")


def redacted(report: DumpReport) -> DumpReport:
    """Return a report without code lines and absolute paths; of a file its name stays, of a dump its name."""
    return replace(
        report,
        dump=_last(report.dump),
        golden=_last(report.golden),
        problems=tuple(_problem(each, report.dump) for each in report.problems),
        facts=tuple(RunFact(each.subject, _without_paths(each.words)) for each in report.facts),
        operators=tuple(map(_operator, report.operators)),
        faults=tuple(_below(each, report) for each in report.faults),
        alone=tuple(_below(each, report) for each in report.alone),
    )


def _problem(problem: ReportedProblem, dump: str) -> ReportedProblem:
    source = problem.source
    if source is not None:
        source = replace(source, file=_last(source.file), code="", first=0, around=())
    files = tuple(
        path.removeprefix(f"{dump}/") if path.startswith(dump) else _last(path) for path in problem.files
    )
    return replace(problem, source=source, files=files, text=_without_paths(problem.text))


def _operator(operator: ReportedOperator) -> ReportedOperator:
    if operator.described is None:
        return operator
    line = operator.described.own_line
    source = () if line is None else (SourceLine(_last(line.file), line.line, ""),)
    return replace(operator, described=replace(operator.described, source=source))


def _below(text: str, report: DumpReport) -> str:
    for root in filter(None, (report.dump, report.golden)):
        text = text.replace(f"{root}/", "")
    return _without_paths(text)


def _without_paths(text: str) -> str:
    """Return a text whose absolute paths have their last component alone.

    >>> _without_paths("into /home/you/dump/rank_0/, also MatMul/Mul-op0")
    'into rank_0, also MatMul/Mul-op0'
    """
    return _PATH.sub(lambda path: _last(path[0]), text)


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
