"""The document of ``msdump report --json``."""

from __future__ import annotations

import math
from dataclasses import asdict

from msdump.cli.documents.compare import JudgedOperator, judged
from msdump.cli.documents.document import JsonDocument, Number, Part
from msdump.tools.report import table
from msdump.tools.report.collecting import DumpReport
from msdump.tools.report.problems import ProblemKind, ReportedProblem
from msdump.tools.report.series import TensorState


class ExcerptPart(Part):
    """The line of the program that made an operator."""

    file: str
    """The file, as the graph file names it."""

    line: int
    """Number of the line."""

    code: str
    """The line; empty with --no-source."""

    first: int
    """Number of the first line of ``around``."""

    around: list[str]
    """The lines around it; none where the file is not there any more, or has changed."""


class ProblemPart(Part):
    """Something that is wrong."""

    kind: ProblemKind
    """What tells of it."""

    operator: str
    """Full name of the operator."""

    op_type: str | None
    """Its type; null where it is not known."""

    index: int | None
    """Its place in ``operators``, from 0; null of what is not there."""

    rank: int | None
    """Number of the rank; null where it is not known."""

    iterations: list[int]
    """Numbers of the iterations in which it was found."""

    text: str
    """What is wrong, in a sentence."""

    is_accused: bool
    """Whether the fault is there, and not in what comes before it."""

    own_error: Number | None
    """How much of its error is its own; null where nothing was compared."""

    victims: list[int]
    """Places in ``operators`` of those that it reaches."""

    files: list[str]
    """Files of its tensors, or of the table of their statistics."""

    source: ExcerptPart | None
    """The line of the program that made it; null where it is not known."""


class FactPart(Part):
    """A fact of the run."""

    subject: str
    """What it is about."""

    words: str
    """The fact."""


class UndumpedPart(Part):
    """What was not dumped, for one reason."""

    what: str
    """"operators", "inputs" or "outputs"."""

    reason: str
    """Why, in words."""

    count: int
    """Number of operators."""

    examples: list[str]
    """Full names of the first of them."""


class TensorSeriesPart(Part):
    """The statistics of a tensor over the iterations."""

    tensor: str
    """Which, "output:0"."""

    dtype: str | None
    """Element type; null where it is not known."""

    shape: str
    """Its shape, "2x3"; empty of a scalar."""

    holds: list[str | None]
    """By iteration: NaN and infinities in it, "" for none; null where it was not dumped."""

    statistics: dict[str, list[Number | None]]
    """By category and iteration; null where a statistic was not computed."""


class OperatorPart(Part):
    """An operator of the dump, or of a graph of which nothing was dumped."""

    operator: str
    """Its full scoped name; the name that files have where that is all that is known."""

    op_type: str
    """Its type."""

    rank: int
    """Number of the rank, or of the device."""

    network: str
    """Network and graph, or model."""

    order: int
    """Place in the execution of its graph, from 1."""

    source: str | None
    """Its line in the source; null where it is not known."""

    reads: list[int]
    """Places in ``operators`` of those whose outputs it reads."""

    parameters: list[str]
    """Names of the weights and graph inputs that it reads."""

    is_dumped: bool
    """Whether the dump holds a tensor of it."""

    microseconds: Number | None
    """Mean time of a run; null where it was not measured."""

    verdict: JudgedOperator | None
    """The gravest of its verdicts; null without a comparison."""

    distances: list[Number | None] | None
    """Distance of its outputs from golden's by iteration; null without a comparison."""

    tensors: list[TensorSeriesPart]
    """Its tensors, outputs first."""


class CurvePart(Part):
    """A number of a training over the iterations."""

    name: str
    """"loss" or "gradient norm"."""

    rank: int
    """Number of the rank."""

    of: str
    """The operator of the loss; how many gradients the norm is of."""

    values: list[Number]
    """By iteration."""


class HistogramPart(Part):
    """How the elements of a tensor are spread."""

    operator: int
    """Place of its operator in ``operators``."""

    tensor: str
    """Which, "output:0"."""

    iteration: int
    """Number of the iteration."""

    low: Number
    """Where the first bin begins."""

    high: Number
    """Where the last bin ends."""

    counts: list[int]
    """Number of elements in each bin."""

    golden: list[int]
    """The same of golden's tensor; none where there is none."""

    sampled: int
    """Number of elements that were counted."""

    size: int
    """Number of elements that there are."""

    nonfinite: int
    """Number of counted elements that are NaN or infinite."""


class MemoryPart(Part):
    """Device memory over a step of a graph."""

    rank: int
    """Number of the rank."""

    network: str
    """Network and graph."""

    weights: int
    """Bytes of weights and graph inputs."""

    in_use: list[int]
    """Bytes that are reserved while each operator runs."""

    unknown: int
    """Number of tensors whose size is not known."""


class ReportDocument(JsonDocument):
    """A report on a dump."""

    headline: str
    """The fault that comes first, or that there is none."""

    dump: str
    """The dump."""

    golden: str | None
    """The dump that it was compared with; null for none."""

    problems: list[ProblemPart]
    """What is wrong, the gravest first."""

    facts: list[FactPart]
    """The run."""

    left_out: list[UndumpedPart]
    """What was not dumped."""

    iterations: list[int]
    """Numbers of the iterations."""

    operators: list[OperatorPart]
    """All operators in the order of execution."""

    curves: list[CurvePart]
    """Losses and gradient norms of a training."""

    histograms: list[HistogramPart]
    """The elements of chosen tensors."""

    memory: list[MemoryPart]
    """Device memory over a step."""

    faults: list[str]
    """What could not be read."""

    alone: list[str]
    """Directories without a counterpart in the golden dump."""


def document(report: DumpReport) -> ReportDocument:
    """Return the document of a report."""
    return ReportDocument(
        headline=report.headline,
        dump=report.dump,
        golden=report.golden or None,
        problems=[_problem(each) for each in report.problems],
        facts=[FactPart(**asdict(each)) for each in report.facts],
        left_out=[UndumpedPart(**asdict(each)) for each in report.left_out],
        iterations=[*report.series.iterations],
        operators=_operators(report),
        curves=[CurvePart(**asdict(each)) for each in report.curves],
        histograms=[HistogramPart(**asdict(each)) for each in report.histograms],
        memory=[
            MemoryPart(
                rank=each.rank,
                network=each.place,
                weights=each.weights,
                in_use=[*each.in_use],
                unknown=each.unknown,
            )
            for each in report.memory
        ],
        faults=[*report.faults],
        alone=[*report.alone],
    )


def _problem(problem: ReportedProblem) -> ProblemPart:
    return ProblemPart(
        kind=problem.kind,
        operator=problem.name,
        op_type=problem.op_type or None,
        index=None if problem.operator < 0 else problem.operator,
        rank=problem.rank,
        iterations=[*problem.iterations],
        text=problem.text,
        is_accused=problem.is_accused,
        own_error=problem.own_error,
        victims=[*problem.victims],
        files=[*problem.files],
        source=None if problem.source is None else ExcerptPart(**asdict(problem.source)),
    )


def _operators(report: DumpReport) -> list[OperatorPart]:
    tensors: list[list[TensorSeriesPart]] = [[] for _ in report.operators]
    for row, tensor in enumerate(report.series.tensors):
        tensors[tensor.operator].append(_series(report, row))
    parts = []
    for number, each in enumerate(report.operators):
        verdict = report.verdicts.get(number)
        parts.append(
            OperatorPart(
                operator=each.name,
                op_type=each.op_type,
                rank=each.rank,
                network=each.place,
                order=each.order,
                source=each.source_line or None,
                reads=[*each.reads],
                parameters=[*each.parameters],
                is_dumped=each.is_dumped,
                microseconds=report.times.get(number),
                verdict=None if verdict is None else judged(verdict.worst),
                distances=None if report.distances is None else _numbers(report.distances[number].tolist()),
                tensors=tensors[number],
            )
        )
    return parts


def _series(report: DumpReport, row: int) -> TensorSeriesPart:
    series, tensor = report.series, report.series.tensors[row]
    states = [TensorState(state) for state in series.states[row].tolist()]
    tables = {category: values[row].tolist() for category, values in series.numbers.items()}
    return TensorSeriesPart(
        tensor=f"{tensor.io}:{tensor.slot}",
        dtype=tensor.dtype or None,
        shape=tensor.shape,
        holds=[table.holds(state) if state else None for state in states],
        statistics={
            category: [_cell(category, value, state) for value, state in zip(values, states, strict=True)]
            for category, values in tables.items()
        },
    )


def _cell(category: str, value: float, state: TensorState) -> float | None:
    """Return a statistic; NaN is one where the tensor holds NaN, else it was not computed."""
    is_one = TensorState.NAN in state and not category.endswith("count")
    return None if math.isnan(value) and not is_one else value


def _numbers(values: list[float]) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values]
