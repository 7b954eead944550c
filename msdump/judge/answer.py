"""The answer of a comparison in sentences: the outputs, operators at fault, all tensors, the next step."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from msdump.errors import plural
from msdump.judge.compare import tensor_reason
from msdump.judge.verdict import (
    ACCUSING,
    AGREEING,
    BY_CHANCE,
    BY_GRAVITY,
    TYPES,
    Finding,
    Report,
    TensorEvidence,
    TensorVerdict,
    Verdict,
    fault_text,
    joined,
    largest_distance,
)

_Fault = TypeVar("_Fault")

FOLLOWING: Final = frozenset({Verdict.INHERITED, Verdict.HEALED})
"""Verdicts on operators that follow from the one at fault, and are only counted below it."""

_COMPUTED: Final = ("float64", "float32", "float16", "tfloat32", "bfloat16")
_MOST_NAMED: Final = 3
_LEAST_ALIKE: Final = 3  # fewest operators with the same fault that are named as a group

_MEANINGS: Final = {
    Verdict.ACCUMULATED: "no operator is at fault: rounding errors add up beyond the limit",
    Verdict.AMPLIFIED: "no operator is at fault: one operator enlarges a small error of its inputs, as a"
    " difference of nearly equal numbers does",
    Verdict.INHERITED: "no operator is at fault: the inputs of the first operator already differ",
    Verdict.HEALED: "inner tensors differ, but the tensors computed from them agree",
    Verdict.UNREADABLE: "all readable tensors agree",
}
"""Meanings of verdicts without an operator at fault."""

_RERUN: Final = (
    "add --model MODEL.onnx to run each operator again and separate own errors from inherited errors"
)
_SEED: Final = "give {name} a `seed` attribute, as msdump run --seed does: two runs then draw equal numbers"
_DUMP: Final = "dump these outputs on both sides; a tree of msprobe has the results of functions at level mix"
_ALONE: Final = "run msdump extract {dump} {name} -o DIRECTORY{model} to write it as a model"
_BOUND: Final = 0.01  # of the outputs' error: a usual goal in half precision
_NUMERIC: Final = frozenset({Verdict.OWN, Verdict.ACCUMULATED, Verdict.AMPLIFIED, Verdict.INHERITED})
_SPREAD: Final = frozenset({Verdict.ACCUMULATED, Verdict.AMPLIFIED})
_STEPS: Final = {
    Verdict.WEIGHT: "give both sides the same weights; msdump diff MINE.onnx GOLDEN.onnx compares them",
    Verdict.REPLACED: "check how the two models were exported: their graphs differ",
    Verdict.EXTRA: "check how the two models were exported: their graphs differ",
    Verdict.MISSING: "check how the two models were exported: their graphs differ",
    Verdict.SHAPE: "give both sides the same inputs and the same model",
    Verdict.DTYPE: "check the element types that the two graphs declare",
    Verdict.INHERITED: "feed both sides the same inputs",
    Verdict.UNREADABLE: "dump again: files are lost or torn",
}
"""Next steps, by the verdict on the whole network."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The files and the variant that a command compared, for the commands of next steps."""

    model: str = ""  # file of MINE's model, "" if unknown
    variant: str = ""  # variant that MINE ran in, "" if unknown
    options: tuple[str, ...] = ()  # further options of msdump diff: inputs and the reference variant
    dump: str = ""  # folder of MINE's dump; "" without a dump
    has_rerun: bool = False  # whether the operators ran again, or both sides ran in lockstep
    are_models: bool = False  # whether two models were compared


def keep_step(compared: Compared, error: float = 0.0) -> str:
    """Return the command that finds the operators to keep; "" if MINE ran on no emulated device.

    The bound lies below ``error``, the error of the outputs; 0 or infinite: unknown.

    >>> keep_step(Compared("model.onnx", "Ascend:force_fp16"), 0.0017)
    'run msdump diff model.onnx --mine Ascend:force_fp16 --advise 0.0008 to find the operators to keep'
    """
    if compared.variant and not compared.variant.lower().startswith("ascend"):
        return ""
    bound = _BOUND if not 0 < error <= _BOUND else error / 2
    file, variant = compared.model or "MODEL.onnx", compared.variant or "VARIANT"
    command = ("msdump", "diff", file, "--mine", variant, *compared.options, "--advise", f"{bound:.1g}")
    return f"run {shlex.join(command)} to find the operators to keep"


def outputs_sentence(report: Report) -> str:
    """Return a sentence on the differences of the network's outputs, and why the verdict is worse than these.

    >>> outputs_sentence(Report())
    ''
    """
    sides = [*dict.fromkeys(each.side for each in report.stops)]
    operators = first_of([*dict.fromkeys(each.operator for each in report.stops if each.operator)])
    who = "both sides" if len(sides) > 1 else "".join(sides)
    stopped = f"{who} stopped{f' at {operators}' if operators else ''}" if report.stops else ""
    compared = [each for each in report.outputs if each.error is not None]
    bad: dict[str, TensorEvidence] = {}  # by output, the worst of its runs
    for each in compared:
        if each.verdict not in AGREEING and _badness(each) > _badness(bad.get(_name(each))):
            bad[_name(each)] = each
    said = stopped
    if bad and not stopped:
        limit = _limit(next(iter(bad.values())))
        said = f"{first_of([*map(_apart, bad.values())])}{f' ({limit})' if limit else ''}"
    elif compared and not stopped:
        worst = max(compared, key=lambda each: each.distance)
        error = f"error {worst.distance:.2g}" if worst.distance else "no error"
        numbers = ", ".join(filter(None, (error, _limit(worst) if worst.distance else "")))
        if report.agrees:
            said = f"the outputs agree ({numbers})" if worst.distance else "the outputs are equal"
        else:
            said = f"{_beside(report)} ({numbers} in the outputs)"
    # after a stop, or without a graph, the outputs of the network are unknown
    is_partial = stopped or report.agrees or report.agreeing < report.compared
    if not (compared or is_partial or report.accused):
        said = _beside(report) if report.findings else ""
    elif report.compared and (stopped or not compared) and is_partial:
        said = joined(said, f"{report.agreeing:,} of {plural(report.compared, 'tensor')} agree")
    return said


def _beside(report: Report) -> str:
    """Return why two sides do not agree although no compared output differs."""
    if report.accused:
        return "the fault does not show in the outputs"
    if report.uneven:
        uneven = report.uneven[0]
        return f"{uneven.name} ran {_times(uneven.dumped)}, in golden {_times(uneven.golden)}"
    if report.inputs:
        return "the inputs differ"
    if report.unreadable or report.tensors[TensorVerdict.UNREADABLE]:
        return "files cannot be read"
    return "inner tensors differ" if report.is_strict and report.bad else "not every output was compared"


def _name(output: TensorEvidence) -> str:
    return output.name or f"output {output.slot}"


def _badness(output: TensorEvidence | None) -> tuple[int, float]:
    return (-1, 0.0) if output is None else (output.misplaced, output.distance)


def _apart(output: TensorEvidence) -> str:
    if _is_random(output):
        return f"{_output(output)} is random"
    if output.misplaced:
        return f"{_output(output)} differs in NaN or infinities at {output.misplaced:,} elements"
    return f"{_output(output)} differs by {output.distance:.2g}"


def _is_random(output: TensorEvidence) -> bool:
    return output.verdict is TensorVerdict.UNCHECKED and output.note.startswith(BY_CHANCE)


def _output(output: TensorEvidence) -> str:
    return f"output {output.name or output.slot}"


def first_of(texts: Sequence[str]) -> str:
    """Return the first texts, and how many more there are.

    >>> first_of("abcde")
    'a, b, c and 2 more'
    """
    more = f" and {len(texts) - _MOST_NAMED} more" if len(texts) > _MOST_NAMED else ""
    return f"{', '.join(texts[:_MOST_NAMED])}{more}"


def _limit(output: TensorEvidence) -> str:
    if output.limit is None or _is_random(output):
        return ""
    if math.isinf(output.limit):
        return "no limit: it is computed of nothing but rounding"
    # Types of 8 bits are never named: devices do not compute in them, so a limit of their size was widened.
    types = {*_COMPUTED, output.dtype, output.golden_dtype}
    known = (name for name in TYPES if name in types and TYPES[name].distance == output.limit)
    return f"limit {output.limit:.2g}{next((f' of {name}' for name in known), '')}"


def meaning(report: Report) -> str:
    """Return an explanation of the verdict: errors that ended runs, differing inputs; "" for a fault."""
    if report.stops:
        return "; ".join(dict.fromkeys(each.error for each in report.stops))
    if report.inputs:
        names = first_of(report.inputs)
        is_one = len(report.inputs) == 1
        return f"the network's input {names} differs" if is_one else f"the network's inputs {names} differ"
    if report.uneven and report.verdict is Verdict.UNCHECKED:
        return "a branch or loop ran more often on one side"
    if report.verdict is Verdict.UNCHECKED and (drawing := _drawing(report)):
        return f"{drawing} draws other random numbers on each side: results of these are not compared"
    if report.verdict is Verdict.UNCHECKED:
        missed = _missed(report)
        who = f"{first_of(missed)} {'was' if len(missed) == 1 else 'were'}" if missed else "an output was"
        return f"{who} not compared: a file is missing, or only one side has it"
    return "" if report.accused else _MEANINGS.get(report.verdict, "")


def _missed(report: Report) -> list[str]:
    """Return the outputs of the network that were not compared."""
    return [*dict.fromkeys(_output(each) for each in report.outputs if each.error is None)]


def _drawing(report: Report) -> str:
    """Return the name of the first operator with random results, "" for none."""
    return next((each.place.shown_name for each in report.findings if each.note == BY_CHANCE), "")


def next_step(report: Report, compared: Compared) -> str:  # noqa: PLR0911 - one for each kind
    """Return a next step for the user; "" where nothing is left to do."""
    verdict = report.verdict
    if report.inputs:
        return _STEPS[Verdict.INHERITED]
    # after re-execution no precision needs to be guessed
    if not compared.has_rerun and verdict in _NUMERIC and (precision := report.precision()):
        return (
            f"if the device computed in {precision}, add --precision {precision}: its limits allow this error"
        )
    if verdict is Verdict.OWN:
        return _own_step(report, compared)
    if verdict is Verdict.NONFINITE or (verdict in _SPREAD and compared.has_rerun):
        return keep_step(compared, largest_distance(report.outputs))
    if verdict is Verdict.UNCHECKED and (drawing := _drawing(report)):
        return _SEED.format(name=drawing)
    if verdict is Verdict.UNCHECKED and compared.dump and _missed(report) and not report.uneven:
        return _DUMP
    if verdict is Verdict.WEIGHT and compared.are_models:
        return "give both models the same weights"
    return _RERUN if verdict in _SPREAD else _STEPS.get(verdict, "")


def _own_step(report: Report, compared: Compared) -> str:
    if compared.are_models:  # an attribute or an input of the operator differs
        return _STEPS[Verdict.REPLACED]
    if not compared.has_rerun:
        return _RERUN
    dump = shlex.quote(compared.dump) if compared.dump else "DUMP"
    model = f" --model {shlex.quote(compared.model)}" if compared.model else ""
    return _ALONE.format(dump=dump, name=shlex.quote(report.accused[0].place.shown_name), model=model)


def group_alike(
    faults: Sequence[_Fault], name_of: Callable[[_Fault], str], kind_of: Callable[[_Fault], Hashable]
) -> list[list[_Fault]]:
    """Return faults in groups: of one operator, or of one kind for three operators or more."""
    names: dict[Hashable, set[str]] = {}
    for each in faults:
        names.setdefault(kind_of(each), set()).add(name_of(each))
    groups: dict[Hashable, list[_Fault]] = {}
    for each in faults:
        is_many = len(names[kind_of(each)]) >= _LEAST_ALIKE
        groups.setdefault(kind_of(each) if is_many else name_of(each), []).append(each)
    return list(groups.values())


def kind_of_fault(name: str, op_type: str, what: str) -> Hashable:
    """Return the key that "Pow of each of 9 RMSNorm overflows" shares: fault, type, module's class."""
    scope = name.rpartition("/")[0]
    return what, op_type, class_of(scope) or name


def alike_text(name: str, op_type: str, others: int) -> str:
    """Return a count of further operators with the same fault in words.

    >>> alike_text("Default/norm-RMSNorm/Pow-op0", "Pow", 8)
    '8 more Pow of RMSNorm'
    """
    return f"{others:,} more {op_type} of {class_of(name.rpartition('/')[0])}"


def class_of(scope: str) -> str:
    """Return the class of the innermost module of a scope, "" for none.

    >>> class_of("Default/layers-CellList/0-Block/norm-RMSNorm"), class_of("Default")
    ('RMSNorm', '')
    """
    return scope.rpartition("/")[2].partition("-")[2]


_MOST: Final = 10  # lines on accused operators, facts or iterations; the table has all


def lines_below(report: Report, shown: int) -> Iterator[str]:
    """Yield the lines below a table of ``shown`` operators."""
    yield from _first(report)
    counts = report.tensors
    yield (
        f"compared  {plural(report.compared, 'tensor')} of {plural(len(report.findings), 'operator')}:"
        f" {report.agreeing:,} agree ({counts[TensorVerdict.EQUAL]:,} exactly),"
        f" {counts[TensorVerdict.DIFFERS]:,} differ, {report.failed:,} failed"
    )
    if counts[TensorVerdict.UNCHECKED]:
        yield f"alone     {plural(counts[TensorVerdict.UNCHECKED], 'tensor')} without a counterpart"
    if report.unread_graphs:
        whose = " and ".join(report.unread_graphs)
        yield f"paired    by operator names, in the order of execution: {whose} without a graph file"
    for uneven in report.uneven[:1]:  # mostly a whole loop ran more often: its first operator stands for all
        more = f", and so for {len(report.uneven) - 1} more" if len(report.uneven) > 1 else ""
        yield f"passes    {uneven.name} ran {_times(uneven.dumped)}, in golden {_times(uneven.golden)}{more}"
    if report.missing:
        operators = plural(len(report.missing), "operator")
        yield f"missing   {operators} of golden, such as {report.missing[0].name}"
    if report.unasked:
        operators, example = plural(len(report.unasked), "operator"), report.unasked[0].name
        yield f"left out  {operators} of golden by mine's configuration, such as {example}"
    hidden = len(report.findings) - shown
    if hidden:
        verb = "is" if hidden == 1 else "are"
        more = plural(hidden, "more operator" if shown else "operator")
        inherited = sum(each.verdict is Verdict.INHERITED for each in report.findings)
        heirs = f" ({inherited:,} inherit{'s' * (inherited == 1)})" if inherited else ""
        yield f"          {more} {verb} not shown{heirs}; -v shows all"


def _first(report: Report) -> Iterator[str]:
    first = report.first
    if first is None or (report.uneven and not any(each.is_bad for each in first.tensors)):
        yield f"first     {'no tensor' if report.uneven else 'nothing'} differs"
        return
    place = first.place
    directory = f" in {place.label}" if place.label else ""
    count = sum(each.place.label == place.label for each in report.findings)
    yield (
        f"first     {place.name} ({place.op_type}){pass_text(first)}, operator {place.order} of"
        f" {count}{directory}: {fault_text(first)}"
    )
    fault = next(iter(report.accused), first).place.shown_name
    # the operator at fault is named if it is not the first one that differs
    other = "" if fault == place.shown_name else f"{fault} is at fault"
    why = joined(first.note, other)
    why = "" if first.is_accused or not why else joined(first.verdict, why)
    for line in filter(None, (why, tensor_reason(first, first.worst))):
        yield f"          {line}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def summary_lines(report: Report, compared: Compared) -> Iterator[str]:
    """Yield the verdict on the outputs, operators at fault with reasons, counts of others, the next step."""
    said = outputs_sentence(report)
    yield f"verdict   {report.verdict}{f': {said}' if said else ''}"
    groups = group_alike(
        report.accused,
        lambda each: each.place.shown_name,
        lambda each: kind_of_fault(each.place.shown_name, each.place.op_type, each.verdict),
    )
    for group in groups[:_MOST]:
        first, place = group[0], group[0].place
        op_type = f" ({place.op_type})" if place.op_type else ""
        outputs = {True: ", reaches an output", False: ", reaches no output", None: ""}[first.reaches_output]
        reason = f", {first.note}" if first.note else ""
        whose = " of golden" * (first.verdict is Verdict.MISSING)
        yield f"fault     {place.shown_name}{op_type}{whose}: {first.verdict}{reason}{outputs}"
        same = [each for each in group if each.place.shown_name == place.shown_name]
        names = list(dict.fromkeys(each.place.shown_name for each in group))[1:]
        where = [f"rank {place.rank}"] if place.rank else []
        if place.iteration is not None and len(same) > 1:
            where.append(f"iteration {place.iteration}, and {plural(len(same) - 1, 'more time')}")
        alike = ""
        if names:
            more = alike_text(place.shown_name, place.op_type, len(names))
            alike = f"and {more} with the same fault, such as {names[0]}"
        for line in filter(None, (place.source, ", ".join(where), alike)):
            yield f"          {line}"
    if len(groups) > _MOST:
        yield f"          and {plural(len(groups) - _MOST, 'more operator')}"
    noted = {(each.place.full_name, text) for each in report.accused for text in each.note.split("; ")}
    facts = [each for each in report.facts if (each.operator, each.text) not in noted]
    for fact in facts[:_MOST]:
        yield f"fact      {fact.operator} ({fact.op_type}): {fact.kind}, {fact.text}"
    if len(facts) > _MOST:
        yield f"          ... {len(facts) - _MOST:,} more"
    if report.widened:
        yield f"limits    {report.widened}"
    if means := meaning(report):
        yield f"means     {means}"
    others = Counter(finding.verdict for finding in report.findings if finding.verdict not in ACCUSING)
    if groups and others:
        yield f"others    {_counted(others)}"
    yield from _runs(report)
    if step := next_step(report, compared):
        yield f"next      {step}"


def _counted(verdicts: Counter[Verdict]) -> str:
    return ", ".join(f"{verdicts[verdict]:,} {verdict}" for verdict in BY_GRAVITY if verdicts[verdict])


def _runs(report: Report) -> Iterator[str]:
    """Yield the first difference of each rank, and a line for each iteration, where there are several."""
    runs: dict[tuple[int | None, int | None], list[Finding]] = {}
    for finding in report.findings:
        runs.setdefault((finding.place.rank, finding.place.iteration), []).append(finding)
    if len(runs) < 2:  # noqa: PLR2004 - the table shows a single run
        return
    for rank in dict.fromkeys(rank for rank, _ in runs):
        prefix = "" if rank is None else f"rank {rank}: "
        of_rank = [(iteration, each) for (other, iteration), each in runs.items() if other == rank]
        said = f"no difference in {plural(len(of_rank), 'iteration')}"
        for iteration, findings in of_rank:
            accused = [each for each in findings if each.is_accused]
            if differing := accused or [each for each in findings if each.is_bad]:
                first = min(differing, key=lambda each: each.place.time)
                where = f"in iteration {iteration}, at {first.place.shown_name}: {first.verdict}"
                said = f"first difference {where}"
                break
        yield f"runs      {prefix}{said}"
    bad = [(run, findings) for run, findings in runs.items() if any(each.is_bad for each in findings)]
    for (rank, iteration), findings in bad[:_MOST]:
        place = f"{'' if rank is None else f'rank {rank}, '}iteration {iteration}"
        yield f"          {place}: {_counted(Counter(each.verdict for each in findings))}"
    rest = len(runs) - len(bad[:_MOST])
    if rest and bad:
        yield f"          {plural(rest, 'more run')}{' without a difference' * (len(bad) <= _MOST)}"


def pass_text(finding: Finding) -> str:
    """Return the number of an operator's pass of a loop, "" where it ran once."""
    return "" if finding.place.pass_number is None else f", pass {finding.place.pass_number}"
