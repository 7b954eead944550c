"""Convolutions and pooling, and their gradients in the form that is fastest for their structure.

A bias is an operator of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from msdump.graph import Use, primitive_name
from msdump.graph.primitives import CONVOLUTION, PRODUCTS, SUMS, Ints, op
from msdump.training.operators.shapes import shape_of
from msdump.training.rules import Backward, Gradients, gradient, keep, lowering, mindspore_gradient
from msdump.training.writer import StepOperator, StepTensor


@lowering("Conv", "ConvTranspose")
def _lower_conv(node: StepOperator) -> None:
    out = node.y
    if node.optional(2) is None:
        keep(node)
        return
    (product,) = op.emit(node.op_type, node.inputs[:2], node.attributes)
    layout = "NCDHW" if out.rank == VOLUMES else "NCHW"
    op.call("BiasAdd", product, node.input(2), layout, outputs=[out], rank=out.rank)


_WIDE: Final = 16
"""Input channels from which on products of matrices with them are faster than a convolution."""

VOLUMES: Final = 5
"""Rank of the data of Conv3D; its gradients have their inputs in another order than Conv2D's."""


def window_steps(node: StepOperator, window: Ints) -> dict[str, Ints]:
    """Return strides, dilations and padding of windows: all begins, then all ends, as ``auto_pad`` says."""
    ones, zeros = (1,) * len(window), (0,) * len(window)
    strides, dilations = (tuple(node.attribute(name, ones)) for name in ("strides", "dilations"))
    mode = node.attribute("auto_pad", "NOTSET")
    pads = (*zeros, *zeros) if mode == "VALID" else tuple(node.attribute("pads", (*zeros, *zeros)))
    if mode.startswith("SAME") or node.attribute("output_shape", None) is not None:
        ends = (node.x, node.y) if node.op_type == "ConvTranspose" else (node.y, node.x)
        added = node.attribute("output_padding", zeros)
        axes = zip(*(end.sizes_from(2) for end in ends), window, strides, dilations, added, strict=True)
        totals = [
            max((count - 1) * stride + (length - 1) * step + 1 + more - size, 0)
            for count, size, length, stride, step, more in axes
        ]
        small, large = [total // 2 for total in totals], [total - total // 2 for total in totals]
        # of an odd total, one side has one element more
        pads = (*small, *large) if mode == "SAME_UPPER" else (*large, *small)
    return {"strides": strides, "pads": pads, "dilations": dilations}


def _convolution(node: StepOperator, w: StepTensor) -> dict[str, Any]:
    """Return strides, padding, dilations and groups of a convolution, transposed or not."""
    return {**window_steps(node, w.sizes()[2:]), "group": node.attribute("group", 1)}


def _named(gradient: str, x: StepTensor) -> str:
    """Return MindSpore's name of the gradient of a convolution of data of a rank."""
    return primitive_name("Conv", "", Use(input_ranks=(x.rank,))) + gradient


@gradient("Conv")
def _conv(back: Backward) -> Gradients:
    x, w = back.x, back.input(1)
    structure = _convolution(back, w)
    dw = _filter_gradient(w, back.dy, x, structure) if back.wants[1] else None
    dx = None
    if back.wants[0]:
        slots = (w, back.dy) if x.rank == VOLUMES else (back.dy, w)
        missing = unreached(back, w.sizes()[2:], structure)
        structure |= _form(w, structure)
        dx = op.call(_named("BackpropInput", x), *slots, like=x, **structure, missing=missing)
    return dx, dw


def _filter_gradient(
    w: StepTensor, dy: StepTensor, x: StepTensor, structure: Mapping[str, Any]
) -> StepTensor:
    """Write the gradient of the weight of a convolution with input ``x`` and output gradient ``dy``."""
    slots = (x, dy) if x.rank == VOLUMES else (dy, x)
    return op.call(_named("BackpropFilter", x), *slots, like=w, **structure, **_form(w, structure))


def _form(w: StepTensor, structure: Mapping[str, Any]) -> dict[str, Any]:
    """Return the window of a weight, and the fastest of the forms PRODUCTS, SUMS and CONVOLUTION."""
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

    Negative: how far the last window reaches beyond the padding (``ceil_mode``).
    """
    if all(step == 1 for step in structure["strides"]):  # no strides: every row is reached
        return (0,) * len(structure["strides"])
    sizes, counts = node.x.sizes_from(2), node.y.sizes_from(2)
    pads, rank = structure["pads"], len(window)
    steps = zip(sizes, window, counts, structure["strides"], structure["dilations"], strict=True)
    return tuple(
        size + pads[axis] + pads[axis + rank] - ((count - 1) * stride + (length - 1) * dilation + 1)
        for axis, (size, length, count, stride, dilation) in enumerate(steps)
    )


@gradient("ConvTranspose")
def _conv_transpose(back: Backward) -> Gradients:
    dy = back.dy
    x, w = back.x, back.input(1)
    structure = _convolution(back, w)
    # the weight is that of a convolution from the result to the input
    dw = _filter_gradient(w, x, dy, structure) if back.wants[1] else None
    dx = op.Conv(dy, w, **structure) if back.wants[0] else None
    return dx, dw


@lowering("GlobalMaxPool")
def _lower_global_max_pool(node: StepOperator) -> None:
    x, y = node.x, node.y
    if node.primitive.startswith("Adaptive"):
        op.call(node.primitive, x, (1,) * (x.rank - 2), outputs=[y])
    else:
        keep(node)


def _windows(node: StepOperator) -> dict[str, Any]:
    """Return window, strides, padding, dilations and rounding of a pooling operator."""
    window = tuple(node.attributes.get("kernel_shape") or node.x.sizes_from(2))
    rounding = node.attribute("ceil_mode", 0)
    return {"kernel_shape": window, **window_steps(node, window), "ceil_mode": rounding}


@gradient("MaxPool", "GlobalMaxPool")
def _max_pool(back: Backward) -> Gradients:
    return op.call(f"{back.primitive}Grad", back.x, back.y, back.dy, like=back.x, **_windows(back))


@mindspore_gradient("AdaptiveMaxPool2D", "AdaptiveMaxPool3D")
def _adaptive_max_pool(back: Backward) -> Gradients:
    x, argmax = back.x, back.outputs[1]
    return op.call(f"{back.op_type}Grad", back.dy, x, argmax, like=x)


@gradient("AveragePool", "GlobalAveragePool")
def _average_pool(back: Backward) -> Gradients:
    x, dy, name = back.x, back.dy, f"{back.primitive}Grad"
    if back.primitive.startswith("Adaptive"):
        return op.call(name, dy, shape_of(x), like=x)
    structure = _windows(back)
    structure["missing"] = unreached(back, structure["kernel_shape"], structure)
    structure["count_include_pad"] = back.attribute("count_include_pad", 0)
    slots = (shape_of(x), dy) if x.rank == VOLUMES else (x, back.y, dy)
    settings = pool_settings(back) if back.primitive == "AvgPool" else ()
    return op.call(name, *slots, *settings, like=x, **structure)


def pool_settings(node: StepOperator) -> tuple[Ints, Ints, str]:
    """Return window, strides and MindSpore's name of the padding of AvgPool, ``valid`` for none."""
    window = node.attributes["kernel_shape"]
    mode = str(node.attribute("auto_pad", "NOTSET"))
    is_padded = mode == "NOTSET" and any(node.attribute("pads", ()))
    padding = "same" if mode.startswith("SAME") else "pad" if is_padded else "valid"
    return window, node.attribute("strides", (1,) * len(window)), padding
