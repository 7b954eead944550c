"""What is wrong with an operator, in words."""

from __future__ import annotations

from collections.abc import Sequence

from msdump.record import IO
from msdump.tools.judge.findings import Finding, TensorResult
from msdump.tools.judge.verdicts import TensorVerdict


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
