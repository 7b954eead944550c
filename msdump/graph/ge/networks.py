"""GE's matrix products, convolutions and poolings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msdump.errors import InputError
from msdump.graph.ge.body import REQUIRED, Body, GeOperator

_MATRIX: Final = 2
_TO_HOST: Final = {"NCHW": [], "NHWC": [0, 3, 1, 2], "HWCN": [3, 2, 0, 1]}
"""Where the axes of each layout stand that make NCHW."""
_FROM_HOST: Final = [0, 2, 3, 1]
_OF_NHWC: Final = {
    "Conv2D": "Conv2DOfNHWC",
    "DepthwiseConv2dNative": "DepthwiseConv2DOfNHWC",
    "MaxPool": "MaxPoolOfNHWC",
    "AvgPool": "AvgPoolOfNHWC",
}
_SAME: Final = {"SAME": "SAME_UPPER", "VALID": "VALID"}


def _swapped(b: Body, slot: int) -> str:
    rank = len(b.inputs[slot].shape)
    if rank < _MATRIX:
        raise InputError(f"operator {b.op_type!r}: input {slot} of {rank} dimensions cannot be transposed")
    return b.node("Transpose", b.x[slot], perm=[*range(rank - 2), rank - 1, rank - 2])


def _product(first: str, second: str) -> Callable[[Body], str]:
    """Return what multiplies matrices, each transposed where an attribute says so; a bias is added."""

    def build(b: Body) -> str:
        flags = (b[first] or b["transpose_a"], b[second] or b["transpose_b"])
        sides = [_swapped(b, slot) if flag else b.x[slot] for slot, flag in enumerate(flags)]
        product = b.node("MatMul", *sides)
        return b.node("Add", product, b.x[2]) if len(b.x) > _MATRIX else product

    return build


def _gemm(b: Body) -> str:
    sides = [
        _swapped(b, slot) if b[name] else b.x[slot]
        for slot, name in enumerate(("transpose_a", "transpose_b"))
    ]
    product = b.node("Mul", b.node("MatMul", *sides), b.x[3])
    return b.node("Add", product, b.node("Mul", b.x[2], b.x[4]))


def _layout(b: Body) -> str:
    """Return the layout of images: what ``data_format`` says, else what the caller's description does."""
    given = b["data_format"] or (b.inputs[0].format if b.inputs[0].format in {"NCHW", "NHWC"} else "NCHW")
    if given not in {"NCHW", "NHWC"}:
        raise InputError(
            f"operator {b.op_type!r}: attribute 'data_format' = {given!r}: NCHW or NHWC is expected"
        )
    if given == "NHWC" and b.kind in _OF_NHWC:
        b.kind = _OF_NHWC[b.kind]  # the device's image formats are those of NCHW
    return str(given)


def _window(b: Body, name: str, layout: str) -> list[int]:
    """Return what an attribute with one number for each axis says of height and width."""
    at = 2 if layout == "NCHW" else 1
    return b.listed(name, 4)[at : at + 2]


def _on_host(b: Body, name: str, layout: str) -> str:
    order = _TO_HOST[layout]
    return b.node("Transpose", name, perm=order) if order else name


def _from_host(b: Body, name: str, layout: str) -> str:
    return b.node("Transpose", name, perm=_FROM_HOST) if layout == "NHWC" else name


def _pads(b: Body, name: str) -> list[int]:
    """Return pads in ONNX's order, both begins and both ends."""
    top, bottom, left, right = b.listed(name, 4)
    return [top, left, bottom, right]


def _filter(b: Body, layout: str) -> str:
    stated = b.inputs[1].format
    usual = "HWCN" if layout == "NHWC" else "NCHW"
    return _on_host(b, b.x[1], stated if stated in _TO_HOST else usual)


def _convolution(b: Body) -> str:
    layout = _layout(b)
    made = b.node(
        "Conv",
        _on_host(b, b.x[0], layout),
        _filter(b, layout),
        *b.x[2:3],
        strides=_window(b, "strides", layout),
        dilations=_window(b, "dilations", layout),
        pads=_pads(b, "pads"),
        group=b["groups"],
    )
    return _from_host(b, made, layout)


def _depthwise(b: Body) -> str:
    layout = _layout(b)
    image = b.inputs[0].shape
    channels = image[1] if layout == "NCHW" else image[3]
    weight = _filter(b, layout)
    by_channel = b.node("Transpose", weight, perm=[1, 0, 2, 3])  # each channel's multiples stand together
    shape = b.constant([-1, 1, *_kernel(b, layout)])
    made = b.node(
        "Conv",
        _on_host(b, b.x[0], layout),
        b.node("Reshape", by_channel, shape),
        *b.x[2:3],
        strides=_window(b, "strides", layout),
        dilations=_window(b, "dilations", layout),
        pads=_pads(b, "pads"),
        group=channels,
    )
    return _from_host(b, made, layout)


def _kernel(b: Body, layout: str) -> tuple[int, ...]:
    stated = b.inputs[1].format
    usual = "HWCN" if layout == "NHWC" else "NCHW"
    order = _TO_HOST[stated if stated in _TO_HOST else usual] or [0, 1, 2, 3]
    return tuple(b.inputs[1].shape[axis] for axis in order[2:])


def _pooled(op_type: str, **fixed: int) -> Callable[[Body], str]:
    """Return what pools windows whose padding is ``SAME`` or ``VALID``."""

    def build(b: Body) -> str:
        layout = _layout(b)
        if b["padding"] not in _SAME:
            raise InputError(
                f"operator {b.op_type!r}: attribute 'padding' = {b['padding']!r}: SAME or VALID is expected"
            )
        made = b.node(
            op_type,
            _on_host(b, b.x[0], layout),
            kernel_shape=_window(b, "ksize", layout),
            strides=_window(b, "strides", layout),
            auto_pad=_SAME[b["padding"]],
            **fixed,
        )
        return _from_host(b, made, layout)

    return build


def _pooled_v3(op_type: str) -> Callable[[Body], str]:
    """Return what pools windows whose padding may be given in numbers."""

    def build(b: Body) -> str:
        layout, mode = _layout(b), b["padding_mode"]
        image = _on_host(b, b.x[0], layout)
        if b["global_pooling"]:
            return _from_host(b, b.node(f"Global{op_type}", image), layout)
        padding: dict[str, Any] = {"auto_pad": _SAME[mode]} if mode in _SAME else {"pads": _pads(b, "pads")}
        if op_type == "AveragePool":
            padding["count_include_pad"] = int(not b["exclusive"])
        made = b.node(
            op_type,
            image,
            kernel_shape=_window(b, "ksize", layout),
            strides=_window(b, "strides", layout),
            ceil_mode=int(b["ceil_mode"]),
            **padding,
        )
        return _from_host(b, made, layout)

    return build


_MINDSPORE: Final = {"transpose_a": False, "transpose_b": False}
_PRODUCT: Final = {"transpose_x1": False, "transpose_x2": False, **_MINDSPORE}
_BATCHED: Final = {"adj_x1": False, "adj_x2": False, **_MINDSPORE}
_OFFSET: Final = {"offset_x": 0}
_WINDOW: Final = {
    "strides": REQUIRED,
    "pads": REQUIRED,
    "dilations": [1, 1, 1, 1],
    "data_format": None,
    "offset_x": 0,
}
_POOL: Final = {"ksize": REQUIRED, "strides": REQUIRED, "padding": REQUIRED, "data_format": None}
_POOL_V3: Final = {
    "ksize": REQUIRED,
    "strides": REQUIRED,
    "padding_mode": "CALCULATED",
    "pads": [0, 0, 0, 0],
    "data_format": None,
    "global_pooling": False,
    "ceil_mode": False,
}
_WITH_BIAS: Final = (2, 3)

TABLE: Final[dict[str, GeOperator]] = {
    "MatMul": GeOperator(
        _product("transpose_x1", "transpose_x2"), _PRODUCT, kind="MatMul", inputs=_WITH_BIAS
    ),
    **{
        name: GeOperator(
            _product("transpose_x1", "transpose_x2"), _PRODUCT | _OFFSET, kind="MatMul", inputs=_WITH_BIAS
        )
        for name in ("MatMulV2", "MatMulV3")
    },
    "BatchMatMul": GeOperator(_product("adj_x1", "adj_x2"), _BATCHED, kind="BatchMatMul", inputs=(2, 2)),
    **{
        name: GeOperator(
            _product("adj_x1", "adj_x2"), _BATCHED | _OFFSET, kind="BatchMatMul", inputs=_WITH_BIAS
        )
        for name in ("BatchMatMulV2", "BatchMatMulV3")
    },
    "GEMM": GeOperator(_gemm, _MINDSPORE, kind="MatMul", inputs=(5, 5)),
    "Conv2D": GeOperator(_convolution, _WINDOW | {"groups": 1}, kind="Conv2D", inputs=_WITH_BIAS),
    "DepthwiseConv2D": GeOperator(_depthwise, _WINDOW, kind="DepthwiseConv2dNative", inputs=_WITH_BIAS),
    "MaxPool": GeOperator(_pooled("MaxPool"), _POOL, kind="MaxPool"),
    "AvgPool": GeOperator(_pooled("AveragePool"), _POOL, kind="AvgPool"),
    "MaxPoolV3": GeOperator(_pooled_v3("MaxPool"), _POOL_V3, kind="MaxPool"),
    "AvgPoolV2": GeOperator(_pooled_v3("AveragePool"), _POOL_V3 | {"exclusive": True}, kind="AvgPool"),
}
"""Operators by GE's name."""
