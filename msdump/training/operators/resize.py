"""Gradients of resizing: the transposed maps of its axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from msdump.training.body import Body, operator

Ints = tuple[int, ...]


@operator("ResizeNearestNeighborGrad")
def resize_nearest_grad(op: Body, dy: str, _size: str, **structure: Any) -> str:
    """Return the gradient of an image of two axes, each element of which takes its nearest one."""
    return _resize_gradient(op, dy, **structure)


@operator("ResizeBilinearGrad")
@operator("ResizeBicubicGrad")
def resize_image_grad(op: Body, dy: str, _x: str, _align: str, _half: str, **structure: Any) -> str:
    """Return the gradient of an image that is interpolated."""
    return _resize_gradient(op, dy, **structure)


@operator("UpsampleNearest1DGrad")
@operator("UpsampleNearest3DGrad")
def upsample_nearest_grad(
    op: Body, dy: str, _input: str, _output: str, _scales: str, **structure: Any
) -> str:
    """Return the gradient of a row or a volume, each element of which takes its nearest one."""
    return _resize_gradient(op, dy, **structure)


@operator("UpsampleLinear1DGrad")
@operator("UpsampleTrilinear3DGrad")
def upsample_linear_grad(
    op: Body, dy: str, _input: str, _output: str, _scales: str, _align: str, **structure: Any
) -> str:
    """Return the gradient of a row or a volume that is interpolated."""
    return _resize_gradient(op, dy, **structure)


def _resize_gradient(
    op: Body,
    dy: str,
    *,
    axes: Ints,
    sizes: Ints,
    counts: Ints,
    scales: tuple[float, ...],
    roi: tuple[float, ...],
    rank: int,
    **attributes: Any,
) -> str:
    """Return the gradient of a tensor that was resized.

    Resizing maps each axis by a matrix, the resized unit vectors; the gradient is mapped by the transposed
    ones. ``axes``: those that are resized, with their ``sizes`` before and ``counts`` after; ``scales`` where
    the operator has them; ``roi``: begin and end of the part of each axis that is shown.
    """
    for number, (axis, size, count) in enumerate(zip(axes, sizes, counts, strict=True)):
        scale = scales[number] if scales else None
        part = roi[2 * number : 2 * number + 2]
        matrix = _matrix(op, size, count, scale, part, attributes)
        if axis == rank - 2:
            dy = op.MatMul(matrix, dy)
        else:
            swapped = [*range(rank)]
            swapped[axis], swapped[-1] = swapped[-1], swapped[axis]
            rows = dy if axis == rank - 1 else op.Transpose(dy, perm=swapped)
            turned = op.MatMul(rows, op.Transpose(matrix, perm=[1, 0]))
            dy = turned if axis == rank - 1 else op.Transpose(turned, perm=swapped)
    return dy


def _matrix(
    op: Body,
    size: int,
    count: int,
    scale: float | None,
    part: tuple[float, ...],
    attributes: dict[str, Any],
) -> str:
    """Return the resized unit vectors of an axis, (size, count)."""
    units = op.Reshape(op.EyeLike(op.Expand(0.0, (size, size))), (size, 1, size, 1))
    corners = np.array([0, 0, part[0], 0, 1, 1, part[1], 1], np.float32) if part else None
    if scale is None:
        resized = op.Resize(units, corners, None, (size, 1, count, 1), **attributes)
    else:
        resized = op.Resize(units, corners, np.array([1, 1, scale, 1], np.float32), **attributes)
    return str(op.Reshape(resized, (size, count)))
