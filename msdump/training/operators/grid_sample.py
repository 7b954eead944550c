"""Images and volumes that are read at the places of a grid, and the gradients of both."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from msdump.errors import GraphError
from msdump.training.body import INT64, Ints, Value, operator
from msdump.training.rules import Backward, Gradients, gradient, keep, lowering, mindspore_gradient
from msdump.training.tape import op
from msdump.training.writer import StepOperator

_MODES: Final = {"bilinear": 0, "linear": 0, "nearest": 1}
"""MindSpore's numbers of interpolations by ONNX's names, before opset 20 and since."""

_PADDINGS: Final = {"zeros": 0, "border": 1, "reflection": 2}
"""MindSpore's numbers of the surroundings of an image."""


@operator("GridSampler2D")
@operator("GridSampler3D")
def grid_sampler(
    x: Value, grid: Value, _mode: Value, _padding: Value, _align: Value, **attributes: Any
) -> Value:
    """Read (N, C, ...) at places of a grid (N, ..., 2 or 3), numbers from -1 to 1, the width first."""
    return op.GridSample(x, grid, **attributes)


@operator("GridSampler2DGrad")
@operator("GridSampler3DGrad")
def grid_sampler_grad(
    dy: Value,
    x: Value,
    grid: Value,
    _mode: Value,
    _padding: Value,
    _align: Value,
    _mask: Value,
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


@lowering("GridSample")
def _lower_grid_sample(node: StepOperator) -> None:
    attributes = _attributes(node)
    if attributes["mode"] not in _MODES:
        keep(node)
        return
    op.call(node.primitive, node.x, node.input(1), *_numbers(attributes), outputs=[node.y], **attributes)


def _attributes(node: StepOperator) -> dict[str, Any]:
    """Return ONNX's attributes of the operator."""
    default = "linear" if op.opset >= 20 else "bilinear"  # opset 20 renamed the modes
    defaults = {"mode": default, "padding_mode": "zeros", "align_corners": 0}
    return {name: node.attribute(name, default) for name, default in defaults.items()}


def _numbers(attributes: dict[str, Any]) -> tuple[int, int, bool]:
    """Return attributes as MindSpore's inputs."""
    mode, padding_mode = attributes["mode"], attributes["padding_mode"]
    return _MODES[mode], _PADDINGS[padding_mode], bool(attributes["align_corners"])


@gradient("GridSample")
def _cubic(back: Backward) -> Gradients:
    mode = back.attributes["mode"]
    raise GraphError(f"{back.place.path}/{back.primitive}: the interpolation {mode!r} has no gradient")


@mindspore_gradient("GridSampler2D", "GridSampler3D")
def _grid_sample(back: Backward) -> Gradients:
    x, grid, wants = back.x, back.input(1), np.array(back.wants[:2], np.int64)
    return op.call(
        f"{back.op_type}Grad",
        *(back.dy, x, grid, *back.inputs[2:], wants),
        like=[x, grid],
        sizes=x.sizes_from(2),
        wants=tuple(wants.tolist()),
        **back.attributes,
    )
