"""How a step with a dynamic loss scale finds that its gradients overflow: by the means of each device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from msdump.graph.kernel.emulation import FLOAT32
from msdump.graph.operator_types import CLEAR_FLOAT_STATUS, GET_FLOAT_STATUS
from msdump.plan import DeviceTarget, OverflowMode
from msdump.training.data_parallel import DataParallel
from msdump.training.symbols import StepTensor
from msdump.training.writer import StepWriter


class OverflowCheck(Protocol):
    """Finds whether gradients overflow."""

    def start(self, op: StepWriter) -> None:
        """Write what comes between the loss and the first gradient."""

    def overflow(self, op: StepWriter, gradients: Sequence[StepTensor]) -> StepTensor:
        """Write what comes behind the last gradient; return the flag, a bool scalar."""


class FiniteOneByOneCheck:
    """Looks for infinities and NaNs in each gradient, on CPU and GPU."""

    def start(self, op: StepWriter) -> None:
        """Write nothing."""

    def overflow(self, op: StepWriter, gradients: Sequence[StepTensor]) -> StepTensor:
        """Write a flag of each gradient, and their sum."""
        flags = []
        for gradient in gradients:
            finite = op.call("ReduceAll", op.call("IsFinite", gradient), None, False)
            flag = op.Sub(1.0, op.Cast(finite, to=FLOAT32.onnx))
            flags.append(op.call("Reshape", flag, shape=(1,)))
        total = op.Sum(*flags) if len(flags) > 1 else flags[0]
        overflow: StepTensor = op.LessOrEqual(1.0, op.call("Reshape", total, shape=()))
        return overflow


class AllFiniteCheck:
    """Looks for them by one operator of newer Ascend devices."""

    def start(self, op: StepWriter) -> None:
        """Write nothing."""

    def overflow(self, op: StepWriter, gradients: Sequence[StepTensor]) -> StepTensor:
        """Write the operator, of all gradients."""
        overflow: StepTensor = op.call("AllFinite", *gradients, count=len(gradients))
        return overflow


@dataclass(frozen=True, slots=True)
class FloatStatusCheck:
    """Asks the overflow status of an Ascend in SATURATION_MODE, whose results are never infinite.

    The operators and their order are those of TrainOneStepWithLossScaleCell: the status is lowered after the
    loss, so that it tells of the gradients alone, whose overflow a smaller scale can cure; it is read after
    the last gradient, and lowered for what comes after the step. MindSpore holds them in their places by
    Depend, which is no operator of the compiled graph; here the order of the nodes does.

    Attributes:
        parallel: How gradients are averaged over ranks, whose statuses are added; None: one rank.
    """

    parallel: DataParallel | None = None

    def start(self, op: StepWriter) -> None:
        """Write the operator that lowers the status."""
        op.without_body(CLEAR_FLOAT_STATUS, _zeros(op))

    def overflow(self, op: StepWriter, gradients: Sequence[StepTensor]) -> StepTensor:  # noqa: ARG002 - protocol
        """Write the operators that read the status, of all ranks, and lower it."""
        status = op.without_body(GET_FLOAT_STATUS, _zeros(op))
        if self.parallel is None:
            op.without_body(CLEAR_FLOAT_STATUS, _zeros(op))
            lowered = op.Equal(np.array(0, np.int32), status)
        else:
            lowered = op.Equal(np.array(0, np.int32), self.parallel.total(op, status))
            op.without_body(CLEAR_FLOAT_STATUS, _zeros(op))
        overflow: StepTensor = op.Not(op.call("ReduceAll", lowered, None, False))
        return overflow


def _zeros(op: StepWriter) -> StepTensor:
    """Return what MindSpore feeds to the operators of the status; they do not look at it."""
    return op.constant(np.zeros(8, np.int32))


def overflow_check(device: DeviceTarget, mode: OverflowMode, parallel: DataParallel | None) -> OverflowCheck:
    """Return how a step finds overflows.

    Args:
        device: The device.
        mode: What float16 results beyond the range become, on Ascend.
        parallel: How gradients are averaged over ranks; None: one rank.
    """
    if device is not DeviceTarget.ASCEND:
        return FiniteOneByOneCheck()
    return FloatStatusCheck(parallel) if mode is OverflowMode.SATURATION else AllFiniteCheck()
