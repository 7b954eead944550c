"""The noise of a quantised tensor's scale and zero point, beside a scale that fits the tensor's range."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

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


def scale_noise(
    numbers: np.ndarray, how: Sequence[np.ndarray], dtype: np.dtype, clamp: str
) -> tuple[float, str] | None:
    """Return the noise of an operator that quantises a tensor by one scale (None: by several), in words, too.

    Args:
        numbers: Its input.
        how: Its scale and, where it has one, its zero point.
        dtype: Type of the integers that it writes.
        clamp: Type of the golden operator that clamps as the range of the integers does, "" for none.
    """
    if any(each.size != 1 for each in how):
        return None
    scale, zero = [*(float(each.reshape(-1)[0]) for each in how), 0.0][:2]
    limits, numbers = np.iinfo(dtype), numbers.astype(np.float64).reshape(-1)
    if clamp or zero == limits.min:  # a ReLU in the operator before cuts off negative numbers
        numbers = np.clip(numbers, 0, 6.0 if clamp == "ReLU6" else None)
    noise, low, high = _noise(numbers, (limits.min - zero) * scale, (limits.max - zero) * scale, scale)
    text = f"scale {scale:.3g} and zero point {zero:g} make {noise:.3g} times the noise of its range"
    return noise, f"{text} {low:.3g} to {high:.3g}"


def wrong_scales(scales: Mapping[int, tuple[float, str]]) -> Iterable[int]:
    """Yield the operators, by place, with more noise than the tensor and the other scales explain."""
    for place, (noise, _) in scales.items():
        others = [each for other, (each, _) in scales.items() if other != place]
        usual, most = statistics.median(others or [0.0]), max([noise, *others])
        if noise >= max(_MOST, _APART * usual, most / 2):
            yield place


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
