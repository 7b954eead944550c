"""Gradients of convolutions in the form that is fastest for their structure.

Matrix products are what a runtime does best. A weight's gradient is one product for each element of the
window, or a convolution with batch and channels swapped; an input's is a convolution where channels are many
and windows are one step apart, else a transposed convolution. Shapes may be free but for the window's.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from msdump.training.body import Body, operator

Ints = tuple[int, ...]

PRODUCTS: Final = "products"
"""One group of many channels, or windows of one element: products of matrices."""
SUMS: Final = "sums"
"""Each channel has a filter of its own, and windows are one step apart: products of elements, summed."""
CONVOLUTION: Final = "convolution"
"""Anything else."""

_END: Final = 2**62
"""Behind the end of any axis."""


def filter_gradient(
    op: Body,
    dy: str,
    x: str,
    *,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    group: int,
    window: Ints,
    form: str,
) -> str:
    """Return the gradient of a convolution's weight (out, in / group, *window).

    Args:
        op: Collects the operators.
        dy: Gradient of the output.
        x: The input.
        strides: Steps between windows.
        pads: Padding of the input, all begins, then all ends.
        dilations: Steps between the elements of a window.
        group: Number of groups of channels.
        window: Sizes of the weight behind its channels.
        form: ``PRODUCTS``, ``SUMS`` or ``CONVOLUTION``.
    """
    if form == CONVOLUTION:
        return _by_convolution(op, dy, x, strides, pads, dilations, group, window)
    if any(pads):
        zeros = (0, 0)
        x = op.Pad(x, (*zeros, *pads[: len(window)], *zeros, *pads[len(window) :]))
    if form == SUMS:
        return _by_sums(op, dy, _parts(op, x, dy, strides, dilations, window), window)
    swapped = _swapped(len(window))
    columns = op.Reshape(op.Transpose(dy, perm=swapped), (0, -1))
    lines = op.Transpose(x, perm=swapped)
    products = [
        op.Gemm(columns, op.Reshape(part, (0, -1)), transB=1)
        for part in _parts(op, lines, dy, strides, dilations, window)
    ]
    if len(products) == 1:
        return str(op.Reshape(products[0], (0, -1, *window)))
    joined = op.Reshape(op.Concat(*products, axis=1), (0, len(products), -1))
    return str(op.Reshape(op.Transpose(joined, perm=[0, 2, 1]), (0, 0, *window)))


def _by_sums(op: Body, dy: str, parts: Iterable[str], window: Ints) -> str:
    """Sum over the batch, for each channel, what an element of the window meets times the gradient."""
    axes = list(range(2, len(window) + 2))
    images = [op.ReduceSum(op.Mul(part, dy), axes, keepdims=0) for part in parts]
    joined = op.Concat(*(op.Unsqueeze(image, (2,)) for image in images), axis=2)
    return str(op.Reshape(op.ReduceSum(joined, [0], keepdims=0), (0, 1, *window)))


def _swapped(rank: int) -> list[int]:
    return [1, 0, *range(2, rank + 2)]


def _parts(op: Body, x: str, dy: str, strides: Ints, dilations: Ints, window: Ints) -> Iterator[str]:
    """Yield what each element of the window meets in the padded input, in the shape of the output.

    Each is written when it is asked for, so that it can go before the next one comes.
    """
    rank = len(window)
    axes = tuple(range(2, rank + 2))
    is_dense = all(step == 1 for step in strides)
    if not is_dense:  # the last window may leave rows at the end, as many as shapes alone tell
        reach = op.Add(op.Mul(op.Sub(op.Shape(dy, start=2), 1), strides), 1)
    for place in itertools.product(*(range(size) for size in window)):
        starts = tuple(index * step for index, step in zip(place, dilations, strict=True))
        behind = [
            (size - 1 - index) * step for index, size, step in zip(place, window, dilations, strict=True)
        ]
        ends = tuple(-count if count else _END for count in behind) if is_dense else op.Add(reach, starts)
        is_whole = is_dense and not any(starts) and not any(behind)
        yield x if is_whole else op.Slice(x, starts, ends, axes, strides)


def _by_convolution(
    op: Body, dy: str, x: str, strides: Ints, pads: Ints, dilations: Ints, group: int, window: Ints
) -> str:
    """Convolve input with output gradient: batch and channels, strides and dilations change places."""
    rank = len(window)
    swapped = _swapped(rank)
    if group > 1:  # (batch, group, channels, ...) -> (channels, group * batch, ...)
        sizes = op.Shape(x, start=2)
        grouped = op.Reshape(x, op.Concat((0, group, -1), sizes, axis=0))
        turned = op.Transpose(grouped, perm=[2, 1, 0, *range(3, rank + 3)])
        data = op.Reshape(turned, op.Concat((0, -1), sizes, axis=0))
    else:
        data = op.Transpose(x, perm=swapped)
    whole = op.Conv(
        data, op.Transpose(dy, perm=swapped), strides=dilations, dilations=strides, pads=pads, group=group
    )
    # rows at the end that no window reached are cut off, or the result would be larger than the window
    cut = op.Slice(whole, (0,) * rank, window, tuple(range(2, rank + 2)))
    return str(op.Transpose(cut, perm=swapped))


def input_gradient(
    op: Body,
    dy: str,
    w: str,
    *,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    group: int,
    window: Ints,
    missing: Ints,
    form: str,
) -> str:
    """Return the gradient of a convolution's input.

    Args:
        op: Collects the operators.
        dy: Gradient of the output.
        w: The weight.
        strides: Steps between windows.
        pads: Padding of the input, all begins, then all ends.
        dilations: Steps between the elements of a window.
        group: Number of groups of channels.
        window: Sizes of the weight behind its channels.
        missing: Rows and columns at the end of the padded input that no window reached.
        form: ``PRODUCTS``, ``SUMS`` or ``CONVOLUTION``.
    """
    around = _around(window, pads, dilations)
    if form == PRODUCTS and all(step == 1 for step in strides) and min(around) >= 0:
        return str(op.Conv(dy, _turned(op, w, window), pads=around, dilations=dilations))
    return str(
        op.ConvTranspose(
            dy, w, strides=strides, pads=pads, dilations=dilations, group=group, output_padding=missing
        )
    )


def _around(window: Ints, pads: Ints, dilations: Ints) -> Sequence[int]:
    """Return the padding of an output's gradient whose convolution has the size of the input."""
    reaches = [(size - 1) * step for size, step in zip(window, dilations, strict=True)]
    return [reach - pad for reach, pad in zip((*reaches, *reaches), pads, strict=True)]


def _turned(op: Body, w: str, window: Ints) -> str:
    """Swap the channels of a weight and turn its windows back to front."""
    rank = len(window)
    turned = op.Transpose(w, perm=_swapped(rank))
    if all(size == 1 for size in window):
        return str(turned)
    axes = tuple(range(2, rank + 2))
    return str(op.Slice(turned, (-1,) * rank, (-_END,) * rank, axes, (-1,) * rank))


@operator("Conv2DBackpropInput")
def conv2d_backprop_input(op: Body, dy: str, w: str, **structure: Any) -> str:
    """Return the gradient of a convolution's input."""
    return input_gradient(op, dy, w, **structure)


@operator("Conv2DBackpropFilter")
def conv2d_backprop_filter(op: Body, dy: str, x: str, **structure: Any) -> str:
    """Return the gradient of a convolution's weight."""
    return filter_gradient(op, dy, x, **structure)


@operator("Conv3DBackpropInput")
def conv3d_backprop_input(op: Body, w: str, dy: str, **structure: Any) -> str:
    """Return the gradient of the input of a convolution of volumes."""
    return conv2d_backprop_input(op, dy, w, **structure)


@operator("Conv3DBackpropFilter")
def conv3d_backprop_filter(op: Body, x: str, dy: str, **structure: Any) -> str:
    """Return the gradient of the weight of a convolution of volumes."""
    return conv2d_backprop_filter(op, dy, x, **structure)
