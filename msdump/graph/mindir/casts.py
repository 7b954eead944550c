"""The casts that MindSpore's CPU backend inserts, since many of its kernels have no float16.

Such a kernel takes and gives float32. Its result keeps the declared type in names and files, and kernels of
the same kind read it as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from msdump import dtypes
from msdump.dtypes import DType
from msdump.graph.graph import ValueType
from msdump.graph.mindir.kernels import (
    PASSING,
    PICKING,
    TUPLES,
    Constant,
    Kernel,
    Operand,
    flattened,
    is_monad,
    source,
)

_FLOAT16: Final = dtypes.from_name("float16")
_FLOAT32: Final = dtypes.from_name("float32")
_INT32: Final = dtypes.from_name("int32")
_CONVERTED: Final = frozenset(map(dtypes.from_name, ("float16", "float32", "int32", "int64", "bfloat16")))

_WIDE: Final[Mapping[str, range | frozenset[int]]] = {
    **{name: range(count) for count, names in {
        1: "Abs Atanh Ceil Exp Floor GeLU HSigmoid LRN LogSoftmax LpNorm Mish ReLU6 Reciprocal ReduceMax "
           "ReduceMean ReduceMin ReduceProd ReduceSum Round Softplus Softsign Square StridedSlice "
           "StridedSliceGrad Tan Tanh",
        2: "BatchMatMul BiasAdd CeLU Conv2D Conv2DBackpropInput Conv3D Elu EluGrad HShrink LogSoftmaxGrad "
           "MatMul Minimum Pow ReLU6Grad RealDiv SoftShrink SoftmaxCrossEntropyWithLogits SoftplusGrad "
           "SqrtGrad TanhGrad",
        3: "AvgPoolGrad GeLUGrad MaxPoolGrad SmoothL1Loss",
        4: "BCEWithLogitsLoss LSTM",
    }.items() for name in names.split()},
    "BatchNorm": frozenset({0, 1, 2, 3, 4, 6, 7}),
    "BatchNormGrad": frozenset({0, 1, 2, 3, 4, 5, 7}),
    "ScatterNd": frozenset({1}),
}  # fmt: skip
"""Kernels without float16, and the slots of their operands that are float32."""

_INT32_SLOTS: Final = {"TopK": 1, "CumulativeLogsumexp": 1}
"""Slots of numbers that a kernel takes as int32."""


def insert_casts(kernels: Sequence[Kernel], results: list[Operand], handed: Collection[Operand] = ()) -> None:
    """Put a Cast in front of each operand that a kernel takes in another type than it has, in place.

    A single result that has another type on the device than by declaration is cast back. ``handed``: kernels
    with results that go to another graph as they are, and so are held as declared.
    """
    for kernel in kernels:
        if not kernel.runs or kernel.is_cast:
            continue
        kernel.device = _declared(kernel) if kernel in handed else _on_device(kernel)
        slot, operands = 0, []
        for item in kernel.inputs:
            members = [] if is_monad(item) else flattened(item)  # a tuple takes several slots
            made = [_cast(kernel, slot + place, member) for place, member in enumerate(members)]
            slot += len(members)
            if made == members:
                operands.append(item)
            else:
                whole = Kernel("MakeTuple", "", made, (None,) * len(made), runs=False)
                operands.append(made[0] if len(made) == 1 else whole)
        kernel.inputs = operands
    results[:] = [_cast_back(item) for item in results]


def _declared(item: Operand) -> DType | None:
    return None if item.type is None else item.type.dtype


def _cast(kernel: Kernel, slot: int, item: Operand) -> Operand:
    has, wants = _on_device(item), _wanted(kernel, slot, item)
    if wants is None or has is None or has is wants or not {has, wants} <= _CONVERTED:
        return item
    return _new_cast(kernel.scope, item, wants)


def _new_cast(scope: str, item: Operand, dtype: DType) -> Kernel:
    shape = None if item.type is None else item.type.shape
    return Kernel("Cast", scope, [item], (ValueType(dtype, shape),), is_new=True, device=dtype, is_cast=True)


def _wanted(kernel: Kernel, slot: int, item: Operand) -> DType | None:
    declared = _declared(item)
    if slot in _WIDE.get(kernel.op_type, ()):
        return _FLOAT32 if declared is _FLOAT16 else None
    is_index = kernel.op_type == "Gather" and slot == 1 and isinstance(item, Constant)
    if is_index or _INT32_SLOTS.get(kernel.op_type) == slot:
        return _INT32
    return declared if declared in {_FLOAT16, _FLOAT32} else None


def _on_device(item: Operand) -> DType | None:
    """Return the element type that an operand has on the device."""
    declared = _declared(item)
    if not isinstance(item, Kernel) or item.device is not None:
        return item.device if isinstance(item, Kernel) else declared
    if item.op_type in PASSING:
        return _on_device(item.inputs[0])
    if item.op_type == "Histogram":  # vendor: it declares the element type of its input
        return _INT32
    maker = source(item, PICKING)
    is_wide = isinstance(maker, Kernel) and maker.op_type in _WIDE
    return _FLOAT32 if is_wide and declared is _FLOAT16 else declared


def _cast_back(item: Operand) -> Operand:
    if not isinstance(item, Kernel) or item.op_type in TUPLES:
        return item
    if item.op_type == "Depend":
        inner = _cast_back(item.inputs[0])
        return item if inner is item.inputs[0] else replace(item, inputs=[inner, *item.inputs[1:]])
    declared = _declared(item)
    return item if declared is None or _on_device(item) is declared else _new_cast("Default", item, declared)
