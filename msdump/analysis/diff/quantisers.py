"""Scales and zero points of a quantised model beside the ranges of the tensors that they quantise."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.analysis.diff.lockstep import Ran
from msdump.analysis.judge import Finding
from msdump.record import IO

CLAMPS: Final = frozenset({"ReLU", "ReLU6"})
"""Golden operators that the range of quantised numbers stands for."""

_MOST: Final = 4.0
"""Times the noise of a scale that is the tensor's own range: what calibration on other inputs explains."""

_APART: Final = 3.0
"""Times the noise of a model's other tensors: an input as none of calibration makes all of them noisier."""

_BEYOND: Final = 0.15
"""Share of its range by which other inputs than those of calibration exceed it."""

_CLIPPED: Final = 0.002
"""Share of a tensor's elements that a calibration by percentiles cuts off on purpose."""

_MANY: Final = 0.05
"""Share of elements that no calibration cuts off, by however little."""

_LIKE: Final = 0.5
"""Relative distance from golden's tensor up to which an input has a range to tell a wrong scale by."""


@dataclass(frozen=True, slots=True)
class _Quantiser:
    """An operator that quantised a tensor.

    Attributes:
        finding: Number of its verdict in the run.
        noise: How many times more noise its scale and zero point make than those of the tensor's own range.
        note: What they are, in words.
    """

    finding: int
    noise: float
    note: str


class Quantisers:
    """The operators of one run that quantise tensors which the other model computes with as they are."""

    def __init__(self, clamped: Mapping[str, str]) -> None:
        """Begin without operators.

        Args:
            clamped: Types of golden operators that clamp, as the range of quantised numbers does, by the
                names of integers that stand for what these write.
        """
        self._known: list[_Quantiser] = []
        self._clamped = clamped

    def add(self, ran: Ran, number: int, finding: Finding) -> None:
        """Take in an operator that has run, if it quantises a tensor by one scale.

        Args:
            ran: The operator.
            number: Number of its verdict in the run.
            finding: The verdict.
        """
        if ran.node.op_type != "QuantizeLinear" or ran.inputs[0] is None:
            return
        weights = [ran.graph.weights.get(name) for name in ran.node.inputs[1:]]
        errors = [each.evidence.error for each in finding.inputs if each.io is IO.INPUT and not each.slot]
        is_like = all(error is None or error.distance <= _LIKE for error in errors)
        dtype = ran.graph.type_of(ran.node.outputs[0]).dtype
        if not is_like or dtype is None or any(each is None or each.size != 1 for each in weights):
            return
        scale, zero = (float(each.reshape(-1)[0]) for each in (*weights, np.zeros(1))[:2] if each is not None)
        limits = np.iinfo(dtypes.from_numpy(dtype.saved).numpy)
        numbers = ran.inputs[0].astype(np.float64).reshape(-1)
        if ran.node.outputs[0] in self._clamped:
            numbers = np.clip(numbers, 0, 6.0 if self._clamped[ran.node.outputs[0]] == "ReLU6" else None)
        noise, low, high = _noise(numbers, (limits.min - zero) * scale, (limits.max - zero) * scale, scale)
        note = f"scale {scale:.3g} and zero point {zero:g} make {noise:.3g} times the noise of"
        self._known.append(_Quantiser(number, noise, f"{note} its range {low:.3g} to {high:.3g}"))

    def wrong(self) -> Iterator[tuple[int, str]]:
        """Yield the numbers of the verdicts on operators with a wrong scale or zero point, and why."""
        worst = max((each.noise for each in self._known), default=0.0)
        for each in self._known:
            others = [other.noise for other in self._known if other is not each]
            least = max(_MOST, _APART * statistics.median(others or [0.0]), worst / 2)
            if each.noise >= least:
                yield each.finding, each.note


def _noise(numbers: np.ndarray, lowest: float, highest: float, scale: float) -> tuple[float, float, float]:
    """Return the noise of quantisation, in that of a scale from the tensor's own range, and that range.

    Args:
        numbers: Its elements.
        lowest: The least number that the integers stand for.
        highest: The largest one.
        scale: What one step is.
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
