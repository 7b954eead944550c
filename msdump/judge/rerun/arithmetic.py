"""The arithmetic of a side: the types that its operators read and write, and numbers rounded to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.device import rounded, rounding
from msdump.dtypes import DType
from msdump.errors import FormatError
from msdump.execute import SINGLE
from msdump.graph import Node
from msdump.graph.kernel import FLOAT32, HALVES, Rounding
from msdump.judge import errors
from msdump.plan import Context, DeviceTarget, OverflowMode, PrecisionMode

PRECISION_MODES: Final = (
    PrecisionMode.ALLOW_FP32_TO_FP16,
    PrecisionMode.FORCE_FP16,
    PrecisionMode.ALLOW_FP32_TO_BF16,
    PrecisionMode.FORCE_FP32,
)
"""Precision modes of a device, the likeliest first."""


UNITS: Final = {"float64": 2.0**-53, "float32": SINGLE, "bfloat16": 2.0**-8, "float16": 2.0**-11}
"""Relative error of one rounding to a type: half the distance of its numbers around 1."""


FLOORS: Final = {"float64": 0.0, "float32": 2.0**-150, "bfloat16": 2.0**-134, "float16": 2.0**-25}
"""Absolute error of one rounding to a type, however small the number: half its smallest subnormal number."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The arithmetic of operators."""

    # the precision mode of an Ascend; None: as the model says (CPU, GPU)
    precision: PrecisionMode | None = None
    overflow: OverflowMode = OverflowMode.INFNAN  # result of float16 beyond the range on an Ascend
    is_wide: bool = False  # whether every float32 operator computes in float64

    @classmethod
    def of(cls, context: Context) -> Arithmetic:
        """Return the arithmetic of a device."""
        if context.device_target is not DeviceTarget.ASCEND:
            return cls()
        return cls(context.precision_mode or PrecisionMode.ALLOW_FP32_TO_FP16, context.overflow_mode)

    def roundings(self, node: Node) -> tuple[Rounding, ...] | None:
        """Return the rounding of each part of a node; None: computed in the model's types."""
        if self.precision is None:
            return None
        if node.bodies:  # control flow does not round
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
        """Return the rounding of the part that writes an output of a node; None: in the model's type."""
        name = node.outputs[slot]
        parts = zip(node.members, self.roundings(node) or (), strict=False)
        return next((each for part, each in parts if name in part.outputs), None)

    def differs(self, node: Node, other: Arithmetic) -> bool:
        """Return whether a node reads or writes other types than in another arithmetic, overflows aside."""
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
            return "float64" if self.is_wide else "float32"
        saturates = self.overflow is OverflowMode.SATURATION
        return f"Ascend:{self.precision}{f':{self.overflow}' if saturates else ''}"


def candidates() -> Iterator[Arithmetic]:
    """Yield each arithmetic that a device may have, the likeliest first."""
    for mode in PRECISION_MODES:
        yield from (Arithmetic(mode, overflow) for overflow in OverflowMode)
    yield Arithmetic()


_FLOATS = (*HALVES, dtypes.from_name("float32"), dtypes.from_name("float64"))
"""Floating-point types from the narrowest to the widest; float16 and bfloat16 do not contain each other."""


def type_named(name: str, array: np.ndarray) -> DType:
    """Return the element type by its name in the dump; for an unknown name, the array's."""
    try:
        return dtypes.from_name(name.lower())
    except FormatError:
        return dtypes.from_numpy(array.dtype)


def in_type(array: np.ndarray, dtype: DType, *, saturates: bool = False) -> np.ndarray:
    """Return a floating-point tensor converted to a type, rounded if narrower; other tensors unchanged."""
    held = dtypes.from_numpy(array.dtype)
    if held is dtype or dtype not in _FLOATS or held not in _FLOATS:
        return array
    if held is _FLOATS[-1] and dtype in HALVES:
        array = array.astype(np.float32)
    with np.errstate(over="ignore"):
        return rounded(array, dtype, saturates=saturates)


def _rounded_forms(array: np.ndarray, dtype: DType) -> Iterator[np.ndarray]:
    """Yield a flat array rounded to a type, with infinities beyond float16's range or without."""
    yield in_type(array, dtype).reshape(-1)
    if dtype is HALVES[0]:
        yield in_type(array, dtype, saturates=True).reshape(-1)


def is_rounded(held: np.ndarray, other: np.ndarray, dtype: DType) -> bool:
    """Return whether a tensor has the elements of another one, rounded to a type."""
    held_type = dtypes.from_numpy(held.dtype)
    return held.size == other.size and any(
        _has_same_bits(held.reshape(-1), in_type(form, held_type)) for form in _rounded_forms(other, dtype)
    )


def is_same(one: np.ndarray, other: np.ndarray, dtype: DType) -> bool:
    """Return whether two tensors have the same elements once both are rounded to a type; NaN equals NaN."""
    pairs = zip(_rounded_forms(one, dtype), _rounded_forms(other, dtype), strict=True)
    return one.size == other.size and any(_has_same_bits(*pair) for pair in pairs)


def narrower(one: DType, other: DType) -> DType:
    """Return the narrower of two element types; the first where they cannot be compared."""
    if one in _FLOATS and other in _FLOATS:
        return min(one, other, key=lambda dtype: (dtype.numpy.itemsize, dtype is not one))
    return one


def _has_same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype != b.dtype:
        if a.dtype.kind in "iub" and b.dtype.kind in "iub":  # devices may widen or narrow integers
            return bool(np.array_equal(a, b))
        return False
    if a.dtype == object or a.dtype.kind == "c":
        return bool(np.array_equal(a, b))
    if errors.are_same(a, b):
        return True
    kind = f"u{a.dtype.itemsize}"
    unlike = np.ascontiguousarray(a).view(kind) != np.ascontiguousarray(b).view(kind)
    x, y = a[unlike], b[unlike]
    return bool(np.all((x != x) & (y != y)))  # noqa: PLR0124 - NaN


def may_be_rounded(array: np.ndarray, weight: np.ndarray) -> bool:
    """Return whether an array has the elements of a weight, as they are or rounded to 16 bits."""
    held = dtypes.from_numpy(array.dtype)
    return is_same(array, weight, held) or any(is_rounded(array, weight, half) for half in HALVES)


def in_declared_type(array: np.ndarray, declared: dtypes.DType | None) -> np.ndarray:
    """Return an array in the type that the model declares, which may be wider than the device's."""
    if declared is None or array.dtype == declared.numpy:
        return array
    converted = in_type(array, declared)
    if converted.dtype == declared.numpy:
        return converted
    if array.dtype.kind in "iub" and declared.numpy.kind in "iub":
        return array.astype(declared.numpy)
    raise FormatError(f"{array.dtype} where the model has {declared.name}")
