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
from msdump.judge.verdict import Finding, Report
from msdump.look import DumpedFolder, watching
from msdump.look.report import problems
from msdump.look.report.operators import (
    OperatorKey,
    ReportedOperator,
    operators_in_order,
    reported_operator,
    source_excerpt,
)
from msdump.look.report.problems import OperatorVerdict, ProblemKind, ReportedProblem
from msdump.look.report.series import (
    SeriesTable,
    StatisticSeries,
    TensorHistogram,
    TrainingCurve,
    operator_histograms,
    read_directories,
    spans,
    training_curves,
)
from msdump.plan import DumpPlan, Trigger
from msdump.read import Dump, Iteration, OperatorGraph
from msdump.record import IO
from msdump.watch import WatchRule

_EXAMPLES: Final = 5
_UNKNOWN: Final = "unknown"
_TRIGGERS: Final = {
    Trigger.OVERFLOW: "it did not overflow (op_debug_mode 3)",
    Trigger.EXCEPTION: "it did not fail (op_debug_mode 4)",
}


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


DISTANCE: Final = "distance"
"""The table of distances from golden, beside the statistics."""

_LOCATED: Final = 200  # most problems for which files and source lines are looked up
_DRAWN: Final = 12  # most problems with histograms of their tensors
_RANKS: Final = {"condition": "ranks_disagree"}


@dataclass(frozen=True)
class DumpReport:
    """A report on a dump.

    Attributes:
        dump: Path of the dump.
        golden: Path of the golden dump, "" without one.
        problems: Faults, the gravest first.
        facts: The run in words.
        left_out: Operators and sides that were not dumped.
        series: Their statistics over the iterations.
        verdicts: The verdicts of the comparison, by place of the operator.
        distances: Distances of operators' outputs from golden's, operators x iterations; None without golden.
        curves: Losses and gradient norms.
        histograms: The elements of chosen tensors.
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


@dataclass
class ReportCollector:
    """Reads a dump: operators, statistics, directories and overflow records; then its problems and curves."""

    dump: Dump
    golden: Dump | None = None  # the dump to compare with, opened; None for no comparison
    compared: Report | None = None  # the verdicts of the comparison, None for no comparison
    alone: tuple[str, ...] = ()  # directories without a counterpart in the other dump
    plan: DumpPlan | None = None  # the plan of the configuration of the dump, None where it is not known
    rules: tuple[WatchRule, ...] = ()  # watch rules that are checked
    # names of operators with histograms of their tensors; ``*`` and ``?`` stand for characters
    histograms: tuple[str, ...] = ()
    # workers that read the tensors
    executor: ExecutorChoice = ExecutorChoice()  # noqa: RUF009 - frozen
    advance: Callable[[], None] = lambda: None  # called when a directory has been read

    def __post_init__(self) -> None:
        """Begin without anything read."""
        self._faults: dict[str, None] = {}
        self._graphs: dict[tuple[int, str], OperatorGraph] = {}
        self._directories: dict[tuple[int, str, int], Iteration] = {}
        self._operators: Sequence[ReportedOperator] = ()
        self._overflows: Counter[tuple[OperatorKey, int]] = Counter()

    def _fault(self, message: str) -> None:
        self._faults[message] = None

    def report(self) -> DumpReport:
        """Return the report on the dump."""
        dump = self.dump
        dumped: dict[OperatorKey, ReportedOperator] = {}
        table = SeriesTable()
        folders = _folders(dump)
        directories = [folder.iteration for folder in folders]
        contents = read_directories(dump.path, directories, self.executor)
        for folder, (tables, faults) in zip(folders, contents, strict=True):
            self._faults |= dict.fromkeys(faults)
            timed = [each for part in tables for each in zip(part.times, part.names, strict=True)]
            for _, name in sorted(timed, key=itemgetter(0)):
                key = (folder.rank, folder.place, *name[:2])
                if key not in dumped:
                    dumped[key] = reported_operator(folder, key)
            table.add(folder, tables)
            if folder.graph is not None:
                self._graphs.setdefault((folder.rank, folder.place), folder.graph)
            self._directories[folder.rank, folder.place, folder.number] = folder.iteration
            self._count_overflows(folder)
            self.advance()
        operators = operators_in_order(dumped.values(), self._graphs)
        self._series = series = table.of(operators)
        compared = self.compared
        grouped: dict[int, list[Finding]] = {}
        if compared is not None:  # operators that only golden has stand at the end
            grouped = problems.group_by_operator(compared.findings, operators)
            for finding in grouped.pop(-1, []):
                place = finding.place
                key = (place.rank or 0, place.label, place.op_type, place.name)
                grouped[len(operators)] = [finding]
                operators += (ReportedOperator(key, place.shown_name, place.order, is_dumped=False),)
        self._operators = operators
        verdicts = {number: problems.judge_operator(findings) for number, findings in grouped.items()}
        found = [*self._problems(grouped, verdicts)]
        if compared is not None:
            compared_faults = (*compared.networks, *compared.unreadable, *compared.unread)
            self._faults |= dict.fromkeys(compared_faults)
            has_rerun = any(each.own for each in compared.findings)
            advice = answer.next_step(compared, answer.Compared(dump=dump.path, has_rerun=has_rerun))
        else:
            begins = {ProblemKind.NONFINITE, ProblemKind.OVERFLOW}
            has_begun = any(each.kind in begins for each in found)
            advice = answer.keep_step(answer.Compared()) if has_begun else ""
        count = len(operators)
        return DumpReport(
            dump=dump.path,
            golden="" if self.golden is None else self.golden.path,
            problems=(*map(self._located, found[:_LOCATED]), *found[_LOCATED:]),
            facts=tuple(self._facts()),
            left_out=tuple(self._left_out()),
            operators=operators,
            series=series,
            verdicts=verdicts,
            distances=(
                None if compared is None else problems.operator_distances(grouped, count, series.iterations)
            ),
            curves=tuple(training_curves(operators, series, self._graphs)),
            histograms=tuple(self._histograms(found)),
            faults=tuple(self._faults),
            alone=self.alone,
            outputs="" if compared is None else answer.outputs_sentence(compared),
            advice=advice,
        )

    def _count_overflows(self, folder: DumpedFolder) -> None:
        """Count the overflow records of operators in a directory; MindSpore's own tree has none."""
        if folder.iteration.key.time is None:
            return
        directory = replace(folder.iteration)  # a copy, to free its cached lists with it
        try:
            tasks = replace(folder, iteration=directory).overflows
            for file in directory.files if tasks else ():
                name = file.name
                key = (folder.rank, folder.place, name.op_type, name.op_name)
                if count := tasks[name.task_id, name.stream_id]:
                    self._overflows[key, folder.number] += count
        except DumpReadError as error:
            self._fault(str(error))

    def _problems(
        self, grouped: Mapping[int, list[Finding]], verdicts: Mapping[int, OperatorVerdict]
    ) -> Iterator[ReportedProblem]:
        operators, series = self._operators, self._series
        trigger = Trigger.ALWAYS if self.plan is None else self.plan.when.trigger
        yield from problems.failure_problems(self.dump.failures, operators, self._fault)
        if trigger is Trigger.EXCEPTION:
            yield from problems.trigger_problems(trigger, operators, series, ())
        accused = [*problems.verdict_problems(verdicts, grouped, operators)]
        struck = [*problems.outbreak_problems(problems.find_outbreaks(operators, series), operators)]
        if accused and accused[0].is_accused and accused[0].operator >= 0:
            # an operator at fault that ran no later than the first one with new NaN or infinities
            mine, *others = ((*each.iterations[:1], each.operator) for each in (accused[0], *struck[:1]))
            if not others or mine <= others[0]:
                yield accused.pop(0)
        yield from struck
        places = {operator.key: number for number, operator in enumerate(operators)}
        known = {key: count for key, count in self._overflows.items() if key[0] in places}
        overflows = {(places[key], iteration): count for (key, iteration), count in known.items()}
        yield from problems.overflow_problems(overflows, operators)
        if trigger is Trigger.OVERFLOW:
            reached = itertools.chain.from_iterable((each.operator, *each.victims) for each in struck)
            named = {*reached, *(place for place, _ in overflows)}
            yield from problems.trigger_problems(trigger, operators, series, named)
        yield from accused
        if self.compared is not None:
            yield from problems.absence_problems(self.compared, operators)
        rules = [(self.rules, ProblemKind.WATCH)] if self.rules else []
        has_ranks = len({operator.rank for operator in operators}) > 1
        if has_ranks and not any(rule.compares_ranks for rule in self.rules):
            from msdump.config import watch as watch_rules  # imported here: most dumps are of one rank

            rules.append(((watch_rules.rule(_RANKS, "msdump report"),), ProblemKind.RANKS))
        for each, kind in rules:
            hits = watching.watch(self.dump, each, executor=self.executor)
            self._faults |= dict.fromkeys(hits.unreadable)
            yield from problems.hit_problems(hits.hits, operators, kind)

    def _located(self, problem: ReportedProblem) -> ReportedProblem:
        """Return a problem with the files of its tensors and the source line of its operator."""
        if problem.operator < 0:
            return problem
        operator = self._operators[problem.operator]
        iteration = problem.iterations[0] if problem.iterations else 0
        directory = self._directories.get((operator.rank, operator.place, iteration))
        files = problem.files
        try:
            if not files and directory is not None:
                paths = dict.fromkeys(
                    record.path
                    for name in (operator.name, operator.key[3])
                    for record in directory.tensors_of(name)
                    if record.op_type == operator.op_type
                )
                # without files of its tensors: the table of statistics
                tables = tuple(directory.statistic_files.values())[:1]
                files = tuple(path for path in paths if path != directory.path) or tables
        except DumpReadError as error:
            self._fault(str(error))
        return replace(problem, files=files, source=source_excerpt(operator.described))

    def _facts(self) -> Iterator[RunFact]:
        """Yield the facts of the run: device and versions of the dump, then the compiled configuration."""
        operators, series = self._operators, self._series
        version = importlib.import_module("msdump").__version__  # a plain import is against the layers
        yield RunFact("report", f"made by msdump {version}, {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC")
        ranks = sorted({operator.rank for operator in operators})
        networks = dict.fromkeys(operator.place for operator in operators)
        yield RunFact("ranks", f"{len(ranks):,}: {spans(ranks)}" if ranks else "none")
        yield RunFact("networks", ", ".join(networks) or "none")
        numbers = spans(series.iterations)
        yield RunFact("iterations", f"{len(series.iterations):,}: {numbers}" if numbers else "none")
        dumped = sum(each.is_dumped for each in operators)
        yield RunFact("operators", f"{len(operators):,}, of which {dumped:,} dumped")
        yield RunFact(
            "tensors", f"{len(series.tensors):,}, statistics: {', '.join(series.numbers) or 'none'}"
        )
        for title, name in (("device", "device"), ("configuration in the dump", "config")):
            ranks_by_text: dict[str, list[int]] = {}
            for number, rank in self.dump.ranks.items():
                try:
                    value = getattr(rank, name)
                except DumpReadError as error:
                    self._fault(str(error))
                    continue
                if value is not None:
                    ranks_by_text.setdefault(json.dumps(value, ensure_ascii=False), []).append(number)
            for text, of_ranks in ranks_by_text.items():
                yield RunFact(title + (f" of rank {spans(of_ranks)}" if len(ranks_by_text) > 1 else ""), text)
        if self.plan is not None:
            from msdump.look import check as preview

            for subject, words in preview.subjects(self.plan).items():
                yield RunFact(f"configured {subject}", words)

    def _left_out(self) -> list[UndumpedOperators]:
        """Return the operators and tensors of the graphs that were not dumped, by reason."""
        names: dict[tuple[str, str], list[str]] = {}
        plan, reason = self.plan, f"{_UNKNOWN}; give the configuration with --config"
        for operator in (each for each in self._operators if not each.is_dumped):
            if plan is not None:
                is_named = plan.compiled.models is None
                refusal = plan.what.selector.refusal(operator.name) if is_named else None
                reason = _TRIGGERS.get(plan.when.trigger) or (
                    _UNKNOWN if refusal is None else str(refusal.value)
                )
            names.setdefault(("operators", reason), []).append(operator.name)
        present: dict[int, set[IO]] = {}
        for tensor in self._series.tensors:
            present.setdefault(tensor.operator, set()).add(tensor.io)
        for side in IO:
            what = None if plan is None else plan.what
            is_kept = what is None or (what.keeps_inputs if side is IO.INPUT else what.keeps_outputs)
            reason = _UNKNOWN if is_kept else "not selected (input_output)"
            for number, sides in present.items():
                operator, described = self._operators[number], self._operators[number].described
                has_side = described and (described.inputs if side is IO.INPUT else described.outputs)
                if side not in sides and not operator.is_parameter and has_side:
                    names.setdefault((f"{side}s", reason), []).append(operator.name)
        return [
            UndumpedOperators(noun, reason, len(group), tuple(group[:_EXAMPLES]))
            for (noun, reason), group in names.items()
        ]

    def _histograms(self, found: Sequence[ReportedProblem]) -> Iterator[TensorHistogram]:
        """Yield the histograms of operators with the first problems, and of the chosen ones."""
        chosen = {
            (each.operator, each.iterations[0] if each.iterations else 0): None
            for each in found[:_DRAWN]
            if each.operator >= 0
        }
        last = {(rank, place): number for rank, place, number in sorted(self._directories)}
        for number, operator in enumerate(self._operators):
            names = (operator.name, operator.key[3], operator.name.rpartition("/")[2])
            if any(fnmatchcase(name, pattern) for pattern in self.histograms for name in names):
                chosen[number, last.get((operator.rank, operator.place), 0)] = None
        opened = self.golden
        folders = () if opened is None else _folders(opened)
        golden = {(each.rank, each.place, each.number): each.iteration for each in folders}
        for number, iteration in chosen:
            operator = self._operators[number]
            place = (operator.rank, operator.place, iteration)
            if place in self._directories:
                theirs = golden.get(place) or golden.get((0, operator.place, iteration))
                spelled = (operator.name, operator.key[3])
                mine = self._directories[place]
                yield from operator_histograms(number, spelled, mine, theirs, self._fault)


def _folders(dump: Dump) -> list[DumpedFolder]:
    return [folder for group in watching.folder_groups(dump) for folder in group]


_PATH: Final = re.compile(r"(?<![\w.<>/:])/[^\s\"',;:()\[\]]+")


def redact(report: DumpReport) -> DumpReport:
    """Return a report without code lines and absolute paths; names of files and dumps stay."""

    def text_without_paths(text: str) -> str:
        for root in filter(None, (report.dump, report.golden)):
            text = text.replace(f"{root}/", "")
        return _without_paths(text)

    def redacted(problem: ReportedProblem) -> ReportedProblem:
        source = problem.source
        if source is not None:
            source = replace(source, file=_last_component(source.file), code="", first=0, around=())
        files = tuple(
            path.removeprefix(f"{report.dump}/") if path.startswith(report.dump) else _last_component(path)
            for path in problem.files
        )
        return replace(problem, source=source, files=files, text=_without_paths(problem.text))

    def without_code(operator: ReportedOperator) -> ReportedOperator:
        if operator.described is None:
            return operator
        line = operator.described.own_line
        source = () if line is None else (SourceLine(_last_component(line.file), line.line, ""),)
        return replace(operator, described=replace(operator.described, source=source))

    return replace(
        report,
        dump=_last_component(report.dump),
        golden=_last_component(report.golden),
        problems=tuple(map(redacted, report.problems)),
        facts=tuple(RunFact(each.subject, _without_paths(each.words)) for each in report.facts),
        operators=tuple(map(without_code, report.operators)),
        faults=tuple(map(text_without_paths, report.faults)),
        alone=tuple(map(text_without_paths, report.alone)),
    )


def _without_paths(text: str) -> str:
    """Return a text with absolute paths shortened to their last components.

    >>> _without_paths("into /home/you/dump/rank_0/, also MatMul/Mul-op0")
    'into rank_0, also MatMul/Mul-op0'
    """
    return _PATH.sub(lambda path: _last_component(path[0]), text)


def _last_component(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
