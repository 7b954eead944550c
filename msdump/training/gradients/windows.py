"""Gradients of convolutions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from msdump.training.operators.convolutions import CONVOLUTION, PRODUCTS, SUMS
from msdump.training.rules import Backward, Gradients, gradient
from msdump.training.symbols import StepOperator, StepTensor
from msdump.training.writer import StepWriter

Ints = tuple[int, ...]

_WIDE: Final = 16
"""Input channels from which on products of matrices with them are faster than a convolution."""

_VOLUMES: Final = 5
"""Rank of the data of Conv3D, whose gradients take their inputs in another order than Conv2D's."""


def window_pads(node: StepOperator, window: Ints, strides: Ints, dilations: Ints) -> Ints:
    """Return the padding of a window operator, ``auto_pad`` worked out: all begins, then all ends."""
    rank = len(window)
    mode = node.attribute("auto_pad", "NOTSET")
    if mode == "NOTSET":
        return tuple(node.attribute("pads", (0,) * 2 * rank))
    if mode == "VALID":
        return (0,) * 2 * rank
    sizes = node.input(0).sizes_from(2)
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
    node = back.node
    x, w = node.input(0), node.input(1)
    structure = convolution(node)
    dw = _filter_gradient(op, w, back.dy, x, structure) if back.wants[1] else None
    dx = None
    if back.wants[0]:
        name, slots = ("Conv3D", (w, back.dy)) if x.rank == _VOLUMES else ("Conv2D", (back.dy, w))
        missing = unreached(node, w.sizes()[2:], structure)
        dx = op.call(
            f"{name}BackpropInput", *slots, like=x, **structure, **_form(w, structure), missing=missing
        )
    return dx, dw


def _filter_gradient(
    op: StepWriter, w: StepTensor, dy: StepTensor, x: StepTensor, structure: Mapping[str, Any]
) -> StepTensor:
    """Write the gradient of a weight that makes ``dy``'s forward value of ``x``."""
    name, slots = ("Conv3D", (x, dy)) if x.rank == _VOLUMES else ("Conv2D", (dy, x))
    result: StepTensor = op.call(f"{name}BackpropFilter", *slots, like=w, **structure, **_form(w, structure))
    return result


def _form(w: StepTensor, structure: Mapping[str, Any]) -> dict[str, Any]:
    """Return what bodies have to know of a weight: the window's sizes, and the form that is fastest."""
    filters, channels, *window = w.sizes()
    if structure["group"] == 1 and (channels >= _WIDE or math.prod(window) == 1):
        form = PRODUCTS
    elif structure["group"] == filters and channels == 1 and set(structure["strides"]) == {1}:
        form = SUMS
    else:
        form = CONVOLUTION
    return {"window": tuple(window), "form": form}


def unreached(node: StepOperator, window: Ints, structure: Mapping[str, Any]) -> Ints:
    """Return how many rows and columns at the end of the padded input no window reaches.

    A negative number tells how far the last window reaches beyond the padding (``ceil_mode``).
    """
    if all(step == 1 for step in structure["strides"]):  # none, whatever the sizes are
        return (0,) * len(structure["strides"])
    sizes, counts = node.input(0).sizes_from(2), node.outputs[0].sizes_from(2)
    pads, rank = structure["pads"], len(window)
    steps = zip(sizes, window, counts, structure["strides"], structure["dilations"], strict=True)
    return tuple(
        size + pads[axis] + pads[axis + rank] - ((count - 1) * stride + (length - 1) * dilation + 1)
        for axis, (size, length, count, stride, dilation) in enumerate(steps)
    )


@gradient("ConvTranspose")
def _conv_transpose(op: StepWriter, back: Backward) -> Gradients:
    node, dy = back.node, back.dy
    x, w = node.input(0), node.input(1)
    structure = _transposed(node)
    # the weight belongs to the convolution that leads from the result to the input
    dw = _filter_gradient(op, w, x, dy, structure) if back.wants[1] else None
    dx = op.Conv(dy, w, **structure) if back.wants[0] else None
    return dx, dw


def _transposed(node: StepOperator) -> dict[str, Any]:
    """Return strides, padding, dilations and groups of a transposed convolution."""
    window = node.input(1).sizes()[2:]
    ones, zeros = (1,) * len(window), (0,) * len(window)
    strides, dilations = tuple(node.attribute("strides", ones)), tuple(node.attribute("dilations", ones))
    mode = node.attribute("auto_pad", "NOTSET")
    pads = tuple(node.attribute("pads", (*zeros, *zeros)))
    if mode in {"SAME_UPPER", "SAME_LOWER"} or node.attribute("output_shape", None) is not None:
        totals = []
        added = node.attribute("output_padding", zeros)
        wholes = zip(node.input(0).sizes_from(2), node.outputs[0].sizes_from(2), strict=True)
        for axis, (size, result) in enumerate(wholes):
            reach = (window[axis] - 1) * dilations[axis] + 1
            totals.append(max(strides[axis] * (size - 1) + added[axis] + reach - result, 0))
        small, large = [total // 2 for total in totals], [total - total // 2 for total in totals]
        pads = (*small, *large) if mode == "SAME_UPPER" else (*large, *small)
    elif mode == "VALID":
        pads = (*zeros, *zeros)
    return {"strides": strides, "pads": pads, "dilations": dilations, "group": node.attribute("group", 1)}
