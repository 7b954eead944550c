"""GE's operators of networks: convolutions, pooling, products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from msdump.graph.body import BodyValue as Value
from msdump.graph.ge.body import REQUIRED, CallBody, GeOperator

_HOST: Final = "NCHW"
"""The runtime's layout of images, with the channels before the spatial axes."""
_LAST: Final = "NHWC"
_FILTERS_LAST: Final = "HWCN"
_MATRIX: Final = 2
IMAGE: Final = 4
"""Rank of images."""


@dataclass(frozen=True, slots=True)
class AxisOrder:
    """The order of the axes of images or filters, ``NHWC``."""

    name: str

    def to_host(self, call: CallBody, value: Value) -> Value:
        """Return a value of this layout in the runtime's."""
        perm = [self.name.index(axis) for axis in _HOST]
        return value if self.name == _HOST else call.Transpose(value, perm=perm)

    def from_host(self, call: CallBody, value: Value) -> Value:
        """Return a value of the runtime's layout in this one."""
        perm = [_HOST.index(axis) for axis in self.name]
        return value if self.name == _HOST else call.Transpose(value, perm=perm)

    def sorted(self, numbers: list[int] | tuple[int, ...]) -> list[int]:
        """Return numbers, one for each axis of this layout, in the runtime's order."""
        return [numbers[self.name.index(axis)] for axis in _HOST]

    def window(self, call: CallBody, attribute: str) -> list[int]:
        """Return the numbers of height and width out of an attribute with one for each axis."""
        return self.sorted(call.integer_list(attribute, IMAGE))[2:]


def layout(call: CallBody) -> AxisOrder:
    """Return the layout of images: ``data_format``, else the format that the caller gives for input 0.

    Device formats start from channels before spatial axes (NCHW); another layout changes the call's kind,
    ``Conv2DOfNHWC``, which has no device format.
    """
    name, shape = call["data_format"] or described(call).name, call.inputs[0].shape
    if name not in {_HOST, _LAST}:
        raise call.fault(f"attribute 'data_format' = {name!r}: must be {_HOST} or {_LAST}")
    if len(shape) != IMAGE:
        raise call.fault(f"input 0 of shape {shape}: must have {IMAGE} dimensions")
    if name == _LAST:
        call.kind = f"{call.kind}Of{name}"
    return AxisOrder(name)


def described(call: CallBody) -> AxisOrder:
    """Return the layout of images as the caller describes them, by default the runtime's."""
    # ND and device formats say nothing of the order of axes
    return AxisOrder(_LAST if call.inputs[0].format == _LAST else _HOST)


def _pads(call: CallBody) -> list[int]:
    """Return pads in ONNX's order, all begins and then all ends; GE has begin and end of each axis."""
    pairs = call.integer_list("pads", 2 * _MATRIX)
    return [*pairs[0::2], *pairs[1::2]]


def _convolution(call: CallBody, *, by_channel: bool = False) -> Value:
    images = layout(call)
    stated = call.inputs[1].format
    if sorted(stated) == sorted(_HOST):
        kernels = AxisOrder(stated)
    else:  # TensorFlow's pair: images NHWC with filters HWCN; ONNX's: NCHW with NCHW
        kernels = AxisOrder(_HOST if images.name == _HOST else _FILTERS_LAST)
    filters = kernels.to_host(call, call.x[1])
    if by_channel:
        # ONNX: all filters of a channel stand together, as outputs of the channel's group
        filters = call.Transpose(filters, perm=[1, 0, 2, 3])
        filters = call.Reshape(filters, [-1, 1, *kernels.sorted(call.inputs[1].shape)[2:]])
    result = call.Conv(
        images.to_host(call, call.x[0]),
        filters,
        *call.x[2:3],
        group=images.sorted(call.inputs[0].shape)[1] if by_channel else call["groups"],
        strides=images.window(call, "strides"),
        dilations=images.window(call, "dilations"),
        pads=_pads(call),
    )
    return images.from_host(call, result)


def _swapped(call: CallBody, slot: int) -> Value:
    rank = len(call.inputs[slot].shape)
    if rank < _MATRIX:
        raise call.fault(f"input {slot} of {rank} dimensions cannot be transposed")
    return call.Transpose(call.x[slot], perm=[*range(rank - 2), rank - 1, rank - 2])


def _product(first: str, second: str) -> Callable[[CallBody], Value]:
    """Return the builder of a matrix product; ``first``, ``second``: flags that transpose operands."""

    def build(call: CallBody) -> Value:
        # both GE's and MindSpore's names of the flags are accepted
        flags = (call[first] or call["transpose_a"], call[second] or call["transpose_b"])
        sides = [_swapped(call, slot) if flag else call.x[slot] for slot, flag in enumerate(flags)]
        product = call.MatMul(*sides)
        return product + call.x[2] if len(call.x) > _MATRIX else product

    return build


def _gemm(call: CallBody) -> Value:
    flags = (call["transpose_a"], call["transpose_b"])
    sides = [_swapped(call, slot) if flag else call.x[slot] for slot, flag in enumerate(flags)]
    return call.MatMul(*sides) * call.x[3] + call.x[2] * call.x[4]


_SAME: Final = {"SAME": "SAME_UPPER", "VALID": "VALID"}


def _pooled(op_type: str, padding: Callable[[CallBody], dict[str, Any]]) -> Callable[[CallBody], Value]:
    """Return the builder of a pooling; ``padding`` gives the other attributes of ONNX's operator."""

    def build(call: CallBody) -> Value:
        images = layout(call)
        image = images.to_host(call, call.x[0])
        others = padding(call)
        if others.pop("is_global", False):
            return images.from_host(call, getattr(call, f"Global{op_type}")(image))
        size, strides = images.window(call, "ksize"), images.window(call, "strides")
        result = getattr(call, op_type)(image, kernel_shape=size, strides=strides, **others)
        return images.from_host(call, result)

    return build


def _named_padding(call: CallBody) -> dict[str, Any]:
    if call["padding"] not in _SAME:
        raise call.fault(f"attribute 'padding' = {call['padding']!r}: must be SAME or VALID")
    return {"auto_pad": _SAME[call["padding"]]}


def _padding(call: CallBody) -> dict[str, Any]:
    """Return ONNX's attributes for padding by name (SAME, VALID) or in numbers (``CALCULATED``)."""
    mode = call["padding_mode"]
    padding: dict[str, Any] = {"auto_pad": _SAME[mode]} if mode in _SAME else {"pads": _pads(call)}
    return padding | {"ceil_mode": int(call["ceil_mode"]), "is_global": call["global_pooling"]}


def _average_padding(call: CallBody) -> dict[str, Any]:
    # GE's flag leaves padding out of the average, ONNX's counts it
    return _padding(call) | {"count_include_pad": int(not call["exclusive"])}


_CONVOLUTION: Final = {
    "strides": REQUIRED,
    "pads": REQUIRED,
    "dilations": [1] * IMAGE,
    "data_format": None,
    "offset_x": 0,
}
_MINDSPORE: Final = {"transpose_a": False, "transpose_b": False}
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


def _products(kind: str, first: str, second: str, most: int) -> dict[str, GeOperator]:
    build, flags = _product(first, second), {first: False, second: False, **_MINDSPORE}
    later = GeOperator(build, flags | {"offset_x": 0}, kind=kind, inputs=(2, 3))
    plain = GeOperator(build, flags, kind=kind, inputs=(2, most))
    return {kind: plain, f"{kind}V2": later, f"{kind}V3": later}


TABLE: Final[dict[str, GeOperator]] = {
    **_products("MatMul", "transpose_x1", "transpose_x2", 3),
    **_products("BatchMatMul", "adj_x1", "adj_x2", 2),
    "GEMM": GeOperator(_gemm, _MINDSPORE, kind="MatMul", inputs=(5, 5)),
    "Conv2D": GeOperator(_convolution, _CONVOLUTION | {"groups": 1}, kind="Conv2D", inputs=(2, 3)),
    "DepthwiseConv2D": GeOperator(
        lambda call: _convolution(call, by_channel=True),
        _CONVOLUTION,
        kind="DepthwiseConv2dNative",
        inputs=(2, 3),
    ),
    # poolings: MaxPoolV3 and AvgPoolV2 have padding in numbers
    "MaxPool": GeOperator(_pooled("MaxPool", _named_padding), _POOL, kind="MaxPool"),
    "AvgPool": GeOperator(_pooled("AveragePool", _named_padding), _POOL, kind="AvgPool"),
    "MaxPoolV3": GeOperator(_pooled("MaxPool", _padding), _POOL_V3, kind="MaxPool"),
    "AvgPoolV2": GeOperator(
        _pooled("AveragePool", _average_padding), _POOL_V3 | {"exclusive": True}, kind="AvgPool"
    ),
}
"""Operators by GE's name."""
