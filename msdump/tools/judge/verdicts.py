"""The closed sets of verdicts on tensors and on operators."""

from __future__ import annotations

import enum
from typing import Final


class Verdict(enum.StrEnum):
    """The verdict on an operator that ran on both sides, or on one of them alone."""

    EQUAL = "equal"
    """All of its tensors are the same bit for bit, in the same element types."""
    AGREES = "agrees"
    """Its tensors lie within the limits."""
    HEALED = "healed"
    """An input differs, its outputs agree."""
    INHERITED = "inherited"
    """Its error is what the errors of its inputs become."""
    AMPLIFIED = "amplified"
    """Its error is more than what the errors of its inputs become in most operators."""
    ACCUMULATED = "accumulated"
    """Many small errors before it add up to more than the limit; none of them is the culprit."""
    OWN = "own"
    """Its inputs agree, its output does not."""
    WEIGHT = "weight"
    """A weight or constant that it reads differs."""
    NONFINITE = "nonfinite"
    """NaN or an infinity begins here."""
    REPLACED = "replaced"
    """Another operator stands in its place."""
    SHAPE = "shape"
    """An output has another shape."""
    DTYPE = "dtype"
    """An output has another element type."""
    MISSING = "missing"
    """Golden has the operator, the examined side does not."""
    UNCHECKED = "unchecked"
    """There is nothing to compare it with."""
    UNREADABLE = "unreadable"
    """Its files cannot be read."""


ACCUSING: Final = frozenset(
    {
        *(Verdict.OWN, Verdict.WEIGHT, Verdict.NONFINITE, Verdict.REPLACED),
        *(Verdict.SHAPE, Verdict.DTYPE, Verdict.MISSING),
    }
)
"""Verdicts that say: the fault is here."""

INNOCENT: Final = frozenset({Verdict.EQUAL, Verdict.AGREES, Verdict.HEALED, Verdict.UNCHECKED})
"""Verdicts on operators whose outputs do not differ, as far as they were compared."""


class TensorVerdict(enum.StrEnum):
    """The verdict on a tensor beside its counterpart, from the best to the worst."""

    UNCHECKED = "unchecked"
    """There is no counterpart."""
    EQUAL = "equal"
    """Bit for bit, in the same element type."""
    AGREES = "agrees"
    """Within the limits."""
    UNREADABLE = "unreadable"
    """A file or a memory format cannot be read."""
    SHAPE = "shape"
    """The shapes do not fit."""
    DTYPE = "dtype"
    """One of the two holds another kind of elements, and not the same numbers."""
    DIFFERS = "differs"
    """Beyond the limits, or NaN and infinities stand at other places."""


# UNCHECKED is in neither set: a tensor without a counterpart says nothing about the computation.
AGREEING: Final = frozenset({TensorVerdict.EQUAL, TensorVerdict.AGREES})
BAD: Final = frozenset(
    {TensorVerdict.UNREADABLE, TensorVerdict.SHAPE, TensorVerdict.DTYPE, TensorVerdict.DIFFERS}
)

# The members stand in this order on purpose.
SEVERITY: Final = {verdict: place for place, verdict in enumerate(TensorVerdict)}
"""Rank of the verdicts on tensors, the worst last."""
