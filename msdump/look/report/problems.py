"""Problems of a dump: failures, outbreaks of NaN, overflows, differences from golden, watch hits."""

from __future__ import annotations

import enum
import itertools
import math
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, Final

import numpy as np

from msdump.errors import DumpReadError, ToolError, plural
from msdump.executors import ExecutorChoice
from msdump.graph import written_inputs
from msdump.judge import answer
from msdump.judge.compare import DumpComparison, compare_statistics
from msdump.judge.pair import Executions, is_measured_alone, pair_folders
from msdump.judge.verdict import (
    BY_GRAVITY,
    Finding,
    Limits,
    OperatorPlace,
    Report,
    Verdict,
    fault_text,
    gravity,
    joined,
)
from msdump.look.report.operators import ReportedOperator, SourceExcerpt, places_by_name
from msdump.look.report.series import STRUCK, Fault, StatisticSeries, TensorState, spans
from msdump.plan import Trigger
from msdump.read import OperatorFile
from msdump.record import IO
from msdump.return_codes import ReturnCode
from msdump.watch import Hit

_GRAVITY: Final = {verdict: place for place, verdict in enumerate(BY_GRAVITY)}


@dataclass(frozen=True, slots=True)
class OperatorVerdict:
    """The verdict on an operator over all iterations.

    Attributes:
        worst: The gravest of its findings; of equal ones that with the largest own error.
        distance: Largest relative distance of an output from golden's; NaN where none was compared.
        own_error: Largest error of its own.
    """

    worst: Finding
    distance: float
    own_error: float


def compare_dumps(
    dumped: str,
    golden: str,
    limits: Limits,
    executions: Executions,
    *,
    graph: str | None,
    executor: ExecutorChoice,
    explain: Callable[[DumpComparison], None] | None,
) -> tuple[Report, tuple[str, ...]]:
    """Return the verdicts on two dumps, and directories without a counterpart in the other dump.

    Where one of the dumps holds statistics alone, they are compared by their statistics.
    """
    if is_measured_alone(dumped, golden):
        report, alone = compare_statistics(dumped, golden, limits, executions)
    else:
        folders = pair_folders(dumped, golden, executions)
        comparison = DumpComparison(dumped, golden, limits, graph, *folders.executions, executor)
        comparison.measure(map(comparison.add, folders.pairs))
        if explain is not None:
            explain(comparison)
        report = comparison.report()
        alone = [path for path in folders.alone if path not in comparison.joined]
    if not (report.compared or report.unreadable):
        why = next(iter(report.networks), f"no operator of {dumped} has a counterpart in {golden}")
        raise ToolError(ReturnCode.PARAMETER, f"nothing was compared: {why}")
    return report, tuple(alone)


def group_by_operator(
    findings: Sequence[Finding], operators: Sequence[ReportedOperator]
) -> dict[int, list[Finding]]:
    """Return findings by the index of their operator in the list; -1 for findings without one."""
    places = places_by_name(operators)
    grouped: dict[int, list[Finding]] = {}
    for finding in findings:
        place = finding.place
        known = (
            places.get((rank, name)) for rank in (place.rank, None) for name in (place.full_name, place.name)
        )
        number = next((each for each in known if each is not None), -1)
        grouped.setdefault(number, []).append(finding)
    return grouped


def judge_operator(findings: Sequence[Finding]) -> OperatorVerdict:
    """Return the worst verdict on an operator over all iterations."""
    worst = min(findings, key=lambda each: (_GRAVITY[each.verdict], -gravity(each)[1], each.place.time))
    compared = [each for each in findings if any(tensor.error for tensor in each.outputs)]
    distance = max((each.distance for each in compared), default=math.nan)
    return OperatorVerdict(worst, distance, max(each.own_error for each in findings))


def operator_distances(
    grouped: dict[int, list[Finding]], count: int, iterations: Sequence[int]
) -> np.ndarray:
    """Return the distances of operators' outputs from golden's, operators x iterations; NaN: not compared."""
    table = np.full((count, len(iterations)), np.nan)
    columns = {number: column for column, number in enumerate(iterations)}
    for operator, findings in grouped.items():
        for finding in findings:
            column = columns.get(finding.place.iteration or 0)
            is_compared = any(tensor.error for tensor in finding.outputs)
            if column is not None and is_compared:
                table[operator, column] = np.fmax(table[operator, column], finding.distance)
    return table


def fault_words(finding: Finding) -> str:
    """Return the fault of an operator in a sentence: the verdict, and its reason or else the difference."""
    if finding.verdict is Verdict.MISSING:
        return f"missing: {joined('only golden has it', finding.note)}"
    worst = "" if finding.worst is None else finding.worst.note
    return f"{finding.verdict}: {finding.note or joined(fault_text(finding), worst)}"


@dataclass(slots=True)
class Outbreak:
    """An operator in which NaN or infinities begin."""

    operator: int  # its place in the list of operators
    state: TensorState  # contents of its outputs
    has_struck_input: bool  # whether an input of unknown origin already has NaN or infinities
    # numbers of the iterations in which NaN or infinities begin at this operator
    iterations: list[int] = field(default_factory=list)
    # places of the operators that these NaN or infinities reach, in the order of execution
    victims: dict[int, None] = field(default_factory=dict)


def find_outbreaks(operators: Sequence[ReportedOperator], series: StatisticSeries) -> list[Outbreak]:
    """Return where NaN and infinities begin, by iteration and in the order of execution.

    An operator is the culprit if its outputs have NaN or infinities, and neither its inputs nor the operators
    that it reads have any. Without a graph, later operators dumped without inputs count as reached by the
    culprit. In training, weights carry NaN and infinities into later iterations.
    """
    states = series.of_operators(len(operators))
    if not (states & STRUCK).any():
        return []
    # whether an input was dumped, and whether one holds NaN or infinities, by operator and iteration
    dumped, struck_inputs = np.zeros((2, *states.shape), np.bool_)
    for row, tensor in enumerate(series.tensors):
        if tensor.io is IO.INPUT:
            dumped[tensor.operator] |= series.states[row] > 0
            struck_inputs[tensor.operator] |= series.states[row] & STRUCK > 0
    found: dict[int, Outbreak] = {}
    places: dict[tuple[int, str], list[int]] = {}
    for number, operator in enumerate(operators):
        places.setdefault((operator.rank, operator.place), []).append(number)
    for column, iteration in enumerate(series.iterations):
        state, has_input, has_struck_input = states[:, column], dumped[:, column], struck_inputs[:, column]
        for members in places.values():
            owners: dict[int, Outbreak] = {}
            last, earlier = None, next(iter(found.values()), None)
            for place in (each for each in members if state[each] & STRUCK):
                operator, owner = operators[place], None
                producer = next(
                    (each for each in operator.reads if each != place and state[each] & STRUCK), None
                )
                if producer is not None:
                    owner = owners.get(producer, last)
                elif place in found:
                    pass
                elif has_struck_input[place]:
                    owner = last or earlier
                elif not has_input[place] and operator.described is None and last is not None:
                    owner = last
                elif not has_input[place] and operator.parameters:
                    # weights that training changed after NaN or infinities began
                    trains = any(written_inputs(operators[each].op_type) for each in members)
                    owner = earlier if trains else None
                if owner is not None:
                    owner.victims[place] = None
                else:
                    new = Outbreak(place, TensorState(int(state[place])), bool(has_struck_input[place]))
                    owner = last = found.setdefault(place, new)
                    owner.iterations.append(iteration)
                owners[place] = owner
    order = {number: column for column, number in enumerate(series.iterations)}
    return sorted(found.values(), key=lambda each: (order[each.iterations[0]], each.operator))


_ABSENT: Final = -1
_LISTED: Final = re.compile(r"\d+(?:, \d+){3,}")
_HEIRS: Final = frozenset(
    {Verdict.INHERITED, Verdict.AMPLIFIED, Verdict.ACCUMULATED, Verdict.HEALED, Verdict.NONFINITE}
)


class ProblemKind(enum.StrEnum):
    """Kinds of problems, in the order in which the report shows them."""

    FAILURE = "failure"
    NONFINITE = "NaN or infinity"
    OVERFLOW = "overflow"
    VERDICT = "verdict"
    WATCH = "watch"
    RANKS = "ranks"

    @property
    def title_text(self) -> str:
        """The heading of a table of problems of this kind."""
        return _TITLES[self]


_TITLES: Final = {
    ProblemKind.FAILURE: "Failed operators",
    ProblemKind.NONFINITE: "First operators with NaN or infinities",
    ProblemKind.OVERFLOW: "Overflows reported by the device",
    ProblemKind.VERDICT: "Differences from golden",
    ProblemKind.WATCH: "Hits of watch rules",
    ProblemKind.RANKS: "Differences between ranks",
}


_TRIGGERED: Final = {
    Trigger.EXCEPTION: (ProblemKind.FAILURE, "it failed (op_debug_mode 4 dumps only failing operators)"),
    Trigger.OVERFLOW: (
        ProblemKind.OVERFLOW,
        "it overflowed (op_debug_mode 3 dumps only overflowing operators)",
    ),
}
"""By trigger of the dump: kind and text of the problem of every operator that has files."""


@dataclass(frozen=True, slots=True)
class ReportedProblem:
    """Something that is wrong.

    Attributes:
        kind: Its kind.
        operator: Place of its operator in the list, -1 for none.
        name: Full name of the operator.
        op_type: Its type, "" where it is not known.
        rank: Number of the rank, None where it is not known.
        iterations: Numbers of the iterations in which it was found.
        text: The fault in a sentence.
        victims: Places of the operators that it reaches, in the order of execution.
        is_accused: Whether the fault is there, and not before it.
        own_error: How much of its error is its own; None where nothing was compared.
        files: Paths of its tensors, or of the table of their statistics.
        source: The line of the program that made it, None where it is not known.
    """

    kind: ProblemKind
    operator: int
    name: str
    op_type: str
    rank: int | None
    iterations: tuple[int, ...]
    text: str
    victims: tuple[int, ...] = ()
    is_accused: bool = True
    own_error: float | None = None
    files: tuple[str, ...] = ()
    source: SourceExcerpt | None = None

    @property
    def headline(self) -> str:
        """One line: operator, place, problem."""
        type_text = f" ({self.op_type})" if self.op_type else ""
        rank = "" if not self.rank else f", rank {self.rank}"
        iteration = f" in iteration {self.iterations[0]}" if self.iterations else ""
        return f"{self.name}{type_text}{iteration}{rank}: {self.text}"


def _problem_of(
    kind: ProblemKind,
    number: int,
    operators: Sequence[ReportedOperator],
    iterations: Iterable[int],
    text: str,
    **further: Any,
) -> ReportedProblem:
    each = operators[number]
    found = kind, number, each.name, each.op_type, each.rank, tuple(sorted(iterations)), text
    return ReportedProblem(*found, **further)


def failure_problems(
    files: Sequence[OperatorFile], operators: Sequence[ReportedOperator], fault: Fault
) -> Iterator[ReportedProblem]:
    """Yield the operators that failed, from the files that exception dumps left of them."""
    places = places_by_name(operators)
    for file in files:
        is_brief = file.name.is_brief_failure
        name, given = file.name.op_name, ""
        try:
            name = file.header.op_name or name
            inputs = [each for each in file.records if each.io is IO.INPUT]
            given = ", ".join(
                f"{each.info.size:,} bytes"
                if is_brief
                else f"{each.dtype} ({', '.join(map(str, each.original_shape))})"
                for each in inputs
            )
        except DumpReadError as error:
            fault(str(error))
        yield ReportedProblem(
            ProblemKind.FAILURE,
            places.get((None, name), _ABSENT),
            name or "an operator",
            "" if is_brief else file.name.op_type,
            None,
            (),
            f"it failed when it ran{f'; its inputs: {given}' if given else ''}",
            files=(file.path,),
        )


def trigger_problems(
    trigger: Trigger, operators: Sequence[ReportedOperator], series: StatisticSeries, reported: Container[int]
) -> Iterator[ReportedProblem]:
    """Yield the operators of a dump in which only failing or overflowing operators have files.

    ``reported`` are places of operators with other problems, which are left out.
    """
    if trigger not in _TRIGGERED:
        return
    kind, text = _TRIGGERED[trigger]
    states = series.of_operators(len(operators))
    for number, operator in enumerate(operators):
        iterations = tuple(itertools.compress(series.iterations, states[number]))
        if iterations and not operator.is_parameter and number not in reported:
            yield _problem_of(kind, number, operators, iterations, text)


def outbreak_problems(
    outbreaks: Sequence[Outbreak], operators: Sequence[ReportedOperator]
) -> Iterator[ReportedProblem]:
    """Yield the operators in which NaN or infinities begin."""
    for each in outbreaks:
        operator, reached = operators[each.operator], len(each.victims)
        words = {TensorState.NAN: "NaN", TensorState.INF: "infinity"}
        text = " and ".join(word for flag, word in words.items() if flag & each.state)
        if each.has_struck_input:
            text += " in its output; an input already has NaN or infinity"
        else:
            text += " in this weight or input of the network" if operator.is_parameter else " begins here"
        text += f"; it reaches {plural(reached, 'operator')}" if reached else ""
        found = ProblemKind.NONFINITE, each.operator, operators, each.iterations, text
        yield _problem_of(*found, victims=tuple(sorted(each.victims)))


def overflow_problems(
    counts: Mapping[tuple[int, int], int], operators: Sequence[ReportedOperator]
) -> Iterator[ReportedProblem]:
    """Yield the operators with overflow records; ``counts`` is the number by operator and iteration."""
    for number, group in itertools.groupby(sorted(counts), key=itemgetter(0)):
        found = {iteration: counts[number, iteration] for _, iteration in group}
        text = f"the device reports {plural(sum(found.values()), 'overflow')}"
        yield _problem_of(ProblemKind.OVERFLOW, number, operators, found, text)


def verdict_problems(
    verdicts: Mapping[int, OperatorVerdict],
    grouped: Mapping[int, list[Finding]],
    operators: Sequence[ReportedOperator],
) -> Iterator[ReportedProblem]:
    """Yield the operators at fault in the order of execution, then the others that differ by own error."""
    heirs = [number for number, each in verdicts.items() if each.worst.verdict in _HEIRS]
    accused, others = [], []
    for number, findings in grouped.items():
        worst, bad = verdicts[number].worst, [each for each in findings if each.is_bad]
        if not bad:
            continue
        iterations = {each.place.iteration for each in bad if each.place.iteration is not None}
        problem = _problem_of(
            ProblemKind.VERDICT,
            number,
            operators,
            iterations,
            fault_words(worst),
            is_accused=worst.is_accused,
            own_error=verdicts[number].own_error,
        )
        if worst.is_accused:
            times = (each.place.time for each in bad if each.verdict is worst.verdict)
            accused.append((min(times, default=worst.place.time), number, problem))
        else:
            others.append(problem)
    for place, (_, number, problem) in enumerate(sorted(accused, key=itemgetter(0, 1))):
        # all operators that inherit an error count as victims of the first one at fault
        yield problem if place else replace(problem, victims=tuple(sorted({*heirs} - {number})))
    # inheriting operators are not listed if one is at fault: its text has their number
    folded = {each for each in heirs if accused and verdicts[each].worst.verdict in answer.FOLLOWING}
    shown = (each for each in others if each.operator not in folded)
    yield from sorted(shown, key=lambda each: -(each.own_error or 0.0))


def absence_problems(report: Report, operators: Sequence[ReportedOperator]) -> Iterator[ReportedProblem]:
    """Yield golden operators that the dump lacks, without accused ones, then loops with other pass counts."""
    accused = {each.place.name for each in report.findings if each.verdict is Verdict.MISSING}
    missing: dict[str, list[OperatorPlace]] = {}
    for place in report.missing:
        if place.name not in accused:
            missing.setdefault(place.name, []).append(place)
    for group in missing.values():
        first = group[0]
        yield ReportedProblem(
            ProblemKind.VERDICT,
            _ABSENT,
            first.full_name or first.name,
            first.op_type,
            first.rank,
            tuple(sorted({each.iteration for each in group if each.iteration is not None})),
            fault_words(Finding(first, Verdict.MISSING)),
            is_accused=False,
        )
    places = places_by_name(operators)
    for each in report.uneven:
        number = places.get((None, each.name), _ABSENT)
        name, op_type = (each.name, "") if number < 0 else (operators[number].name, operators[number].op_type)
        text = f"it ran {each.dumped:,} times, in golden {each.golden:,} times"
        yield ReportedProblem(ProblemKind.VERDICT, number, name, op_type, None, (), text, is_accused=False)


def hit_problems(
    hits: Sequence[Hit], operators: Sequence[ReportedOperator], kind: ProblemKind
) -> Iterator[ReportedProblem]:
    """Yield the hits of watch rules; hits of one rule on one tensor are one problem."""
    places = places_by_name(operators)
    groups: dict[tuple[str, str, str, int, int], list[Hit]] = {}
    for hit in hits:
        tensor = hit.subject
        key = (hit.rule.name, tensor.name, str(tensor.io), tensor.slot, hit.moment.rank)
        groups.setdefault(key, []).append(hit)
    for (rule, name, io, slot, rank), group in groups.items():
        first = group[0]
        # lists of numbers, such as ranks, as ranges: 0-1, 3-5
        words = _LISTED.sub(lambda each: spans(map(int, each[0].split(", "))), str(first))
        yield ReportedProblem(
            kind,
            places.get((rank, name), places.get((None, name), _ABSENT)),
            name,
            first.subject.op_type,
            rank,
            tuple(sorted({each.moment.iteration for each in group})),
            f"{rule}: {io} {slot}: {words}",
            files=tuple(dict.fromkeys(each.moment.path for each in group))[:1],
        )
