"""Convolutions and pooling, and their gradients in the form that is fastest for their structure.

Runtimes are fastest at matrix products. A weight's gradient is one product for each element of the window, or
a convolution with batch and channels swapped; an input's is a convolution where channels are many and windows
are one step apart, else a transposed convolution. Shapes may be free but for the window's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from msdump.graph.primitives.body import INT32, INT64, Ints, Value, op, operator, operators
from msdump.graph.primitives.call import ARGUMENTS, Call
from msdump.graph.primitives.plain import convolution, pooling

PRODUCTS: Final = "products"
"""One group of many channels, or windows of one element: products of matrices."""

SUMS: Final = "sums"
"""Each channel has a filter of its own, and windows are one step apart: products of elements, summed."""

CONVOLUTION: Final = "convolution"
"""Anything else."""

_END: Final = 2**62
"""Behind the end of any axis."""


@operator("Conv1DBackpropFilter Conv2DBackpropFilter")
def filter_gradient(dy: Value, x: Value, *, window: Ints, form: str, **windows: Any) -> Value:
    """Return the gradient of a convolution's weight.

    ``window``: the sizes of the weight behind its channels; ``windows``: ONNX's attributes of the
    convolution, strides, pads, dilations and group. Padding lists all begins, then all ends.
    """
    rank, pads = len(window), windows["pads"]
    swapped, axes = [1, 0, *range(2, rank + 2)], list(range(2, rank + 2))
    if form == CONVOLUTION:
        return _by_convolution(dy, x, window=window, **windows)
    if any(pads):
        x = op.Pad(x, (0, 0, *pads[:rank], 0, 0, *pads[rank:]))
    parts = (windows["strides"], windows["dilations"], window)
    if form == SUMS:  # of gradient times input, per channel and window element
        images = [op.ReduceSum(part * dy, axes, keepdims=0) for part in _window_parts(x, dy, *parts)]
        joined = op.Concat(*(op.Unsqueeze(image, (2,)) for image in images), axis=2)
        return op.Reshape(op.ReduceSum(joined, [0], keepdims=0), (0, 1, *window))
    columns = op.Reshape(op.Transpose(dy, perm=swapped), (0, -1))
    lines = op.Transpose(x, perm=swapped)
    products = [
        op.Gemm(columns, op.Reshape(part, (0, -1)), transB=1) for part in _window_parts(lines, dy, *parts)
    ]
    if len(products) == 1:
        return op.Reshape(products[0], (0, -1, *window))
    joined = op.Reshape(op.Concat(*products, axis=1), (0, len(products), -1))
    return op.Reshape(op.Transpose(joined, perm=[0, 2, 1]), (0, 0, *window))


def _window_parts(x: Value, dy: Value, strides: Ints, dilations: Ints, window: Ints) -> Iterator[Value]:
    """Yield the slice of the padded input that each window element meets, in the shape of the output.

    Slices are written one by one, each behind the reader of the last, so that a runtime can free the last.
    """
    rank = len(window)
    axes = tuple(range(2, rank + 2))
    is_dense = all(step == 1 for step in strides)
    if not is_dense:  # rows at the end may be unread: the output's shape gives the end
        reach = (op.Shape(dy, start=2) - 1) * strides + 1
    for place in itertools.product(*(range(size) for size in window)):
        starts = tuple(index * step for index, step in zip(place, dilations, strict=True))
        behind = [
            (size - 1 - index) * step for index, size, step in zip(place, window, dilations, strict=True)
        ]
        ends = tuple(-count if count else _END for count in behind) if is_dense else reach + starts
        is_whole = is_dense and not any(starts) and not any(behind)
        yield x if is_whole else op.Slice(x, starts, ends, axes, strides)


def _by_convolution(
    dy: Value, x: Value, *, strides: Ints, pads: Ints, dilations: Ints, group: int, window: Ints
) -> Value:
    """Convolve input with output gradient, with batch and channels, strides and dilations exchanged."""
    rank = len(window)
    swapped = [1, 0, *range(2, rank + 2)]
    if group > 1:  # (batch, group, channels, ...) -> (channels, group * batch, ...)
        sizes = op.Shape(x, start=2)
        grouped = op.Reshape(x, op.Concat((0, group, -1), sizes, axis=0))
        turned = op.Transpose(grouped, perm=[2, 1, 0, *range(3, rank + 3)])
        data = op.Reshape(turned, op.Concat((0, -1), sizes, axis=0))
    else:
        data = op.Transpose(x, perm=swapped)
    kernel = op.Transpose(dy, perm=swapped)
    whole = op.Conv(data, kernel, strides=dilations, dilations=strides, pads=pads, group=group)
    # rows at the end that no window reached are cut off, or the result would be larger than the window
    return op.Transpose(op.Slice(whole, (0,) * rank, window, tuple(range(2, rank + 2))), perm=swapped)


@operator("Conv1DBackpropInput Conv2DBackpropInput")
def input_gradient(dy: Value, w: Value, *, window: Ints, missing: Ints, form: str, **windows: Any) -> Value:
    """Return the gradient of a convolution's input.

    The structure is that of ``filter_gradient``; ``missing``: rows and columns at the end of the padded input
    that no window reached.
    """
    rank, dilations = len(window), windows["dilations"]
    reaches = [(size - 1) * step for size, step in zip(window, dilations, strict=True)]
    # with this padding a convolution of the output's gradient has the input's size
    around = [reach - pad for reach, pad in zip((*reaches, *reaches), windows["pads"], strict=True)]
    if form != PRODUCTS or any(step != 1 for step in windows["strides"]) or min(around) < 0:
        return op.ConvTranspose(dy, w, **windows, output_padding=missing)
    turned = op.Transpose(w, perm=[1, 0, *range(2, rank + 2)])
    if any(size != 1 for size in window):  # reversed windows
        turned = op.Slice(turned, (-1,) * rank, (-_END,) * rank, tuple(range(2, rank + 2)), (-1,) * rank)
    return op.Conv(dy, turned, pads=around, dilations=dilations)


@operator("AvgPool3DGrad", element=1)
def avg_pool_grad(
    shape: Value, dy: Value, *, ceil_mode: int, missing: Ints, count_include_pad: int, **windows: Any
) -> Value:
    """Spread the gradient of each window over its elements.

    ``missing``: rows and columns at the end of the padded input that no window reaches; negative: how far
    the last window reaches beyond it.
    """
    kernel_shape, pads = windows.pop("kernel_shape"), windows["pads"]
    rank = len(kernel_shape)
    beyond = [max(-count, 0) for count in missing]
    reached = (*pads[:rank], *(pad + more for pad, more in zip(pads[rank:], beyond, strict=True)))
    kernel = op.Expand(1.0, (1, 1, *kernel_shape))
    sizes = op.Slice(shape, (2,), (rank + 2,))
    if not any(beyond) and (count_include_pad or not any(pads)):
        scaled = dy / float(math.prod(kernel_shape))
    else:  # as much as the operator itself gives to each element: an average of ones over their number
        ones = op.Expand(1.0, op.Concat((1, 1), sizes, axis=0))
        flags = {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad, **windows}
        if all(step == 1 for step in windows["dilations"]):  # AveragePool has them since opset 19
            del flags["dilations"]
        average = op.AveragePool(ones, kernel_shape=kernel_shape, **flags)
        scaled = dy * (average / op.Conv(ones, kernel, **windows | {"pads": reached}))
    planes = op.Reshape(scaled, op.Concat((-1, 1), op.Shape(dy, start=2), axis=0))
    left = [max(count, 0) for count in missing]
    windows["pads"] = reached
    return op.Reshape(op.ConvTranspose(planes, kernel, output_padding=left, **windows), shape)


operators(
    {
        "Conv3DBackpropInput": lambda w, dy, **structure: input_gradient(dy, w, **structure),
        "Conv3DBackpropFilter": lambda x, dy, **structure: filter_gradient(dy, x, **structure),
        "AvgPool": lambda x, **structure: op.AveragePool(x, **structure),
        "AvgPool1DGrad AvgPoolGrad": lambda x, _y, dy, **structure: avg_pool_grad(
            op.Shape(x), dy, **structure
        ),
    }
)


@operator("AdaptiveAvgPool2DGrad AdaptiveAvgPool3DGrad")
def adaptive_avg_pool_grad(dy: Value, shape: Value) -> Value:
    """Spread the gradient of the average of each channel."""
    sizes = op.Cast(shape, to=INT64)
    count = op.ReduceProd(sizes, keepdims=0) / op.Size(dy)
    return op.Expand(dy / op.CastLike(count, dy), sizes)


@operator("AdaptiveAvgPool2D")
def adaptive_avg_pool_2d(x: Value, *, input_shape: Ints, output_shape: Ints) -> Value:
    """Return the averages of windows that divide each image."""
    for axis in (-2, -1):
        size, count = input_shape[axis], output_shape[axis]
        shares = np.zeros((count, size), np.float32)
        for row, (start, end) in enumerate(_divided(size, count)):
            shares[row, start:end] = 1 / (end - start)
        matrix = op.of_element(op.value(shares if axis == -2 else shares.T))
        x = op.MatMul(matrix, x) if axis == -2 else op.MatMul(x, matrix)
    return x


def _divided(size: int, count: int) -> list[tuple[int, int]]:
    """Return begin and end of each of the windows that divide an axis."""
    return [(place * size // count, -(-(place + 1) * size // count)) for place in range(count)]


@operator("AdaptiveMaxPool2D")
def adaptive_max_pool_2d(x: Value, *, input_shape: Ints = (), output_shape: Ints = ()) -> tuple[Value, Value]:
    """Return the largest element of each window that divides an image, and where it is."""
    if not any(size > 1 for size in output_shape[2:]):
        y = op.GlobalMaxPool(x)
        return y, op.Reshape(op.ArgMax(op.Reshape(x, (0, 0, -1)), axis=2), op.Shape(y))
    numbers = np.arange(input_shape[2] * input_shape[3]).reshape(input_shape[2:])
    rows, columns = (_divided(input_shape[axis], output_shape[axis]) for axis in (2, 3))
    windows = [numbers[a:b, c:d].reshape(-1) for a, b in rows for c, d in columns]
    most = max(map(len, windows))  # smaller ones repeat an element
    table = np.stack([np.pad(window, (0, most - len(window)), mode="edge") for window in windows])
    parts = op.Gather(op.Reshape(x, (0, 0, -1)), table, axis=2)
    first = op.ArgMax(parts, axis=3, keepdims=0) + np.arange(len(windows)) * most
    found = op.Gather(table.reshape(-1), first), op.ReduceMax(parts, [3], keepdims=0)
    argmax, y = (op.Reshape(each, output_shape) for each in found)
    return y, argmax


@operator("AdaptiveMaxPool3D")
def adaptive_max_pool_3d(x: Value) -> tuple[Value, Value]:
    """Return the largest element of each channel and, in Int32, where it is."""
    y, argmax = adaptive_max_pool_2d(x)
    return y, op.Cast(argmax, to=INT32)


@operator("AdaptiveMaxPool2DGrad AdaptiveMaxPool3DGrad")
def adaptive_max_pool_grad(dy: Value, x: Value, argmax: Value) -> Value:
    """Send the gradient of each channel to its largest element."""
    zeros = op.Expand(0.0, op.Shape(op.Reshape(x, (0, 0, -1))))
    rows = (0, 0, 1)
    sent = op.ScatterElements(zeros, op.Reshape(argmax, rows), op.Reshape(dy, rows), axis=2)
    return op.Reshape(sent, op.Shape(x))


@operator("MaxPool3DWithArgmax MaxPoolWithArgmaxV2")
def max_pool_with_argmax(x: Value, *, argmax_type: int, **structure: Any) -> tuple[Value, Value]:
    """Return the largest element of each window, and its place in its channel."""
    y, places = op.MaxPool(x, outputs=2, **structure)
    size = op.ReduceProd(op.Shape(x, start=2), keepdims=0)
    return y, op.Cast(op.Mod(places, size), to=argmax_type)


@operator("MaxPoolGradWithArgmaxV2")
def max_pool_grad_with_argmax(x: Value, dy: Value, argmax: Value) -> Value:
    """Send the gradient of each window to its largest element."""
    rows, sizes, places = (op.Reshape(each, (0, 0, -1)) for each in (dy, x, argmax))
    summed = op.scatter_sum("ScatterElements", op.Shape(sizes), places, rows, axis=2)
    return op.Reshape(summed, op.Shape(x))


@operator("MaxPool3DGrad MaxPool1DGrad MaxPoolGrad")
def max_pool_grad(x: Value, _y: Value, dy: Value, **structure: Any) -> Value:
    """Send the gradient of each window to its largest element, the first one of several."""
    _, indices = op.MaxPool(x, outputs=2, **structure)
    count, places = op.Reshape(op.Size(x), [1]), op.Reshape(indices, [-1])
    summed = op.scatter_sum("ScatterElements", count, places, op.Reshape(dy, [-1]), axis=0)
    return op.Reshape(summed, op.Shape(x))


def _beyond(sizes: Ints, counts: Ints, windows: Mapping[str, Any]) -> list[int]:
    """Return how many elements at the end of each padded axis no window reaches."""
    rank, pads = len(counts), windows["pads"]
    reached = zip(counts, windows["strides"], windows["dilations"], windows["kernel_shape"], strict=True)
    ends = [(count - 1) * stride + dilation * (width - 1) + 1 for count, stride, dilation, width in reached]
    return [size + pads[axis] + pads[rank + axis] - ends[axis] for axis, size in enumerate(sizes)]


def _convolved(call: Call) -> dict[str, Any]:
    """Return the structure of a convolution's gradient: of its input or, by ``Filter``, of its weight."""
    dy, other = (1, 0) if call.op_type.startswith("Conv3D") else (0, 1)
    x, w = call.output_sizes(), call.sizes(other)
    of_filter = call.op_type.endswith("Filter")
    if of_filter:
        x, w = w, x
    windows = convolution(call, w[2:], x[2:])
    missing = {} if of_filter else {"missing": _beyond(x[2:], call.sizes(dy)[2:], windows)}
    return {"window": windows.pop("kernel_shape"), **windows, **missing, "form": CONVOLUTION}


def _averaged(call: Call) -> dict[str, Any]:
    """Return the structure of the gradient of an average."""
    sizes, slot = call.output_sizes(), 1 if call.op_type == "AvgPool3DGrad" else 2
    windows = {"dilations": (1,) * (len(sizes) - 2), **pooling(replace(call, types=call.outputs))}
    missing = _beyond(sizes[2:], call.sizes(slot)[2:], windows)
    include = int(bool(call.argument("count_include_pad", False)))
    return {**windows, "missing": missing, "count_include_pad": include}


def _with_argmax(call: Call) -> dict[str, Any]:
    kind = call.outputs[1]
    assert kind is not None, "an argmax is a tensor"
    assert kind.dtype is not None, "an argmax is a tensor"
    return {**pooling(call), "argmax_type": kind.dtype.onnx}


ARGUMENTS.update(
    {
        **dict.fromkeys(
            ("Conv2DBackpropInput", "Conv2DBackpropFilter", "Conv3DBackpropInput", "Conv3DBackpropFilter"),
            _convolved,
        ),
        **dict.fromkeys(("AvgPoolGrad", "AvgPool3DGrad"), _averaged),
        **dict.fromkeys(("MaxPoolWithArgmaxV2", "MaxPool3DWithArgmax"), _with_argmax),
        **dict.fromkeys(("AvgPool", "MaxPoolGrad", "MaxPool3DGrad"), pooling),
    }
)
