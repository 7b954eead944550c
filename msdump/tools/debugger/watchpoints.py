"""Watchpoints of MindInsight's debugger: conditions on chosen tensors, and where they are met."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from msdump.record import IO
from msdump.statistics.totals import StatisticNeed
from msdump.store.read.records import Record
from msdump.tools.debugger.conditions import (
    ConditionBase,
    OperatorOverflowCondition,
    TensorOverflowCondition,
)
from msdump.tools.debugger.nodes import DebuggerTensor
from msdump.tools.watching import dumped
from msdump.watch.quantities import Past, Seen
from msdump.watch.rules import WatchRule
from msdump.watch.subjects import WatchedTensor
from msdump.watch.watch import Hit, RuleWatch, Sighting

_NAN: Final = 1
_INFINITY: Final = 2
_NOT_BEFORE: Final = 4
_NO_VALUE: Final = 32
_EVERYTHING: Final = StatisticNeed(extremes=True, counts=True, total=True, squares=True)
_ERRORS: Final = {
    _NAN: "Tensor contains NaN.",
    _INFINITY: "A tensor contains +/-INF.",
    _NOT_BEFORE: "The previous step value cannot be found.",
    _NO_VALUE: "Tensor has no value.",
}


@dataclass(frozen=True)
class Watchpoint:
    """A condition on tensors.

    Attributes:
        tensors: The tensors.
        condition: The condition.
    """

    tensors: Iterable[DebuggerTensor]
    condition: ConditionBase


class HitDetail(ConditionBase):
    """What was measured, by the parameters whose limits were passed."""

    def __init__(self, condition: ConditionBase, hits: Iterable[Hit]) -> None:
        """Take the hits of a condition on one tensor."""
        self.name = condition.name  # type: ignore[misc]
        self.condition_id = condition.condition_id  # type: ignore[misc]
        self._limits = {hit.limit.parameter: hit.limit.value for hit in hits if hit.limit.parameter}
        super().__init__(**{hit.limit.parameter: hit.measured.low for hit in hits if hit.limit.parameter})

    def __str__(self) -> str:
        """Return limits and measured values in words, ``None.`` where the condition has no limits."""
        if not self._limits:
            return "None."
        limits = ", ".join(f"{name} = {value}" for name, value in self._limits.items())
        measured = ", ".join(f"{name} = {value}" for name, value in self.param_dict.items())
        return f"The setting for watchpoint is {limits}. The actual value of the tensor is {measured}."


@dataclass(frozen=True)
class WatchpointHit:
    """A tensor that meets a condition, or on which it cannot be checked.

    Attributes:
        tensor: The tensor.
        error_code: 0, or why the condition cannot be checked: the sum of 1 (NaN), 2 (infinities), 4 (nothing
            to compare with in the step before) and 32 (no value).
    """

    tensor: DebuggerTensor
    error_code: int
    _condition: ConditionBase = field(repr=False)
    _detail: HitDetail = field(repr=False)

    @property
    def error_msg(self) -> list[str]:
        """Why the condition cannot be checked, a text for each reason."""
        return [text for code, text in _ERRORS.items() if self.error_code & code]

    def get_threshold(self) -> ConditionBase:
        """Return the condition as the user set it."""
        return self._condition

    def get_hit_detail(self) -> HitDetail | None:
        """Return what was measured, None where the condition cannot be checked."""
        return None if self.error_code else self._detail

    def __str__(self) -> str:
        """Return tensor, condition and what was measured, a line each."""
        name, threshold = self._condition.name, f"Threshold: {self.get_threshold()}"
        if self.error_code:
            title, detail = f"Watchpoint {name} check failed on tensor:", f"Error detail: {self.error_msg}"
        else:
            title, detail = f"Watchpoint {name} triggered on tensor:", f"Hit detail: {self._detail}"
        return "\n".join((title, str(self.tensor), threshold, detail))


def check(watchpoint: Watchpoint, *, reports_missing: bool) -> list[tuple[int, WatchpointHit]]:
    """Return where a watchpoint is met, with the time at which each tensor was written.

    Args:
        watchpoint: The watchpoint.
        reports_missing: Report tensors without a value, too.

    Raises:
        DumpReadError: The file of a tensor cannot be read.
    """
    hits: list[tuple[int, WatchpointHit]] = []
    for tensor in watchpoint.tensors:
        record = tensor.record
        if record is not None:
            hits += ((record.timestamp, hit) for hit in _checked(tensor, record, watchpoint.condition))
        elif reports_missing:
            hits.append((0, _failed(tensor, _NO_VALUE, watchpoint.condition)))
    return hits


def _checked(tensor: DebuggerTensor, record: Record, condition: ConditionBase) -> Iterable[WatchpointHit]:
    if isinstance(condition, OperatorOverflowCondition):
        if tensor.node.has_overflowed(record):
            yield WatchpointHit(tensor, 0, condition, HitDetail(condition, ()))
        return
    rule, seen = condition.rule(), _seen(record)
    code = _unmeasurable(seen, condition)
    before = tensor.node.find(tensor.iteration - 1, IO.OUTPUT, tensor.slot) if _looks_back(rule) else None
    if _looks_back(rule) and before is None:
        code |= _NOT_BEFORE
    if code:
        yield _failed(tensor, code, condition)
        return
    hits = _hits(rule, tensor, seen, None if before is None else _seen(before))
    if hits:
        yield WatchpointHit(tensor, 0, condition, HitDetail(condition, hits))


def _failed(tensor: DebuggerTensor, code: int, condition: ConditionBase) -> WatchpointHit:
    return WatchpointHit(tensor, code, condition, HitDetail(condition, ()))


def _hits(rule: WatchRule, tensor: DebuggerTensor, seen: Seen, before: Seen | None) -> list[Hit]:
    watch = RuleWatch((rule,))
    subject = WatchedTensor(tensor.node.op_type, tensor.node.name, IO.OUTPUT, tensor.slot)
    if before is not None:
        watch.check((rule,), subject, Sighting(tensor.iteration - 1), before)
    findings = watch.check((rule,), subject, Sighting(tensor.iteration), seen)
    return [finding for finding in findings if isinstance(finding, Hit)]


def _looks_back(rule: WatchRule) -> bool:
    return any(limit.quantity.past is Past.TENSOR for limit in rule.limits)


def _unmeasurable(seen: Seen, condition: ConditionBase) -> int:
    """Return the error code of a tensor of which no size can be told: it holds NaN or infinities."""
    if isinstance(condition, TensorOverflowCondition):
        return 0
    known = seen.known
    has_infinity = bool(known.negative_inf or known.positive_inf)
    return _NAN * bool(known.nan) + _INFINITY * has_infinity


def _seen(record: Record) -> Seen:
    return dumped.seen(record, _EVERYTHING)
