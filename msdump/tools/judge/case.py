"""What is known of an operator before its verdict."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from msdump.store.read.graphs.operator_graph import ABSENT, SourceKind, ValueSource
from msdump.tools.judge.evidence import OperatorEvidence, OwnError
from msdump.tools.judge.findings import TensorResult
from msdump.tools.judge.limits import TIED, Limits
from msdump.tools.judge.verdicts import Verdict


@dataclass(frozen=True)
class Case:
    """An operator before its verdict.

    Attributes:
        evidence: What is known of it.
        tensors: The verdicts on its tensors.
        inputs: Its inputs that were compared; where they were not dumped, the outputs that it reads.
        outputs: Its outputs that were compared.
        is_complete: Whether all of its inputs are known.
    """

    evidence: OperatorEvidence
    tensors: Sequence[TensorResult]
    inputs: Sequence[TensorResult]
    outputs: Sequence[TensorResult]
    is_complete: bool

    @functools.cached_property
    def bad_inputs(self) -> Sequence[TensorResult]:
        """Inputs that differ."""
        return [each for each in self.inputs if each.is_bad]

    @functools.cached_property
    def bad_outputs(self) -> Sequence[TensorResult]:
        """Outputs that differ."""
        return [each for each in self.outputs if each.is_bad]

    def written_inputs(self) -> Iterator[tuple[TensorResult, ValueSource, ValueSource]]:
        """Yield each input that differs and that an operator wrote, with its source and golden's source."""
        reads, golden_reads = self.evidence.reads, self.evidence.golden_reads
        for each in self.bad_inputs:
            source = reads[each.slot] if each.slot < len(reads) else ABSENT
            if source.kind is SourceKind.OPERATOR:
                yield each, source, golden_reads[each.slot] if each.slot < len(golden_reads) else ABSENT

    def wrong_wiring(self, slot: int) -> str:
        """Return in words which other tensor than golden an input is, both of whose sources are known."""
        reads, golden = self.evidence.reads, self.evidence.golden_reads
        other = self.swapped_with(slot)
        if other is not None:
            return f"inputs {min(slot, other)} and {max(slot, other)} are swapped"
        return f"input {slot} is of {reads[slot].name}, golden's is of {golden[slot].name}"

    def swapped_with(self, slot: int) -> int | None:
        """Return the input that reads what golden's input of a number reads, and the other way round."""
        reads, golden = self.evidence.reads, self.evidence.golden_reads
        known = range(min(len(reads), len(golden)))
        if slot not in known or ABSENT in {reads[slot], golden[slot]} or reads[slot] == golden[slot]:
            return None
        crossed = golden[slot], reads[slot]
        return next((other for other in known if (reads[other], golden[other]) == crossed), None)

    def explains_steps(self, output: TensorResult) -> bool:
        """Tell whether what moved the first input explains the steps that moved a quantised output.

        The largest element takes half of the steps of the type at least, or all of them. So an element moves
        by its difference in such steps, rounded up; by as much again where the scale moved; and of elements
        that are a part of a step off as large a part goes to the next one.
        """
        error = output.evidence.error
        data = next((each.evidence.error for each in self.inputs if not each.slot), None)
        if error is None or data is None or not data.largest or not math.isfinite(data.scaled):
            return False
        steps, count = 2 * _steps(output.evidence.dtype), math.prod(output.evidence.shape)
        part = data.norm / math.sqrt(max(count, 1)) * data.scaled / data.largest
        # where the zero point of the moment is another one, all elements go with it
        zero = 0.0 if output.slot else self._moved_zero()
        share = 1.0 if zero else max(TIED, steps * part)
        return error.largest <= 1 + zero + steps * data.scaled and error.changed <= max(1.0, count * share)

    def told_again(self, limits: Limits) -> tuple[Verdict, str] | None:
        """Return the verdict on an operator that read the wrong tensor, or that gives something else again.

        Args:
            limits: What counts as agreement.
        """
        evidence = self.evidence
        if evidence.wiring:
            return (Verdict.REPLACED if evidence.replaces else Verdict.OWN), evidence.wiring
        own = next((each for each in evidence.own if not each.is_explained), None)
        if own is None:
            return None
        if evidence.replaces:
            return Verdict.REPLACED, f"in the place of {evidence.replaces}, which gives something else"
        if own.error.misplaced:
            return self._misplaced(own, limits)
        if own.overflow:
            return Verdict.NONFINITE, f"as if {own.overflow} in it had overflowed, which what follows hides"
        note = f"; {own.note}" if own.note else ""
        told = f"own error {own.error.distance:.2g} in {own.arithmetic}, {own.explanation} {own.allowed:.2g}"
        return Verdict.OWN, told + note

    def _misplaced(self, own: OwnError, limits: Limits) -> tuple[Verdict, str]:
        """Return the verdict on NaN and infinities that running again does not give.

        Those that were in the inputs do not begin here; where they come out at other places, the operator is
        told by its finite elements. What overflows was computed in a shorter type, whose rounding these show,
        and makes no element finite.
        """
        count = own.error.misplaced
        elements = f"{count:,} element{'s' * (count > 1)}"
        note = f"NaN or infinities at {elements} that do not come again in {own.arithmetic}"
        is_given = any(
            each.evidence.error is not None and each.evidence.error.misplaced for each in self.inputs
        )
        if is_given and own.finite > (limits.allowed((_SHORT, _SHORT), _SHORT) or 0.0):
            return (
                Verdict.OWN,
                f"own error {own.finite:.2g} where both are finite in {own.arithmetic}; {note}",
            )
        finite = count - own.error.nonfinite
        if is_given and finite:
            return Verdict.OWN, f"{note}, of which {finite:,} are finite here"
        return Verdict.NONFINITE, note

    def _moved_zero(self) -> float:
        """Return by how many steps the zero point has moved that the operator found for its input."""
        errors = (each.evidence.error for each in self.outputs if each.slot == _ZERO_POINT)
        return max((error.largest for error in errors if error is not None), default=0.0)

    @property
    def input_distance(self) -> float:
        """The largest distance of an input, 0 without any."""
        return _largest(self.inputs)

    @property
    def output_distance(self) -> float:
        """The largest distance of an output that differs, 0 without any."""
        return _largest(self.bad_outputs)


_SHORT: Final = "float16"
"""The type with the fewest numbers, in which kernels overflow."""

_ZERO_POINT: Final = 2
"""Number of the output in which a quantising operator tells its zero point."""


def _steps(dtype: str) -> int:
    """Return how many steps integers of a type have.

    >>> _steps("uint8"), _steps("int16")
    (255, 65535)
    """
    bits = dtype.removeprefix("u").removeprefix("int")
    return (1 << int(bits)) - 1 if bits.isdecimal() else 0


def _largest(tensors: Sequence[TensorResult]) -> float:
    errors = (each.evidence.error for each in tensors)
    return max((error.distance for error in errors if error is not None), default=0.0)
