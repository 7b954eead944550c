"""Quantising operators: whether their scale and zero point fit the range of the input."""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import numpy as np

from msdump.analysis.judge.findings import Finding
from msdump.record import IO

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
    errors = [each.evidence.error for each in finding.inputs if each.io is IO.INPUT and not each.slot]
    return all(error is None or error.distance <= _LIKE for error in errors)


@dataclass(frozen=True, slots=True)
class _Quantiser(Generic[Key]):
    """An operator that quantised a tensor, the noise of its scale in that of the best one, and a note."""

    key: Key
    noise: float
    note: str


class Quantisers(Generic[Key]):
    """The quantisers of one run of tensors that golden does not quantise."""

    def __init__(self) -> None:
        """Begin without operators."""
        self._known: list[_Quantiser[Key]] = []

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
        if clamp:
            numbers = np.clip(numbers, 0, 6.0 if clamp == "ReLU6" else None)
        noise, low, high = _noise(numbers, (limits.min - zero) * scale, (limits.max - zero) * scale, scale)
        note = f"scale {scale:.3g} and zero point {zero:g} make {noise:.3g} times the noise of"
        self._known.append(_Quantiser(key, noise, f"{note} its range {low:.3g} to {high:.3g}"))

    def wrong(self) -> Iterator[tuple[Key, str]]:
        """Yield the operators with a wrong scale or zero point, and why."""
        worst = max((each.noise for each in self._known), default=0.0)
        for each in self._known:
            others = [other.noise for other in self._known if other is not each]
            least = max(_MOST, _APART * statistics.median(others or [0.0]), worst / 2)
            if each.noise >= least:
                yield each.key, each.note


def _noise(numbers: np.ndarray, lowest: float, highest: float, scale: float) -> tuple[float, float, float]:
    """Return the noise of quantisation, in that of a scale from the tensor's own range, and that range.

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
