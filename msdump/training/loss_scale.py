"""Loss scales: small gradients in half types are scaled into their range, and back before the update.

How a step with a dynamic scale detects overflows of its gradients depends on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Protocol

import numpy as np

from msdump.graph import CLEAR_FLOAT_STATUS, GET_FLOAT_STATUS
from msdump.graph.kernel import FLOAT32
from msdump.plan import DeviceTarget, OverflowMode
from msdump.training import options
from msdump.training.body import Value, operator
from msdump.training.data_parallel import DataParallel
from msdump.training.optimizers import Optimizer, Trained, TrainedParameter, Variables, assign
from msdump.training.options import Options, Rules
from msdump.training.tape import op
from msdump.training.writer import ROOT, Place, StepTensor


@operator("IsFinite")
def is_finite(x: Value) -> Value:
    """Return whether each element is neither infinite nor NaN."""
    return op.Not(op.Or(op.IsInf(x), op.IsNaN(x)))


@operator("ReduceAll")
def reduce_all(x: Value, _axis: Value, _keep_dims: Value) -> Value:
    """Return whether all elements are true."""
    return op.Cast(op.ReduceMin(op.Cast(x, to=6), keepdims=0), to=9)


@operator("AllFinite")
def all_finite(*gradients: Value, count: int) -> Value:  # noqa: ARG001 - of the overload
    """Return whether any element of any gradient is infinite or NaN.

    The name says the opposite; MindSpore negates the result, too.
    """
    # x * 0 is NaN for infinities and NaN alone, and a sum with a NaN is one
    sums = [op.Cast(op.ReduceSum(x * op.CastLike(0.0, x), keepdims=0), to=1) for x in gradients]
    return op.IsNaN(op.Sum(*sums))


class OverflowCheck:
    """Overflow check as on CPU and GPU: looks for infinities and NaNs in each gradient."""

    def start(self) -> None:
        """Write operators between the loss and the first gradient: none."""

    def overflow(self, gradients: Sequence[StepTensor]) -> StepTensor:
        """Write a flag of each gradient, and their sum; return whether any is raised, a bool scalar."""
        flags = []
        for gradient in gradients:
            finite = op.call("ReduceAll", op.call("IsFinite", gradient), None, False)
            flag = 1.0 - op.Cast(finite, to=FLOAT32.onnx)
            flags.append(op.call("Reshape", flag, shape=(1,)))
        total = op.Sum(*flags) if len(flags) > 1 else flags[0]
        return op.LessOrEqual(1.0, op.call("Reshape", total, shape=()))


class AllFiniteCheck(OverflowCheck):
    """Overflow check as on newer Ascend devices: one operator, AllFinite, for all gradients."""

    def overflow(self, gradients: Sequence[StepTensor]) -> StepTensor:
        """Write AllFinite over all gradients; return whether any has an overflow."""
        return op.call("AllFinite", *gradients, count=len(gradients))


@dataclass(frozen=True, slots=True)
class FloatStatusCheck(OverflowCheck):
    """Overflow check by the status of an Ascend in SATURATION_MODE, where no result is infinite.

    Operators and order are TrainOneStepWithLossScaleCell's: the status is lowered after the
    loss, because a smaller scale can cure an overflow of gradients alone; it is read after the last gradient,
    and lowered for the operators behind the step. MindSpore orders these operators by Depend, which is no
    operator of the compiled graph; the step graph by the order of nodes. The statuses of ranks are added.
    """

    parallel: DataParallel | None = None

    def start(self) -> None:
        """Write the operator that lowers the status."""
        op.without_body(CLEAR_FLOAT_STATUS, _zeros())

    def overflow(self, gradients: Sequence[StepTensor]) -> StepTensor:  # noqa: ARG002 - protocol
        """Write the operators that read the status, of all ranks, and lower it."""
        status = op.without_body(GET_FLOAT_STATUS, _zeros())
        if self.parallel is None:
            op.without_body(CLEAR_FLOAT_STATUS, _zeros())
            lowered = op.Equal(np.array(0, np.int32), status)
        else:
            lowered = op.Equal(np.array(0, np.int32), self.parallel.total(status))
            op.without_body(CLEAR_FLOAT_STATUS, _zeros())
        return op.Not(op.call("ReduceAll", lowered, None, False))


def _zeros() -> StepTensor:
    # MindSpore feeds them to the operators of the status, which ignore them
    return op.constant(np.zeros(8, np.int32))


def overflow_check(device: DeviceTarget, mode: OverflowMode, parallel: DataParallel | None) -> OverflowCheck:
    """Return the overflow check for a device and an overflow mode."""
    if device is not DeviceTarget.ASCEND:
        return OverflowCheck()
    return FloatStatusCheck(parallel) if mode is OverflowMode.SATURATION else AllFiniteCheck()


MANAGER: Final = ROOT.inside(("loss_scaling_manager", "DynamicLossScaleUpdateCell"))


@dataclass(frozen=True, slots=True)
class Update:
    """The optimizer's update: the part of a training step between scaled gradients and new variables.

    Attributes:
        optimizer: Updates the parameters.
        parallel: Mean of the gradients over all ranks; None: one rank.
        state: Adds a variable to the step, by name and first value.
        normalizing: Names of scales and shifts of normalisations.
        check: Detects overflows of gradients.
    """

    optimizer: Optimizer
    parallel: DataParallel | None
    state: Variables
    normalizing: Collection[str]
    check: OverflowCheck

    @property
    def place(self) -> Place:
        """The optimizer's scope."""
        return ROOT.inside(("optimizer", self.optimizer.cell))

    def reduced(self, trained: Trained) -> Trained:
        """Write the mean of the gradients over all ranks; return the parameters with it."""
        return trained if self.parallel is None else self.parallel.write(trained)

    def write(self, trained: Trained) -> None:
        """Write the optimizer's operators."""
        parameters = [TrainedParameter(item, dy, item.name in self.normalizing) for item, dy in trained]
        with op.at(self.place):
            self.optimizer.write(parameters, self.state)


class LossScale(Protocol):
    """A loss scale: multiplies the loss, hence all gradients, and writes the operators around the update."""

    def seed(self, loss: StepTensor, update: Update) -> StepTensor:
        """Return the gradient of the loss with respect to itself: the scale."""

    def write(self, trained: Trained, seed: StepTensor, update: Update) -> Sequence[StepTensor]:
        """Write everything behind the gradients; return the outputs of the step behind the loss."""


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
        """Write a Mul with 1 / scale for every gradient, in the optimizer's scope, and the update."""
        trained = update.reduced(trained)
        if self.value != 1:
            with op.at(update.place):
                trained = [(item, gradient * (1 / self.value)) for item, gradient in trained]
        update.write(trained)
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
            trained = [(item, gradient * inverse) for item, gradient in trained]
        trained = update.reduced(trained)
        with op.at(ROOT):
            overflow = update.check.overflow([gradient for _, gradient in trained])
            is_finite = op.Not(overflow)
        with op.at(MANAGER):
            self._change(seed, overflow, is_finite, update.state)
        with op.at(ROOT):
            _update_unless(overflow, lambda: update.write(trained))
        return (overflow,)

    def _change(
        self, scale: StepTensor, overflow: StepTensor, is_finite: StepTensor, state: Variables
    ) -> None:
        step = state("current_iterator_step", np.array(1, np.int32))
        last = state("last_overflow_iterator_step", np.array(0, np.int32))
        shrunk = op.Max(scale * (1 / self.factor), 1.0)
        after_overflow = op.Where(overflow, shrunk, scale)
        grows = op.LessOrEqual(np.array(self.window, np.int32), step - last)
        moved = op.Where(op.Or(overflow, grows), step, last)
        assign(last, moved)
        grown = after_overflow * float(self.factor)
        new = op.Where(op.And(grows, is_finite), grown, after_overflow)
        assign(scale, new)
        assign(step, step + np.array(1, np.int32))


def _update_unless(overflow: StepTensor, update: Callable[[], None]) -> None:
    """Write an If: variables keep their values after an overflow, else the optimizer updates them."""
    before = dict(op.bindings)

    def updated() -> Sequence[StepTensor]:
        update()
        return [value for name, value in op.bindings.items() if before.get(name) is not value]

    otherwise, _ = op.body("else_branch", updated)
    changed = [name for name, value in op.bindings.items() if before.get(name) is not value]
    then, kept = op.body("then_branch", lambda: [op.Identity(op.types[name]) for name in changed])
    results = [replace(item, name=op.value_name("If"), value=None) for item in kept]
    op.emit("If", [overflow], {"then_branch": then, "else_branch": otherwise}, outputs=results)
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
        return options.parsed(choice, LOSS_SCALES, "loss scale")
    return StaticLossScale(float(choice)) if isinstance(choice, (int, float, str)) else choice


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
