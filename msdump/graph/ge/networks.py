"""GE's matrix products and poolings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msdump.errors import InputError
from msdump.graph.ge.body import REQUIRED, CallBody, GeOperator
from msdump.graph.ge.images import AxisOrder, layout

_MATRIX: Final = 2
Window = tuple[list[int], list[int]]
"""Size and strides of a window, depth, height and width."""
_SAME: Final = {"SAME": "SAME_UPPER", "VALID": "VALID"}


def _swapped(b: CallBody, slot: int) -> str:
    rank = len(b.inputs[slot].shape)
    if rank < _MATRIX:
        raise InputError(f"operator {b.op_type!r}: input {slot} of {rank} dimensions cannot be transposed")
    return b.node("Transpose", b.x[slot], perm=[*range(rank - 2), rank - 1, rank - 2])


def _product(first: str, second: str) -> Callable[[CallBody], str]:
    """Return what multiplies matrices, each transposed where an attribute says so; a bias is added."""

    def build(b: CallBody) -> str:
        flags = (b[first] or b["transpose_a"], b[second] or b["transpose_b"])
        sides = [_swapped(b, slot) if flag else b.x[slot] for slot, flag in enumerate(flags)]
        product = b.node("MatMul", *sides)
        return b.node("Add", product, b.x[2]) if len(b.x) > _MATRIX else product

    return build


def _gemm(b: CallBody) -> str:
    sides = [
        _swapped(b, slot) if b[name] else b.x[slot]
        for slot, name in enumerate(("transpose_a", "transpose_b"))
    ]
    product = b.node("Mul", b.node("MatMul", *sides), b.x[3])
    return b.node("Add", product, b.node("Mul", b.x[2], b.x[4]))


def _by_attributes(b: CallBody, images: AxisOrder) -> Window:
    return images.window(b, "ksize"), images.window(b, "strides")


def _by_inputs(b: CallBody, images: AxisOrder) -> Window:
    rank = len(images.name)
    numbers = [b.value(slot) for slot in (1, 2)]
    for slot, found in enumerate(numbers, 1):
        if len(found) != rank:
            raise InputError(f"operator {b.op_type!r}: input {slot} = {found}: {rank} numbers are expected")
    return images.places(numbers[0]), images.places(numbers[1])


def _pooled(
    op_type: str, window: Callable[[CallBody, AxisOrder], Window] = _by_attributes
) -> Callable[[CallBody], str]:
    """Return what pools windows whose padding is ``SAME`` or ``VALID``."""

    def build(b: CallBody) -> str:
        images = layout(b)
        if b["padding"] not in _SAME:
            raise InputError(
                f"operator {b.op_type!r}: attribute 'padding' = {b['padding']!r}: SAME or VALID is expected"
            )
        size, strides = window(b, images)
        made = b.node(
            op_type,
            images.to_host(b, b.x[0]),
            kernel_shape=size,
            strides=strides,
            auto_pad=_SAME[b["padding"]],
        )
        return images.from_host(b, made)

    return build


def _pooled_v3(op_type: str) -> Callable[[CallBody], str]:
    """Return what pools windows whose padding may be given in numbers."""

    def build(b: CallBody) -> str:
        images, mode = layout(b), b["padding_mode"]
        image = images.to_host(b, b.x[0])
        if b["global_pooling"]:
            return images.from_host(b, b.node(f"Global{op_type}", image))
        padding: dict[str, Any] = {"auto_pad": _SAME[mode]} if mode in _SAME else {"pads": images.pads(b)}
        if op_type == "AveragePool":
            padding["count_include_pad"] = int(not b["exclusive"])
        made = b.node(
            op_type,
            image,
            kernel_shape=images.window(b, "ksize"),
            strides=images.window(b, "strides"),
            ceil_mode=int(b["ceil_mode"]),
            **padding,
        )
        return images.from_host(b, made)

    return build


_MINDSPORE: Final = {"transpose_a": False, "transpose_b": False}
_PRODUCT: Final = {"transpose_x1": False, "transpose_x2": False, **_MINDSPORE}
_BATCHED: Final = {"adj_x1": False, "adj_x2": False, **_MINDSPORE}
_OFFSET: Final = {"offset_x": 0}
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
    "MaxPool": GeOperator(_pooled("MaxPool"), _POOL, kind="MaxPool"),
    "AvgPool": GeOperator(_pooled("AveragePool"), _POOL, kind="AvgPool"),
    "MaxPoolV2": GeOperator(
        _pooled("MaxPool", _by_inputs),
        {"padding": REQUIRED, "data_format": None},
        kind="MaxPoolV2",
        constants=frozenset({1, 2}),
        inputs=(3, 3),
    ),
    "MaxPoolV3": GeOperator(_pooled_v3("MaxPool"), _POOL_V3, kind="MaxPool"),
    "AvgPoolV2": GeOperator(_pooled_v3("AveragePool"), _POOL_V3 | {"exclusive": True}, kind="AvgPool"),
}
"""Operators by GE's name."""
