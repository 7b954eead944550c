"""Gradients of resizing (the transposed maps of the axes), and of images that are read at a grid's places."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from msdump.errors import GraphError
from msdump.graph.primitives import op
from msdump.training.operators.shapes import shape_of
from msdump.training.rules import Backward, Gradients, gradient
from msdump.training.writer import Item, StepOperator, StepTensor

_ATTRIBUTES: Final[Mapping[str, Any]] = {
    "mode": "nearest",
    "coordinate_transformation_mode": "half_pixel",
    "nearest_mode": "round_prefer_floor",
    "cubic_coeff_a": -0.75,
    "exclude_outside": 0,
    "antialias": 0,
}
"""Attributes that the map of an axis depends on, with their defaults."""

_SAME: Final = (1.0,)
"""The scale of an axis that keeps its size."""

_ALL: Final = (0.0, 1.0)
"""The part of an axis that is shown, where all of it is."""

_NAMES: Final = {"ResizeBilinearV2": "ResizeBilinearGrad"}


@gradient("Resize")
def _resize(back: Backward) -> Gradients:
    if back.attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise GraphError(f"{back.place.path}/Resize: a kept aspect ratio has no gradient")
    x, y = back.x, back.y
    structure = {name: back.attribute(name, default) for name, default in _ATTRIBUTES.items()}
    is_crop = structure["coordinate_transformation_mode"] == "tf_crop_and_resize"
    scales, roi = _by_axis(back, 2, 1), _by_axis(back, 1, 2) if is_crop else {}
    axes = tuple(
        axis for axis in range(x.rank) if roi.get(axis, _ALL) != _ALL or _is_resized(x, y, axis, scales)
    )
    structure |= {
        "axes": axes,
        "sizes": tuple(x.sizes_from(axis, axis + 1)[0] for axis in axes),
        "counts": tuple(y.sizes_from(axis, axis + 1)[0] for axis in axes),
        "scales": tuple(scales[axis][0] for axis in axes) if scales else (),
        "roi": tuple(number for axis in axes for number in roi.get(axis, _ALL)) if roi else (),
        "rank": x.rank,
    }
    name = _NAMES.get(back.primitive, f"{back.primitive}Grad")
    return op.call(name, *_slots(back), like=x, **structure)


def _is_resized(x: StepTensor, y: StepTensor, axis: int, scales: Mapping[int, tuple[float, ...]]) -> bool:
    if scales:
        return scales.get(axis, _SAME) != _SAME
    # a batch of free size is not resized, even if its dimension has another name in the output
    is_batch = axis == 0 and not isinstance(x.shape[0], int)
    return not is_batch and x.shape[axis] != y.shape[axis]


def _by_axis(node: StepOperator, slot: int, count: int) -> dict[int, tuple[float, ...]]:
    """Return the ``count`` numbers of each axis in an input of Resize, which has all first numbers first."""
    tensor = node.optional(slot)
    if tensor is None or tensor.shape == (0,):
        return {}
    if tensor.value is None:
        raise GraphError(f"{node.place.path}/Resize: input {slot} is computed, so that it has no gradient")
    rank = node.x.rank
    axes = [axis % rank for axis in node.attribute("axes", range(rank))]
    numbers = tensor.value.astype(np.float32).reshape(count, -1).T.tolist()
    return {axis: tuple(pair) for axis, pair in zip(axes, numbers, strict=True)}


def _slots(back: Backward) -> tuple[Item, ...]:
    x, dy = back.x, back.dy
    is_aligned, is_half = sampling(back)
    if back.primitive.startswith("Upsample"):
        linear = () if "Nearest" in back.primitive else (is_aligned,)
        return (dy, shape_of(x), *linear)
    return dy, shape_of(x, 2) if "Nearest" in back.primitive else x, is_aligned, is_half


def sampling(node: StepOperator) -> tuple[bool, bool]:
    """Return MindSpore's ``align_corners`` and ``half_pixel_centers`` of a resizing."""
    transformation = node.attribute("coordinate_transformation_mode", "half_pixel")
    return transformation == "align_corners", transformation == "half_pixel"


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
    slots = (back.dy, x, grid, mode, padding, is_aligned, wants)
    return op.call(
        f"{back.primitive}Grad",
        *slots,
        like=[x, grid],
        mode=mode,
        padding_mode=padding,
        align_corners=int(is_aligned),
        sizes=x.sizes_from(2),
        wants=tuple(wants.tolist()),
    )
