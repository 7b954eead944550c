"""The arithmetic that a network was computed in: the host's, or an Ascend's in one of its precision modes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from msdump.device.precision import rounding
from msdump.dtypes import DType
from msdump.execute.operators.float64.noise import SINGLE
from msdump.graph.graph import Node
from msdump.graph.kernel.emulation import FLOAT32, Rounding
from msdump.plan import Context, DeviceTarget, OverflowMode, PrecisionMode

UNITS: Final = {"float64": 2.0**-53, "float32": SINGLE, "bfloat16": 2.0**-8, "float16": 2.0**-11}
"""Relative error of one rounding to a type: half the distance of its numbers around 1."""

FLOORS: Final = {"float64": 0.0, "float32": 2.0**-150, "bfloat16": 2.0**-134, "float16": 2.0**-25}
"""Absolute error of one rounding to a type, however small the number: half its smallest subnormal number."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How operators compute.

    Attributes:
        precision: The precision mode of an Ascend; None: as the model says (CPU, GPU).
        overflow: What float16 results beyond the range become on an Ascend.
    """

    precision: PrecisionMode | None = None
    overflow: OverflowMode = OverflowMode.INFNAN

    @classmethod
    def of(cls, context: Context) -> Arithmetic:
        """Return the arithmetic of a device."""
        if context.device_target is not DeviceTarget.ASCEND:
            return cls()
        return cls(context.precision_mode or PrecisionMode.ALLOW_FP32_TO_FP16, context.overflow_mode)

    def roundings(self, node: Node) -> tuple[Rounding, ...] | None:
        """Return how each original operator of a node computes; None: as the model says."""
        if self.precision is None:
            return None
        if node.bodies:  # control flow computes nothing
            return (Rounding(),)
        if node.is_added:  # a Cast of the compiled graph only saturates
            return (rounding("", PrecisionMode.FORCE_FP32, self.overflow),)
        return tuple(rounding(part.operator.op_type, self.precision, self.overflow) for part in node.members)

    def read_type(self, node: Node, slot: int) -> DType:
        """Return the type to which an operator rounds a float32 input before it reads it."""
        name = node.inputs[slot]
        parts = zip(node.members, self.roundings(node) or (), strict=False)
        return next((each.reads for part, each in parts if name in part.inputs), FLOAT32)

    def written(self, node: Node, slot: int) -> Rounding | None:
        """Return how the operator computes that writes an output of a node; None: as the model says."""
        name = node.outputs[slot]
        parts = zip(node.members, self.roundings(node) or (), strict=False)
        return next((each for part, each in parts if name in part.outputs), None)

    def differs(self, node: Node, other: Arithmetic) -> bool:
        """Tell whether a node computes otherwise than in another arithmetic, overflows aside."""
        types = (
            [
                (each.reads, each.writes)
                for each in arithmetic.roundings(node) or (Rounding(),) * len(node.members)
            ]
            for arithmetic in (self, other)
        )
        return next(types) != next(types)

    def __str__(self) -> str:
        """Return it as ``--arithmetic`` takes it."""
        if self.precision is None:
            return "float32"
        saturates = self.overflow is OverflowMode.SATURATION
        return f"Ascend:{self.precision}{f':{self.overflow}' if saturates else ''}"


def candidates() -> Iterator[Arithmetic]:
    """Yield what a device may have computed in, the likeliest first."""
    modes = (
        *(PrecisionMode.ALLOW_FP32_TO_FP16, PrecisionMode.FORCE_FP16, PrecisionMode.ALLOW_FP32_TO_BF16),
        PrecisionMode.FORCE_FP32,
    )
    for mode in modes:
        for overflow in OverflowMode:
            yield Arithmetic(mode, overflow)
    yield Arithmetic()
