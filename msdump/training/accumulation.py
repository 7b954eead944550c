"""Accumulation of gradients: the optimizer runs in each n-th step, on the gradients of n steps together.

The class ``Accumulator`` of MindSpore's tutorial on gradient accumulation has the same operators. It is
called in the construct of a training cell: the scope is ``Default``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from msdump.graph.primitives import op
from msdump.training.options import OptionRule, Options, Rules
from msdump.training.single_numbers import by_number
from msdump.training.variables import Trained, Variables, assign, update_if


@dataclass(frozen=True, slots=True)
class Accumulation(Options):
    """The optimizer takes the sum of the gradients of several steps.

    The variables are ``accumulate_.{parameter}``, zeros before the first step, ``zeros_.{parameter}``, which
    stay zeros, and ``counter_``, the number of the step, from 1. A step that a dynamic loss scale leaves out
    is not counted.

    Attributes:
        steps: Number of steps between two updates; it must be given.
    """

    steps: float = 0
    is_mean: ClassVar[bool] = False
    rules: ClassVar[Rules] = {
        "steps": OptionRule(
            lambda value: 1 <= value < 2**31 and value % 1 == 0, "a whole number from 1 to 2147483647"
        )
    }

    def write(self, trained: Trained, state: Variables, update: Callable[[Trained], None]) -> None:
        """Write the sums, and an If with the update, which sets them to zero.

        MindSpore compiles the operators behind a branch into both branches: the counter moves there.
        """
        counter = state("counter_", np.array(1, np.int32))
        sums, zeros = [], []
        for variable, gradient in trained:
            first = np.zeros(variable.sizes(), variable.dtype.numpy)
            total = state(f"accumulate_.{variable.name}", first)
            zeros.append((total, state(f"zeros_.{variable.name}", first)))
            share = by_number("Div", gradient, float(self.steps)) if self.is_mean else gradient
            sums.append((variable, assign(total, share, "AssignAdd")))
        is_due = op.Equal(op.Mod(counter, np.array(self.steps, np.int32)), np.array(0, np.int32))

        def count() -> None:
            assign(counter, np.array(1, np.int32), "AssignAdd")

        def update_and_clear() -> None:
            update(sums)
            for total, zero in zeros:
                assign(total, zero)
            count()

        update_if(is_due, then=update_and_clear, otherwise=count)


@dataclass(frozen=True, slots=True)
class MeanAccumulation(Accumulation):
    """The optimizer takes the mean of the gradients of several steps.

    Each gradient is divided before it is added, as in MindSpore's ``boost.GradientAccumulation``.
    """

    is_mean = True


ACCUMULATIONS: Final[Mapping[str, Callable[..., Accumulation]]] = {
    "sum": Accumulation,
    "mean": MeanAccumulation,
}
"""By the name that ``--accumulate`` takes."""
