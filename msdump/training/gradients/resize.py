"""Gradients of resizing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from msdump.errors import GraphError
from msdump.training.rules import Backward, Gradients, gradient
from msdump.training.symbols import Item, StepOperator, StepTensor
from msdump.training.writer import StepWriter

_ATTRIBUTES: Final[Mapping[str, Any]] = {
    "mode": "nearest",
    "coordinate_transformation_mode": "half_pixel",
    "nearest_mode": "round_prefer_floor",
    "cubic_coeff_a": -0.75,
    "exclude_outside": 0,
    "antialias": 0,
}
"""What the map of an axis depends on, with its default."""

_SAME: Final = (1.0,)
"""The scale of an axis that keeps its size."""

_ALL: Final = (0.0, 1.0)
"""The part of an axis that is shown, where all of it is."""

_NAMES: Final = {"ResizeBilinearV2": "ResizeBilinearGrad"}


@gradient("Resize")
def _resize(op: StepWriter, back: Backward) -> Gradients:
    node = back.node
    if node.attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise GraphError(f"{node.place.path}/Resize: a kept aspect ratio has no gradient")
    x, y = node.input(0), node.outputs[0]
    structure = {name: node.attribute(name, default) for name, default in _ATTRIBUTES.items()}
    is_crop = structure["coordinate_transformation_mode"] == "tf_crop_and_resize"
    scales, roi = _by_axis(node, 2, 1), _by_axis(node, 1, 2) if is_crop else {}
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
    name = _NAMES.get(node.primitive, f"{node.primitive}Grad")
    return (op.call(name, *_slots(node, back, axes), like=x, **structure),)


def _is_resized(x: StepTensor, y: StepTensor, axis: int, scales: Mapping[int, tuple[float, ...]]) -> bool:
    if scales:
        return scales.get(axis, _SAME) != _SAME
    # a batch of free size stays what it is, whatever it is called behind the operator
    is_batch = axis == 0 and not isinstance(x.shape[0], int)
    return not is_batch and x.shape[axis] != y.shape[axis]


def _by_axis(node: StepOperator, slot: int, count: int) -> dict[int, tuple[float, ...]]:
    """Return the numbers of each axis in an input, which may stand for some axes only.

    Args:
        node: A Resize.
        slot: The input.
        count: How many numbers each axis has: all first ones stand first.
    """
    tensor = node.inputs[slot] if slot < len(node.inputs) else None
    if tensor is None or tensor.shape == (0,):
        return {}
    if tensor.value is None:
        raise GraphError(f"{node.place.path}/Resize: input {slot} is computed, so that it has no gradient")
    rank = node.input(0).rank
    axes = [axis % rank for axis in node.attribute("axes", range(rank))]
    numbers = tensor.value.astype(np.float32).reshape(count, -1).T.tolist()
    return {axis: tuple(pair) for axis, pair in zip(axes, numbers, strict=True)}


def _slots(node: StepOperator, back: Backward, axes: tuple[int, ...]) -> tuple[Item, ...]:
    """Return the inputs that MindSpore's gradient has."""
    x, y, dy = node.input(0), node.outputs[0], back.dy
    transformation = node.attribute("coordinate_transformation_mode", "half_pixel")
    is_aligned, is_half = transformation == "align_corners", transformation == "half_pixel"
    sizes, counts = (np.array([item.shape[axis] for axis in axes], np.int64) for item in (x, y))
    if node.primitive.startswith("Upsample"):
        linear = () if "Nearest" in node.primitive else (is_aligned,)
        return (dy, sizes, counts, None, *linear)
    return (dy, sizes) if node.primitive == "ResizeNearestNeighbor" else (dy, x, is_aligned, is_half)
