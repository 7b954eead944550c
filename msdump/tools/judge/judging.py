"""Draws verdicts on tensors and operators from how far tensors are apart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from msdump.record import IO
from msdump.tools.judge.errors import TensorError
from msdump.tools.judge.evidence import OperatorEvidence, TensorEvidence
from msdump.tools.judge.findings import Finding, TensorResult
from msdump.tools.judge.limits import Limits, coarser
from msdump.tools.judge.verdicts import TensorVerdict, Verdict

_OF_FAULT: Final = {
    TensorVerdict.SHAPE: Verdict.SHAPE,
    TensorVerdict.DTYPE: Verdict.DTYPE,
    TensorVerdict.UNREADABLE: Verdict.UNREADABLE,
}


class Judge:
    """Draws verdicts on operators, in the order of the execution.

    A tensor is at best as precise as what it was computed from. So the limit is that of the coarsest
    element type of all tensors so far that the two sides do not have bit for bit the same.
    """

    def __init__(self, limits: Limits) -> None:
        """Start at the first operator of a directory."""
        self._limits = limits
        self._coarsest = limits.precision

    def finding(self, evidence: OperatorEvidence) -> Finding:
        """Return the verdict on the operator that ran next."""
        finding = Finding(
            evidence.operator,
            Verdict.UNCHECKED,
            self.results(evidence.tensors),
            own=evidence.own,
            replaces=evidence.replaces,
        )
        verdict, note = self._verdict(evidence, finding)
        return replace(finding, verdict=verdict, note=note)

    def results(self, tensors: Iterable[TensorEvidence]) -> tuple[TensorResult, ...]:
        """Return the verdicts on the tensors of the operator that ran next."""
        tensors = tuple(tensors)
        unlike = (tensor for tensor in tensors if tensor.error is None or not tensor.error.is_same)
        # All tensors of the operator before any is judged: its inputs limit how good its outputs can be.
        types = (dtype for tensor in unlike for dtype in (tensor.dtype, tensor.golden_dtype))
        self._coarsest = coarser(self._coarsest, *types)
        return tuple(map(self._result, tensors))

    def _result(self, evidence: TensorEvidence) -> TensorResult:
        error = evidence.error
        if error is None:
            return TensorResult(evidence, evidence.fault or TensorVerdict.UNCHECKED, evidence.note)
        types = (evidence.dtype, evidence.golden_dtype)
        limit = self._limits.allowed(types, self._coarsest)
        remarks = (*_remarks(error), *_unlike(types), evidence.note)
        return TensorResult(
            evidence, self._tensor_verdict(error, types, limit), "; ".join(filter(None, remarks)), limit
        )

    def _tensor_verdict(
        self, error: TensorError, types: tuple[str, str], limit: float | None
    ) -> TensorVerdict:
        if error.is_same:  # the same numbers in two types agree: one side was computed otherwise
            return TensorVerdict.EQUAL if types[0] == types[1] else TensorVerdict.AGREES
        if limit is None or error.misplaced:
            return TensorVerdict.DIFFERS
        is_near = error.distance <= limit and error.cosine >= self._limits.cosine
        return TensorVerdict.AGREES if is_near else TensorVerdict.DIFFERS

    def _verdict(self, evidence: OperatorEvidence, finding: Finding) -> tuple[Verdict, str]:
        inputs, outputs = (
            [each for each in finding.of(io) if each.verdict is not TensorVerdict.UNCHECKED] for io in IO
        )
        wrong_inputs = [each for each in inputs if each.is_bad]
        if evidence.wiring:
            return Verdict.OWN, evidence.wiring
        weight = next((each for each in wrong_inputs if each.evidence.is_weight), None)
        if weight is not None:
            return Verdict.WEIGHT, f"input {weight.slot} {weight.evidence.name}".rstrip()
        wrong_outputs = [each for each in outputs if each.is_bad]
        if not wrong_outputs:
            return _sound(inputs, outputs), ""
        if wrong_inputs:
            return Verdict.INHERITED, ""
        worst = max(wrong_outputs, key=lambda each: each.badness)
        return _OF_FAULT.get(worst.verdict, Verdict.OWN), ""


def _sound(inputs: Sequence[TensorResult], outputs: Sequence[TensorResult]) -> Verdict:
    """Return the verdict on an operator whose outputs do not differ."""
    if any(each.is_bad for each in inputs):
        return Verdict.HEALED if outputs else Verdict.INHERITED
    if not (inputs or outputs):
        return Verdict.UNCHECKED
    is_equal = all(each.verdict is TensorVerdict.EQUAL for each in (*inputs, *outputs))
    return Verdict.EQUAL if is_equal else Verdict.AGREES


def fault(finding: Finding) -> str:
    """Return the fault of an operator in words, such as "output 0 differs, its inputs agree"."""
    # What differs comes first; where only inputs do, the outputs' agreement is the remark.
    parts = [_state(side, finding.of(side)) for side in (IO.OUTPUT, IO.INPUT)]
    return ", ".join(parts if finding.wrong(IO.OUTPUT) else reversed(parts))


def _state(side: IO, tensors: Sequence[TensorResult]) -> str:
    bad = [each for each in tensors if each.is_bad]
    if bad:
        differs = any(each.verdict in {TensorVerdict.DIFFERS, TensorVerdict.DTYPE} for each in bad)
        # inputs that the operator writes stand behind its outputs
        own = [str(each.slot) for each in bad if each.io is side]
        slots = ", ".join((*own, *(f"{each.io} {each.slot}" for each in bad if each.io is not side)))
        is_plural = len(bad) > 1
        # "already": an input that differs was wrong before this operator ran.
        verb = f"differ{'s' * (not is_plural)}" if differs else "cannot be compared"
        return f"{side}{'s' * is_plural} {slots} {verb}{' already' * (differs and side is IO.INPUT)}"
    distances = [each.evidence.error.distance for each in tensors if each.evidence.error is not None]
    if distances:
        return f"its {side}s agree{f' (distance {max(distances):.2g})' if max(distances) else ''}"
    return f"its {side}s were not compared"


def _remarks(error: TensorError) -> Iterator[str]:
    if error.misplaced:
        yield f"NaN or infinities differ at {error.misplaced:,} element{'s' * (error.misplaced > 1)}"
    elif math.isnan(error.cosine):
        yield "golden is zero" if math.isinf(error.distance) else "mine is zero"


def _unlike(types: tuple[str, str]) -> Iterator[str]:
    if types[0] != types[1]:
        yield f"{types[0]} beside {types[1]}"
