"""Casts between element types where every float32 value is held in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.device.precision import numpy_cast
from msdump.execute.operators.float64.definitions import Array, Call, Definition, Kind

HALVES: Final = (dtypes.from_name("float16"), dtypes.BFLOAT16)
_WIDE: Final = (dtypes.from_name("float32"), dtypes.from_name("float64"))


def doubled(array: Array) -> Array:
    """Return an array in float64 where it has a floating point type, else as it is."""
    if array.dtype.kind == "f" or array.dtype in {row.numpy for row in HALVES}:
        return array.astype(np.float64)
    return array


def _cast(call: Call) -> tuple[Array]:
    dtype, x = dtypes.from_onnx(call.attribute("to")), call[0]
    if dtype in _WIDE:
        return (x.astype(np.float64),)
    if dtype in HALVES:  # a model that asks for a smaller type means it: its values are those of the type
        return (numpy_cast(x, dtype).astype(np.float64),)
    if dtype.numpy.kind not in "iub" or x.dtype.kind not in "iubf":
        raise NotImplementedError(f"Cast to {dtype.name}")
    with np.errstate(invalid="ignore"):
        return (x.astype(dtype.numpy),)


def _like(call: Call) -> tuple[Array]:
    if call[1].dtype.kind == "f":
        return (call[0].astype(np.float64),)
    return (call[0].astype(call[1].dtype),)


DEFINITIONS: Final[Mapping[str, Definition]] = {
    "Cast": Definition(_cast, Kind.EXACT),
    "CastLike": Definition(_like, Kind.EXACT),
}
"""Operators that change element types."""
