"""Verdicts on tensors: by the types that both sides computed in, and on the scales of quantised ones."""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, Generic, NamedTuple, TypeVar

import numpy as np

from msdump.judge import TensorError
from msdump.judge.verdict.evidence import Finding, FloatTypes, TensorEvidence, TensorVerdict, joined
from msdump.judge.verdict.limits import Limits, coarser
from msdump.record import IO

_KINDS: Final = {
    "float": "float",
    "bfloat": "float",
    "complex": "complex",
    "int": "int",
    "uint": "int",
    "bool": "bool",
}
"""Kinds of numbers by the beginnings of element types' names."""


class _Allowance(NamedTuple):
    """Limits of two tensors: relative distance, units of the last place, absolute difference of elements."""

    distance: float | None
    units: float
    floor: float


class TensorJudge:
    """Draws verdicts on tensors, in the order of the execution.

    A tensor is at best as precise as its inputs. So its limit is that of the coarsest element type of all
    tensors so far that are not bit for bit the same, and of the types that the sides compute in if these
    differ. Inputs may also differ by less than the smallest number of that type: numbers that underflowed
    before are missing even if later types could hold them.
    """

    def __init__(self, limits: Limits) -> None:
        """Start at the first operator."""
        self._limits = limits
        self._coarsest = limits.precision
        self._met: set[str] = set()
        self._lost = 0.0
        self._allowances: dict[tuple[tuple[str, str], str, tuple[str, ...]], _Allowance] = {}

    def results(
        self,
        tensors: Iterable[TensorEvidence],
        arithmetic: tuple[FloatTypes, FloatTypes] = (frozenset(), frozenset()),
        carried: float = 0.0,
    ) -> tuple[TensorEvidence, ...]:
        """Return the verdicts on the tensors of the operator that ran next.

        Args:
            tensors: Its tensors.
            arithmetic: Float types that the devices of the examined side and of golden read and write.
            carried: Distance that its inputs explain, beyond that of the element types.
        """
        tensors = tuple(tensors)
        # Where both sides read and write the same types they round alike.
        is_alike = arithmetic[0] == arithmetic[1]
        computed = () if is_alike else tuple(sorted({dtype for side in arithmetic for _, dtype in side}))
        # All tensors of the operator before any is judged: its inputs limit how good its outputs can be.
        types = set(computed)
        for tensor in tensors:
            if tensor.error is None or not tensor.error.is_same:
                types.add(tensor.dtype)
                types.add(tensor.golden_dtype)
                types.add(tensor.rounded_to)
        if not types <= self._met:
            self._met |= types
            self._coarsest = coarser(self._coarsest, *types)
        results = tuple([self._result(each, computed, carried) for each in tensors])
        if computed:  # numbers that underflow in this operator are missing in its readers
            self._lost = max(self._lost, self._limits.floor(computed))
        return results

    def _result(self, evidence: TensorEvidence, computed: tuple[str, ...], carried: float) -> TensorEvidence:
        error = evidence.error
        if error is None or evidence.verdict is not TensorVerdict.UNCHECKED:
            return evidence
        types = (evidence.dtype, evidence.golden_dtype)
        allowance = self._allowance(types, computed)
        if allowance.distance is not None and self._limits.distance is None:
            allowance = allowance._replace(distance=max(allowance.distance, carried))
        limit = allowance.distance
        unlike = "" if types[0] == types[1] else f"{types[0]} against {types[1]}"
        remarks = joined(_misplacement(error), unlike, evidence.note)
        if evidence.is_rounded:
            return replace(
                evidence, verdict=TensorVerdict.AGREES, note=remarks or "rounded to fewer bits", limit=limit
            )
        if evidence.io is IO.INPUT and allowance.floor < self._lost:
            allowance = allowance._replace(floor=self._lost)
        verdict = self._verdict(error, types, allowance)
        is_noise = limit is not None and 0 < error.norm <= limit * evidence.summed
        if is_noise and verdict is TensorVerdict.DIFFERS and not error.misplaced:
            verdict, remarks = TensorVerdict.AGREES, joined("within the rounding of the summands", remarks)
        return replace(evidence, verdict=verdict, note=remarks, limit=limit)

    def _allowance(self, types: tuple[str, str], computed: tuple[str, ...]) -> _Allowance:
        """Return the limits of two element types at this point of the run; cached, as types are few."""
        key = types, self._coarsest, computed
        allowance = self._allowances.get(key)
        if allowance is None:
            limits = self._limits
            allowance = self._allowances[key] = _Allowance(
                limits.allowed(types, self._coarsest), limits.units(types), limits.floor((*types, *computed))
            )
        return allowance

    def _verdict(self, error: TensorError, types: tuple[str, str], allowance: _Allowance) -> TensorVerdict:
        if error.is_same:  # the same numbers in two types agree, but are not EQUAL
            return TensorVerdict.EQUAL if types[0] == types[1] else TensorVerdict.AGREES
        limit = allowance.distance
        kinds = {*map(_kind, types)}
        if len(kinds) > 1 and "" not in kinds:
            return TensorVerdict.DTYPE
        if limit is None or error.misplaced:
            return TensorVerdict.DIFFERS
        if math.isinf(limit):  # the inputs are noise
            return TensorVerdict.AGREES
        is_near = (
            error.distance <= limit
            and error.cosine >= self._limits.cosine
            and error.scaled <= limit * self._limits.peak
        )
        is_rounding = 0 < error.ulps <= allowance.units or 0 < error.largest <= allowance.floor
        return TensorVerdict.AGREES if is_near or is_rounding else TensorVerdict.DIFFERS


def _kind(dtype: str) -> str:
    """Return the kind of numbers of an element type, "" of an unknown one.

    >>> _kind("bfloat16"), _kind("uint8"), _kind("bool"), _kind("99")
    ('float', 'int', 'bool', '')
    """
    return next((kind for prefix, kind in _KINDS.items() if dtype.startswith(prefix)), "")


def _misplacement(error: TensorError) -> str:
    if error.misplaced:
        return f"NaN or infinities differ at {error.misplaced:,} element{'s' * (error.misplaced > 1)}"
    if math.isnan(error.cosine):
        return "golden is zero" if math.isinf(error.distance) else "mine is zero"
    return ""


CLAMPS: Final = frozenset({"ReLU", "ReLU6"})
"""Golden operators that the range of quantised numbers stands for."""

_MOST: Final = 4.0
"""Times the noise of a scale from the tensor's own range that calibration on other inputs explains."""

_APART: Final = 3.0
"""Times the noise of a model's other tensors: an input as none of calibration makes all of them noisier."""

_BEYOND: Final = 0.15
"""Share of its range by which inputs beyond the calibration's exceed it."""

_CLIPPED: Final = 0.002
"""Share of a tensor's elements that a calibration by percentiles cuts off on purpose."""

_MANY: Final = 0.05
"""Share of elements that no calibration cuts off, by however little."""

_LIKE: Final = 0.5
"""Relative distance from golden's tensor up to which an input has a range to tell a wrong scale by."""

Key = TypeVar("Key", bound=Hashable)


def has_range(finding: Finding) -> bool:
    """Return whether a quantiser's input is near enough to golden's tensor to judge its range."""
    errors = [each.error for each in finding.inputs if each.io is IO.INPUT and not each.slot]
    return all(error is None or error.distance <= _LIKE for error in errors)


class Quantisers(Generic[Key]):
    """The operators of one run that quantise tensors, while golden computes without quantising."""

    def __init__(self) -> None:
        """Begin without operators."""
        self._known: list[tuple[Key, float, str]] = []  # key, noise and note of each operator

    def add(
        self,
        key: Key,
        numbers: np.ndarray,
        how: Sequence[np.ndarray],
        dtype: np.dtype,
        clamp: str,
    ) -> None:
        """Add an operator that has run, if it quantises a tensor by one scale.

        Args:
            key: Identifies it.
            numbers: Its input.
            how: Its scale and, where it has one, its zero point.
            dtype: Type of the integers that it writes.
            clamp: Type of the golden operator that clamps as the range of the integers does, "" for none.
        """
        if any(each.size != 1 for each in how):
            return
        scale, zero = [*(float(each.reshape(-1)[0]) for each in how), 0.0][:2]
        limits = np.iinfo(dtype)
        numbers = numbers.astype(np.float64).reshape(-1)
        if clamp or zero == limits.min:  # a ReLU in the operator before cuts off what is below zero
            numbers = np.clip(numbers, 0, 6.0 if clamp == "ReLU6" else None)
        noise, low, high = _noise(numbers, (limits.min - zero) * scale, (limits.max - zero) * scale, scale)
        note = f"scale {scale:.3g} and zero point {zero:g} make {noise:.3g} times the noise of"
        self._known.append((key, noise, f"{note} its range {low:.3g} to {high:.3g}"))

    def wrong(self) -> Iterator[tuple[Key, str]]:
        """Yield the operators with a wrong scale or zero point, and why."""
        noises = [noise for _, noise, _ in self._known]
        for place, (key, noise, note) in enumerate(self._known):
            others = noises[:place] + noises[place + 1 :]
            if noise >= max(_MOST, _APART * statistics.median(others or [0.0]), max(noises) / 2):
                yield key, note


def _noise(numbers: np.ndarray, lowest: float, highest: float, scale: float) -> tuple[float, float, float]:
    """Return the noise of quantisation, relative to that of a scale fitted to the tensor, and its range.

    ``lowest`` and ``highest`` are the range of the integers, ``scale`` is one step.
    """
    if not numbers.size or not np.isfinite(numbers).all():
        return 0.0, 0.0, 0.0
    low, high = min(0.0, float(numbers.min())), max(0.0, float(numbers.max()))
    least = scale * (high - low) / (highest - lowest)
    beyond = [(lowest - low) / (highest - lowest), (high - highest) / (highest - lowest)]
    if max(beyond) > _BEYOND and min(beyond) < -_BEYOND:  # shifted: no calibration chooses such a range
        return max(beyond) * (highest - lowest) / least, low, high
    clipped = np.maximum(lowest - numbers, 0) + np.maximum(numbers - highest, 0)
    share = np.count_nonzero(clipped) / numbers.size
    if share < (_MANY if max(beyond) < _BEYOND else _CLIPPED):
        clipped = np.zeros(1)
    noise = math.hypot(scale, math.sqrt(12 * float(np.mean(np.square(clipped)))))
    return (noise / least if least else 0.0), low, high
