"""ATen operators of algebra that the ONNX exporter cannot translate: products, inverses, diagonals, norms."""
# ruff: noqa: ARG001, FBT001, FBT002 - the operators' own parameters

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch._decomp import get_decompositions
from torch.nn import functional

_aten = torch.ops.aten
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


def fmax(data: Tensor, other: Tensor) -> Tensor:
    """Return the larger of two elements, the one that is a number where only one is."""
    return torch.where(data.isnan(), other, torch.where(other.isnan(), data, data.maximum(other)))


def fmin(data: Tensor, other: Tensor) -> Tensor:
    """Return the smaller of two elements, the one that is a number where only one is."""
    return torch.where(data.isnan(), other, torch.where(other.isnan(), data, data.minimum(other)))


def diag_embed(data: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Return square matrices whose diagonal ``offset`` holds the last dimension."""
    size = data.shape[-1] + abs(offset)
    return _on_diagonal(data, (size, size), offset).movedim((-2, -1), (dim1, dim2))


def diagonal_backward(grad: Tensor, input_sizes: Sequence[int], offset: int, dim1: int, dim2: int) -> Tensor:
    """Return the gradient of a diagonal: zero beside it."""
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


DECOMPOSITIONS: Final[dict[Any, Callable[..., Any]]] = {
    _aten._weight_norm_interface_backward.default: weight_norm_backward,  # noqa: SLF001 - torch's name
    _aten.copy.default: copy,
    _aten.cumprod.default: cumprod,
    _aten.diag_embed.default: diag_embed,
    _aten.diagonal_backward.default: diagonal_backward,
    _aten.fmax.default: fmax,
    _aten.fmin.default: fmin,
    _aten.linalg_inv_ex.default: inverse,
}
"""Operator -> the function that is exported in its place."""

REPLACEMENTS: Final[dict[Any, Callable[..., Any]]] = {
    **get_decompositions((_aten.silu_backward.default, _aten.mish_backward.default)),
    _WITH_EFFECTS: with_effects,
}
"""Operator -> the function that is traced in its place, before an export that would keep or refuse it."""
