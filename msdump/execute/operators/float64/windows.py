"""Convolutions and poolings in float64: any number of axes, groups, dilations, paddings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from msdump.execute.operators.float64.definitions import Array, Call, Definition, Kind

_ROWS: Final = 1 << 22  # elements of unrolled windows at a time


def conv(call: Call) -> tuple[Array]:
    """Return a convolution."""
    x, w = call[0], call[1]
    frame = _Frame.of(call, x.shape[2:], w.shape[2:])
    padded = np.pad(x, ((0, 0), (0, 0), *frame.pads))
    groups = call.attribute("group", 1)
    windows = frame.windows(padded)
    depthwise = w.shape[1] == 1
    y = _depthwise(windows, w) if depthwise else _grouped(windows, w, groups)
    bias = call.optional(2)
    return (y if bias is None else y + bias.reshape(-1, *[1] * len(frame.kernel)),)


def _depthwise(windows: Array, w: Array) -> Array:
    """Return the convolution of each channel with its own kernels."""
    rank = w.ndim - 2
    repeats = w.shape[0] // windows.shape[1]
    y = np.zeros((windows.shape[0], w.shape[0], *windows.shape[2 : 2 + rank]))
    for place in np.ndindex(*w.shape[2:]):
        taps = np.repeat(windows[(..., *place)], repeats, axis=1)
        y += taps * w[(slice(None), 0, *place)].reshape(-1, *[1] * rank)
    return y


def _grouped(windows: Array, w: Array, groups: int) -> Array:
    rank = w.ndim - 2
    rows = windows.shape[2 : 2 + rank]
    y = np.empty((windows.shape[0], groups, w.shape[0] // groups, math.prod(rows)))
    kernels = w.reshape(groups, w.shape[0] // groups, -1)
    # windows as columns: channels and places of the kernel, then outputs, which lie side by side in memory
    order = (0, *range(1 + rank, 1 + 2 * rank), *range(1, 1 + rank))
    for number, image in enumerate(windows):
        for group, channels in enumerate(np.split(image, groups)):
            y[number, group] = _products(channels.transpose(order), rank, kernels[group])
    return y.reshape(windows.shape[0], w.shape[0], *rows)


def _products(view: Array, rank: int, kernels: Array) -> Array:
    """Return kernels times windows, unrolled a few at a time so that memory stays bounded."""
    slabs = np.moveaxis(view, -rank, 0)
    rows = max(1, _ROWS // max(1, math.prod(slabs.shape[1:])))
    parts = [
        kernels @ np.moveaxis(slab, 0, -rank).reshape(kernels.shape[1], -1 if slab.size else 0)
        for slab in (slabs[start : start + rows] for start in range(0, max(len(slabs), 1), rows))
    ]
    return np.concatenate(parts, axis=1)


def conv_transpose(call: Call) -> tuple[Array]:
    """Return a transposed convolution: every element of the input adds a scaled kernel to the output."""
    x, w = call[0], call[1]
    kernel, rank, groups = w.shape[2:], w.ndim - 2, call.attribute("group", 1)
    strides = call.attribute("strides", (1,) * rank)
    dilations = call.attribute("dilations", (1,) * rank)
    extra = call.attribute("output_padding", (0,) * rank)
    full = [
        stride * (size - 1) + dilation * (taps - 1) + 1
        for size, stride, dilation, taps in zip(x.shape[2:], strides, dilations, kernel, strict=True)
    ]
    spread = np.zeros((x.shape[0], groups, w.shape[1], *(a + b for a, b in zip(full, extra, strict=True))))
    images = x.reshape(x.shape[0], groups, x.shape[1] // groups, -1)
    kernels = w.reshape(groups, w.shape[0] // groups, w.shape[1], *kernel)
    for place in np.ndindex(*kernel):
        added = np.einsum("gcm,ngcs->ngms", kernels[(..., *place)], images, optimize=True)
        cut = tuple(
            slice(at * dilation, at * dilation + stride * (size - 1) + 1, stride)
            for at, dilation, stride, size in zip(place, dilations, strides, x.shape[2:], strict=True)
        )
        spread[:, :, :, *cut] += added.reshape(*added.shape[:3], *x.shape[2:])
    y = spread.reshape(x.shape[0], -1, *spread.shape[3:])
    y = y[:, :, *_cropped(call, y.shape[2:], x.shape[2:], strides)]
    bias = call.optional(2)
    return (y if bias is None else y + bias.reshape(-1, *[1] * rank),)


def _cropped(
    call: Call, full: Sequence[int], sizes: Sequence[int], strides: Sequence[int]
) -> tuple[slice, ...]:
    rank = len(full)
    automatic = call.attribute("auto_pad", "NOTSET")
    wanted = call.attribute("output_shape")
    if wanted is None and automatic.startswith("SAME"):
        wanted = [size * stride for size, stride in zip(sizes, strides, strict=True)]
    if wanted is None:
        pads = call.attribute("pads", (0,) * 2 * rank)
        if automatic == "VALID":
            pads = (0,) * 2 * rank
        return tuple(slice(pads[axis], full[axis] - pads[axis + rank]) for axis in range(rank))
    total = [size - length for size, length in zip(full, wanted[-rank:], strict=True)]
    # vendor: onnxruntime puts the odd one behind with SAME_UPPER, in front otherwise
    begin = [each // 2 if automatic == "SAME_UPPER" else each - each // 2 for each in total]
    return tuple(slice(at, at + length) for at, length in zip(begin, wanted[-rank:], strict=True))


def average_pool(call: Call) -> tuple[Array]:
    """Return the means of windows; padding counts where ``count_include_pad`` says so."""
    x = call[0]
    frame = _Frame.of(call, x.shape[2:], call.attribute("kernel_shape"))
    counted = np.pad(
        np.pad(np.ones(x.shape[2:]), frame.given, constant_values=call.attribute("count_include_pad", 0)),
        frame.beyond,
    )
    kernel_axes = tuple(range(-len(frame.kernel), 0))
    total = frame.windows(np.pad(x, ((0, 0), (0, 0), *frame.pads))).sum(axis=kernel_axes)
    return (total / frame.windows(counted[None, None]).sum(axis=kernel_axes),)


def max_pool(call: Call) -> tuple[Array]:
    """Return the maxima of windows; indices are not asked for."""
    x = call[0]
    if call.outputs > 1 or x.dtype.kind != "f":
        raise NotImplementedError("MaxPool with indices, or of integers")
    frame = _Frame.of(call, x.shape[2:], call.attribute("kernel_shape"))
    padded = np.pad(x, ((0, 0), (0, 0), *frame.pads), constant_values=-np.inf)
    return (frame.windows(padded).max(axis=tuple(range(-len(frame.kernel), 0))),)


class _Frame:
    """Where the windows of a convolution or pooling lie.

    Attributes:
        kernel: Size of a window by axis.
        given: Padding that is asked for, before and behind, by axis.
        beyond: Padding behind that, which the last window of ``ceil_mode`` needs.
    """

    def __init__(
        self,
        kernel: Sequence[int],
        strides: Sequence[int],
        dilations: Sequence[int],
        given: Sequence[tuple[int, int]],
        beyond: Sequence[tuple[int, int]],
    ) -> None:
        self.kernel, self._strides, self._dilations = tuple(kernel), strides, dilations
        self.given, self.beyond = tuple(given), tuple(beyond)

    @classmethod
    def of(cls, call: Call, sizes: Sequence[int], kernel: Sequence[int]) -> _Frame:
        """Return the frame of a call on an image of some sizes."""
        rank = len(sizes)
        strides = call.attribute("strides", (1,) * rank)
        dilations = call.attribute("dilations", (1,) * rank)
        spans = [dilation * (taps - 1) + 1 for dilation, taps in zip(dilations, kernel, strict=True)]
        pads = call.attribute("pads", (0,) * 2 * rank)
        given = list(zip(pads[:rank], pads[rank:], strict=True))
        automatic = call.attribute("auto_pad", "NOTSET")
        if automatic == "VALID":
            given = [(0, 0)] * rank
        elif automatic.startswith("SAME"):
            shapes = zip(sizes, strides, spans, strict=True)
            given = [_same(*each, is_upper=automatic == "SAME_UPPER") for each in shapes]
        beyond = [(0, 0)] * rank
        if call.attribute("ceil_mode", 0):
            beyond = [_beyond(*each) for each in zip(sizes, strides, spans, given, strict=True)]
        return cls(kernel, strides, dilations, given, beyond)

    @property
    def pads(self) -> tuple[tuple[int, int], ...]:
        """All padding, before and behind, by axis."""
        return tuple((a + c, b + d) for (a, b), (c, d) in zip(self.given, self.beyond, strict=True))

    def windows(self, padded: Array) -> Array:
        """Return a view of the windows of padded images: batch, channel, outputs, places of the kernel."""
        spans = [d * (k - 1) + 1 for d, k in zip(self._dilations, self.kernel, strict=True)]
        axes = tuple(range(2, padded.ndim))
        view = np.lib.stride_tricks.sliding_window_view(padded, spans, axes)
        steps = itertools.chain(self._strides, self._dilations)
        return view[(slice(None), slice(None), *(slice(None, None, step) for step in steps))]


def _same(size: int, stride: int, span: int, *, is_upper: bool) -> tuple[int, int]:
    total = max((math.ceil(size / stride) - 1) * stride + span - size, 0)
    less = total // 2
    return (less, total - less) if is_upper else (total - less, less)


def _beyond(size: int, stride: int, span: int, pads: tuple[int, int]) -> tuple[int, int]:
    length = size + sum(pads) - span
    count = math.ceil(length / stride) + 1
    # a window that would begin in the padding behind is left out
    if (count - 1) * stride >= size + pads[0]:
        count -= 1
    return 0, max((count - 1) * stride - length, 0)


def _conv_terms(call: Call) -> float:
    return float(math.prod(call[1].shape[1:]))


def _transpose_terms(call: Call) -> float:
    return float(call[1].shape[0] / call.attribute("group", 1) * math.prod(call[1].shape[2:]))


DEFINITIONS: Final[Mapping[str, Definition]] = {
    "Conv": Definition(conv, Kind.LINEAR, _conv_terms),
    "ConvTranspose": Definition(conv_transpose, Kind.LINEAR, _transpose_terms),
    "AveragePool": Definition(
        average_pool, Kind.LINEAR, lambda call: float(math.prod(call.attribute("kernel_shape")))
    ),
    "GlobalAveragePool": Definition(
        lambda call: (call[0].mean(axis=tuple(range(2, call[0].ndim)), keepdims=True),),
        Kind.LINEAR,
        lambda call: float(math.prod(call[0].shape[2:])),
    ),
    "MaxPool": Definition(max_pool, Kind.EXACT),
    "GlobalMaxPool": Definition(
        lambda call: (call[0].max(axis=tuple(range(2, call[0].ndim)), keepdims=True),), Kind.EXACT
    ),
}
"""Operators that look at windows of images."""
