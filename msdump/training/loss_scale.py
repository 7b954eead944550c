"""Loss scales: small gradients in half types are scaled into their range, and back before the update.

The method ``seed`` gives the gradient of the loss with respect to itself, which is the scale. ``write`` adds
all operators behind the gradients, and returns the outputs of the step behind the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from msdump.graph.primitives import op
from msdump.training import options
from msdump.training.options import Options, Rules
from msdump.training.single_numbers import by_number, cast
from msdump.training.update import Update
from msdump.training.variables import Trained, assign, update_if
from msdump.training.writer import ROOT, StepTensor

MANAGER: Final = ROOT.inside(("loss_scaling_manager", "DynamicLossScaleUpdateCell"))


@dataclass(frozen=True, slots=True)
class StaticLossScale(Options):
    """A constant scale, as the argument ``loss_scale`` of MindSpore's optimizers, which divide the gradients.

    Attributes:
        value: The scale; 1 changes nothing.
    """

    value: float = 1.0
    rules: ClassVar[Rules] = {"value": options.above(0)}

    def seed(self, loss: StepTensor, update: Update) -> StepTensor:  # noqa: ARG002 - protocol
        """Return the scale, a constant."""
        return op.constant(np.array(self.value, loss.dtype.numpy))

    def write(self, trained: Trained, seed: StepTensor, update: Update) -> Sequence[StepTensor]:  # noqa: ARG002 - protocol
        """Write the update, in which every gradient is divided."""
        update.write(update.reduced(trained), self.value)
        return ()


@dataclass(frozen=True, slots=True)
class DynamicLossScale(Options):
    """A scale that shrinks after an overflow (the update is skipped), and grows after steps without one.

    The operators are TrainOneStepWithLossScaleCell's and DynamicLossScaleUpdateCell's. The scale is
    the variable ``scale_sense``.

    Attributes:
        value: The first scale.
        factor: Factor of growth, divisor after an overflow.
        window: Number of steps without overflow after which it grows.
    """

    value: float = 2.0**24
    factor: float = 2.0
    window: float = 2000.0
    rules: ClassVar[Rules] = {
        "value": options.above(0),
        "factor": options.above(1),
        "window": options.at_least(1),
    }

    def seed(self, loss: StepTensor, update: Update) -> StepTensor:  # noqa: ARG002 - protocol
        """Begin the check for overflows; return the scale, a variable."""
        with op.at(ROOT):
            update.check.start()
        return update.state("scale_sense", np.array(self.value, np.float32))

    def write(self, trained: Trained, seed: StepTensor, update: Update) -> Sequence[StepTensor]:
        """Write the update of finite gradients and that of the scale; return whether they overflowed."""
        with op.at(ROOT):
            inverse = op.Reciprocal(seed)
            trained = [(item, by_number("Mul", dy, cast(inverse, dy.dtype))) for item, dy in trained]
        trained = update.reduced(trained)
        with op.at(ROOT):
            gradients = [gradient for _, gradient in trained]
            overflow = update.check.overflow(gradients) if gradients else op.constant(np.array(False))
            is_finite = op.Not(overflow)
        with op.at(MANAGER):
            step = update.state("current_iterator_step", np.array(1, np.int32))
            last = update.state("last_overflow_iterator_step", np.array(0, np.int32))
            shrunk = op.Max(seed * (1 / self.factor), 1.0)
            after_overflow = op.Where(overflow, shrunk, seed)
            grows = op.LessOrEqual(np.array(self.window, np.int32), step - last)
            moved = op.Where(op.Or(overflow, grows), step, last)
            assign(last, moved)
            grown = after_overflow * float(self.factor)
            new = op.Where(op.And(grows, is_finite), grown, after_overflow)
            assign(seed, new)
            assign(step, step + np.array(1, np.int32))
        with op.at(ROOT):
            update_if(overflow, otherwise=lambda: update.write(trained))
        return (overflow,)


LossScale = StaticLossScale | DynamicLossScale

LOSS_SCALES: Final[Mapping[str, Callable[..., LossScale]]] = {
    "static": StaticLossScale,
    "dynamic": DynamicLossScale,
}
"""By the name that ``--loss-scale`` takes."""
