"""What is wrong with a dump: each problem with its operator, what it says of it, and where to look."""

from __future__ import annotations

import enum
import itertools
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from msdump.errors import DumpReadError
from msdump.plan import Trigger
from msdump.record import IO
from msdump.store.read.operator_files import OperatorFile, OperatorRecord
from msdump.tools.judge.evidence import OperatorPlace
from msdump.tools.judge.findings import Finding, Report
from msdump.tools.judge.verdicts import Verdict
from msdump.tools.report import comparing
from msdump.tools.report.columns import Fault
from msdump.tools.report.comparing import OperatorVerdict
from msdump.tools.report.excerpts import SourceExcerpt
from msdump.tools.report.operators import ReportedOperator, places_by_name
from msdump.tools.report.outbreaks import Outbreak
from msdump.tools.report.series import StatisticSeries, TensorState, spans
from msdump.tools.watching.checks import DumpedHit

_ABSENT: Final = -1
_LISTED: Final = re.compile(r"\d+(?:, \d+){3,}")
_HEIRS: Final = frozenset(
    {Verdict.INHERITED, Verdict.AMPLIFIED, Verdict.ACCUMULATED, Verdict.HEALED, Verdict.NONFINITE}
)


class ProblemKind(enum.StrEnum):
    """What tells of a problem, in the order in which problems are shown."""

    FAILURE = "failure"
    NONFINITE = "NaN or infinity"
    OVERFLOW = "overflow"
    VERDICT = "verdict"
    WATCH = "watch"
    RANKS = "ranks"

    @property
    def title_text(self) -> str:
        """The heading of a table of such problems."""
        return _TITLES[self]


_TITLES: Final = {
    ProblemKind.FAILURE: "Operators that failed",
    ProblemKind.NONFINITE: "NaN and infinities: where they begin",
    ProblemKind.OVERFLOW: "Overflows that the device reports",
    ProblemKind.VERDICT: "Operators that differ from golden",
    ProblemKind.WATCH: "Hits of watch rules",
    ProblemKind.RANKS: "Ranks that disagree",
}


_TRIGGERED: Final = {
    Trigger.EXCEPTION: (ProblemKind.FAILURE, "it failed: op_debug_mode 4 dumps nothing else"),
    Trigger.OVERFLOW: (ProblemKind.OVERFLOW, "it overflowed: op_debug_mode 3 dumps nothing else"),
}
"""Kind and text of what a dump holds that was asked for no other operators."""


@dataclass(frozen=True, slots=True)
class ReportedProblem:
    """Something that is wrong.

    Attributes:
        kind: What tells of it.
        operator: Place of its operator in the list, -1 for what is not in it.
        name: Full name of the operator.
        op_type: Its type, "" where it is not known.
        rank: Number of the rank, None where it is not known.
        iterations: Numbers of the iterations in which it was found.
        text: What is wrong, in a sentence.
        victims: Places of the operators that it reaches, in the order of execution.
        is_accused: Whether the fault is there, and not in what comes before it.
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
        """The problem in a line: operator, where, what."""
        type_text = f" ({self.op_type})" if self.op_type else ""
        rank = "" if not self.rank else f", rank {self.rank}"
        iteration = f" in iteration {self.iterations[0]}" if self.iterations else ""
        return f"{self.name}{type_text}{iteration}{rank}: {self.text}"


def of_failures(
    files: Sequence[OperatorFile], operators: Sequence[ReportedOperator], fault: Fault
) -> Iterator[ReportedProblem]:
    """Yield the operators that failed, from the files that exception dumps left of them.

    Args:
        files: The files.
        operators: The operators of which there are other tensors.
        fault: Gets what cannot be read.
    """
    places = places_by_name(operators)
    for file in files:
        is_brief = file.name.is_brief_failure
        name, given = file.name.op_name, ""
        try:
            name = file.header.op_name or name
            inputs = [each for each in file.records if each.io is IO.INPUT]
            given = ", ".join(f"{each.info.size:,} bytes" if is_brief else _form(each) for each in inputs)
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


def of_trigger(
    trigger: Trigger, operators: Sequence[ReportedOperator], series: StatisticSeries, told: Container[int]
) -> Iterator[ReportedProblem]:
    """Yield the operators that are there because they failed or overflowed, where nothing else was dumped.

    Args:
        trigger: Upon what operators were dumped.
        operators: The operators.
        series: Their tensors.
        told: Places of the operators of which other problems tell.
    """
    if trigger not in _TRIGGERED:
        return
    kind, text = _TRIGGERED[trigger]
    states = series.of_operators(len(operators))
    for number, operator in enumerate(operators):
        iterations = tuple(itertools.compress(series.iterations, states[number]))
        if iterations and not operator.is_parameter and number not in told:
            yield ReportedProblem(
                kind, number, operator.name, operator.op_type, operator.rank, iterations, text
            )


def _form(record: OperatorRecord) -> str:
    return f"{record.dtype} ({', '.join(map(str, record.original_shape))})"


def of_outbreaks(
    outbreaks: Sequence[Outbreak], operators: Sequence[ReportedOperator]
) -> Iterator[ReportedProblem]:
    """Yield the operators in which NaN or infinities begin."""
    for each in outbreaks:
        operator = operators[each.operator]
        reached = len(each.victims)
        behind = f"; {reached:,} operator{'s' * (reached > 1)} behind it" if reached else ""
        yield ReportedProblem(
            ProblemKind.NONFINITE,
            each.operator,
            operator.name,
            operator.op_type,
            operator.rank,
            tuple(each.iterations),
            f"{_begins(each, operator)}{behind}",
            tuple(sorted(each.victims)),
        )


def _begins(outbreak: Outbreak, operator: ReportedOperator) -> str:
    what = " and ".join(
        word
        for flag, word in ((TensorState.NAN, "NaN"), (TensorState.INF, "infinity"))
        if flag & outbreak.state
    )
    if outbreak.has_struck_input:
        return f"{what} in its output; an input holds NaN or infinity already"
    if operator.is_parameter:
        return f"{what} in this weight or input of the network"
    return f"{what} begins here"


def of_overflows(
    counts: Mapping[tuple[int, int], int], operators: Sequence[ReportedOperator]
) -> Iterator[ReportedProblem]:
    """Yield the operators with overflow records, from their number by operator and iteration."""
    by_operator: dict[int, list[tuple[int, int]]] = {}
    for (place, iteration), count in counts.items():
        by_operator.setdefault(place, []).append((iteration, count))
    for number, found in sorted(by_operator.items()):
        total = sum(count for _, count in found)
        operator = operators[number]
        yield ReportedProblem(
            ProblemKind.OVERFLOW,
            number,
            operator.name,
            operator.op_type,
            operator.rank,
            tuple(sorted({iteration for iteration, _ in found})),
            f"the device reports {total:,} overflow{'s' * (total > 1)}",
        )


def of_verdicts(
    verdicts: Mapping[int, OperatorVerdict],
    grouped: Mapping[int, list[Finding]],
    operators: Sequence[ReportedOperator],
) -> Iterator[ReportedProblem]:
    """Yield the operators at fault in the order of execution, then the others that differ by own error."""
    heirs = [number for number, each in verdicts.items() if each.worst.verdict in _HEIRS and number >= 0]
    problems = [
        _of_verdict(number, verdicts[number], findings, operators)
        for number, findings in grouped.items()
        if number >= 0 and any(each.is_bad for each in findings)
    ]
    problems += [
        _of_finding(_ABSENT, each, [each], each.own_error) for each in grouped.get(-1, ()) if each.is_bad
    ]
    accused = sorted(
        (each for each in problems if each[1].is_accused), key=lambda each: (each[0], each[1].operator)
    )
    for place, (_, problem) in enumerate(accused):
        # with several at fault nobody can tell whose heir an operator is: the first one's
        yield problem if place else _with_victims(problem, heirs)
    others = (each for each in problems if not each[1].is_accused)
    yield from (each for _, each in sorted(others, key=lambda each: -(each[1].own_error or 0.0)))


def _of_verdict(
    number: int, verdict: OperatorVerdict, findings: Sequence[Finding], operators: Sequence[ReportedOperator]
) -> tuple[int, ReportedProblem]:
    operator = operators[number]
    time, problem = _of_finding(number, verdict.worst, findings, verdict.own_error)
    return time, replace(problem, name=operator.name, op_type=operator.op_type, rank=operator.rank)


def _of_finding(
    number: int, worst: Finding, findings: Sequence[Finding], own_error: float
) -> tuple[int, ReportedProblem]:
    place = worst.place
    bad = [each for each in findings if each.is_bad]
    first = min((each.place.time for each in bad if each.verdict is worst.verdict), default=place.time)
    iterations = sorted({each.place.iteration for each in bad if each.place.iteration is not None})
    return first, ReportedProblem(
        ProblemKind.VERDICT,
        number,
        place.full_name or place.name,
        place.op_type,
        place.rank,
        tuple(iterations),
        comparing.words_of(worst),
        (),
        worst.is_accused,
        own_error,
    )


def _with_victims(problem: ReportedProblem, heirs: Sequence[int]) -> ReportedProblem:
    victims = tuple(sorted(each for each in heirs if each != problem.operator))
    return replace(problem, victims=victims)


def of_absences(report: Report, operators: Sequence[ReportedOperator]) -> Iterator[ReportedProblem]:
    """Yield golden operators that the dump lacks without being at fault, then loops that ran less or more."""
    told = {each.place.name for each in report.findings if each.verdict is Verdict.MISSING}
    missing: dict[str, list[OperatorPlace]] = {}
    for place in report.missing:
        if place.name not in told:
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
            comparing.words_of(Finding(first, Verdict.MISSING)),
            is_accused=False,
        )
    places = places_by_name(operators)
    for each in report.uneven:
        number = places.get((None, each.name), _ABSENT)
        name, op_type = (each.name, "") if number < 0 else (operators[number].name, operators[number].op_type)
        text = f"it ran {each.dumped:,} times, in golden {each.golden:,}"
        yield ReportedProblem(ProblemKind.VERDICT, number, name, op_type, None, (), text, is_accused=False)


def of_hits(
    hits: Sequence[DumpedHit], operators: Sequence[ReportedOperator], kind: ProblemKind
) -> Iterator[ReportedProblem]:
    """Yield the hits of watch rules, those of one rule on one tensor together."""
    places = places_by_name(operators)
    groups: dict[tuple[str, str, str, int, int], list[DumpedHit]] = {}
    for each in hits:
        tensor = each.hit.subject
        key = (each.hit.rule.name, tensor.name, str(tensor.io), tensor.slot, each.hit.moment.rank)
        groups.setdefault(key, []).append(each)
    for (rule, name, io, slot, rank), group in groups.items():
        first = group[0]
        number = places.get((rank, name), places.get((None, name), _ABSENT))
        yield ReportedProblem(
            kind,
            number,
            name,
            first.hit.subject.op_type,
            rank,
            tuple(sorted({each.hit.moment.iteration for each in group})),
            f"{rule}: {io} {slot}: {_shortened(first.hit.note) or first.hit}",
            files=tuple(dict.fromkeys(each.path for each in group))[:1],
        )


def _shortened(note: str) -> str:
    """Return a text in which a long list of numbers is told by its stretches.

    >>> _shortened("rank 2 holds something else than rank 0, 1, 3, 4, 5")
    'rank 2 holds something else than rank 0-1, 3-5'
    """
    return _LISTED.sub(lambda listed: spans([int(number) for number in listed[0].split(", ")]), note)
