"""ATen operators without a counterpart in ONNX, computed from others that have one.

Gradients of convolutions, poolings and paddings, averages of a given divisor, linear algebra, and fused
attention and encoder layers.
"""
# ruff: noqa: ARG001, FBT001, FBT002, PLR0917 - the operators' own parameters

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor
from torch._decomp import get_decompositions
from torch.nn import functional

_aten = torch.ops.aten


def spread(item: Sequence[int], rank: int) -> list[int]:
    """Return one number for each dimension, where a single one may stand for all."""
    return list(item) * rank if len(item) == 1 else list(item)


def max_pool_backward(rank: int, grad: Tensor, data: Tensor, *window_and_indices: Any) -> Tensor:
    """Return the gradient of a maximum pooling over ``rank`` dimensions."""
    return adaptive_max_pool_backward(rank, grad, data, window_and_indices[-1])


def adaptive_max_pool_backward(rank: int, grad: Tensor, data: Tensor, indices: Tensor) -> Tensor:
    """Return the gradient of a maximum pooling: each gradient is added at the position of its maximum."""
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
    """Return the gradient of an average pooling over ``rank`` dimensions.

    The pooling is linear in each dimension: the gradient is a product with a matrix (averages, elements), 1
    where an element belongs to an average.
    """
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
    """Return a 0/1 matrix of the elements in each average, (averages, size), and divisors, (averages, 1)."""
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


_CHECK: Final = _aten._linalg_check_errors.default  # noqa: SLF001 - torch's name
_WITH_EFFECTS: Final = torch.ops.higher_order.with_effects


def cumprod(data: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """Return the running product along a dimension; integers become int64 unless a type is given.

    Each pass multiplies every element by the one 1, 2, 4, ... places before it, so that a dimension of n
    elements takes log2(n) multiplications of whole tensors.
    """
    if dtype is None and not (data.is_floating_point() or data.is_complex()):
        dtype = torch.int64
    product = data.to(dtype or data.dtype)
    if not product.dim():
        return product.clone()
    product = product.movedim(dim, -1)
    distance = 1
    while distance < product.shape[-1]:
        product = product * functional.pad(product[..., :-distance], (distance, 0), value=1)
        distance *= 2
    return product.movedim(-1, dim)


def inverse(matrix: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """Return the inverse of matrices (..., n, n) by onnxruntime's own operator, and zeros for "no error".

    A singular matrix gives inf and nan: a graph cannot raise.
    """
    inverted = torch.onnx.ops.symbolic(
        "com.microsoft::Inverse", (matrix,), dtype=matrix.dtype, shape=matrix.shape, version=1
    )
    return inverted, matrix.new_zeros(matrix.shape[:-2], dtype=torch.int32)


def copy(data: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """Return ``source`` in the type and shape of ``data``; the exporter's own form does not broadcast."""
    return source.to(data.dtype).expand_as(data).clone()


def extreme(choose: Callable[[Tensor, Tensor], Tensor], data: Tensor, other: Tensor) -> Tensor:
    """Return the larger or smaller of two elements, the one that is a number where only one is."""
    return torch.where(data.isnan(), other, torch.where(other.isnan(), data, choose(data, other)))


def diag_embed(data: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Return square matrices with the last dimension on the diagonal ``offset``."""
    size = data.shape[-1] + abs(offset)
    return _on_diagonal(data, (size, size), offset).movedim((-2, -1), (dim1, dim2))


def diagonal_backward(grad: Tensor, input_sizes: Sequence[int], offset: int, dim1: int, dim2: int) -> Tensor:
    """Return the gradient of ``diagonal``: zero outside of the diagonal."""
    sizes = (input_sizes[dim1], input_sizes[dim2])
    return _on_diagonal(grad, sizes, offset).movedim((-2, -1), (dim1, dim2))


def _on_diagonal(data: Tensor, sizes: tuple[int, int], offset: int) -> Tensor:
    """Return matrices (..., rows, columns) with the last dimension on a diagonal."""
    before = max(-offset, 0)
    rows = functional.pad(data, (before, sizes[0] - before - data.shape[-1]))
    row, column = (torch.arange(size, device=data.device) for size in sizes)
    return torch.where(column - row[:, None] == offset, rows[..., None], 0)


def weight_norm_backward(
    grad: Tensor, direction: Tensor, length: Tensor, norms: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    """Return the gradients of a weight's direction and length; dimension ``dim`` has a norm of its own."""
    others = [axis for axis in range(direction.dim()) if axis != dim]
    along = (grad * direction).sum(others, keepdim=True)
    return length / norms * (grad - direction * along / norms.square()), along / norms


def with_effects(token: Any, operator: Any, *arguments: Any, **named: Any) -> tuple[Any, ...]:
    """Call an operator with effects; leave out the check that an inverse exists, which ``inverse`` lacks.

    Returns:
        The token that orders effects, and the operator's results.
    """
    if operator is _CHECK:
        return token, None
    results: tuple[Any, ...] = _WITH_EFFECTS(token, operator, *arguments, **named)
    return results


REPLACEMENTS: Final[dict[Any, Callable[..., Any]]] = {
    **get_decompositions((_aten.silu_backward.default, _aten.mish_backward.default)),
    _WITH_EFFECTS: with_effects,
}
"""Operator -> the function that is traced in its place, before an export that would keep or refuse it."""


_OF_KEYS: Final = 1
"""``mask_type`` of a mask (batch, key); others broadcast to (batch, head, query, key)."""


def encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """Return an encoder layer's output (batch, position, feature): attention and a feed-forward network.

    ``nn.TransformerEncoderLayer`` calls it for inference, ``nn.MultiheadAttention`` calls ``attention``.
    Each has a residual connection and a layer normalisation, before it (``norm_first``) or behind it.
    """

    def norm_1(x: Tensor) -> Tensor:
        return functional.layer_norm(x, [embed_dim], norm_weight_1, norm_bias_1, eps)

    def norm_2(x: Tensor) -> Tensor:
        return functional.layer_norm(x, [embed_dim], norm_weight_2, norm_bias_2, eps)

    def attend(x: Tensor) -> Tensor:
        weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return attention(
            x, x, x, embed_dim, num_heads, *weights, mask, need_weights=False, mask_type=mask_type
        )[0]

    def forward(x: Tensor) -> Tensor:
        inner = functional.linear(x, ffn_weight_1, ffn_bias_1)
        inner = functional.gelu(inner) if use_gelu else functional.relu(inner)
        return functional.linear(inner, ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = src + attend(norm_1(src))
        return x + forward(norm_2(x))
    x = norm_1(src + attend(src))
    return norm_2(x + forward(x))


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the projected output (batch, position, feature) and the attention weights.

    The weights are (batch, query, key), with ``average_attn_weights`` false (batch, head, query, key), and
    an empty tensor where none are needed.
    """
    # query, key and value have their weights, and biases, in one tensor each
    parts = zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)
    q, k, v = (
        functional.linear(x, weight, bias).unflatten(-1, (num_head, -1)).transpose(1, 2)
        for x, weight, bias in parts
    )
    scores = (q / math.sqrt(embed_dim // num_head)) @ k.transpose(-2, -1)
    if mask is not None:
        hidden = mask[:, None, None, :] if mask_type == _OF_KEYS else mask
        scores = scores.masked_fill(hidden.to(torch.bool), -math.inf)
    weights = scores.softmax(-1)
    joined = (weights @ v).transpose(1, 2).flatten(2)
    projected = functional.linear(joined, proj_weight, proj_bias)
    if not need_weights:
        return projected, query.new_empty([0])
    return projected, weights.mean(1) if average_attn_weights else weights


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
    """Return the gradients of data, weight and bias; None where the mask is false.

    The gradient of the data is the opposite convolution (transposed for plain) of the output's gradient;
    that of the weight is a convolution of data and gradient.
    """
    steps, pads, gaps = (spread(item, data.dim() - 2) for item in (stride, padding, dilation))
    window = Window(steps, pads, gaps, groups)
    of_data = of_weight = of_bias = None
    if output_mask[0]:
        if transposed:  # output padding may make room for one more window than the data has elements
            of_data = _first(_convolve(grad, weight, window), data.shape[2:])
        else:
            of_data = _data_of_plain(grad, data, weight, window)
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


def _weight(small: Tensor, large: Tensor, weight: Tensor, window: Window) -> Tensor:
    """Return the gradient of the weight: channels become the batch, stride and dilation swap roles.

    ``small`` and ``large`` are the output's gradient and the data, of a transposed convolution the reverse.
    """
    groups = window.groups
    batch = large.unflatten(1, (groups, large.shape[1] // groups)).permute(
        2, 1, 0, *range(3, large.dim() + 1)
    )
    kernels = small.transpose(0, 1)
    swapped = Window(window.dilation, window.padding, window.stride, groups)
    # batch: (channels of a group, groups x N, ...); kernels of each group: (channels, N, ...)
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

_BY_RANK: Final[dict[str, tuple[Callable[..., Any], Sequence[int]]]] = {
    "max_pool{}d_with_indices_backward": (max_pool_backward, (2, 3)),
    "adaptive_max_pool{}d_backward": (adaptive_max_pool_backward, (2, 3)),
    "avg_pool{}d_backward": (avg_pool_backward, (2, 3)),
    "_adaptive_avg_pool{}d_backward": (adaptive_avg_pool_backward, (2, 3)),
    "replication_pad{}d_backward": (replication_pad_backward, (1, 2, 3)),
}
"""Operators for tensors of several ranks: the function, whose first argument is the rank, and the ranks."""

DECOMPOSITIONS: Final[dict[Any, Callable[..., Any]]] = {
    **get_decompositions(_REFERENCE),
    _aten._weight_norm_interface_backward.default: weight_norm_backward,  # noqa: SLF001 - torch's name
    _aten.copy.default: copy,
    _aten.cumprod.default: cumprod,
    _aten.diag_embed.default: diag_embed,
    _aten.diagonal_backward.default: diagonal_backward,
    _aten.fmax.default: partial(extreme, torch.maximum),
    _aten.fmin.default: partial(extreme, torch.minimum),
    _aten.linalg_inv_ex.default: inverse,
    _aten._transformer_encoder_layer_fwd.default: encoder_layer,  # noqa: SLF001 - torch's name
    _aten._native_multi_head_attention.default: attention,  # noqa: SLF001 - torch's name
    _aten.avg_pool2d.default: avg_pool2d,
    _aten.convolution_backward.default: convolution_backward,
    **{
        getattr(_aten, name.format(rank)).default: partial(function, rank)
        for name, (function, ranks) in _BY_RANK.items()
        for rank in ranks
    },
}
"""Operator -> the function that is exported in its place."""
