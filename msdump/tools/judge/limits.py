"""The limits of agreement: how far apart two tensors may be, by the element types they were computed in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

COSINE: Final = 0.99
"""Least cosine similarity; msprobe, msaccucmp's advisor and the vendor's guides flag what is below."""

# Largest relative Euclidean distance. float32 and the 8-bit types: the mean relative error that the vendor's
# Accuracy Test Kit allows a single operator (single_benchmark_config.py). float64, bfloat16: the rtol of
# torch.testing.assert_close. float16: four times its epsilon, as the vendor's tests of chains of operators
# allow; rounded behind each of 360 operators, a tensor is about so far off. With each of those of 16 bits
# and more, 2 % of noise on a weight still shows.
DISTANCES: Final = {
    "float64": 1e-7,
    "complex128": 1e-7,
    "float32": 2**-13,
    "complex64": 2**-13,
    "float16": 2**-8,
    "bfloat16": 2**-6,
    "float8_e4m3fn": 2**-3,
    "float8_e4m3fnuz": 2**-3,
    "float8_e5m2": 2**-2,
    "float8_e5m2fnuz": 2**-2,
    "float4_e2m1": 2**-1,
}
"""Largest relative Euclidean distance of the types that are rounded; all others must be the same."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How far apart tensors that agree may be.

    Attributes:
        cosine: Least cosine similarity.
        distance: Largest relative Euclidean distance, None: by the element type.
        precision: Coarsest element type that either side computed in from the start, "" where
            only the tensors tell.
    """

    cosine: float = COSINE
    distance: float | None = None
    precision: str = ""

    def allowed(self, dtypes: Iterable[str], coarsest: str) -> float | None:
        """Return the largest distance of two tensors, None where they must be the same.

        >>> Limits().allowed(("float32", "float16"), ""), Limits().allowed(("int32", "int32"), "float16")
        (0.00390625, None)

        Args:
            dtypes: Their element types.
            coarsest: The coarsest type of what they may have been computed from, "" for none.
        """
        if self.distance is not None:
            return self.distance
        # Types that are not rounded have to be the same, whatever they were computed from.
        own = coarser("", *dtypes)
        return DISTANCES[coarser(own, coarsest)] if own else None


def coarser(*dtypes: str) -> str:
    """Return the coarsest of several element types, "" where none of them is rounded.

    >>> coarser("float32", "float16", "int8"), coarser("int32")
    ('float16', '')
    """
    return max((dtype for dtype in dtypes if dtype in DISTANCES), key=DISTANCES.__getitem__, default="")
