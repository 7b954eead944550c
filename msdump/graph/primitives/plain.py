"""Primitives that are operators of ONNX's with the same inputs, and attributes of other names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msdump.graph.primitives.call import PLAIN, Call

_SAME: Final = """
    Abs Acosh ACos=Acos Add Asin Asinh Atan Atanh Ceil Cos Cosh Div Equal Erf Exp Floor Greater
    GreaterEqual=GreaterOrEqual HSwish=HardSwish IsInf IsNan=IsNaN Less LessEqual=LessOrEqual Log
    LogicalAnd=And LogicalNot=Not LogicalOr=Or LogicalXor=Xor Maximum=Max Minimum=Min Mish Mul Neg Pow
    RealDiv=Div Reciprocal ReLU=Relu Select=Where Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Tan
    Tanh TensorMove=Identity
"""


def _named(op_type: str) -> Callable[[Call], tuple[str, Mapping[str, Any]]]:
    return lambda _: (op_type, {})


for _item in _SAME.split():
    _name, _, _op_type = _item.partition("=")
    PLAIN[_name] = _named(_op_type or _name)


def window_pads(
    call: Call, window: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[int]:
    """Return ONNX's pads of a window: the given ones, none, or those that keep the size by the stride."""
    rank = len(window)
    mode = call.argument("pad_mode", "pad")
    mode = {0: "pad", 1: "same", 2: "valid"}.get(mode, mode)
    if str(mode).lower() == "valid":
        return [0] * (2 * rank)
    if str(mode).lower() == "pad":
        given = call.argument("pad") or call.argument("pad_list") or (0,) * (2 * rank)
        given = (given,) * (2 * rank) if isinstance(given, int) else tuple(given)
        # MindSpore lists begin and end of each axis in turn
        return [*given[0::2], *given[1::2]]
    begins, ends = [], []
    for size, width, stride, dilation in zip(call.sizes()[-rank:], window, strides, dilations, strict=True):
        total = max((-(-size // stride) - 1) * stride + dilation * (width - 1) + 1 - size, 0)
        begins.append(total // 2)
        ends.append(total - total // 2)
    return begins + ends


def spatial(value: Any, rank: int) -> tuple[int, ...]:
    """Return one number for each axis of a window: of (1, 1, h, w) or (h, w), or of one number for all."""
    return (value,) * rank if isinstance(value, int) else tuple(value[-rank:])


def _convolution(call: Call) -> tuple[str, Mapping[str, Any]]:
    window = call.sizes(1)[2:]
    rank = len(window)
    strides, dilations = (spatial(call.argument(name, 1), rank) for name in ("stride", "dilation"))
    pads = window_pads(call, window, strides, dilations)
    group = call.argument("group") or call.argument("groups") or 1
    return "Conv", {
        "kernel_shape": window,
        "strides": strides,
        "dilations": dilations,
        "pads": pads,
        "group": group,
    }


def _max_pool(call: Call) -> tuple[str, Mapping[str, Any]]:
    rank = len(call.sizes()) - 2
    window, strides = (spatial(call.argument(name, 1), rank) for name in ("kernel_size", "strides"))
    pads = window_pads(call, window, strides, (1,) * rank)
    return "MaxPool", {
        "kernel_shape": window,
        "strides": strides,
        "pads": pads,
        "ceil_mode": int(bool(call.argument("ceil_mode", 0))),
    }


PLAIN.update(Conv2D=_convolution, Conv3D=_convolution, MaxPool=_max_pool, MaxPool3D=_max_pool)
