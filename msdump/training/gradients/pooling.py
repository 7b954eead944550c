"""Gradients of pooling."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from msdump.training.gradients.windows import unreached, window_pads
from msdump.training.rules import Backward, Gradients, gradient, mindspore_gradient
from msdump.training.symbols import StepOperator, StepTensor
from msdump.training.writer import StepWriter

_ADAPTIVE: Final = {4: "2D", 5: "3D"}
"""Ranks of data for which MindSpore pools the whole input by an adaptive operator."""

_VOLUMES: Final = 5


def _windows(node: StepOperator) -> dict[str, Any]:
    """Return window, strides, padding, dilations and rounding of a pooling operator."""
    window = tuple(node.attributes["kernel_shape"])
    ones = (1,) * len(window)
    strides, dilations = tuple(node.attribute("strides", ones)), tuple(node.attribute("dilations", ones))
    return {
        "kernel_shape": window,
        "strides": strides,
        "dilations": dilations,
        "pads": window_pads(node, window, strides, dilations),
        "ceil_mode": node.attribute("ceil_mode", 0),
    }


def _whole(x: StepTensor) -> dict[str, Any]:
    """Return the window that is the whole input."""
    window = x.sizes_from(2)
    ones, zeros = (1,) * len(window), (0,) * 2 * len(window)
    return {"kernel_shape": window, "strides": ones, "dilations": ones, "pads": zeros, "ceil_mode": 0}


@gradient("MaxPool")
def _max_pool(op: StepWriter, back: Backward) -> Gradients:
    x, y = back.node.input(0), back.node.outputs[0]
    name = "MaxPool3DGrad" if x.rank == _VOLUMES else "MaxPoolGrad"
    return (op.call(name, x, y, back.dy, like=x, **_windows(back.node)),)


@gradient("GlobalMaxPool")
def _global_max_pool(op: StepWriter, back: Backward) -> Gradients:
    x, y = back.node.input(0), back.node.outputs[0]
    return (op.call("MaxPoolGrad", x, y, back.dy, like=x, **_whole(x)),)


@mindspore_gradient("AdaptiveMaxPool2D", "AdaptiveMaxPool3D")
def _adaptive_max_pool(op: StepWriter, back: Backward) -> Gradients:
    x, argmax = back.node.input(0), back.node.outputs[1]
    return (op.call(f"{back.node.op_type}Grad", back.dy, x, argmax, like=x),)


@gradient("AveragePool")
def _average_pool(op: StepWriter, back: Backward) -> Gradients:
    node, structure = back.node, _windows(back.node)
    missing = unreached(node, structure["kernel_shape"], structure)
    include_pad = node.attribute("count_include_pad", 0)
    return (_averaged(op, node, back.dy, **structure, missing=missing, count_include_pad=include_pad),)


def _averaged(op: StepWriter, node: StepOperator, dy: StepTensor, **structure: Any) -> StepTensor:
    """Write the gradient of an average pooling."""
    x, y = node.input(0), node.outputs[0]
    name, slots = (
        ("AvgPool3DGrad", (_shape(op, x), dy)) if x.rank == _VOLUMES else ("AvgPoolGrad", (x, y, dy))
    )
    result: StepTensor = op.call(name, *slots, like=x, **structure)
    return result


def _shape(op: StepWriter, x: StepTensor) -> StepTensor:
    """Return the dimensions of a tensor as a value: a constant, unless one is free."""
    if all(isinstance(size, int) for size in x.shape):
        return op.constant(np.array(x.shape, np.int64))
    shape: StepTensor = op.Shape(x)
    return shape


@gradient("GlobalAveragePool")
def _global_average_pool(op: StepWriter, back: Backward) -> Gradients:
    x = back.node.input(0)
    if x.rank in _ADAPTIVE:
        return (op.call(f"AdaptiveAvgPool{_ADAPTIVE[x.rank]}Grad", back.dy, _shape(op, x), like=x),)
    whole = _whole(x)
    missing = (0,) * (x.rank - 2)
    return (_averaged(op, back.node, back.dy, **whole, missing=missing, count_include_pad=0),)


@gradient("LpPool")
def _lp_pool(op: StepWriter, back: Backward) -> Gradients:
    node, structure = back.node, _windows(back.node)
    missing = unreached(node, structure["kernel_shape"], structure)
    outer, inner = _norm_slopes(op, back)
    spread = _averaged(op, node, op.Mul(back.dy, outer), **structure, missing=missing, divisor_override=1)
    return (op.Mul(spread, inner),)


@gradient("GlobalLpPool")
def _global_lp_pool(op: StepWriter, back: Backward) -> Gradients:
    outer, inner = _norm_slopes(op, back)
    return (op.Mul(op.Mul(back.dy, outer), inner),)


def _norm_slopes(op: StepWriter, back: Backward) -> tuple[StepTensor, StepTensor]:
    """Return the slopes of a norm of order p, (sum |x|^p)^(1/p): that of the root and that of the powers.

    They are y^(1-p), 0 where the norm is 0, and sign(x) |x|^(p-1).
    """
    x, y, p = back.node.input(0), back.node.outputs[0], float(back.node.attribute("p", 2))
    is_zero = op.Equal(y, 0.0)
    outer = op.Where(is_zero, 0.0, op.Pow(op.Where(is_zero, 1.0, y), 1.0 - p))
    return outer, op.Mul(op.Sign(x), op.Pow(op.Abs(x), p - 1.0))
