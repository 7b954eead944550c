"""The verdicts of a comparison as text, and the options that set its limits and choose rows of the table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import click

from msdump.cli import messages, sections, streams
from msdump.cli.options import gathered
from msdump.cli.output import Shape
from msdump.errors import ToolError
from msdump.judge import SCORES, Fact, TensorError, answer, errors
from msdump.judge.compare import shape_text, tensor_reason
from msdump.judge.verdict import (
    COSINE,
    TYPES,
    Arrangement,
    Finding,
    FindingGroup,
    Limits,
    OwnError,
    Report,
    TensorEvidence,
    Uneven,
    Verdict,
    by_own,
    grouped_findings,
    read_limits,
    top_findings,
)
from msdump.record import IO
from msdump.return_codes import ReturnCode
from msdump.statistics import STATISTICS

_COLUMNS: Final = ("#", "operator", "type", "shape", "source", "distance", "max error", "ulps", "verdict")
_FOLDED: Final = frozenset({"directory", "operator", "source", "verdict"})
_HEIRS: Final = frozenset({Verdict.INHERITED, Verdict.AMPLIFIED, Verdict.ACCUMULATED, Verdict.HEALED})


def _print_table(shown: Sequence[Finding], *, has_labels: bool) -> None:
    """Print operators, each with the tensor that agrees least; columns of one value are left out."""
    from rich.table import Table

    rows = [*map(_cells, shown)]
    moments = tuple(title for title in ("rank", "iteration") if len({row[title] for row in rows}) > 1)
    labels = ("directory",) if has_labels and not moments else ()
    has_source = any(row["source"] for row in rows)
    columns = (*labels, *moments, *(title for title in _COLUMNS if title != "source" or has_source))
    table = Table()
    for title in columns:
        table.add_column(title, overflow="fold", no_wrap=title not in _FOLDED)
    for finding, row in zip(shown, rows, strict=True):
        table.add_row(*map(row.__getitem__, columns), style=_style(finding))
    streams.print_table(table)


def _print_groups(groups: Sequence[FindingGroup], arrangement: Arrangement) -> None:
    from rich.table import Table

    table = Table()
    for title in (str(arrangement), "operators", "at fault", "own error", "worst operator", "verdicts"):
        table.add_column(title, overflow="fold")
    for group in groups:
        worst = group.worst
        verdicts = ", ".join(f"{count:,} {verdict}" for verdict, count in group.verdicts.items())
        table.add_row(
            group.name or "(none)",
            f"{len(group.findings):,}",
            f"{group.accused:,}",
            f"{worst.own_error:.3g}",
            worst.place.shown_name,
            verdicts,
            style=_style(worst),
        )
    streams.print_table(table)


def _style(finding: Finding) -> str:
    if finding.is_accused or finding.verdict is Verdict.UNREADABLE:
        return "red"
    if finding.verdict in _HEIRS:
        return "yellow"
    return "dim" if finding.verdict is Verdict.UNCHECKED else ""


def _cells(finding: Finding) -> dict[str, str]:
    place, worst = finding.place, finding.worst
    error = None if worst is None else worst.error
    shown = ""  # the verdict on the tensor that agrees least
    if worst is not None and (worst.io, worst.slot) != (IO.OUTPUT, 0):
        shown = f"{worst.io} {worst.slot} {worst.verdict}"
    reason = finding.note if worst is None else tensor_reason(finding, worst)
    return {
        "directory": place.label,
        "rank": "" if place.rank is None else str(place.rank),
        "iteration": "" if place.iteration is None else str(place.iteration),
        "#": str(place.order),
        "operator": f"{place.shown_name}{answer.pass_text(finding)}",
        "type": place.op_type,
        "shape": "" if worst is None else shape_text(worst),
        "source": place.source.partition(": ")[0],
        "distance": "" if error is None else f"{error.distance:.3g}",
        "max error": "" if error is None else f"{error.largest:.3g}",
        "ulps": "" if error is None or math.isnan(error.ulps) else f"{error.ulps:.3g}",
        "verdict": ": ".join(filter(None, (finding.verdict, shown, reason))),
    }


_SHOWN: Final = 30  # operators; the table in the file has them all
_EXAMPLES: Final = 5


@dataclass(frozen=True, slots=True)
class ComparisonView:
    """Rows of a comparison to list."""

    by: Arrangement | None = None  # how operators are arranged, None: in the order of execution
    scope: str = ""  # the scope or module path to which the list is limited, "" for none
    top: int | None = None  # largest number of rows, the largest own errors; None: all that differ


def print_listing(report: Report, view: ComparisonView) -> int:
    """Print a table of operators or of their groups; return the number of operators in it."""
    findings = report.below(view.scope) if view.scope else report.findings
    if view.scope and not findings:
        scopes = sorted({finding.place.scope for finding in report.findings if finding.place.scope})
        names = ", ".join(scopes[:_EXAMPLES]) + (" and more" if len(scopes) > _EXAMPLES else "")
        known = names or "unknown, because no graph file lists them"
        raise ToolError(
            ReturnCode.PARAMETER, f"no operator is in the scope {view.scope}; the scopes are {known}"
        )
    if view.by in {Arrangement.SCOPE, Arrangement.TYPE}:
        _print_groups(grouped_findings(findings, view.by)[: view.top], view.by)
        return len(findings)
    shown = _chosen(findings, view)
    if shown:
        _print_table(shown, has_labels=any(finding.place.label for finding in report.findings))
    return len(shown)


def _chosen(findings: Sequence[Finding], view: ComparisonView) -> list[Finding]:
    if view.by is Arrangement.OWN:
        return by_own(findings)[: view.top]
    if view.top is not None:
        return top_findings(findings, view.top)
    if messages.verbosity() or (view.scope and len(findings) <= _SHOWN):
        return list(findings)
    # Operators that inherit an error are left out; if all do, the first that differs is listed.
    bad = [each for each in findings if each.is_bad or each.replaces]
    bad.sort(key=lambda each: each.place.time)
    sources = [each for each in bad if each.verdict not in answer.FOLLOWING]
    return (sources or bad[:1])[:_SHOWN]


def _chosen_limits(
    cosine: float | None,
    distance: float | None,
    precision: str | None,
    limits_file: str | None,
    by_category: Mapping[str, float] = MappingProxyType({}),
) -> Limits:
    written = read_limits(limits_file) if limits_file else Limits()
    return replace(
        written,
        cosine=written.cosine if cosine is None else cosine,
        distance=written.distance if distance is None else distance,
        precision=precision or written.precision,
        statistics={**written.statistics, **by_category},
    )


def _parse(_ctx: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> dict[str, float]:
    by_category = {}
    known = [statistic.category for statistic in STATISTICS]
    for text in texts:
        category, _, number = text.rpartition("=")
        try:
            limit = float(number)
        except ValueError:
            limit = -1.0
        if category not in known or not limit >= 0:
            names = ", ".join(known)
            raise click.BadParameter(f"{text!r} is not CATEGORY=LIMIT, max=0.001; categories are {names}")
        by_category[category] = limit
    return by_category


_LIMITS: Final = (
    sections.limits(
        "--cosine",
        type=click.FloatRange(0, 1),
        show_default=str(COSINE),
        help="Smallest cosine similarity of tensors that agree.",
    ),
    sections.limits(
        "--distance",
        type=click.FloatRange(0),
        show_default="by element type: float32 0.00012, float16 0.0039, bfloat16 0.016, integers 0",
        help="Largest relative Euclidean distance of tensors that agree.",
    ),
    sections.limits(
        "--precision",
        type=click.Choice(tuple(TYPES)),
        show_default="from the tensors, graphs or variants",
        metavar="TYPE",
        help="Coarsest element type that either side computed in, such as float16.",
    ),
    sections.limits(
        "--limits",
        "limits_file",
        type=click.Path(),
        metavar="FILE.json",
        help="File of all limits (docs/reference/verdicts.md).",
    ),
)
_VIEW: Final = (
    sections.output(
        "--by",
        type=click.Choice([each.value for each in Arrangement]),
        help="Sort operators by own error, or group operators by scope or type.",
    ),
    sections.output(
        "--scope", default="", help="List only the operators of one scope or module, such as h.3."
    ),
    sections.output("--top", type=click.IntRange(min=1), metavar="N", help="List only the N largest errors."),
)

limits: Final = gathered("limits", _chosen_limits, _LIMITS)
"""The options of the limits; a command gets them as ``limits``."""

view: Final = gathered(
    "view", lambda by, scope, top: ComparisonView(by and Arrangement(by), scope, top), _VIEW
)
"""The options of a listing; a command gets them as ``view``."""

statistic_limits: Final = sections.limits(
    "--statistic",
    "by_category",
    multiple=True,
    metavar="CATEGORY=LIMIT",
    callback=_parse,
    help="Largest relative difference of a statistic, such as max=0.001. The limit of a count is a share of"
    " the elements, such as nan count=0. (repeatable)",
)
"""The limits of statistics, for a command that also has ``limits``."""


@dataclass(frozen=True, slots=True)
class ComparedDumps:
    """The verdicts of a comparison.

    Attributes:
        report: The verdicts.
        alone: Directories without a counterpart.
        table: File of the table of all tensors; None where none was written.
    """

    report: Report
    alone: Sequence[str] = ()
    table: str | None = None


def _tensor(tensor: TensorEvidence) -> str:
    """Which input or output, "output:0"."""
    return f"{tensor.io}:{tensor.slot}"


def _scores(tensor: TensorEvidence) -> dict[str, str]:
    """Numbers of the error by name, with six decimals; none where nothing was compared."""
    error = tensor.error
    return {} if error is None else dict(zip(SCORES, errors.scores(error), strict=True))


COMPARED: Final = (
    "verdict=report.verdict first=report.first.place.shown_name accused=report.accused.place.shown_name"
    " tensors=report.tensors facts=report.facts operators=report.operators uneven=report.uneven"
    " unreadable=report.unreadable networks=report.networks widened=report.widened? alone table"
)
"""The fields of the document of a comparison."""

SHAPES: Final = (
    Shape(
        Finding,
        "operator=place.shown_name op_type=place.op_type? verdict note? onnx_name=place.onnx_name?"
        " scope=place.scope? source=place.source? iteration=place.iteration rank=place.rank"
        " pass_number=place.pass_number execution=place.execution directory=place.label? order=place.order"
        " replaces? reaches_output own inputs outputs",
    ),
    Shape(
        TensorEvidence,
        "tensor name? verdict dtype? golden_dtype? shape limit error scores note?",
        tensor=_tensor,
        scores=_scores,
    ),
    Shape(TensorError, "is_same distance cosine largest scaled ulps? misplaced masked changed"),
    Shape(OwnError, "output=slot error allowed is_explained arithmetic note?"),
    Shape(Uneven, "operator=name mine=dumped golden"),
    Shape(Fact, "kind operator op_type? onnx_name? golden? text"),
)
"""How documents show verdicts."""
