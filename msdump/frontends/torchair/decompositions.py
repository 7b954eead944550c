"""ATen operators that ONNX has no form for, most of them of backward passes, made of others."""
# ruff: noqa: ARG001, FBT001, FBT002, PLR0917 - the operators' own parameters

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch._decomp import get_decompositions

from msdump.frontends.torchair import attention

_aten = torch.ops.aten


def convolution_backward(
    grad: Tensor,
    data: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of data, weight and bias; None where the mask asks for none."""
    steps, pads, gaps = (_spread(item, data.dim() - 2) for item in (stride, padding, dilation))
    window = Window(steps, pads, gaps, groups)
    of_data = of_weight = of_bias = None
    if output_mask[0]:
        of_data = _data_of_transposed if transposed else _data_of_plain
        of_data = of_data(grad, data, weight, window)
    if output_mask[1]:
        small, large = (data, grad) if transposed else (grad, data)
        of_weight = _weight(small, large, weight, window)
    if output_mask[2]:
        of_bias = grad.sum([0, *range(2, grad.dim())])
    return of_data, of_weight, of_bias


@dataclass(frozen=True, slots=True)
class Window:
    """How a convolution's kernel moves; one number for each spatial dimension."""

    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int = 1


def _spread(item: Sequence[int], rank: int) -> list[int]:
    return list(item) * rank if len(item) == 1 else list(item)


def _data_of_plain(grad: Tensor, data: Tensor, weight: Tensor, window: Window) -> Tensor:
    """Spread the gradient back; what no window reached at the far end is added as padding."""
    reached = [
        (size - 1) * step - 2 * pad + gap * (kernel - 1) + 1
        for size, step, pad, gap, kernel in zip(
            grad.shape[2:], window.stride, window.padding, window.dilation, weight.shape[2:], strict=True
        )
    ]
    missing = [size - got for size, got in zip(data.shape[2:], reached, strict=True)]
    return _convolve(grad, weight, window, missing)


def _data_of_transposed(grad: Tensor, data: Tensor, weight: Tensor, window: Window) -> Tensor:
    return _first(_convolve(grad, weight, window), data.shape[2:])


def _weight(small: Tensor, large: Tensor, weight: Tensor, window: Window) -> Tensor:
    """Convolve one side with the other: channels become the batch, stride and dilation swap roles.

    Args:
        small: What the kernel makes of ``large`` in a plain convolution.
        large: The other side.
        weight: Whose gradient is asked.
        window: How the kernel moves.
    """
    groups = window.groups
    batch = large.unflatten(1, (groups, large.shape[1] // groups)).permute(
        2, 1, 0, *range(3, large.dim() + 1)
    )
    kernels = small.transpose(0, 1)
    swapped = Window(window.dilation, window.padding, window.stride, groups)
    # large: (channels of a group, groups x N, ...); kernels of each group: (channels, N, ...)
    made = _convolve(batch.flatten(1, 2), kernels, swapped)
    return _first(made.transpose(0, 1), weight.shape[2:])


def _convolve(data: Tensor, weight: Tensor, window: Window, missing: list[int] | None = None) -> Tensor:
    """Convolve; transposed where ``missing`` says what is added at the far ends."""
    made: Tensor = _aten.convolution(
        data,
        weight,
        None,
        window.stride,
        window.padding,
        window.dilation,
        missing is not None,
        missing or [0] * len(window.stride),
        window.groups,
    )
    return made


def _first(tensor: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the first elements of each spatial dimension."""
    for dim, size in enumerate(sizes, start=2):
        tensor = tensor.narrow(dim, 0, size)
    return tensor


def max_pool_backward(
    grad: Tensor,
    data: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor:
    """Return the gradient of a maximum pooling: each element goes to where its maximum was."""
    rank = len(kernel_size) if len(kernel_size) > 1 else 2
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
    """Return an average pooling of a given divisor; one without stays as it is."""
    if divisor_override is None:
        return NotImplemented
    kernel = _spread(kernel_size, 2)
    steps = _spread(stride, 2) if stride else kernel
    plain: Tensor = _aten.avg_pool2d(data, kernel, steps, padding, ceil_mode)
    rows, columns = (
        _averages(*item, counts_padding=True, like=data)[1]
        for item in zip(plain.shape[-2:], data.shape[-2:], kernel, steps, _spread(padding, 2), strict=True)
    )
    return plain * (rows * columns.t() / divisor_override)


def avg_pool2d_backward(
    grad: Tensor,
    data: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    """Return the gradient of an average pooling."""
    kernel = _spread(kernel_size, 2)
    steps = _spread(stride, 2) if stride else kernel
    ways = [
        _averages(*item, counts_padding=count_include_pad, like=grad)
        for item in zip(grad.shape[-2:], data.shape[-2:], kernel, steps, _spread(padding, 2), strict=True)
    ]
    rows, columns = (inside if divisor_override else inside / count for inside, count in ways)
    return rows.t() @ ((grad / (divisor_override or 1)) @ columns)


def adaptive_avg_pool2d_backward(grad: Tensor, data: Tensor) -> Tensor:
    """Return the gradient of an average pooling to a given size."""
    ways = [_adaptive(*item, like=grad) for item in zip(grad.shape[-2:], data.shape[-2:], strict=True)]
    rows, columns = (inside / count for inside, count in ways)
    return rows.t() @ (grad @ columns)


def _averages(
    made: int, size: int, kernel: int, step: int, pad: int, *, counts_padding: bool, like: Tensor
) -> tuple[Tensor, Tensor]:
    """Return which of ``size`` elements each of ``made`` averages is of, and how many count there."""
    start = torch.arange(made, device=like.device).unsqueeze(1) * step - pad
    end = (start + kernel).clamp(max=size + pad)
    low, high = start.clamp(min=0), end.clamp(max=size)
    count = end - start if counts_padding else high - low
    return _between(low, high, size, like), count.to(like.dtype)


def _adaptive(made: int, size: int, *, like: Tensor) -> tuple[Tensor, Tensor]:
    index = torch.arange(made, device=like.device).unsqueeze(1)
    low = index * size // made
    high = ((index + 1) * size + made - 1) // made
    return _between(low, high, size, like), (high - low).to(like.dtype)


def _between(low: Tensor, high: Tensor, size: int, like: Tensor) -> Tensor:
    at = torch.arange(size, device=like.device)
    return ((at >= low) & (at < high)).to(like.dtype)


_REFERENCE: Final = (
    _aten._native_batch_norm_legit_functional.default,  # noqa: SLF001 - torch's name
    _aten._native_batch_norm_legit.default,  # noqa: SLF001 - torch's name
    _aten._native_batch_norm_legit.no_stats,  # noqa: SLF001 - torch's name
    _aten.native_batch_norm.default,
    _aten.nll_loss_forward.default,
    _aten.nll_loss2d_forward.default,
)
"""Operators that the exporter translates as for inference only; torch's own definition holds."""

DECOMPOSITIONS: Final[dict[Any, Callable[..., Any]]] = {
    **get_decompositions(_REFERENCE),
    **attention.DECOMPOSITIONS,
    _aten.convolution_backward.default: convolution_backward,
    _aten.max_pool2d_with_indices_backward.default: max_pool_backward,
    _aten.avg_pool2d.default: avg_pool2d,
    _aten.avg_pool2d_backward.default: avg_pool2d_backward,
    _aten._adaptive_avg_pool2d_backward.default: adaptive_avg_pool2d_backward,  # noqa: SLF001 - torch's name
}
"""Operator -> what takes its place in an export."""
