"""Clipping of gradients in front of the optimizer, by their global norm or each element by itself.

MindSpore's ``ops.clip_by_global_norm`` and ``ops.clip_by_value`` have the same operators. They are called in
the construct of a training cell: the scope is ``Default``. As in MindSpore, the last operators of each
gradient have the order in which the optimizer reads them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from msdump.errors import InputError
from msdump.graph.kernel import FLOAT32
from msdump.graph.primitives import op
from msdump.training import options
from msdump.training.options import Options, Rules
from msdump.training.single_numbers import by_number, cast
from msdump.training.writer import StepTensor

Limit = Callable[[StepTensor], StepTensor]
"""Writes the operators that limit one gradient; returns it."""


@dataclass(frozen=True, slots=True)
class ClipByGlobalNorm(Options):
    """Scales all gradients by one factor, so that the norm of all elements together is at most a limit.

    The squares of half types are summed in their own type, and the sums of all gradients in float32, as
    MindSpore does it. An infinite norm makes finite gradients 0 and infinite ones NaN; a NaN in any gradient
    leaves all gradients as they are.

    Attributes:
        clip_norm: The largest norm.
    """

    clip_norm: float = 1.0
    rules: ClassVar[Rules] = {"clip_norm": options.above(0)}

    def write(self, gradients: Sequence[StepTensor]) -> Limit:
        """Write the norm of all gradients; the function writes a product and a quotient."""
        limit = op.constant(np.array([self.clip_norm], np.float32))
        squares = [_sum_of_squares(gradient) for gradient in gradients]
        norm = op.Sqrt(op.Sum(*squares) if len(squares) > 1 else squares[0])
        divisor = op.Where(op.GreaterOrEqual(norm, limit), norm, limit)

        def scaled(gradient: StepTensor) -> StepTensor:
            quotient = by_number("Div", by_number("Mul", gradient, limit), divisor)
            return cast(quotient, gradient.dtype)

        return scaled


def _sum_of_squares(gradient: StepTensor) -> StepTensor:
    square = op.call("Square", gradient)
    total = op.ReduceSum(square, keepdims=0)
    return op.Unsqueeze(cast(total, FLOAT32), (0,))


@dataclass(frozen=True, slots=True)
class ClipByValue(Options):
    """Raises smaller elements of each gradient to a lowest value, and lowers larger ones to a highest.

    Attributes:
        clip_value_min: The lowest value; minus infinity: none.
        clip_value_max: The highest value; infinity: none.
    """

    clip_value_min: float = -math.inf
    clip_value_max: float = math.inf

    def __post_init__(self) -> None:
        """Refuse a range without a limit, and an empty one.

        Raises:
            InputError: Neither value is finite, or the lowest is not below the highest.
        """
        low, high = self.clip_value_min, self.clip_value_max
        if not low < high or not (math.isfinite(low) or math.isfinite(high)):
            raise InputError(
                f"{type(self).__name__}: clip_value_min is {low}, clip_value_max is {high}; must be a "
                "smaller and a larger number, or one of them"
            )

    def write(self, gradients: Sequence[StepTensor]) -> Limit:  # noqa: ARG002 - protocol
        """Write nothing; the function writes a Maximum and a Minimum."""
        return self._limited

    def _limited(self, gradient: StepTensor) -> StepTensor:
        if self.clip_value_min != -math.inf:
            gradient = by_number("Maximum", gradient, self.clip_value_min)
        if self.clip_value_max != math.inf:
            gradient = by_number("Minimum", gradient, self.clip_value_max)
        return gradient


Clipping = ClipByGlobalNorm | ClipByValue

CLIPPINGS: Final[Mapping[str, Callable[..., Clipping]]] = {
    "global_norm": ClipByGlobalNorm,
    "value": ClipByValue,
}
"""By the name that ``--clip-gradients`` takes."""
