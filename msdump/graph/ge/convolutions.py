"""GE's convolutions of images and volumes, and their transposes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from msdump.errors import InputError
from msdump.graph.ge.body import REQUIRED, CallBody, GeOperator
from msdump.graph.ge.images import IMAGE, VOLUME, AxisOrder, filters, layout


def _steps(b: CallBody, images: AxisOrder) -> dict[str, Any]:
    """Return the attributes that every convolution has."""
    return {
        "strides": images.window(b, "strides"),
        "dilations": images.window(b, "dilations"),
        "pads": images.pads(b),
    }


def _convolution(rank: int) -> Callable[[CallBody], str]:
    def build(b: CallBody) -> str:
        images = layout(b, rank)
        made = b.node(
            "Conv",
            images.to_host(b, b.x[0]),
            filters(b, images).to_host(b, b.x[1]),
            *b.x[2:3],
            group=b["groups"],
            **_steps(b, images),
        )
        return images.from_host(b, made)

    return build


def _depthwise(b: CallBody) -> str:
    images = layout(b)
    kernels = filters(b, images)
    # each channel's multiples stand together
    by_channel = b.node("Transpose", kernels.to_host(b, b.x[1]), perm=[1, 0, 2, 3])
    shape = b.constant([-1, 1, *kernels.sorted(b.inputs[1].shape)[2:]])
    made = b.node(
        "Conv",
        images.to_host(b, b.x[0]),
        b.node("Reshape", by_channel, shape),
        *b.x[2:3],
        group=images.sorted(b.inputs[0].shape)[1],
        **_steps(b, images),
    )
    return images.from_host(b, made)


def _transposed(
    rank: int, size: Callable[[CallBody], Sequence[int]], first: int
) -> Callable[[CallBody], str]:
    """Return what transposes; ``size`` tells the output's shape, ``first`` is the image's slot."""

    def build(b: CallBody) -> str:
        images = layout(b, rank, first)
        kernels = filters(b, images, first + 1)
        steps = _steps(b, images)
        made = b.node(
            "ConvTranspose",
            images.to_host(b, b.x[first]),
            kernels.to_host(b, b.x[first + 1]),
            *b.x[first + 2 : first + 3],
            group=b["groups"],
            output_padding=_rest(b, images, kernels, steps, (first, size(b))),
            **steps,
        )
        return images.from_host(b, made)

    return build


def _rest(
    b: CallBody,
    images: AxisOrder,
    kernels: AxisOrder,
    steps: dict[str, Any],
    wanted: tuple[int, Sequence[int]],
) -> list[int]:
    """Return what is added behind the places so that the output has the size that is wanted."""
    slot, size = wanted
    if not any(size):  # unknown when the graph was built
        return images.window(b, "output_padding")
    image, kernel = images.sorted(b.inputs[slot].shape), kernels.sorted(b.inputs[slot + 1].shape)
    strides, dilations, pads = steps["strides"], steps["dilations"], steps["pads"]
    least = [image[0], kernel[1] * b["groups"]]
    for axis, stride in enumerate(strides):
        reach = dilations[axis] * (kernel[axis + 2] - 1) + 1
        least.append(stride * (image[axis + 2] - 1) + reach - pads[axis] - pads[axis + len(strides)])
    most = [*least[:2], *(low + stride - 1 for low, stride in zip(least[2:], strides, strict=True))]
    found = images.sorted(list(size)) if len(size) == len(least) else []
    if not found or any(
        not low <= number <= high for low, number, high in zip(least, found, most, strict=True)
    ):
        raise InputError(
            f"operator {b.op_type!r}: input_size = {list(size)!r} is no shape that gives such an input;"
            f" in {images.host} it is {least} to {most}"
        )
    return [number - low for number, low in zip(found, least, strict=True)][2:]


def _by_input(b: CallBody) -> list[int]:
    return b.value(0)


def _by_attribute(rank: int) -> Callable[[CallBody], list[int]]:
    return lambda b: b.listed("input_size", rank)


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
