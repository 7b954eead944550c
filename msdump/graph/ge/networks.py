"""GE's operators of networks: convolutions, pooling, resizing, products, normalizations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msdump.errors import InputError
from msdump.graph.ge.body import REQUIRED, CallBody, GeOperator

IMAGE: Final = 4
VOLUME: Final = 5
_FIRST: Final = {IMAGE: "NCHW", VOLUME: "NCDHW"}
"""The runtime's layouts, with the channels before the spatial axes, by rank."""
_LAST: Final = {IMAGE: "NHWC", VOLUME: "NDHWC"}
_FILTERS_LAST: Final = {IMAGE: "HWCN", VOLUME: "DHWCN"}


def _steps(call: CallBody, images: AxisOrder) -> dict[str, Any]:
    return {
        "strides": images.window(call, "strides"),
        "dilations": images.window(call, "dilations"),
        "pads": images.pads(call),
    }


def _convolution(rank: int) -> Callable[[CallBody], str]:
    def build(call: CallBody) -> str:
        images = layout(call, rank)
        result = call.node(
            "Conv",
            images.to_host(call, call.x[0]),
            filters(call, images).to_host(call, call.x[1]),
            *call.x[2:3],
            group=call["groups"],
            **_steps(call, images),
        )
        return images.from_host(call, result)

    return build


def _depthwise(call: CallBody) -> str:
    images = layout(call)
    kernels = filters(call, images)
    # ONNX: all filters of a channel stand together, as outputs of the channel's group
    by_channel = call.node("Transpose", kernels.to_host(call, call.x[1]), perm=[1, 0, 2, 3])
    shape = call.constant([-1, 1, *kernels.sorted(call.inputs[1].shape)[2:]])
    result = call.node(
        "Conv",
        images.to_host(call, call.x[0]),
        call.node("Reshape", by_channel, shape),
        *call.x[2:3],
        group=images.sorted(call.inputs[0].shape)[1],
        **_steps(call, images),
    )
    return images.from_host(call, result)


def _transposed(
    rank: int, size: Callable[[CallBody], Sequence[int]], first: int
) -> Callable[[CallBody], str]:
    def build(call: CallBody) -> str:
        images = layout(call, rank, first)
        kernels = filters(call, images, first + 1)
        steps = _steps(call, images)
        result = call.node(
            "ConvTranspose",
            images.to_host(call, call.x[first]),
            kernels.to_host(call, call.x[first + 1]),
            *call.x[first + 2 : first + 3],
            group=call["groups"],
            output_padding=_output_padding(call, images, kernels, steps, (first, size(call))),
            **steps,
        )
        return images.from_host(call, result)

    return build


def _output_padding(
    call: CallBody,
    images: AxisOrder,
    kernels: AxisOrder,
    steps: dict[str, Any],
    wanted: tuple[int, Sequence[int]],
) -> list[int]:
    """Return ONNX's output_padding, one number a spatial axis, for a stated output size.

    With a stride above 1 several output sizes have the same input size: GE states the size, ONNX how far
    it is above the smallest.
    """
    slot, size = wanted
    if not any(size):  # unknown when the graph was built
        return images.window(call, "output_padding")
    image, kernel = images.sorted(call.inputs[slot].shape), kernels.sorted(call.inputs[slot + 1].shape)
    strides, dilations, pads = steps["strides"], steps["dilations"], steps["pads"]
    least = [image[0], kernel[1] * call["groups"]]
    for axis, stride in enumerate(strides):
        reach = dilations[axis] * (kernel[axis + 2] - 1) + 1
        least.append(stride * (image[axis + 2] - 1) + reach - pads[axis] - pads[axis + len(strides)])
    # a still larger output belongs to a larger input
    most = [*least[:2], *(low + stride - 1 for low, stride in zip(least[2:], strides, strict=True))]
    host_size = images.sorted(list(size)) if len(size) == len(least) else []
    if not host_size or any(
        not low <= number <= high for low, number, high in zip(least, host_size, most, strict=True)
    ):
        raise InputError(
            f"operator {call.op_type!r}: input_size = {list(size)!r} is no shape that gives such an input;"
            f" in {images.host} it is {least} to {most}"
        )
    return [number - low for number, low in zip(host_size, least, strict=True)][2:]


def _attributes(rank: int) -> dict[str, Any]:
    return {
        "strides": REQUIRED,
        "pads": REQUIRED,
        "dilations": [1] * rank,
        "groups": 1,
        "data_format": None,
        "offset_x": 0,
    }


def _convolutions(rank: int, name: str) -> dict[str, GeOperator]:
    plain = _attributes(rank)
    back = plain | {"output_padding": [0] * rank}
    transpose = f"{name}Transpose"
    return {
        name: GeOperator(_convolution(rank), plain, kind=name, inputs=(2, 3)),
        transpose: GeOperator(
            _transposed(rank, lambda call: call.value(0), 1),
            back,
            kind=f"{transpose}OfSize",
            constants=(0,),
            inputs=(3, 4),
        ),
        f"{transpose}D": GeOperator(
            _transposed(rank, lambda call: call.integer_list("input_size", rank), 0),
            {"input_size": REQUIRED, **back},
            kind=transpose,
            inputs=(2, 3),
        ),
    }


_DEPTHWISE: Final = {name: value for name, value in _attributes(IMAGE).items() if name != "groups"}

CONVOLUTIONS: Final[dict[str, GeOperator]] = {
    **_convolutions(IMAGE, "Conv2D"),
    **_convolutions(VOLUME, "Conv3D"),
    "DepthwiseConv2D": GeOperator(_depthwise, _DEPTHWISE, kind="DepthwiseConv2dNative", inputs=(2, 3)),
}
"""Operators by GE's name."""


_BEFORE_PLACES: Final = 2  # batch and channels stand before the spatial axes


@dataclass(frozen=True, slots=True)
class AxisOrder:
    """The order of a tensor's axes."""

    name: str
    host: str

    def to_host(self, call: CallBody, value: str) -> str:
        """Return a value of this layout in the runtime's."""
        perm = [self.name.index(axis) for axis in self.host]
        return value if self.name == self.host else call.node("Transpose", value, perm=perm)

    def from_host(self, call: CallBody, value: str) -> str:
        """Return a value of the runtime's layout in this one."""
        return AxisOrder(self.host, self.name).to_host(call, value)

    def sorted(self, numbers: list[int] | tuple[int, ...]) -> list[int]:
        """Return numbers, one for each axis of this layout, in the runtime's order."""
        return [numbers[self.name.index(axis)] for axis in self.host]

    def window(self, call: CallBody, attribute: str) -> list[int]:
        """Return the numbers of the spatial axes out of an attribute with one for each axis."""
        return self.places(call.integer_list(attribute, len(self.name)))

    def places(self, numbers: list[int]) -> list[int]:
        """Return the numbers of depth, height and width out of one for each axis."""
        return self.sorted(numbers)[_BEFORE_PLACES:]

    def pads(self, call: CallBody, attribute: str = "pads") -> list[int]:
        """Return pads in ONNX's order, all begins and then all ends; GE has begin and end of each axis."""
        pairs = call.integer_list(attribute, 2 * (len(self.name) - _BEFORE_PLACES))
        return [*pairs[0::2], *pairs[1::2]]


def layout(call: CallBody, rank: int = IMAGE, slot: int = 0) -> AxisOrder:
    """Return the layout of images or volumes: that of ``data_format``, else that of their description.

    Device formats start from channels before spatial axes (NCHW); another layout changes the call's kind,
    ``Conv2DOfNHWC``, which has no device format.
    """
    name = call["data_format"] or described(call, rank, slot).name
    allowed = (_FIRST[rank], _LAST[rank])
    if name not in allowed:
        raise InputError(
            f"operator {call.op_type!r}: attribute 'data_format' = {name!r}:"
            f" {' or '.join(allowed)} is expected"
        )
    if len(call.inputs[slot].shape) != rank:
        shape = call.inputs[slot].shape
        raise InputError(
            f"operator {call.op_type!r}: input {slot} of shape {shape}: {rank} dimensions expected"
        )
    if name == _LAST[rank]:
        call.kind = f"{call.kind}Of{name}"
    return AxisOrder(name, _FIRST[rank])


def described(call: CallBody, rank: int, slot: int = 0) -> AxisOrder:
    """Return the layout of images or volumes as the caller describes them, by default the runtime's."""
    # ND and device formats say nothing of the order of axes
    stated = call.inputs[slot].format
    return AxisOrder(stated if stated == _LAST[rank] else _FIRST[rank], _FIRST[rank])


def filters(call: CallBody, images: AxisOrder, slot: int = 1) -> AxisOrder:
    """Return the layout of a convolution's filters: as described, else the one that goes with the images'."""
    stated, rank = call.inputs[slot].format, len(images.host)
    if sorted(stated) == sorted(images.host):
        return AxisOrder(stated, images.host)
    # TensorFlow's pair: images NHWC with filters HWCN; ONNX's: NCHW with NCHW
    return AxisOrder(images.host if images.name == images.host else _FILTERS_LAST[rank], images.host)


_MATRIX: Final = 2
Window = tuple[list[int], list[int]]
"""Size and strides of a window, depth, height and width."""
_SAME: Final = {"SAME": "SAME_UPPER", "VALID": "VALID"}


def _swapped(call: CallBody, slot: int) -> str:
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
    """Return the builder of a pooling with ``padding`` SAME or VALID."""

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
    """Return the builder of a pooling with padding by name or in numbers (``CALCULATED``)."""

    def build(call: CallBody) -> str:
        images, mode = layout(call), call["padding_mode"]
        image = images.to_host(call, call.x[0])
        if call["global_pooling"]:
            return images.from_host(call, call.node(f"Global{op_type}", image))
        padding: dict[str, Any] = {"auto_pad": _SAME[mode]} if mode in _SAME else {"pads": images.pads(call)}
        if op_type == "AveragePool":
            # GE's flag leaves padding out of the average, ONNX's counts it
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
    return {
        kind: GeOperator(build, flags, kind=kind, inputs=(2, most)),
        **dict.fromkeys(
            (f"{kind}V2", f"{kind}V3"),
            GeOperator(build, flags | {"offset_x": 0}, kind=kind, inputs=(2, 3)),
        ),
    }


TABLE: Final[dict[str, GeOperator]] = {
    **_products("MatMul", "transpose_x1", "transpose_x2", 3),
    **_products("BatchMatMul", "adj_x1", "adj_x2", 2),
    "GEMM": GeOperator(_gemm, _MINDSPORE, kind="MatMul", inputs=(5, 5)),
    # poolings: V2 has the window as inputs, V3 padding in numbers
    "MaxPool": GeOperator(_pooled("MaxPool"), _POOL, kind="MaxPool"),
    "AvgPool": GeOperator(_pooled("AveragePool"), _POOL, kind="AvgPool"),
    "MaxPoolV2": GeOperator(
        _pooled("MaxPool", _by_inputs),
        {"padding": REQUIRED, "data_format": None},
        kind="MaxPoolV2",
        constants=(1, 2),
        inputs=(3, 3),
    ),
    "MaxPoolV3": GeOperator(_pooled_v3("MaxPool"), _POOL_V3, kind="MaxPool"),
    "AvgPoolV2": GeOperator(_pooled_v3("AveragePool"), _POOL_V3 | {"exclusive": True}, kind="AvgPool"),
}
"""Operators by GE's name."""
