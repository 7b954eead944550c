"""Images and volumes that are read at the places of a grid, and the gradients of both."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from msdump.errors import GraphError
from msdump.training.body import INT64, Ints, Value, operator
from msdump.training.rules import Backward, Gradients, gradient
from msdump.training.tape import op
from msdump.training.writer import StepOperator


@operator("GridSampler2DGrad")
@operator("GridSampler3DGrad")
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


def reading(node: StepOperator) -> tuple[str, str, bool]:
    """Return interpolation, surroundings and ``align_corners`` of an operator, in MindSpore's words."""
    mode = str(node.attribute("mode", "linear"))
    words = {"linear": "bilinear", "cubic": "bicubic"}  # ONNX's since opset 20, and before as MindSpore's
    padding, is_aligned = node.attribute("padding_mode", "zeros"), bool(node.attribute("align_corners", 0))
    return words.get(mode, mode), padding, is_aligned


@gradient("GridSample")
def _grid_sample(back: Backward) -> Gradients:
    mode, padding, is_aligned = reading(back)
    if mode == "bicubic":
        name = back.attributes["mode"]
        raise GraphError(f"{back.place.path}/{back.primitive}: the interpolation {name!r} has no gradient")
    x, grid, wants = back.x, back.input(1), np.array(back.wants[:2], np.int64)
    return op.call(
        f"{back.primitive}Grad",
        *(back.dy, x, grid, mode, padding, is_aligned, wants),
        like=[x, grid],
        mode=mode,
        padding_mode=padding,
        align_corners=int(is_aligned),
        sizes=x.sizes_from(2),
        wants=tuple(wants.tolist()),
    )
