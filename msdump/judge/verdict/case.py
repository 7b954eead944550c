"""An operator before its verdict: its compared tensors, and the errors that they explain."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from msdump.judge.verdict.evidence import (
    Finding,
    OwnError,
    TensorEvidence,
    TensorVerdict,
    Verdict,
    joined,
    largest_distance,
)
from msdump.judge.verdict.limits import QUANTISED, TIED, Limits
from msdump.read import SourceKind, ValueSource


@dataclass(frozen=True)
class Case:
    """An operator before its verdict.

    Attributes:
        evidence: Everything known of the operator.
        tensors: The verdicts on its tensors.
        inputs: Its compared inputs; the producer's output stands for an input that was not dumped.
        outputs: Its compared outputs.
        is_complete: Whether all of its inputs are known.
    """

    evidence: Finding
    tensors: Sequence[TensorEvidence]
    inputs: Sequence[TensorEvidence]
    outputs: Sequence[TensorEvidence]
    is_complete: bool

    @functools.cached_property
    def bad_inputs(self) -> Sequence[TensorEvidence]:
        """Inputs that differ."""
        return [each for each in self.inputs if each.is_bad]

    @property
    def flipped(self) -> Sequence[TensorEvidence]:
        """Inputs that agree except for flipped elements: integers or truth values that rounding changed."""
        return [each for each in self.inputs if each.is_flipped]

    @property
    def edge(self) -> float:
        """Relative distance of outputs that flipped inputs explain: by quantised steps, or by ties."""
        are_steps = self.flipped and all(steps_of(each.dtype) for each in self.flipped)
        return QUANTISED if are_steps else math.sqrt(TIED)

    @functools.cached_property
    def bad_outputs(self) -> Sequence[TensorEvidence]:
        """Outputs that differ."""
        return [each for each in self.outputs if each.is_bad]

    def written_inputs(self) -> Iterator[tuple[TensorEvidence, ValueSource]]:
        """Yield each input that differs and that an operator wrote, with its source."""
        for each in self.bad_inputs:
            source = self.evidence.source(each.slot)
            if source.kind is SourceKind.OPERATOR:
                yield each, source

    def explains_steps(self, output: TensorEvidence) -> bool:
        """Return whether the inputs' differences explain the steps by which a quantised output differs.

        The largest element spans at least half of the steps of the type. So an element may move by the
        inputs' differences in such steps, rounded up, and by as much again if the scale moved. If elements
        are off by a fraction of a step, the same fraction of them may move to the next integer.
        """
        error, steps = output.error, 2 * steps_of(output.dtype)
        moved = [each for each in self.inputs if each.error and each.error.largest]
        errors = [each.error for each in moved if each.error is not None]
        if error is None or not (steps and errors and all(math.isfinite(each.scaled) for each in errors)):
            return False
        part = sum(
            each.norm / math.sqrt(max(math.prod(tensor.shape), 1)) * each.scaled / each.largest
            for tensor, each in zip(moved, errors, strict=True)
        )
        # a dynamic zero point that moved shifts all elements
        zero = 0.0 if output.slot else self._moved_zero()
        share = 1.0 if zero else max(TIED, steps * part)
        most = 1 + zero + steps * sum(each.scaled for each in errors)
        return error.largest <= most and error.changed <= max(1.0, math.prod(output.shape) * share)

    def rounding_of_product(self, output: TensorEvidence) -> float:
        """Return the expected norm of the error of a product of two tensors with random errors.

        If the summands of an element cancel, the element is small and its relative distance says nothing. An
        element of ``n`` products of factors with mean squares ``a`` and ``b``, and mean squared errors ``da``
        and ``db``, has the squared error ``n (a db + b da)``; ``n`` follows from the numbers of elements. 0
        if a factor has no error, as its norm is unknown then.
        """
        factors = [each for each in self.inputs if each.slot in _FACTORS]
        errors = [each.error for each in factors if each.error is not None and each.error.distance > 0]
        sizes = [math.prod(each.shape) for each in (*factors, output)]
        if len(errors) != len(factors) or len(factors) != len(_FACTORS) or not all(sizes):
            return 0.0
        norms = [each.norm / each.distance for each in errors]
        share = math.sqrt(math.sqrt(sizes[2] / (sizes[0] * sizes[1])))
        return share * (norms[0] * errors[1].norm + norms[1] * errors[0].norm)

    @property
    def unexplained(self) -> OwnError | None:
        """The first own error that rounding does not explain; None without any."""
        return next((each for each in self.evidence.own if not each.is_explained), None)

    def told_again(self, limits: Limits) -> tuple[Verdict, str] | None:
        """Return the verdict of re-execution: wrong tensor read, or other values computed; None: neither."""
        evidence = self.evidence
        if evidence.wiring:
            return (Verdict.REPLACED if evidence.replaces else Verdict.OWN), evidence.wiring
        own = self.unexplained
        if own is None:
            return None
        if evidence.replaces:
            return Verdict.REPLACED, f"in place of {evidence.replaces}, with other results"
        if own.error.misplaced:
            return self._misplaced(own, limits)
        if own.overflow:
            return (
                Verdict.NONFINITE,
                f"{own.overflow} in the kernel overflows, and the parts behind it hide the infinities",
            )
        told = f"own error {own.error.distance:.2g} in {own.arithmetic}, {own.explanation} {own.allowed:.2g}"
        return Verdict.OWN, joined(told, own.note)

    def _misplaced(self, own: OwnError, limits: Limits) -> tuple[Verdict, str]:
        """Return the verdict on NaN and infinities that re-execution does not reproduce.

        If inputs had some, and MINE's own arithmetic reproduces the others, they are inherited. If they are
        at other places, the finite elements decide: an overflow in a shorter type explains rounding to that
        type, but no element that became finite.
        """
        count = own.error.misplaced
        elements = f"{count:,} element{'s' * (count > 1)}"
        note = f"NaN or infinities differ at {elements} from a run in {own.arithmetic}"
        is_given = any(each.misplaced for each in self.inputs)
        if is_given and own.finite > (limits.allowed((_SHORT, _SHORT), _SHORT) or 0.0):
            return (
                Verdict.OWN,
                f"own error {own.finite:.2g} in {own.arithmetic} at elements finite on both sides; {note}",
            )
        finite = count - own.error.nonfinite
        if is_given and finite:
            return Verdict.OWN, f"{note}, {finite:,} of them finite here"
        return (Verdict.INHERITED if is_given and own.recurs else Verdict.NONFINITE), note

    def _moved_zero(self) -> float:
        """Return the number of steps by which a dynamic zero point has moved."""
        errors = (each.error for each in self.outputs if each.slot == _ZERO_POINT)
        return max((error.largest for error in errors if error is not None), default=0.0)

    @property
    def input_distance(self) -> float:
        """The largest distance of an input, 0 without any."""
        return largest_distance(self.inputs)

    @property
    def unreadable_note(self) -> str | None:
        """Message on its first unreadable tensor; None without any."""
        faults = (each.note for each in self.tensors if each.verdict is TensorVerdict.UNREADABLE)
        return next(faults, None)


_SHORT: Final = "float16"
"""The type with the fewest numbers, in which kernels overflow."""

_FACTORS: Final = (0, 1)
"""Input slots of the two factors of a product."""

_MOST_BITS: Final = 16
"""Bits of the widest integers that a scale divides real numbers into; wider ones count or name things."""

_ZERO_POINT: Final = 2
"""Number of the output of a quantising operator with its zero point."""


def steps_of(dtype: str) -> int:
    """Return the number of steps of a quantised type; 0 for ids and truth values.

    >>> steps_of("uint8"), steps_of("int16"), steps_of("int64")
    (255, 65535, 0)
    """
    bits = dtype.removeprefix("u").removeprefix("int")
    return (1 << int(bits)) - 1 if bits.isdecimal() and int(bits) <= _MOST_BITS else 0
