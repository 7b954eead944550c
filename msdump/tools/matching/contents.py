"""What is known about the elements of a tensor, by which tensors of two networks are recognised."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

import numpy as np

_NEAR: Final = 2e-2
"""Relative difference of two numbers that lower precision explains."""


@dataclass(frozen=True, slots=True)
class TensorContent:
    """What tells a tensor apart from others.

    Attributes:
        digest: What stands for all of its elements, None where that is not known.
        count: Number of elements.
        norm: Euclidean norm.
        largest: Largest element.
        smallest: Smallest element.
    """

    digest: Hashable | None = None
    count: int = 0
    norm: float = math.nan
    largest: float = math.nan
    smallest: float = math.nan

    @property
    def is_telling(self) -> bool:
        """Whether many tensors cannot have the same content, as all that are zero have."""
        return self.count > 1 and self.largest != self.smallest

    def likeness(self, other: TensorContent) -> float | None:
        """Return 1 for equal elements, 0 for quite other ones, None where nothing can be said."""
        if self.digest is not None and self.digest == other.digest:
            return 1.0
        if self.count != other.count:
            return 0.0
        pairs = (
            (self.norm, other.norm),
            (self.largest, other.largest),
            (self.smallest, other.smallest),
        )
        known = [(one, two) for one, two in pairs if math.isfinite(one) and math.isfinite(two)]
        if not known:
            return None
        scale = max(max(abs(one), abs(two)) for one, two in known[-2:])
        near = sum(abs(one - two) <= _NEAR * max(abs(one), abs(two), scale / 10) for one, two in known)
        return near / len(known) * 0.9


def of_array(array: np.ndarray) -> TensorContent:
    """Return the content of a tensor."""
    if array.dtype.kind not in "fiub" or not array.size:
        return TensorContent(digest(array), array.size)
    values = array.astype(np.float64, copy=False)
    norm = math.sqrt(float(np.vdot(values, values)))
    return TensorContent(digest(array), array.size, norm, float(values.max()), float(values.min()))


def digest(array: np.ndarray) -> Hashable:
    """Return what stands for the elements of a tensor, whatever their order.

    A weight that one exporter transposes has the digest of the other's; so has one that is rounded from
    float32 to float16, unless rounding is what the two differ in.

    >>> weight = np.arange(6, dtype=np.float32).reshape(2, 3)
    >>> digest(weight) == digest(weight.T), digest(weight) == digest(weight + 1)
    (True, False)
    """
    if array.dtype.kind not in "fiubV" or array.dtype.names:
        return (array.dtype.str, array.shape, str(array.tolist()) if array.size <= _FEW else "")
    if array.dtype.kind in "fV":
        with np.errstate(over="ignore", invalid="ignore"):
            bits = array.astype(np.float16).view(np.uint16)
    else:
        bits = array
    numbers = np.ascontiguousarray(bits).reshape(-1).astype(np.uint64)
    return (array.size, int(numbers.sum()), int((numbers * (numbers + np.uint64(0x9E3779B97F4A7C15))).sum()))


_FEW: Final = 1024
