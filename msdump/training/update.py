"""From gradients to new variables: mean over ranks, check for overflows, accumulation, clipping, loss scale.

``DistributedGradReducer``, ``TrainOneStepWithLossScaleCell``, ``DynamicLossScaleUpdateCell``, the class
``Accumulator`` of MindSpore's tutorial, ``ops.clip_by_global_norm`` and ``ops.clip_by_value`` have the same
operators. Operators of the construct of a training cell have the scope ``Default``. As in MindSpore, the last
operators of each clipped gradient have the order in which the optimizer reads them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np
import onnx

from msdump.communication import current
from msdump.dtypes import DType
from msdump.errors import InputError
from msdump.graph import CLEAR_FLOAT_STATUS, GET_FLOAT_STATUS
from msdump.graph.kernel import FLOAT32
from msdump.graph.primitives import op
from msdump.plan import DeviceTarget, OverflowMode
from msdump.training import options
from msdump.training.optimizers import Optimizers, Trained, Variables, assign, by_number
from msdump.training.options import OptionRule, Options, Rules
from msdump.training.writer import ROOT, StepTensor


def cast(tensor: StepTensor, dtype: DType) -> StepTensor:
    """Write a Cast, unless the tensor has the type; return the result."""
    return tensor if tensor.dtype is dtype else op.Cast(tensor, to=dtype.onnx)


Write = Callable[[], None]
"""Writes operators, and binds variables to new values."""


def update_if(condition: StepTensor, *, then: Write | None = None, otherwise: Write) -> None:
    """Write an If with branches that give variables new values; without a new one a variable keeps its value.

    One branch may be missing. If both are given, ``then`` binds each variable that ``otherwise`` binds.
    """
    before = dict(op.bindings)
    changed: list[str] = []

    def body(write: Write | None) -> tuple[onnx.GraphProto, Sequence[StepTensor]]:
        def results() -> Sequence[StepTensor]:
            if write:
                write()
            new = {name: value for name, value in op.bindings.items() if before.get(name) is not value}
            changed.extend(name for name in new if name not in changed)
            return [
                new[name] if name in new else op.Identity(before.get(name, op.types[name]))
                for name in changed
            ]

        op.bindings = dict(before)
        return op.body("then_branch" if write is then else "else_branch", results)

    # the branch that binds most variables comes first: the other one returns as many
    first, second = (then, otherwise) if then else (otherwise, then)
    written = {write: body(write) for write in (first, second)}
    (then_graph, _), (else_graph, values) = written[then], written[otherwise]
    results = [replace(item, name=op.value_name("If"), value=None) for item in values]
    op.emit("If", [condition], {"then_branch": then_graph, "else_branch": else_graph}, outputs=results)
    op.bindings = before | dict(zip(changed, results, strict=True))


PLACE = ROOT.inside(("grad_reducer", "DistributedGradReducer"))


@dataclass(frozen=True, slots=True)
class DataParallel:
    """How gradients are averaged."""

    ranks: int
    bucket_bytes: int = 0  # largest size of gradients that are reduced together, 0: each gradient by itself
    group: str = "hccl_world_group"  # name of the group of ranks

    def write(self, trained: Trained) -> Trained:
        """Write the operators that average gradients; return (parameter, averaged gradient) pairs."""
        with op.at(PLACE):
            means: list[StepTensor] = []
            for bucket in self._buckets([gradient for _, gradient in trained]):
                if len(bucket) == 1:
                    means.append(self._mean(bucket[0]))
                    continue
                flat = op.Concat(*(op.call("Reshape", item, shape=(-1,)) for item in bucket), axis=0)
                lengths = [math.prod(item.sizes()) for item in bucket]
                parts = op.Split(self._mean(flat), lengths, axis=0, outputs=len(bucket))
                means += (
                    op.call("Reshape", part, like=item, shape=item.sizes())
                    for part, item in zip(parts, bucket, strict=True)
                )
        return [(variable, mean) for (variable, _), mean in zip(trained, means, strict=True)]

    def _buckets(self, gradients: Sequence[StepTensor]) -> Iterator[list[StepTensor]]:
        """Yield buckets: consecutive gradients of one type; a gradient above the size has its own bucket."""
        bucket: list[StepTensor] = []
        size = 0
        for gradient in gradients:
            length = math.prod(gradient.sizes()) * gradient.dtype.numpy.itemsize
            if bucket and (size + length > self.bucket_bytes or gradient.dtype is not bucket[0].dtype):
                yield bucket
                bucket, size = [], 0
            bucket.append(gradient)
            size += length
        if bucket:
            yield bucket

    def _mean(self, gradient: StepTensor) -> StepTensor:
        return by_number("Mul", self.total(gradient), 1.0 / self.ranks)

    def total(self, tensor: StepTensor) -> StepTensor:
        """Write the sum of a tensor over the ranks."""
        return op.without_body("AllReduce", tensor, op="sum", group=self.group)


def data_parallel_of(choice: bool | int | DataParallel) -> DataParallel | None:  # noqa: FBT001 - on, off, or how
    """Return how gradients are averaged: True: over the ranks of this run, False: None, no averaging."""
    if isinstance(choice, DataParallel):
        return choice
    if choice is False:
        return None
    ranks = current().identity.size if choice is True else choice
    if ranks < 1:
        raise InputError(f"data_parallel={choice}: must be a number of ranks from 1")
    return DataParallel(ranks)


@dataclass(frozen=True, slots=True)
class OverflowCheck:
    """The check of gradients for overflows, as a device has it.

    CPU and GPU look for infinities and NaNs in each gradient, newer Ascend devices in all of them by one
    operator, AllFinite. In SATURATION_MODE no result is infinite, and an Ascend has a status. Operators and
    order are TrainOneStepWithLossScaleCell's: the status is lowered after the loss, because a smaller scale
    can cure an overflow of gradients alone; it is read after the last gradient, and lowered for the operators
    behind the step. MindSpore orders these operators by Depend, which is no operator of the compiled graph;
    the step graph by the order of nodes. The statuses of ranks are added.
    """

    device: DeviceTarget
    mode: OverflowMode
    parallel: DataParallel | None = None

    @property
    def has_status(self) -> bool:
        """Whether the device has a status of overflows."""
        return self.device is DeviceTarget.ASCEND and self.mode is OverflowMode.SATURATION

    def start(self) -> None:
        """Write the operators between the loss and the first gradient: the one that lowers the status."""
        if self.has_status:
            op.without_body(CLEAR_FLOAT_STATUS, _zeros())

    def overflow(self, gradients: Sequence[StepTensor]) -> StepTensor:
        """Write the operators behind the last gradient; return whether any has an overflow, a bool scalar."""
        if self.has_status:
            status = op.without_body(GET_FLOAT_STATUS, _zeros())
            if self.parallel is None:
                op.without_body(CLEAR_FLOAT_STATUS, _zeros())
                lowered = op.Equal(np.array(0, np.int32), status)
            else:
                lowered = op.Equal(np.array(0, np.int32), self.parallel.total(status))
                op.without_body(CLEAR_FLOAT_STATUS, _zeros())
            return op.Not(op.call("ReduceAll", lowered, None, False))
        if self.device is DeviceTarget.ASCEND:
            return op.call("AllFinite", *gradients, count=len(gradients))
        flags = []
        for gradient in gradients:
            finite = op.call("ReduceAll", op.call("IsFinite", gradient), None, False)
            flag = 1.0 - op.Cast(finite, to=FLOAT32.onnx)
            flags.append(op.call("Reshape", flag, shape=(1,)))
        total = op.Sum(*flags) if len(flags) > 1 else flags[0]
        return op.LessOrEqual(1.0, op.call("Reshape", total, shape=()))


def _zeros() -> StepTensor:
    # MindSpore feeds them to the operators of the status, which ignore them
    return op.constant(np.zeros(8, np.int32))


@dataclass(frozen=True, slots=True)
class Accumulation(Options):
    """The optimizer takes the sum of the gradients of several steps.

    The variables are ``accumulate_.{parameter}``, zeros before the first step, ``zeros_.{parameter}``, which
    stay zeros, and ``counter_``, the number of the step, from 1. A step that a dynamic loss scale leaves out
    is not counted.
    """

    steps: float = 0  # number of steps between two updates; it must be given
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


Limit = Callable[[StepTensor], StepTensor]
"""Writes the operators that limit one gradient; returns it."""


@dataclass(frozen=True, slots=True)
class ClipByGlobalNorm(Options):
    """Scales all gradients by one factor, so that the norm of all elements together is at most a limit.

    The squares of half types are summed in their own type, and the sums of all gradients in float32, as
    MindSpore does it. An infinite norm makes finite gradients 0 and infinite ones NaN; a NaN in any gradient
    leaves all gradients as they are.
    """

    clip_norm: float = 1.0  # the largest norm
    rules: ClassVar[Rules] = {"clip_norm": options.above(0)}

    def write(self, gradients: Sequence[StepTensor]) -> Limit:
        """Write the norm of all gradients; the function writes a product and a quotient."""
        limit = op.constant(np.array([self.clip_norm], np.float32))
        squares = []
        for gradient in gradients:
            total = op.ReduceSum(op.call("Square", gradient), keepdims=0)
            squares.append(op.Unsqueeze(cast(total, FLOAT32), (0,)))
        norm = op.Sqrt(op.Sum(*squares) if len(squares) > 1 else squares[0])
        divisor = op.Where(op.GreaterOrEqual(norm, limit), norm, limit)

        def scaled(gradient: StepTensor) -> StepTensor:
            quotient = by_number("Div", by_number("Mul", gradient, limit), divisor)
            return cast(quotient, gradient.dtype)

        return scaled


@dataclass(frozen=True, slots=True)
class ClipByValue(Options):
    """Raises smaller elements of each gradient to a lowest value, and lowers larger ones to a highest."""

    clip_value_min: float = -math.inf  # the lowest value; minus infinity: none
    clip_value_max: float = math.inf  # the highest value; infinity: none

    def __post_init__(self) -> None:
        """Refuse (InputError) a range without a limit, and an empty one."""
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


@dataclass(frozen=True, slots=True)
class Update:
    """The update of the parameters: the part of a training step between scaled gradients and new variables.

    Its parts follow one another: mean over ranks, check for overflow, accumulation, clipping, optimizer. Loss
    scales write the products and the condition between them.
    """

    optimizers: Optimizers
    parallel: DataParallel | None  # mean of the gradients over all ranks; None: one rank
    state: Variables  # adds a variable to the step, by name and first value
    check: OverflowCheck  # detects overflows of gradients
    # collects the gradients of several steps; None: each step has an update
    accumulation: Accumulation | None
    clipping: Clipping | None  # limits the gradients that the optimizer takes; None: no limit

    def reduced(self, trained: Trained) -> Trained:
        """Write the mean of the gradients over all ranks; return the parameters with it."""
        return trained if self.parallel is None else self.parallel.write(trained)

    def write(self, trained: Trained, scale: float = 1.0) -> None:
        """Write the operators behind the check for overflow, the optimizers' last."""
        if scale != 1 and (self.accumulation or self.clipping):
            with op.at(ROOT):
                trained = [(item, by_number("Mul", gradient, 1 / scale)) for item, gradient in trained]
            scale = 1.0
        if self.accumulation is None:
            self._optimize(trained, scale)
        else:
            with op.at(ROOT):
                self.accumulation.write(trained, self.state, self._optimize)

    def _optimize(self, trained: Trained, scale: float = 1.0) -> None:
        if self.clipping is not None and trained:
            with op.at(ROOT):
                limit = self.clipping.write([gradient for _, gradient in trained])
                limited = {item.name: limit(gradient) for item, gradient in self.optimizers.in_order(trained)}
            trained = [(item, limited[item.name]) for item, _ in trained]
        self.optimizers.write(trained, self.state, scale)


MANAGER: Final = ROOT.inside(("loss_scaling_manager", "DynamicLossScaleUpdateCell"))


@dataclass(frozen=True, slots=True)
class StaticLossScale(Options):
    """A constant scale, as ``loss_scale`` of MindSpore's optimizers, which divide the gradients by it."""

    value: float = 1.0  # the scale; 1 changes nothing
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
    """

    value: float = 2.0**24  # the first scale
    factor: float = 2.0  # factor of growth, divisor after an overflow
    window: float = 2000.0  # number of steps without overflow after which it grows
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
