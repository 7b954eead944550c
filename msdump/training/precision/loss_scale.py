"""Loss scales: small gradients in half types are scaled into their range, and back before the update."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol

import numpy as np

from msdump.training import options
from msdump.training.optimizers import Trained
from msdump.training.optimizers.parameters import Variables
from msdump.training.precision.overflow_checks import OverflowCheck
from msdump.training.scopes import ROOT, Place
from msdump.training.symbols import StepTensor
from msdump.training.writer import StepWriter

MANAGER: Final = ROOT.inside(("loss_scaling_manager", "DynamicLossScaleUpdateCell"))


@dataclass(frozen=True, slots=True)
class Rest:
    """What a training step has beside loss and gradients, for a loss scale to put itself around it.

    Attributes:
        reduce: Writes the mean of the gradients over all ranks; returns the parameters with it.
        update: Writes the optimizer's operators.
        place: The optimizer's place.
        state: Adds variables.
        check: Finds whether gradients overflow.
    """

    reduce: Callable[[Trained], Trained]
    update: Callable[[Trained], None]
    place: Place
    state: Variables
    check: OverflowCheck


class LossScale(Protocol):
    """Scales the loss, which is to say the first gradient, and writes the update with what goes around it."""

    def seed(self, op: StepWriter, loss: StepTensor, rest: Rest) -> StepTensor:
        """Return the gradient of the loss itself."""

    def write(self, op: StepWriter, trained: Trained, rest: Rest) -> Sequence[StepTensor]:
        """Write everything behind the gradients; return what the step gives besides the loss."""


@dataclass(frozen=True, slots=True)
class StaticLossScale:
    """One scale for all steps, as the optimizer's ``loss_scale``: it divides the gradients itself.

    Attributes:
        value: The scale; 1 changes nothing.
    """

    value: float = 1.0
    _rules: ClassVar = {"value": options.above(0)}

    def __post_init__(self) -> None:
        """Refuse what no scale is."""
        options.check(self, self._rules)

    def seed(self, op: StepWriter, loss: StepTensor, rest: Rest) -> StepTensor:  # noqa: ARG002 - protocol
        """Return the scale, a constant."""
        return op.constant(np.array(self.value, loss.dtype.numpy))

    def write(self, op: StepWriter, trained: Trained, rest: Rest) -> Sequence[StepTensor]:
        """Write a Mul with 1 / scale for every gradient, in the optimizer's scope, and the update."""
        trained = rest.reduce(trained)
        if self.value != 1:
            with op.at(rest.place):
                trained = [(variable, op.Mul(gradient, 1 / self.value)) for variable, gradient in trained]
        rest.update(trained)
        return ()


@dataclass(frozen=True, slots=True)
class DynamicLossScale:
    """A scale that shrinks when gradients overflow, whose update is left out, and else grows.

    The operators are those of TrainOneStepWithLossScaleCell and DynamicLossScaleUpdateCell. The scale is
    the variable ``scale_sense``.

    Attributes:
        value: The first scale.
        factor: What it is multiplied with, or divided by.
        window: Number of steps without overflow after which it grows.
    """

    value: float = 2.0**24
    factor: float = 2.0
    window: float = 2000.0
    _rules: ClassVar = {
        "value": options.above(0),
        "factor": options.above(1),
        "window": options.at_least(1),
    }

    def __post_init__(self) -> None:
        """Refuse what no scale is."""
        options.check(self, self._rules)

    def seed(self, op: StepWriter, loss: StepTensor, rest: Rest) -> StepTensor:  # noqa: ARG002 - protocol
        """Begin the check for overflows; return the scale, a variable."""
        with op.at(ROOT):
            rest.check.start(op)
        return rest.state("scale_sense", np.array(self.value, np.float32))

    def write(self, op: StepWriter, trained: Trained, rest: Rest) -> Sequence[StepTensor]:
        """Write the finite gradients' update and the scale's; return whether they overflowed."""
        scale = op.types["scale_sense"]
        with op.at(ROOT):
            inverse = op.Reciprocal(scale)
            trained = [(variable, op.Mul(gradient, inverse)) for variable, gradient in trained]
        trained = rest.reduce(trained)
        with op.at(ROOT):
            overflow = rest.check.overflow(op, [gradient for _, gradient in trained])
            is_finite = op.Not(overflow)
        with op.at(MANAGER):
            self._change(op, scale, overflow, is_finite, rest.state)
        with op.at(ROOT):
            _update_unless(op, overflow, lambda: rest.update(trained))
        return (overflow,)

    def _change(
        self,
        op: StepWriter,
        scale: StepTensor,
        overflow: StepTensor,
        is_finite: StepTensor,
        state: Variables,
    ) -> None:
        """Write the operators of DynamicLossScaleUpdateCell."""
        step = state("current_iterator_step", np.array(1, np.int32))
        last = state("last_overflow_iterator_step", np.array(0, np.int32))
        shrunk = op.Max(op.Mul(scale, 1 / self.factor), 1.0)
        after_overflow = op.Where(overflow, shrunk, scale)
        grows = op.LessOrEqual(np.array(self.window, np.int32), op.Sub(step, last))
        moved = op.Where(op.Or(overflow, grows), step, last)
        op.bindings[last.name] = op.call("Assign", last, moved, like=last)
        grown = op.Mul(after_overflow, float(self.factor))
        new = op.Where(op.And(grows, is_finite), grown, after_overflow)
        op.bindings[scale.name] = op.call("Assign", scale, new, like=scale)
        following = op.Add(step, np.array(1, np.int32))
        op.bindings[step.name] = op.call("Assign", step, following, like=step)


def _update_unless(op: StepWriter, overflow: StepTensor, update: Callable[[], None]) -> None:
    """Write an If: variables keep their values after an overflow, else the optimizer updates them."""
    before = dict(op.bindings)
    with op.body() as updating:
        update()
    changed = {name: value for name, value in op.bindings.items() if before.get(name) is not value}
    with op.body() as keeping:
        kept = [op.Identity(op.types[name]) for name in changed]
    results = op.branch(overflow, (keeping, kept), (updating, list(changed.values())))
    op.bindings.update(zip(changed, results, strict=True))


LOSS_SCALES: Final[Mapping[str, Callable[..., LossScale]]] = {
    "static": StaticLossScale,
    "dynamic": DynamicLossScale,
}
"""By the name that ``--loss-scale`` takes."""


def loss_scale_of(choice: float | str | LossScale | None) -> LossScale:
    """Return a loss scale.

    Args:
        choice: A number, ``dynamic:65536,factor=2,window=2000``, or a scale; None: none.

    Raises:
        InputError: An unknown name or option, or a number that is no scale.
    """
    if choice is None:
        return StaticLossScale()
    if isinstance(choice, str) and not _is_number(choice):
        scale: LossScale = options.parsed(choice, LOSS_SCALES, "loss scale")
        return scale
    return StaticLossScale(float(choice)) if isinstance(choice, (int, float, str)) else choice


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
