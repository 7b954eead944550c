"""Checks of gradients for overflows in a step with a dynamic loss scale; they depend on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from msdump.graph import CLEAR_FLOAT_STATUS, GET_FLOAT_STATUS
from msdump.graph.kernel import FLOAT32
from msdump.graph.primitives import op
from msdump.plan import DeviceTarget, OverflowMode
from msdump.training.data_parallel import DataParallel
from msdump.training.writer import StepTensor


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
