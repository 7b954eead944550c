"""ATen operators without a counterpart in ONNX, most of them of backward passes, decomposed into others."""
# ruff: noqa: ARG001, FBT001, PLR0917 - the operators' own parameters

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch._decomp import get_decompositions

from msdump.frontends.torchair import algebra, attention, pooling
from msdump.frontends.torchair.pooling import spread

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
    """Return the gradients of data, weight and bias; None where the mask asks for none.

    The gradient of the data is the opposite convolution (transposed for plain) of the output's gradient;
    that of the weight is a convolution of data and gradient.
    """
    steps, pads, gaps = (spread(item, data.dim() - 2) for item in (stride, padding, dilation))
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
    """How a convolution's kernel moves over the data; lists have one number for each spatial dimension."""

    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int = 1


def _data_of_plain(grad: Tensor, data: Tensor, weight: Tensor, window: Window) -> Tensor:
    """Return the gradient of a plain convolution's data, by a transposed one.

    Elements at the far ends that no window reached are added as output padding: their gradient is zero.
    """
    reached = [
        (size - 1) * step - 2 * pad + gap * (kernel - 1) + 1
        for size, step, pad, gap, kernel in zip(
            grad.shape[2:], window.stride, window.padding, window.dilation, weight.shape[2:], strict=True
        )
    ]
    missing = [size - covered for size, covered in zip(data.shape[2:], reached, strict=True)]
    return _convolve(grad, weight, window, missing)


def _data_of_transposed(grad: Tensor, data: Tensor, weight: Tensor, window: Window) -> Tensor:
    """Return the gradient of a transposed convolution's data, by a plain one."""
    # output padding may make room for one more window than the data has elements
    return _first(_convolve(grad, weight, window), data.shape[2:])


def _weight(small: Tensor, large: Tensor, weight: Tensor, window: Window) -> Tensor:
    """Return the gradient of the weight: channels become the batch, stride and dilation swap roles.

    Args:
        small: Gradient of a plain convolution's output, or data of a transposed one.
        large: Data of a plain convolution, or gradient of a transposed one's output.
        weight: The weight whose gradient is returned.
        window: How the kernel moves.
    """
    groups = window.groups
    batch = large.unflatten(1, (groups, large.shape[1] // groups)).permute(
        2, 1, 0, *range(3, large.dim() + 1)
    )
    kernels = small.transpose(0, 1)
    swapped = Window(window.dilation, window.padding, window.stride, groups)
    # large: (channels of a group, groups x N, ...); kernels of each group: (channels, N, ...)
    gradient = _convolve(batch.flatten(1, 2), kernels, swapped)
    return _first(gradient.transpose(0, 1), weight.shape[2:])


def _convolve(data: Tensor, weight: Tensor, window: Window, missing: list[int] | None = None) -> Tensor:
    """Convolve without bias; with ``missing``, the output padding, by a transposed convolution."""
    result: Tensor = _aten.convolution(
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
    return result


def _first(tensor: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the first elements of each spatial dimension."""
    for dim, size in enumerate(sizes, start=2):
        tensor = tensor.narrow(dim, 0, size)
    return tensor


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
    **algebra.DECOMPOSITIONS,
    **attention.DECOMPOSITIONS,
    **pooling.DECOMPOSITIONS,
    _aten.convolution_backward.default: convolution_backward,
}
"""Operator -> the function that is exported in its place."""
