"""Element types that the emulated Ascend computes in, by precision mode.

Results are defined as float32 arithmetic on rounded inputs, rounded again:
an operator's float inputs are rounded to the type it reads, the operator runs
in float32, and its float outputs are rounded to the type it writes. Rounding is
to nearest, ties to even.

    mode                      float32 inputs read as            float32 outputs written as
    allow_fp32_to_fp16        float16 by cube operators         float32
    allow_fp32_to_bf16        bfloat16 by cube operators        float32
    force_fp16                float16 by every operator         float16
    force_fp32                float32                           float32
    must_keep_origin_dtype    float32                           float32
    allow_mix_precision[_fp16|_bf16]                            see mixed_precision

The modes are those of CANN's ``precision_mode``; the first one is MindSpore's default on Ascend.
float16 and bfloat16 tensors of the model are read and written as what they are
in every mode. Cube operators are convolutions and matrix products.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from msdump.dtypes import BFLOAT16, DType
from msdump.graph.kernel.emulation import FLOAT16, FLOAT16_MOST, FLOAT32, HALVES, OVERFLOWS_FROM, Rounding
from msdump.plan import OverflowMode, PrecisionMode

# types of cube operators only; force_fp16, which every operator obeys, is none of these
_NARROW: Final[Mapping[PrecisionMode, DType]] = {
    PrecisionMode.ALLOW_FP32_TO_FP16: FLOAT16,
    PrecisionMode.ALLOW_FP32_TO_BF16: BFLOAT16,
}

_CONVERTED: Final = (FLOAT32, *HALVES)

CUBE_OPS: Final = frozenset(
    {
        *("Conv2D", "Conv3D", "Conv2DTranspose", "Conv3DTranspose", "DepthwiseConv2dNative"),
        *("Conv2DOfNHWC", "Conv3DOfNDHWC", "DepthwiseConv2dNativeOfNHWC"),
        *("Conv2DTransposeOfSize", "Conv2DTransposeOfNHWC", "Conv2DTransposeOfSizeOfNHWC"),
        *("Conv3DTransposeOfSize", "Conv3DTransposeOfNDHWC", "Conv3DTransposeOfSizeOfNDHWC"),
        *("MatMul", "BatchMatMul", "Dense"),
        *("Conv2DBackpropInput", "Conv2DBackpropFilter", "Conv3DBackpropInput", "Conv3DBackpropFilter"),
    }
)
"""Primitives that the matrix unit computes."""


def rounding(
    primitive: str, mode: PrecisionMode, overflow: OverflowMode, *, reports: bool = False
) -> Rounding:
    """Return how an operator computes.

    Args:
        primitive: Its MindSpore name.
        mode: The precision mode.
        overflow: The overflow mode.
        reports: Whether saturation is to be told (``op_debug_mode`` 3, ``NPUGetFloatStatusV2``).
    """
    saturates = overflow is OverflowMode.SATURATION
    # without saturation the results themselves show the overflow: infinities and NaN
    reports = reports and saturates
    if mode is PrecisionMode.FORCE_FP16:
        return Rounding(FLOAT16, FLOAT16, saturates, reports)
    narrow = _NARROW.get(mode) if primitive in CUBE_OPS else None
    return Rounding(narrow or FLOAT32, FLOAT32, saturates, reports)


def numpy_cast(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Return a float array in another float type, rounded to nearest, ties to even."""
    with np.errstate(over="ignore", invalid="ignore"):  # an infinity is the documented result
        return array.astype(dtype.numpy)


cast: Callable[[np.ndarray, DType], np.ndarray] = numpy_cast
"""Converts between float types; replaced where something faster than numpy is at hand."""


def held_type(device: DType | None, host: DType) -> DType:
    """Return the element type in which the device holds a tensor of a host type.

    Only float types are converted between host and device; the others travel as they are.

    Args:
        device: The type in which the operator reads or writes it, None where that is not known.
        host: The type of its elements on the host.
    """
    if device is None or device is host or device not in _CONVERTED or host not in _CONVERTED:
        return host
    return device


def rounded(array: np.ndarray, dtype: DType, *, saturates: bool = False) -> np.ndarray:
    """Return a float array in a device type.

    Args:
        array: Values of float32 or a smaller type.
        dtype: float32, float16 or bfloat16.
        saturates: Keep float16 within its range and turn NaN into 0.

    >>> rounded(np.array([1 / 3, 1e6], np.float32), FLOAT16).tolist()
    [0.333251953125, inf]
    >>> rounded(np.array([np.nan, 1e6], np.float32), FLOAT16, saturates=True).tolist()
    [0.0, 65504.0]
    """
    if array.dtype == dtype.numpy:
        return array
    if saturates and dtype is FLOAT16:
        # clip keeps NaN, which the device's saturation mode turns into 0
        array = np.nan_to_num(np.clip(array, -FLOAT16_MOST, FLOAT16_MOST), nan=0.0)
    return cast(array, dtype)


def overflows(array: np.ndarray) -> bool:
    """Tell whether a float array has a value that float16 cannot hold: NaN, or one beyond its range."""
    if array.size == 0:
        return False
    # two reductions without a temporary array; a comparison with NaN is false, so NaN counts as beyond
    within = array.min() > -OVERFLOWS_FROM and array.max() < OVERFLOWS_FROM
    return not within
