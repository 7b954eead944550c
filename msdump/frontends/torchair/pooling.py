"""ATen's poolings and paddings without a counterpart in ONNX: gradients, and averages of a given divisor.

An average pooling is linear in each dimension: its gradient is a product with a matrix (averages, elements),
which has 1 where an element belongs to an average.
"""
# ruff: noqa: ARG001, FBT001, FBT002, PLR0917 - the operators' own parameters

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

_aten = torch.ops.aten


def spread(item: Sequence[int], rank: int) -> list[int]:
    """Return one number for each dimension, where a single one may stand for all."""
    return list(item) * rank if len(item) == 1 else list(item)


def max_pool_backward(
    rank: int,
    grad: Tensor,
    data: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor:
    """Return the gradient of a maximum pooling over ``rank`` dimensions."""
    return adaptive_max_pool_backward(rank, grad, data, indices)


def adaptive_max_pool_backward(rank: int, grad: Tensor, data: Tensor, indices: Tensor) -> Tensor:
    """Return the gradient of maxima: each element goes to where its maximum was."""
    flat = data.new_zeros([*data.shape[:-rank], math.prod(data.shape[-rank:])])
    added = flat.scatter_add(-1, indices.flatten(-rank), grad.flatten(-rank))
    return added.reshape(data.shape)


def avg_pool2d(
    data: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Return an average pooling of a given divisor; NotImplemented for one without, which ONNX has."""
    if divisor_override is None:
        return NotImplemented
    kernel = spread(kernel_size, 2)
    steps = spread(stride, 2) if stride else kernel
    plain: Tensor = _aten.avg_pool2d(data, kernel, steps, padding, ceil_mode)
    # the plain pooling has divided by these counts, the elements and the padding in each window
    rows, columns = (
        _averages(*item, counts_padding=True, like=data)[1]
        for item in zip(plain.shape[-2:], data.shape[-2:], kernel, steps, spread(padding, 2), strict=True)
    )
    return plain * (rows * columns.t() / divisor_override)


def avg_pool_backward(
    rank: int,
    grad: Tensor,
    data: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    """Return the gradient of an average pooling over ``rank`` dimensions."""
    kernel, pads = spread(kernel_size, rank), spread(padding, rank)
    steps = spread(stride, rank) if stride else kernel
    dimensions = [
        _averages(*item, counts_padding=count_include_pad, like=grad)
        for item in zip(grad.shape[-rank:], data.shape[-rank:], kernel, steps, pads, strict=True)
    ]
    shares = [inside if divisor_override else inside / count for inside, count in dimensions]
    return _to_elements(grad / (divisor_override or 1), shares)


def adaptive_avg_pool_backward(rank: int, grad: Tensor, data: Tensor) -> Tensor:
    """Return the gradient of an average pooling to a given size."""
    sizes = zip(grad.shape[-rank:], data.shape[-rank:], strict=True)
    dimensions = [_adaptive_averages(*item, like=grad) for item in sizes]
    return _to_elements(grad, [inside / count for inside, count in dimensions])


def _to_elements(grad: Tensor, shares: Sequence[Tensor]) -> Tensor:
    """Return the gradient of the elements, by a matrix (averages, elements) for each dimension."""
    for dim, share in enumerate(shares, start=-len(shares)):
        grad = (grad.transpose(dim, -1) @ share).transpose(dim, -1)
    return grad


def _averages(
    averages: int, size: int, kernel: int, step: int, pad: int, *, counts_padding: bool, like: Tensor
) -> tuple[Tensor, Tensor]:
    """Return which of ``size`` elements each average is of, (averages, size), and how many, (averages, 1)."""
    start = torch.arange(averages, device=like.device).unsqueeze(1) * step - pad
    end = (start + kernel).clamp(max=size + pad)
    low, high = start.clamp(min=0), end.clamp(max=size)
    count = end - start if counts_padding else high - low
    return _between(low, high, size, like), count.to(like.dtype)


def _adaptive_averages(averages: int, size: int, *, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return the same as ``_averages`` for a pooling to a given number of averages, by torch's rule."""
    index = torch.arange(averages, device=like.device).unsqueeze(1)
    low = index * size // averages
    high = ((index + 1) * size + averages - 1) // averages  # rounded up
    return _between(low, high, size, like), (high - low).to(like.dtype)


def _between(low: Tensor, high: Tensor, size: int, like: Tensor) -> Tensor:
    """Return a matrix (len(low), size) with 1 from each ``low`` up to ``high``, else 0."""
    index = torch.arange(size, device=like.device)
    return ((index >= low) & (index < high)).to(like.dtype)


def replication_pad_backward(rank: int, grad: Tensor, data: Tensor, padding: Sequence[int]) -> Tensor:
    """Return the gradient of a padding by the border's elements, ``padding`` from the last dimension on."""
    shares = []
    for dim, size in enumerate(data.shape[-rank:], start=1):
        before = padding[2 * (rank - dim)]
        source = (torch.arange(grad.shape[dim - rank - 1], device=grad.device) - before).clamp(0, size - 1)
        shares.append((source[:, None] == torch.arange(size, device=grad.device)).to(grad.dtype))
    return _to_elements(grad, shares)


DECOMPOSITIONS: Final[dict[Any, Callable[..., Any]]] = {
    _aten.max_pool2d_with_indices_backward.default: partial(max_pool_backward, 2),
    _aten.max_pool3d_with_indices_backward.default: partial(max_pool_backward, 3),
    _aten.adaptive_max_pool2d_backward.default: partial(adaptive_max_pool_backward, 2),
    _aten.adaptive_max_pool3d_backward.default: partial(adaptive_max_pool_backward, 3),
    _aten.avg_pool2d.default: avg_pool2d,
    _aten.avg_pool2d_backward.default: partial(avg_pool_backward, 2),
    _aten.avg_pool3d_backward.default: partial(avg_pool_backward, 3),
    _aten._adaptive_avg_pool2d_backward.default: partial(adaptive_avg_pool_backward, 2),  # noqa: SLF001 - torch's name
    _aten._adaptive_avg_pool3d_backward.default: partial(adaptive_avg_pool_backward, 3),  # noqa: SLF001 - torch's name
    _aten.replication_pad1d_backward.default: partial(replication_pad_backward, 1),
    _aten.replication_pad2d_backward.default: partial(replication_pad_backward, 2),
    _aten.replication_pad3d_backward.default: partial(replication_pad_backward, 3),
}
"""Operator -> the function that is exported in its place."""
