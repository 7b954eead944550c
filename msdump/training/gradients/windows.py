"""Gradients of convolutions and pooling."""

from __future__ import annotations

import math
from typing import Any, Final

from msdump.errors import GraphError
from msdump.training.rules import Backward, Gradients, gradient
from msdump.training.writer import StepOperator, StepWriter

Ints = tuple[int, ...]

_NARROW: Final = 16
"""Input channels of a group, below which products of matrices with them are slower than a convolution."""


def window_pads(node: StepOperator, window: Ints, strides: Ints, dilations: Ints) -> Ints:
    """Return the padding of a window operator, ``auto_pad`` worked out: all begins, then all ends."""
    rank = len(window)
    mode = node.attribute("auto_pad", "NOTSET")
    if mode == "NOTSET":
        return tuple(node.attribute("pads", (0,) * 2 * rank))
    if mode == "VALID":
        return (0,) * 2 * rank
    sizes = node.input(0).sizes()[2:]
    begins, ends = [], []
    for size, length, stride, dilation in zip(sizes, window, strides, dilations, strict=True):
        reach = (length - 1) * dilation + 1
        total = max((-(-size // stride) - 1) * stride + reach - size, 0)
        small, large = total // 2, total - total // 2
        begins.append(small if mode == "SAME_UPPER" else large)
        ends.append(large if mode == "SAME_UPPER" else small)
    return (*begins, *ends)


def convolution(node: StepOperator) -> dict[str, Any]:
    """Return strides, padding, dilations and groups of a convolution."""
    window = node.input(1).sizes()[2:]
    ones = (1,) * len(window)
    strides = tuple(node.attribute("strides", ones))
    dilations = tuple(node.attribute("dilations", ones))
    pads = window_pads(node, window, strides, dilations)
    return {"strides": strides, "pads": pads, "dilations": dilations, "group": node.attribute("group", 1)}


@gradient("Conv")
def _conv(op: StepWriter, back: Backward) -> Gradients:
    node, dy = back.node, back.dy
    x, w = node.input(0), node.input(1)
    structure, window = convolution(node), w.sizes()[2:]
    name = "Conv3D" if x.rank == 5 else "Conv2D"
    dw = dx = None
    if back.wants[1]:
        narrow = int(w.sizes()[1] < _NARROW and math.prod(window) > 1)
        dw = op.call(f"{name}BackpropFilter", dy, x, like=w, **structure, window=window, narrow=narrow)
    if back.wants[0]:
        missing = _missing(node, structure)
        dx = op.call(f"{name}BackpropInput", dy, w, like=x, **structure, window=window, missing=missing)
    return dx, dw


def _missing(node: StepOperator, structure: dict[str, Any]) -> Ints:
    """Return how many rows and columns at the end of the padded input no window reached."""
    if all(step == 1 for step in structure["strides"]):  # none, whatever the sizes are
        return (0,) * len(structure["strides"])
    sizes, window = node.input(0).sizes_from(2), node.input(1).sizes()[2:]
    counts = node.outputs[0].sizes_from(2)
    pads, rank = structure["pads"], len(window)
    steps = zip(sizes, window, counts, structure["strides"], structure["dilations"], strict=True)
    return tuple(
        size + pads[axis] + pads[axis + rank] - ((count - 1) * stride + (length - 1) * dilation + 1)
        for axis, (size, length, count, stride, dilation) in enumerate(steps)
    )


@gradient("MaxPool")
def _max_pool(op: StepWriter, back: Backward) -> Gradients:
    node = back.node
    window = tuple(node.attributes["kernel_shape"])
    ones = (1,) * len(window)
    if node.attribute("storage_order", 0) or len(node.outputs) > 1:
        raise GraphError(f"{node.place.path}: MaxPool with indices has no gradient")
    strides, dilations = tuple(node.attribute("strides", ones)), tuple(node.attribute("dilations", ones))
    structure = {"kernel_shape": window, "strides": strides, "dilations": dilations}
    pads = window_pads(node, window, strides, dilations)
    x, y = node.input(0), node.outputs[0]
    name = "MaxPool3DGrad" if x.rank == 5 else "MaxPoolGrad"
    ceil_mode = node.attribute("ceil_mode", 0)
    return (op.call(name, x, y, back.dy, like=x, **structure, pads=pads, ceil_mode=ceil_mode),)
