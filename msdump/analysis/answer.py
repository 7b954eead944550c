"""The answer of a comparison in sentences: the outputs, the meaning of the verdict, the next step."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, TypeVar

from msdump.analysis.judge import AGREEING, TYPES, Report, TensorResult, Verdict

_Fault = TypeVar("_Fault")

FOLLOWING: Final = frozenset({Verdict.INHERITED, Verdict.HEALED})
"""Verdicts on operators that are folded below the one at fault."""

_COMPUTED: Final = ("float64", "float32", "float16", "tfloat32", "bfloat16")
_MOST_NAMED: Final = 3
_LEAST_ALIKE: Final = 3  # operators at fault in one way that are named together

_MEANINGS: Final = {
    Verdict.ACCUMULATED: "no operator is at fault: rounding adds up beyond the limit",
    Verdict.AMPLIFIED: "no operator is at fault: one enlarges the error of its inputs, as a difference of"
    " nearly equal numbers does",
    Verdict.INHERITED: "no operator is at fault: what the first one reads differs already",
    Verdict.HEALED: "inner tensors differ, and what is computed from them agrees",
    Verdict.UNREADABLE: "what could be read agrees",
    Verdict.UNCHECKED: "an output was not compared: it has no file, one side alone has it, or chance made it",
}
"""Meanings of verdicts without an operator at fault."""

_RERUN: Final = "--model FILE.onnx runs each operator again and tells its own error from what it inherits"
KEEP: Final = "msdump diff FILE.onnx --advise 0.01 names the operators to keep in float32"
_ALONE: Final = "msdump extract writes {name} as a model of its own"
_NUMERIC: Final = frozenset({Verdict.OWN, Verdict.ACCUMULATED, Verdict.AMPLIFIED, Verdict.INHERITED})
_STEPS: Final = {
    Verdict.NONFINITE: KEEP,
    Verdict.WEIGHT: "give both sides the same weights; msdump diff of the two models lists those that differ",
    Verdict.REPLACED: "compare how the two models were exported: their graphs differ",
    Verdict.MISSING: "compare how the two models were exported: their graphs differ",
    Verdict.SHAPE: "give both sides the same inputs and the same model",
    Verdict.DTYPE: "compare the element types that the two graphs declare",
    Verdict.INHERITED: "feed both sides the same inputs",
    Verdict.UNREADABLE: "dump again: files are lost or torn",
}
"""Next steps, by the verdict of the whole."""


def tell_outputs(outputs: Iterable[TensorResult]) -> str:
    """Return a sentence on the differences of the network's outputs; "" where none was compared.

    >>> tell_outputs([])
    ''
    """
    compared = [each for each in outputs if each.evidence.error is not None]
    if not compared:
        return ""
    bad: dict[str, TensorResult] = {}  # of an output of several runs that which is furthest off
    for each in compared:
        if each.verdict not in AGREEING and _badness(each) > _badness(bad.get(_name(each))):
            bad[_name(each)] = each
    if bad:
        return f"{_first_of([*map(_apart, bad.values())])}{_allowance(next(iter(bad.values())))}"
    worst = max(compared, key=lambda each: each.distance)
    if not worst.distance:
        return "the outputs are equal"
    of_limit = "" if worst.limit is None else f" of {worst.limit:.2g} allowed{_type(worst)}"
    return f"the outputs agree: {worst.distance:.2g}{of_limit}"


def _name(output: TensorResult) -> str:
    return output.evidence.name or f"output {output.slot}"


def _badness(output: TensorResult | None) -> tuple[int, float]:
    return (-1, 0.0) if output is None else (output.misplaced, output.distance)


def _apart(output: TensorResult) -> str:
    if output.misplaced:
        return f"{_name(output)} has NaN or infinities at {output.misplaced:,} other elements"
    return f"{_name(output)} differs by {output.distance:.2g}"


def _first_of(texts: Sequence[str]) -> str:
    """Return the first texts, and how many more there are.

    >>> _first_of("abcde")
    'a, b, c and 2 more'
    """
    more = f" and {len(texts) - _MOST_NAMED} more" if len(texts) > _MOST_NAMED else ""
    return f"{', '.join(texts[:_MOST_NAMED])}{more}"


def _allowance(output: TensorResult) -> str:
    return "" if output.limit is None else f" ({output.limit:.2g} is allowed{_type(output)})"


def _type(output: TensorResult) -> str:
    """Return the element type whose limit an output has, with "by" in front; "" for none.

    No device computes in types of 8 bits and less: limits as wide as theirs have grown from other types'.
    """
    types = {*_COMPUTED, output.evidence.dtype, output.evidence.golden_dtype}
    known = (name for name in TYPES if name in types and TYPES[name].distance == output.limit)
    return next((f" by {name}" for name in known), "")


def meaning(report: Report) -> str:
    """Return the network's inputs that differ, or the meaning of a verdict without fault; "" for neither."""
    if report.inputs:
        names = _first_of(report.inputs)
        is_one = len(report.inputs) == 1
        return f"the network's input {names} differs" if is_one else f"the network's inputs {names} differ"
    return "" if report.accused else _MEANINGS.get(report.verdict, "")


def next_step(report: Report, *, has_rerun: bool) -> str:
    """Return a next step for the user; "" where nothing is left to do.

    Args:
        report: The verdicts.
        has_rerun: Whether the operators ran again, or both sides ran in lockstep.
    """
    verdict = report.verdict
    if report.inputs:
        return _STEPS[Verdict.INHERITED]
    # after re-execution no precision needs to be guessed
    if not has_rerun and verdict in _NUMERIC and (precision := report.precision()):
        return f"--precision {precision}, if the device computed in it: that far its limits reach"
    if verdict is Verdict.OWN:
        return _ALONE.format(name=report.accused[0].place.shown_name) if has_rerun else _RERUN
    if verdict in {Verdict.ACCUMULATED, Verdict.AMPLIFIED}:
        return KEEP if has_rerun else _RERUN
    return _STEPS.get(verdict, "")


def group_alike(
    faults: Sequence[_Fault], name_of: Callable[[_Fault], str], kind_of: Callable[[_Fault], Hashable]
) -> list[list[_Fault]]:
    """Return faults in groups: those of one operator, and those of three operators or more of one kind.

    Args:
        faults: The faults, in the order of execution.
        name_of: Returns the name of the operator.
        kind_of: Returns the kind of a fault, as ``kind_of_fault`` does.
    """
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
