"""Images and volumes that are read at the places of a grid, and the gradients of both."""

from __future__ import annotations

import numpy as np

from msdump.errors import GraphError
from msdump.graph.primitives import op
from msdump.training.rules import Backward, Gradients, gradient
from msdump.training.writer import StepOperator


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
