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


def _swapped(call: CallBody, slot: int) -> str:
    """Return an input with its last two axes exchanged."""
    rank = len(call.inputs[slot].shape)
    if rank < _MATRIX:
        raise InputError(f"operator {call.op_type!r}: input {slot} of {rank} dimensions cannot be transposed")
    return call.node("Transpose", call.x[slot], perm=[*range(rank - 2), rank - 1, rank - 2])


def _product(first: str, second: str) -> Callable[[CallBody], str]:
    """Return the builder of a matrix product; the attributes of these names transpose its sides."""

    def build(call: CallBody) -> str:
        # GE's names of the flags and MindSpore's are both accepted
        flags = (call[first] or call["transpose_a"], call[second] or call["transpose_b"])
        sides = [_swapped(call, slot) if flag else call.x[slot] for slot, flag in enumerate(flags)]
        product = call.node("MatMul", *sides)
        return call.node("Add", product, call.x[2]) if len(call.x) > _MATRIX else product

    return build


def _gemm(call: CallBody) -> str:
    sides = [
        _swapped(call, slot) if call[name] else call.x[slot]
        for slot, name in enumerate(("transpose_a", "transpose_b"))
    ]
    product = call.node("Mul", call.node("MatMul", *sides), call.x[3])
    return call.node("Add", product, call.node("Mul", call.x[2], call.x[4]))


def _by_attributes(call: CallBody, images: AxisOrder) -> Window:
    return images.window(call, "ksize"), images.window(call, "strides")


def _by_inputs(call: CallBody, images: AxisOrder) -> Window:
    rank = len(images.name)
    numbers = [call.value(slot) for slot in (1, 2)]
    for slot, window in enumerate(numbers, 1):
        if len(window) != rank:
            raise InputError(
                f"operator {call.op_type!r}: input {slot} = {window}: {rank} numbers are expected"
            )
    return images.places(numbers[0]), images.places(numbers[1])


def _pooled(
    op_type: str, window: Callable[[CallBody, AxisOrder], Window] = _by_attributes
) -> Callable[[CallBody], str]:
    """Return the builder of a pooling whose attribute ``padding`` is ``SAME`` or ``VALID``."""

    def build(call: CallBody) -> str:
        images = layout(call)
        if call["padding"] not in _SAME:
            raise InputError(
                f"operator {call.op_type!r}: attribute 'padding' = {call['padding']!r}:"
                " SAME or VALID is expected"
            )
        size, strides = window(call, images)
        result = call.node(
            op_type,
            images.to_host(call, call.x[0]),
            kernel_shape=size,
            strides=strides,
            auto_pad=_SAME[call["padding"]],
        )
        return images.from_host(call, result)

    return build


def _pooled_v3(op_type: str) -> Callable[[CallBody], str]:
    """Return the builder of a pooling whose padding may also be stated in numbers (``CALCULATED``)."""

    def build(call: CallBody) -> str:
        images, mode = layout(call), call["padding_mode"]
        image = images.to_host(call, call.x[0])
        if call["global_pooling"]:
            return images.from_host(call, call.node(f"Global{op_type}", image))
        padding: dict[str, Any] = {"auto_pad": _SAME[mode]} if mode in _SAME else {"pads": images.pads(call)}
        if op_type == "AveragePool":
            # GE asks whether padding is left out of the average, ONNX whether it counts
            padding["count_include_pad"] = int(not call["exclusive"])
        result = call.node(
            op_type,
            image,
            kernel_shape=images.window(call, "ksize"),
            strides=images.window(call, "strides"),
            ceil_mode=int(call["ceil_mode"]),
            **padding,
        )
        return images.from_host(call, result)

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
    # poolings: V2 has the window as inputs, V3 padding in numbers
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
