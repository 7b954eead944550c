"""The report on a dump: facts of the run, problems, operators and their statistics, read once."""

from __future__ import annotations

import importlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from operator import itemgetter
from typing import Final

import numpy as np

from msdump.errors import DumpReadError
from msdump.executors import ExecutorChoice
from msdump.graph import SourceLine
from msdump.judge import answer
from msdump.judge.verdict import Finding
from msdump.look import DumpedFolder, watching
from msdump.look.report import problems
from msdump.look.report.curves import (
    MemoryCurve,
    TensorHistogram,
    TrainingCurve,
    memory_curve,
    operator_histograms,
    training_curves,
)
from msdump.look.report.operators import (
    OperatorKey,
    ReportedOperator,
    operators_in_order,
    reported_operator,
    source_excerpt,
    traced_microseconds,
)
from msdump.look.report.problems import ComparedDumps, OperatorVerdict, ProblemKind, ReportedProblem
from msdump.look.report.series import (
    Fault,
    MeasuredColumns,
    SeriesTable,
    StatisticSeries,
    read_directories,
    spans,
)
from msdump.plan import DumpPlan, Trigger
from msdump.read import Dump, Iteration, OperatorGraph
from msdump.record import IO
from msdump.watch import WatchRule

_EXAMPLES: Final = 5
_UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class RunFact:
    """A fact of the run in words: "iterations", "0-19".

    Attributes:
        subject: The subject.
        words: The fact.
    """

    subject: str
    words: str


@dataclass(frozen=True, slots=True)
class UndumpedOperators:
    """Operators, or sides of operators, of which nothing was dumped.

    Attributes:
        noun: "operators", "inputs" or "outputs".
        reason: Why; in words, also where it is not known.
        count: Their number.
        examples: Full names of the first of them.
    """

    noun: str
    reason: str
    count: int
    examples: tuple[str, ...]


def run_facts(
    dump: Dump,
    plan: DumpPlan | None,
    operators: Sequence[ReportedOperator],
    series: StatisticSeries,
    fault: Fault,
) -> Iterator[RunFact]:
    """Yield the facts of the run: device and versions of the dump, then the compiled configuration."""
    version = importlib.import_module("msdump").__version__  # a plain import is against the layers
    yield RunFact("report", f"made by msdump {version}, {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC")
    ranks = sorted({operator.rank for operator in operators})
    networks = dict.fromkeys(operator.place for operator in operators)
    yield RunFact("ranks", f"{len(ranks):,}: {spans(ranks)}" if ranks else "none")
    yield RunFact("networks", ", ".join(networks) or "none")
    numbers = spans(series.iterations)
    yield RunFact("iterations", f"{len(series.iterations):,}: {numbers}" if numbers else "none")
    yield RunFact(
        "operators", f"{len(operators):,}, of which {sum(each.is_dumped for each in operators):,} dumped"
    )
    yield RunFact("tensors", f"{len(series.tensors):,}, statistics: {', '.join(series.numbers) or 'none'}")
    yield from _metadata(dump, fault)
    if plan is not None:
        from msdump.look import check as preview

        for subject, words in preview.subjects(plan).items():
            yield RunFact(f"configured {subject}", words)


def _metadata(dump: Dump, fault: Fault) -> Iterator[RunFact]:
    devices: dict[str, list[int]] = {}
    configs: dict[str, list[int]] = {}
    for number, rank in dump.ranks.items():
        for told, kept in ((devices, "device"), (configs, "config")):
            try:
                value = getattr(rank, kept)
            except DumpReadError as error:
                fault(str(error))
                continue
            if value is not None:
                told.setdefault(json.dumps(value, ensure_ascii=False), []).append(number)
    for title, told in (("device", devices), ("configuration in the dump", configs)):
        for text, ranks in told.items():
            of_ranks = "" if len(told) == 1 else f" of rank {spans(ranks)}"
            yield RunFact(f"{title}{of_ranks}", text)


def undumped_operators(
    operators: Sequence[ReportedOperator], series: StatisticSeries, plan: DumpPlan | None
) -> list[UndumpedOperators]:
    """Return the operators and tensors of the graphs that were not dumped, by reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for operator in operators:
        if not operator.is_dumped:
            reasons.setdefault(("operators", _reason(operator, plan)), []).append(operator.name)
    sides: dict[int, set[IO]] = {}
    for tensor in series.tensors:
        sides.setdefault(tensor.operator, set()).add(tensor.io)
    asked = {
        IO.INPUT: plan is None or plan.what.keeps_inputs,
        IO.OUTPUT: plan is None or plan.what.keeps_outputs,
    }
    for side, is_asked in asked.items():
        reason = _UNKNOWN if is_asked else "not selected (input_output)"
        for number, present in sides.items():
            operator, described = operators[number], operators[number].described
            has_side = described is not None and (described.inputs if side is IO.INPUT else described.outputs)
            if side not in present and not operator.is_parameter and has_side:
                reasons.setdefault((f"{side}s", reason), []).append(operator.name)
    return [
        UndumpedOperators(noun, reason, len(names), tuple(names[:_EXAMPLES]))
        for (noun, reason), names in reasons.items()
    ]


def _reason(operator: ReportedOperator, plan: DumpPlan | None) -> str:
    if plan is None:
        return f"{_UNKNOWN}; give the configuration with --config"
    if plan.when.trigger is Trigger.OVERFLOW:
        return "it did not overflow (op_debug_mode 3)"
    if plan.when.trigger is Trigger.EXCEPTION:
        return "it did not fail (op_debug_mode 4)"
    refusal = plan.what.selector.refusal(operator.name) if plan.compiled.models is None else None
    return _UNKNOWN if refusal is None else str(refusal.value)


DISTANCE: Final = "distance"
"""The table of distances from golden, beside the statistics."""

_LOCATED: Final = 200  # most problems for which files and source lines are looked up
_DRAWN: Final = 12  # most problems with histograms of their tensors
_MOST_GRAPHS: Final = 16  # most graphs with a curve of device memory
_RANKS: Final = {"condition": "ranks_disagree"}


@dataclass(frozen=True, slots=True)
class ReportQuestion:
    """Options of a report.

    Attributes:
        golden: The dump to compare with, opened; None for no comparison.
        compared: The result of the comparison, None for no comparison.
        plan: The plan of the configuration of the dump, None where it is not known.
        rules: Watch rules that are checked.
        histograms: Names of operators with histograms of their tensors; ``*`` and ``?`` stand for characters.
        trace: A trace in Chrome's format with the times of operators, None for none.
        executor: Workers that read the tensors.
        advance: Called when a directory has been read.
    """

    golden: Dump | None = None
    compared: ComparedDumps | None = None
    plan: DumpPlan | None = None
    rules: tuple[WatchRule, ...] = ()
    histograms: tuple[str, ...] = ()
    trace: str | None = None
    executor: ExecutorChoice = ExecutorChoice()  # noqa: RUF009 - frozen
    advance: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class DumpReport:
    """A report on a dump.

    Attributes:
        dump: Path of the dump.
        golden: Path of the golden dump, "" without one.
        problems: Faults, the gravest first.
        facts: The run in words.
        left_out: Operators and sides that were not dumped.
        operators: All operators in the order of execution.
        series: Their statistics over the iterations.
        verdicts: The verdicts of the comparison, by place of the operator.
        distances: Distances of operators' outputs from golden's, operators x iterations; None without golden.
        curves: Losses and gradient norms.
        histograms: The elements of chosen tensors.
        memory: Device memory over a step, of each graph.
        times: Mean time of a run in microseconds, by place of the operator.
        faults: Files that could not be read, in words.
        alone: Directories without a counterpart in the golden dump.
        outputs: How far the network's outputs are from golden's, in a sentence; "" where none was compared.
        advice: The next step, in a sentence; "" for none.
    """

    dump: str
    golden: str
    problems: tuple[ReportedProblem, ...]
    facts: tuple[RunFact, ...]
    left_out: tuple[UndumpedOperators, ...]
    operators: tuple[ReportedOperator, ...]
    series: StatisticSeries = field(repr=False)
    verdicts: Mapping[int, OperatorVerdict] = field(default_factory=dict, repr=False)
    distances: np.ndarray | None = field(default=None, repr=False)
    curves: tuple[TrainingCurve, ...] = ()
    histograms: tuple[TensorHistogram, ...] = ()
    memory: tuple[MemoryCurve, ...] = ()
    times: Mapping[int, float] = field(default_factory=dict, repr=False)
    faults: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    outputs: str = ""
    advice: str = ""

    @property
    def headline(self) -> str:
        """The first line: the fault that comes first, or that there is none."""
        if self.problems:
            return self.problems[0].headline
        if not self.series.tensors:
            return "The dump is empty" if not self.faults else "No file of the dump is readable"
        if self.faults:
            files = "1 file is" if len(self.faults) == 1 else f"{len(self.faults):,} files are"
            return f"No problem in the readable files; {files} damaged or incomplete"
        return "No problem was found"


class _Reading:
    """State of reading a dump: operators, statistics, directories and overflow records so far."""

    def __init__(self) -> None:
        self.faults: dict[str, None] = {}
        self.operators: dict[OperatorKey, ReportedOperator] = {}
        self.series = SeriesTable()
        self.graphs: dict[tuple[int, str], OperatorGraph] = {}
        self.directories: dict[tuple[int, str, int], Iteration] = {}
        self._overflows: list[tuple[tuple[int, str], int, str, str]] = []

    def fault(self, message: str) -> None:
        self.faults[message] = None

    def read(self, dump: Dump, question: ReportQuestion) -> None:
        folders = [folder for group in watching.folder_groups(dump) for folder in group]
        directories = [folder.iteration for folder in folders]
        contents = read_directories(dump.path, directories, question.executor)
        for folder, (tables, faults) in zip(folders, contents, strict=True):
            for message in faults:
                self.fault(message)
            self._add(folder, tables)
            question.advance()

    def _add(self, folder: DumpedFolder, tables: Sequence[MeasuredColumns]) -> None:
        timed = [each for table in tables for each in zip(table.times, table.names, strict=True)]
        for _, name in sorted(timed, key=itemgetter(0)):
            key = (folder.rank, folder.place, *name[:2])
            if key not in self.operators:
                self.operators[key] = reported_operator(folder, key)
        self.series.add(folder, tables)
        if folder.graph is not None:
            self.graphs.setdefault((folder.rank, folder.place), folder.graph)
        self.directories[folder.rank, folder.place, folder.number] = folder.iteration
        self._add_overflows(folder)

    def _add_overflows(self, folder: DumpedFolder) -> None:
        if folder.iteration.key.time is None:  # MindSpore's own tree has no overflow records
            return
        # a copy, to free its cached lists with it
        directory = replace(folder.iteration)
        try:
            tasks = replace(folder, iteration=directory).overflows
            for file in directory.files if tasks else ():
                name = file.name
                for _ in range(tasks[name.task_id, name.stream_id]):
                    place = (folder.rank, folder.place)
                    self._overflows.append((place, folder.number, name.op_type, name.op_name))
        except DumpReadError as error:
            self.fault(str(error))

    def overflows(self, operators: Sequence[ReportedOperator]) -> Counter[tuple[int, int]]:
        """Return how often operators overflowed, by the operator's index and the iteration."""
        places = {operator.key: number for number, operator in enumerate(operators)}
        found = (
            (places.get((*place, op_type, op_name)), iteration)
            for place, iteration, op_type, op_name in self._overflows
        )
        return Counter((place, iteration) for place, iteration in found if place is not None)


def collect(dump: Dump, question: ReportQuestion) -> DumpReport:
    """Return the report on a dump.

    Raises:
        DumpReadError: The trace cannot be read.
        ConfigValueError: Matching the regular expression of a rule takes too long.
    """
    reading = _Reading()
    reading.read(dump, question)
    operators = operators_in_order(reading.operators.values(), reading.graphs)
    series = reading.series.of(operators)
    operators, grouped = _compared(operators, question.compared)
    verdicts = {number: problems.judge_operator(findings) for number, findings in grouped.items()}
    found = [*_problems(dump, question, (operators, series), reading, (grouped, verdicts))]
    compared = question.compared
    if compared is not None:
        compared_faults = (*compared.report.networks, *compared.report.unreadable, *compared.report.unread)
        reading.faults |= dict.fromkeys(compared_faults)
    return DumpReport(
        dump.path,
        "" if question.golden is None else question.golden.path,
        _located(found, operators, reading),
        tuple(run_facts(dump, question.plan, operators, series, reading.fault)),
        tuple(undumped_operators(operators, series, question.plan)),
        operators,
        series,
        verdicts,
        None if compared is None else problems.operator_distances(grouped, len(operators), series.iterations),
        tuple(training_curves(operators, series, reading.graphs)),
        tuple(_histograms(found, operators, question, reading)),
        tuple(_memory(reading, operators, series)),
        {} if question.trace is None else traced_microseconds(question.trace, operators),
        tuple(reading.faults),
        () if compared is None else compared.alone,
        "" if compared is None else answer.tell_outputs(compared.report.outputs),
        _advice(dump, compared, found),
    )


def _advice(dump: Dump, compared: ComparedDumps | None, found: Sequence[ReportedProblem]) -> str:
    if compared is not None:
        has_rerun = any(each.own for each in compared.report.findings)
        return answer.next_step(compared.report, answer.Compared(dump=dump.path, has_rerun=has_rerun))
    begins = {ProblemKind.NONFINITE, ProblemKind.OVERFLOW}
    return answer.keep_step(answer.Compared()) if any(each.kind in begins for each in found) else ""


def _compared(
    operators: tuple[ReportedOperator, ...], compared: ComparedDumps | None
) -> tuple[tuple[ReportedOperator, ...], dict[int, list[Finding]]]:
    """Return all operators, with ones that only golden has at the end, and the findings by index."""
    if compared is None:
        return operators, {}
    grouped = problems.group_by_operator(compared.report.findings, operators)
    added = []
    for finding in grouped.pop(-1, []):
        place = finding.place
        key = (place.rank or 0, place.label, place.op_type, place.name)
        added.append(ReportedOperator(key, place.shown_name, place.order, is_dumped=False))
        grouped[len(operators) + len(added) - 1] = [finding]
    return (*operators, *added), grouped


def _problems(
    dump: Dump,
    question: ReportQuestion,
    known: tuple[Sequence[ReportedOperator], StatisticSeries],
    reading: _Reading,
    judged: tuple[Mapping[int, list[Finding]], Mapping[int, OperatorVerdict]],
) -> Iterator[ReportedProblem]:
    operators, series = known
    grouped, verdicts = judged
    trigger = Trigger.ALWAYS if question.plan is None else question.plan.when.trigger
    yield from problems.failure_problems(dump.failures, operators, reading.fault)
    if trigger is Trigger.EXCEPTION:
        yield from problems.trigger_problems(trigger, operators, series, ())
    accused = [*problems.verdict_problems(verdicts, grouped, operators)]
    struck = [*problems.outbreak_problems(problems.find_outbreaks(operators, series), operators)]
    if accused and accused[0].is_accused and _is_before(accused[0], struck):
        yield accused.pop(0)
    yield from struck
    overflows = reading.overflows(operators)
    yield from problems.overflow_problems(overflows, operators)
    if trigger is Trigger.OVERFLOW:
        reached = itertools.chain.from_iterable((each.operator, *each.victims) for each in struck)
        told = {*reached, *(place for place, _ in overflows)}
        yield from problems.trigger_problems(trigger, operators, series, told)
    yield from accused
    if question.compared is not None:
        yield from problems.absence_problems(question.compared.report, operators)
    yield from _hits(dump, question, operators, reading)


def _is_before(accused: ReportedProblem, struck: Sequence[ReportedProblem]) -> bool:
    """Return whether an operator at fault ran no later than the first one with new NaN or infinities."""
    if not struck:
        return True
    first = struck[0]
    mine, theirs = ((*each.iterations[:1], each.operator) for each in (accused, first))
    return accused.operator >= 0 and mine <= theirs


def _hits(
    dump: Dump, question: ReportQuestion, operators: Sequence[ReportedOperator], reading: _Reading
) -> Iterator[ReportedProblem]:
    rules = [(question.rules, ProblemKind.WATCH)] if question.rules else []
    ranks = {operator.rank for operator in operators}
    if len(ranks) > 1 and not any(rule.compares_ranks for rule in question.rules):
        from msdump.config import watch as watch_rules  # imported here: most dumps are of one rank

        rules.append(((watch_rules.rule(_RANKS, "msdump report"),), ProblemKind.RANKS))
    for each, kind in rules:
        found = watching.watch(dump, each, executor=question.executor)
        for message in found.unreadable:
            reading.fault(message)
        yield from problems.hit_problems(found.hits, operators, kind)


def _memory(
    reading: _Reading, operators: Sequence[ReportedOperator], series: StatisticSeries
) -> Iterator[MemoryCurve]:
    forms: dict[tuple[int, str], dict[tuple[str, int], tuple[str, str]]] = {}
    for tensor in series.tensors:
        operator = operators[tensor.operator]
        if tensor.io is IO.OUTPUT:
            of_graph = forms.setdefault((operator.rank, operator.place), {})
            of_graph[operator.name, tensor.slot] = (tensor.dtype, tensor.shape)
    for place, graph in [*reading.graphs.items()][:_MOST_GRAPHS]:
        yield memory_curve(*place, graph, forms.get(place, {}))


def _located(
    found: Sequence[ReportedProblem], operators: Sequence[ReportedOperator], reading: _Reading
) -> tuple[ReportedProblem, ...]:
    located = []
    for problem in found[:_LOCATED]:
        if problem.operator < 0:
            located.append(problem)
            continue
        operator = operators[problem.operator]
        iteration = problem.iterations[0] if problem.iterations else 0
        directory = reading.directories.get((operator.rank, operator.place, iteration))
        files = problem.files or (() if directory is None else _files(directory, operator, reading))
        located.append(replace(problem, files=files, source=source_excerpt(operator.described)))
    return (*located, *found[_LOCATED:])


def _files(directory: Iteration, operator: ReportedOperator, reading: _Reading) -> tuple[str, ...]:
    try:
        paths = dict.fromkeys(
            record.path
            for name in (operator.name, operator.key[3])
            for record in directory.tensors_of(name)
            if record.op_type == operator.op_type
        )
        # without files of its tensors: the table of statistics
        tables = directory.statistic_files.values()
        return tuple(path for path in paths if path != directory.path) or tuple(tables)[:1]
    except DumpReadError as error:
        reading.fault(str(error))
        return ()


def _histograms(
    found: Sequence[ReportedProblem],
    operators: Sequence[ReportedOperator],
    question: ReportQuestion,
    reading: _Reading,
) -> Iterator[TensorHistogram]:
    chosen = {
        (each.operator, each.iterations[0] if each.iterations else 0): None
        for each in found[:_DRAWN]
        if each.operator >= 0
    }
    last = {(rank, place): number for rank, place, number in sorted(reading.directories)}
    for number, operator in enumerate(operators):
        names = (operator.name, operator.key[3], operator.name.rpartition("/")[2])
        if any(fnmatchcase(name, pattern) for pattern in question.histograms for name in names):
            chosen[number, last.get((operator.rank, operator.place), 0)] = None
    golden = {} if question.golden is None else _directories(question.golden)
    for number, iteration in chosen:
        operator = operators[number]
        place = (operator.rank, operator.place, iteration)
        if place in reading.directories:
            theirs = golden.get(place) or golden.get((0, operator.place, iteration))
            yield from operator_histograms(
                number, (operator.name, operator.key[3]), reading.directories[place], theirs, reading.fault
            )


def _directories(dump: Dump) -> dict[tuple[int, str, int], Iteration]:
    folders = (folder for group in watching.folder_groups(dump) for folder in group)
    return {(each.rank, each.place, each.number): each.iteration for each in folders}


_PATH: Final = re.compile(r"(?<![\w.<>/:])/[^\s\"',;:()\[\]]+")


def redact(report: DumpReport) -> DumpReport:
    """Return a report without code lines and absolute paths; names of files and dumps stay."""
    return replace(
        report,
        dump=_last_component(report.dump),
        golden=_last_component(report.golden),
        problems=tuple(_redact_problem(each, report.dump) for each in report.problems),
        facts=tuple(RunFact(each.subject, _without_paths(each.words)) for each in report.facts),
        operators=tuple(map(_redact_operator, report.operators)),
        faults=tuple(_redact_text(each, report) for each in report.faults),
        alone=tuple(_redact_text(each, report) for each in report.alone),
    )


def _redact_problem(problem: ReportedProblem, dump: str) -> ReportedProblem:
    source = problem.source
    if source is not None:
        source = replace(source, file=_last_component(source.file), code="", first=0, around=())
    files = tuple(
        path.removeprefix(f"{dump}/") if path.startswith(dump) else _last_component(path)
        for path in problem.files
    )
    return replace(problem, source=source, files=files, text=_without_paths(problem.text))


def _redact_operator(operator: ReportedOperator) -> ReportedOperator:
    if operator.described is None:
        return operator
    line = operator.described.own_line
    source = () if line is None else (SourceLine(_last_component(line.file), line.line, ""),)
    return replace(operator, described=replace(operator.described, source=source))


def _redact_text(text: str, report: DumpReport) -> str:
    for root in filter(None, (report.dump, report.golden)):
        text = text.replace(f"{root}/", "")
    return _without_paths(text)


def _without_paths(text: str) -> str:
    """Return a text with absolute paths shortened to their last components.

    >>> _without_paths("into /home/you/dump/rank_0/, also MatMul/Mul-op0")
    'into rank_0, also MatMul/Mul-op0'
    """
    return _PATH.sub(lambda path: _last_component(path[0]), text)


def _last_component(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
