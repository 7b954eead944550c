"""GE's convolutions of images and volumes, and their transposes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from msdump.errors import InputError
from msdump.graph.ge.body import REQUIRED, CallBody, GeOperator
from msdump.graph.ge.images import IMAGE, VOLUME, AxisOrder, filters, layout


def _steps(call: CallBody, images: AxisOrder) -> dict[str, Any]:
    """Return the attributes that every convolution has."""
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
    """Return the builder of a transposed convolution.

    Args:
        rank: Number of dimensions of the images.
        size: Returns the output's shape, which GE states beside the input.
        first: Slot of the images; the filters follow.
    """

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
    """Return ONNX's output_padding, one number for each spatial axis, that gives the output a stated size.

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


def _by_input(call: CallBody) -> list[int]:
    return call.value(0)


def _by_attribute(rank: int) -> Callable[[CallBody], list[int]]:
    return lambda call: call.listed("input_size", rank)


def _attributes(rank: int) -> dict[str, Any]:
    return {
        "strides": REQUIRED,
        "pads": REQUIRED,
        "dilations": [1] * rank,
        "groups": 1,
        "data_format": None,
        "offset_x": 0,
    }


def _of_rank(rank: int, name: str) -> dict[str, GeOperator]:
    plain = _attributes(rank)
    back = plain | {"output_padding": [0] * rank}
    transpose = f"{name}Transpose"
    return {
        name: GeOperator(_convolution(rank), plain, kind=name, inputs=(2, 3)),
        transpose: GeOperator(
            _transposed(rank, _by_input, 1),
            back,
            kind=f"{transpose}OfSize",
            constants=frozenset({0}),
            inputs=(3, 4),
        ),
        f"{transpose}D": GeOperator(
            _transposed(rank, _by_attribute(rank), 0),
            {"input_size": REQUIRED, **back},
            kind=transpose,
            inputs=(2, 3),
        ),
    }


_DEPTHWISE: Final = {name: value for name, value in _attributes(IMAGE).items() if name != "groups"}

TABLE: Final[dict[str, GeOperator]] = {
    **_of_rank(IMAGE, "Conv2D"),
    **_of_rank(VOLUME, "Conv3D"),
    "DepthwiseConv2D": GeOperator(_depthwise, _DEPTHWISE, kind="DepthwiseConv2dNative", inputs=(2, 3)),
}
"""Operators by GE's name."""
