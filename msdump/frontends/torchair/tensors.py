"""Conversion between torch's tensors and numpy's arrays, with the element types of ``ml_dtypes``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import ml_dtypes
import numpy as np
import torch

from msdump.errors import InputError

_CARRIERS: Final[dict[torch.dtype, tuple[torch.dtype, Any]]] = {
    torch.bfloat16: (torch.int16, ml_dtypes.bfloat16),
    torch.float8_e4m3fn: (torch.int8, ml_dtypes.float8_e4m3fn),
    torch.float8_e4m3fnuz: (torch.int8, ml_dtypes.float8_e4m3fnuz),
    torch.float8_e5m2: (torch.int8, ml_dtypes.float8_e5m2),
    torch.float8_e5m2fnuz: (torch.int8, ml_dtypes.float8_e5m2fnuz),
}
"""Types that torch does not hand to numpy: the integer that carries their bits, and numpy's type."""

_TORCH_TYPES: Final = {np.dtype(dtype): torch_dtype for torch_dtype, (_, dtype) in _CARRIERS.items()}


def to_array(tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor's values as a contiguous array on the host.

    Raises:
        InputError: A sparse or quantised tensor.
    """
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise InputError(
            f"a tensor of layout {tensor.layout} and type {tensor.dtype} cannot be fed; "
            "dense tensors are allowed: convert it with .to_dense() or .dequantize()"
        )
    # a conjugate or negative may be a flag on the original's memory, which numpy does not know
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    carrier_and_dtype = _CARRIERS.get(plain.dtype)
    if carrier_and_dtype is None:
        array: np.ndarray = plain.numpy()
        return array
    carrier, dtype = carrier_and_dtype
    bits: np.ndarray = plain.view(carrier).numpy()
    return bits.view(dtype)


def from_array(array: np.ndarray, stride: Sequence[int], device: torch.device) -> torch.Tensor:
    """Return an array's values as a tensor of its own memory.

    Args:
        array: The values.
        stride: Steps between elements, as eager execution lays the tensor out.
        device: Where the tensor lies.
    """
    dtype = _TORCH_TYPES.get(array.dtype)
    contents = np.array(array, order="C", copy=True)
    if dtype is None:
        plain = torch.from_numpy(contents)
    else:
        plain = torch.from_numpy(contents.view(np.dtype(f"i{contents.itemsize}"))).view(dtype)
    plain = plain.to(device)
    if tuple(stride) == plain.stride():
        return plain
    # Along an expanded dimension, stride 0, all elements are one: it is written once.
    sizes = [size if step else min(size, 1) for size, step in zip(plain.shape, stride, strict=True)]
    distinct = plain[tuple(slice(size) for size in sizes)]
    laid_out = torch.empty_strided(sizes, tuple(stride), dtype=plain.dtype, device=device).copy_(distinct)
    return laid_out.expand(plain.shape)
