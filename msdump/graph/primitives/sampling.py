"""Images and volumes that are resized or read at the places of a grid: gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from msdump.graph.primitives.body import BOOL, INT32, INT64, Ints, Value, op, operator
from msdump.graph.primitives.call import ARGUMENTS, Call
from msdump.graph.primitives.shapes import swapped


@operator(
    """
    ResizeNearestNeighborV2Grad ResizeBilinearGrad ResizeBicubicGrad UpsampleNearest1DGrad
    UpsampleNearest3DGrad UpsampleLinear1DGrad UpsampleTrilinear3DGrad
    """
)
def resize_gradient(
    dy: Value,
    *,
    axes: Ints,
    sizes: Ints,
    counts: Ints,
    scales: tuple[float, ...],
    roi: tuple[float, ...],
    rank: int,
    **attributes: Any,
) -> Value:
    """Return the gradient of a row, an image or a volume that was resized.

    Resizing maps each axis by a matrix, the resized unit vectors; the gradient is mapped by the transposed
    matrix. ``axes``: the resized axes, with ``sizes`` before and ``counts`` after; ``scales``: empty if the
    operator has none; ``roi``: begin and end of the cropped part of each axis, or empty.
    """
    for number, (axis, size, count) in enumerate(zip(axes, sizes, counts, strict=True)):
        scale = scales[number] if scales else None
        part = roi[2 * number : 2 * number + 2]
        matrix = _matrix(size, count, scale, part, attributes)
        if axis == rank - 2:
            dy = op.MatMul(matrix, dy)
        else:
            order = swapped(range(rank), axis)
            rows = dy if axis == rank - 1 else op.Transpose(dy, perm=order)
            turned = op.MatMul(rows, op.Transpose(matrix, perm=[1, 0]))
            dy = turned if axis == rank - 1 else op.Transpose(turned, perm=order)
    return dy


def _matrix(
    size: int, count: int, scale: float | None, part: tuple[float, ...], attributes: dict[str, Any]
) -> Value:
    """Return the resized unit vectors of an axis, (size, count)."""
    units = op.Reshape(op.EyeLike(op.Expand(0.0, (size, size))), (size, 1, size, 1))
    corners = np.array([0, 0, part[0], 0, 1, 1, part[1], 1], np.float32) if part else None
    if scale is None:
        resized = op.Resize(units, corners, None, (size, 1, count, 1), **attributes)
    else:
        resized = op.Resize(units, corners, np.array([1, 1, scale, 1], np.float32), **attributes)
    return op.Reshape(resized, (size, count))


@operator("GridSampler2DGrad GridSampler3DGrad")
def grid_sampler_grad(
    dy: Value,
    x: Value,
    grid: Value,
    *,
    mode: str,
    padding_mode: str,
    align_corners: int,
    sizes: Ints,
    wants: Ints,
) -> tuple[Value, Value]:
    """Return the gradients of image and grid, zeros for one that is not wanted.

    ``sizes``: the image's, behind its channels.
    """
    extents = sizes[::-1]
    # all places of a sample in a row: (N, places, 2 or 3); images (N, C, elements), gradients (N, C, places)
    rows = op.Reshape(grid, (0, -1, len(sizes)))
    place, slope = _places(rows, extents, padding_mode, align_corners)
    image, dread = op.Reshape(x, (0, 0, math.prod(sizes))), op.Reshape(dy, (0, 0, -1))
    steps = np.array([math.prod(extents[:axis]) for axis in range(len(extents))])
    dimage, dplace = (op.Expand(0.0, op.Shape(item)) for item in (image, place))
    for index, weight, slopes in _elements(place, mode, len(sizes)):
        is_inside = op.And(index > -0.5, index < op.of_element(op.value(_floats(extents))))
        known = op.Cast(op.Where(is_inside, index, 0.0), to=INT64)
        number = op.Expand(op.ReduceSum(op.Unsqueeze(known * steps, [1]), [3], keepdims=0), op.Shape(dread))
        is_read = op.ReduceMin(op.Cast(is_inside, to=INT64), [2], keepdims=0) > 0
        taken = op.Where(op.Unsqueeze(is_read, [1]), dread, 0.0)
        if wants[0]:
            added = taken * op.Unsqueeze(weight, [1])
            dimage = dimage + op.scatter_sum("ScatterElements", op.Shape(image), number, added, axis=2)
        if wants[1]:
            change = op.ReduceSum(taken * op.GatherElements(image, number, axis=2), [1], keepdims=0)
            dplace = dplace + op.Unsqueeze(change, [2]) * slopes
    return op.Reshape(dimage, op.Shape(x)), op.Reshape(dplace * slope, op.Shape(grid))


def _floats(numbers: Any) -> np.ndarray:
    return np.array(numbers, np.float32)


def _places(grid: Value, extents: Ints, padding_mode: str, align_corners: int) -> tuple[Value, Value]:
    """Return places in elements of the image, from 0, and how fast they move with the grid's numbers."""
    sizes, last = (op.of_element(op.value(_floats(extents) - less)) for less in (0, 1))
    low, length = (0.0, last) if align_corners else (-0.5, sizes)
    place, slope = (grid + 1.0) * (length * 0.5) + low, op.Expand(length * 0.5, op.Shape(grid))
    if padding_mode == "zeros":
        return place, slope
    if padding_mode == "reflection":
        turns = op.Floor((place - low) / op.Max(length, 1e-6))  # a single element has length 0 if aligned
        rest = place - low - turns * length
        is_turned = op.Floor(turns * 0.5) * 2.0 < turns
        place = op.Where(is_turned, length - rest, rest) + low
        slope = op.Where(is_turned, -slope, slope)
    is_free = op.And(place > 0.0, place < last)
    return op.Min(op.Max(place, 0.0), last), op.Where(is_free, slope, 0.0)


def _elements(place: Value, mode: str, rank: int) -> Iterator[tuple[Value, Value, Value]]:
    """Yield the elements that a place reads: indices, weight, and the slope of the weight for each axis."""
    if mode == "nearest":
        still = op.Expand(0.0, op.Shape(place))
        yield op.Round(place), op.ReduceSum(still, [2], keepdims=0) + 1.0, still
        return
    first = op.Floor(place)
    rest = place - first
    for corner in itertools.product((0, 1), repeat=rank):
        ahead, sign = (op.of_element(op.value(_floats(item))) for item in (corner, np.array(corner) * 2 - 1))
        shares = rest * sign + (1.0 - ahead)
        others = op.Where(np.eye(rank, dtype=bool), 1.0, op.Unsqueeze(shares, [2]))
        slopes = op.ReduceProd(others, [3], keepdims=0) * sign
        yield first + ahead, op.ReduceProd(shares, [2], keepdims=0), slopes


@operator("ResizeBilinearV2 ResizeNearestNeighborV2 ResizeBicubic UpsampleNearest2D")
def resize(x: Value, *, size: Ints, **attributes: Any) -> Value:
    """Return images in another size."""
    return op.Resize(x, None, None, op.Concat(op.Shape(x, end=2), size, axis=0), **attributes)


_RESIZED: Final = {"Nearest": "nearest", "Bilinear": "linear", "Bicubic": "cubic"}


def _resized(call: Call) -> dict[str, Any]:
    """Return how a size is changed, as ONNX's attributes."""
    mode = next(mode for name, mode in _RESIZED.items() if name in call.op_type)
    place = "asymmetric"
    if call.argument("align_corners"):
        place = "align_corners"
    elif call.argument("half_pixel_centers"):
        place = "half_pixel"
    found: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": place}
    if mode == "cubic" and place == "half_pixel":
        found |= {"cubic_coeff_a": -0.5, "exclude_outside": 1}
    if mode == "nearest":
        found["nearest_mode"] = "floor" if place == "asymmetric" else "round_prefer_ceil"
    return found


def _resized_gradient(call: Call) -> dict[str, Any]:
    sizes, counts = call.output_sizes(), call.sizes()
    axes = tuple(range(2, len(sizes)))
    found = {"axes": axes, "sizes": sizes[2:], "counts": counts[2:], "scales": (), "roi": ()}
    return {**found, "rank": len(sizes), **_resized(call)}


@operator("GridSampler2D GridSampler3D")
def grid_sampler(x: Value, grid: Value, **attributes: Any) -> Value:
    """Read images at the places of a grid."""
    return op.GridSample(x, grid, **attributes)


def _sampled(call: Call) -> dict[str, Any]:
    mode = call.argument("interpolation_mode")
    return {
        "mode": {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode),
        "padding_mode": call.argument("padding_mode"),
        "align_corners": call.argument("align_corners"),
    }


def _sampled_gradient(call: Call) -> dict[str, Any]:
    return {**_sampled(call), "sizes": call.sizes(1)[2:], "wants": call.argument("output_mask")}


@operator("CropAndResize")
def crop_and_resize(
    x: Value, boxes: Value, numbers: Value, *, crop_size: Ints, method: str, extrapolation_value: float
) -> Value:
    """Cut boxes out of images with channels last, and give all of them one size."""
    y1, x1, y2, x2 = (op.Unsqueeze(each, [2]) for each in op.Split(boxes, num_outputs=4, axis=1, outputs=4))
    lines = []
    for low, high, count in ((y1, y2, crop_size[0]), (x1, x2, crop_size[1])):
        steps = np.linspace(0, 1, count, dtype=np.float32) if count > 1 else np.full(1, 0.5, np.float32)
        lines.append(low + (high - low) * steps)
    rows, columns = op.Reshape(lines[0], (0, -1, 1)), op.Reshape(lines[1], (0, 1, -1))
    shape = op.Shape(rows + columns)
    places = op.Concat(*(op.Unsqueeze(op.Expand(each, shape), [3]) for each in (columns, rows)), axis=3)
    images = op.Transpose(op.Cast(op.Gather(x, numbers), to=1), perm=[0, 3, 1, 2])
    mode = {"bilinear": "linear"}.get(method, method)
    read = op.GridSample(images, places * 2.0 - 1.0, mode=mode, padding_mode="border", align_corners=1)
    is_inside = op.ReduceMin(
        op.Cast(op.And(op.Not(places < 0.0), op.Not(places > 1.0)), to=INT32), [3], keepdims=1
    )
    return op.Where(op.Cast(is_inside, to=BOOL), op.Transpose(read, perm=[0, 2, 3, 1]), extrapolation_value)


ARGUMENTS.update(
    {
        **dict.fromkeys(
            ("ResizeBilinearV2", "ResizeNearestNeighborV2", "ResizeBicubic"),
            lambda call: {"size": call.argument("size"), **_resized(call)},
        ),
        **dict.fromkeys(
            ("ResizeBilinearGrad", "ResizeNearestNeighborV2Grad", "ResizeBicubicGrad"), _resized_gradient
        ),
        "UpsampleNearest2D": lambda call: {"size": call.output_sizes()[2:], **_resized(call)},
        **dict.fromkeys(("GridSampler2D", "GridSampler3D"), _sampled),
        **dict.fromkeys(("GridSampler2DGrad", "GridSampler3DGrad"), _sampled_gradient),
    }
)
