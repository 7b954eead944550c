"""Operators in float64: error bounds of each, and numpy definitions that replace ONNX's reference.

ONNX's reference evaluator computes most operators in float64 with numpy. Own definitions replace it where it
computes in float32 (Erf, Gelu, GroupNormalization), has faults (LRN, LpNormalization; GlobalMaxPool of other
ranks than 4, Mean that broadcasts, Softsign of scalars; old Softmax and BatchNormalization) or takes
many times as long (convolutions, poolings, Sigmoid, Einsum).
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.device import numpy_cast
from msdump.graph.kernel import HALVES

Array = np.ndarray


@dataclass(frozen=True, slots=True)
class Call:
    """One standard operator with its inputs.

    Attributes:
        inputs: Arrays by slot, every floating point one in float64; None for one that is absent.
        attributes: Its attributes.
        opset: Version of ai.onnx.
        outputs: Number of requested outputs.
    """

    inputs: Sequence[Array | None]
    attributes: Mapping[str, Any]
    opset: int
    outputs: int = 1

    def __getitem__(self, slot: int) -> Array:
        """Return an input that must be there."""
        array = self.inputs[slot]
        assert array is not None
        return array

    def optional(self, slot: int) -> Array | None:
        """Return an input, None for an absent one."""
        return self.inputs[slot] if slot < len(self.inputs) else None

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute, or its default."""
        return self.attributes.get(name, default)


Compute = Callable[[Call], tuple[Array, ...]]
"""Returns the outputs of a call."""


class Kind(enum.Enum):
    """Effect of rounding on the results of an operator."""

    EXACT = enum.auto()
    """None: elements are moved, chosen or compared, and every right kernel gives the same."""
    ROUNDED = enum.auto()
    """The exact result is rounded once."""
    LINEAR = enum.auto()
    """Sums of products, whose terms are rounded and added in any order."""
    SMOOTH = enum.auto()
    """Approximations, and results that are made in several steps."""


@dataclass(frozen=True, slots=True)
class RoundingRule:
    """How far rounding may move the results of an operator.

    Attributes:
        kind: The effect of rounding.
        terms: Returns from how many elements of the inputs one element of a result is computed.
        disturbed: Number of leading inputs that are data; the other inputs are parameters such as scales.
        between: Returns the magnitudes of intermediate numbers that kernels subtract for a result (which
            cancels digits); 0: no intermediate is larger than the result.
    """

    kind: Kind
    terms: Callable[[Call], float] = lambda _: 1.0
    disturbed: int | None = None
    between: Callable[[Call], Array | float] = lambda _: 0.0


def doubled(array: Array) -> Array:
    """Convert a floating point array to float64; return other arrays unchanged."""
    if array.dtype.kind == "f" or array.dtype in {row.numpy for row in HALVES}:
        return array.astype(np.float64)
    return array


def _exponential(**defaults: float) -> Callable[[Call], Array]:
    """Return a ``between`` function: the factor of ``exp(x) - 1`` for negative inputs x, else 0."""

    def between(call: Call) -> Array:
        size = np.prod([abs(call.attribute(name, default)) for name, default in defaults.items()])
        return np.asarray(np.where(call[0] < 0, size, 0.0))

    return between


def _last(call: Call) -> float:
    return float(call[0].shape[-1] if call[0].ndim else 1)


def _image(call: Call) -> float:
    return float(call[0].size / max(call[0].shape[1], 1))


def _behind(call: Call) -> float:
    x = call[0]
    return float(math.prod(x.shape[call.attribute("axis", -1) % x.ndim :]))


def _reduced(call: Call) -> float:
    axes: Any = call.attribute("axes", call.optional(1))
    if axes is None or len(axes) == 0:
        axes = () if call.attribute("noop_with_empty_axes", 0) else range(call[0].ndim)
    return float(math.prod(call[0].shape[int(axis)] for axis in np.asarray(axes).reshape(-1)))


def _kernel(call: Call) -> float:
    return float(math.prod(call[1].shape[1:]))


_EXACT: Final = (
    *("Identity", "Neg", "Abs", "Floor", "Ceil", "Round", "Sign", "Not", "IsNaN", "Relu", "ThresholdedRelu"),
    *("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor", "Max", "Min", "Where"),
    *("Clip", "ReduceMax", "ReduceMin", "MaxPool", "GlobalMaxPool", "Cast", "CastLike"),
)
_ROUNDED: Final = ("Add", "Sub", "Mul", "Div", "Sqrt", "Reciprocal", "LeakyRelu", "PRelu")
_SMOOTH: Final = (
    *("Exp", "Log", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh"),
    *("Tanh", "Erf", "Sigmoid", "Softplus", "Softsign", "Mish", "HardSwish", "Pow", "Gelu", "Swish"),
    "HardSigmoid",
)
_LINEAR: Final[Mapping[str, Callable[[Call], float]]] = {
    "Sum": lambda call: float(len(call.inputs)),
    "Mean": lambda call: float(len(call.inputs)),
    "MatMul": lambda call: float(call[0].shape[-1]),
    "Gemm": lambda call: float(call[0].shape[0 if call.attribute("transA", 0) else 1]),
    "Einsum": lambda call: float(max(call[slot].size for slot in range(len(call.inputs))) ** 0.5),
    "ReduceSum": _reduced,
    "ReduceMean": _reduced,
    "ReduceL1": _reduced,
    "Conv": _kernel,
    "ConvTranspose": lambda call: (
        _kernel(call) * call[1].shape[0] / call.attribute("group", 1) / call[1].shape[1]
    ),
    "AveragePool": lambda call: float(math.prod(call.attribute("kernel_shape"))),
    "GlobalAveragePool": lambda call: float(math.prod(call[0].shape[2:])),
}
_SMOOTH_SUMS: Final[Mapping[str, Callable[[Call], float]]] = {
    **dict.fromkeys(
        ("ReduceProd", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"), _reduced
    ),
    "BatchNormalization": lambda call: _image(call) if call.attribute("training_mode", 0) else 1.0,
    "LayerNormalization": _behind,
    "RMSNormalization": _behind,
    "InstanceNormalization": _image,
    "GroupNormalization": _image,
    "LRN": lambda call: float(call.attribute("size")),
    "LpNormalization": _last,
    "Softmax": _last,
    "LogSoftmax": _last,
}
_SELU_ALPHA: Final = 1.67326319217681884765625
_SELU_GAMMA: Final = 1.05070102214813232421875

RULES: Final[Mapping[str, RoundingRule]] = {
    **dict.fromkeys(_EXACT, RoundingRule(Kind.EXACT)),
    **dict.fromkeys(_ROUNDED, RoundingRule(Kind.ROUNDED)),
    **dict.fromkeys(_SMOOTH, RoundingRule(Kind.SMOOTH)),
    **{name: RoundingRule(Kind.LINEAR, terms) for name, terms in _LINEAR.items()},
    **{name: RoundingRule(Kind.SMOOTH, terms) for name, terms in _SMOOTH_SUMS.items()},
    "Elu": RoundingRule(Kind.SMOOTH, between=_exponential(alpha=1.0)),
    "Selu": RoundingRule(Kind.SMOOTH, between=_exponential(alpha=_SELU_ALPHA, gamma=_SELU_GAMMA)),
    "Celu": RoundingRule(Kind.SMOOTH, between=_exponential(alpha=1.0)),
    **dict.fromkeys(
        ("LSTM", "GRU", "RNN"),
        RoundingRule(Kind.SMOOTH, lambda call: float(call[1].shape[-1] + call[2].shape[-1]), disturbed=1),
    ),
}
"""The operators of ONNX that ONNX's reference or an own definition computes, with the effect of rounding."""


_WIDE: Final = (dtypes.from_name("float32"), dtypes.from_name("float64"))


def _cast(call: Call) -> tuple[Array]:
    dtype, x = dtypes.from_onnx(call.attribute("to")), call[0]
    if dtype in _WIDE:
        return (x.astype(np.float64),)
    if dtype in HALVES:  # a Cast of the model rounds in float64 as well
        return (numpy_cast(x, dtype).astype(np.float64),)
    if dtype.numpy.kind not in "iub" or x.dtype.kind not in "iubf":
        raise NotImplementedError(f"Cast to {dtype.name}")
    with np.errstate(invalid="ignore"):
        return (x.astype(dtype.numpy),)


def _like(call: Call) -> tuple[Array]:
    if call[1].dtype.kind == "f":
        return (call[0].astype(np.float64),)
    return (call[0].astype(call[1].dtype),)


_erf = np.frompyfunc(math.erf, 1, 1)  # numpy has no error function
_SQRT_HALF: Final = math.sqrt(0.5)
_GELU_TANH: Final = math.sqrt(2 / math.pi)
_GELU_CUBE: Final = 0.044715


def erf(x: Array) -> Array:
    """Return the Gauss error function of every element."""
    return np.asarray(_erf(x)).astype(np.float64)


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(-x)), which no element overflows."""
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1.0, small) / (1 + small))


def softplus(x: Array) -> Array:
    """Return log(1 + exp(x))."""
    return np.asarray(np.logaddexp(0, x))


def _gelu(call: Call) -> tuple[Array]:
    x = call[0]
    if call.attribute("approximate", "none") == "tanh":
        return (0.5 * x * (1 + np.tanh(_GELU_TANH * (x + _GELU_CUBE * x**3))),)
    return (0.5 * x * (1 + erf(x * _SQRT_HALF)),)


def _einsum(call: Call) -> tuple[Array]:
    operands = [call[slot] for slot in range(len(call.inputs))]
    return (np.asarray(np.einsum(call.attribute("equation"), *operands, optimize=True)),)


_SOFTMAX_ALONG_ONE_AXIS: Final = 13
_EPSILON: Final = 1e-5


def _channels(array: Array, rank: int) -> Array:
    """Reshape a vector with one element per channel so that it broadcasts over (batch, channel, ...)."""
    return array.reshape(-1, *[1] * (rank - 2))


def _batch_normalization(call: Call) -> tuple[Array, ...]:
    x, scale, bias, mean, variance = (call[slot] for slot in range(5))
    epsilon, rank = call.attribute("epsilon", _EPSILON), x.ndim
    running: tuple[Array, ...] = ()
    if call.attribute("training_mode", 0):
        axes = (0, *range(2, rank))
        momentum = call.attribute("momentum", 0.9)
        own_mean, own_variance = x.mean(axis=axes), x.var(axis=axes)
        running = (
            mean * momentum + own_mean * (1 - momentum),
            variance * momentum + own_variance * (1 - momentum),
        )
        mean, variance = own_mean, own_variance
    elif call.outputs > 1:
        raise NotImplementedError("BatchNormalization of old opsets with more than one output")
    mean, factor = _channels(mean, rank), _channels(scale / np.sqrt(variance + epsilon), rank)
    return ((x - mean) * factor + _channels(bias, rank), *running)


def _group_normalization(call: Call) -> tuple[Array]:
    x, groups = call[0], call.attribute("num_groups")
    grouped = x.reshape(x.shape[0], groups, -1)
    variance = grouped.var(axis=2, keepdims=True) + call.attribute("epsilon", _EPSILON)
    y = ((grouped - grouped.mean(axis=2, keepdims=True)) / np.sqrt(variance)).reshape(x.shape)
    # until opset 20 there is one scale for each group
    scale, bias = (
        np.repeat(array, x.shape[1] // len(array)) if len(array) != x.shape[1] else array
        for array in (call[1], call[2])
    )
    return (y * _channels(scale, x.ndim) + _channels(bias, x.ndim),)


def _local_response(call: Call) -> tuple[Array]:
    x, size = call[0], call.attribute("size")
    before, behind = (size - 1) // 2, size // 2
    squares = np.pad(x * x, ((0, 0), (before, behind), *[(0, 0)] * (x.ndim - 2)))
    total = sum(squares[:, start : start + x.shape[1]] for start in range(size))
    alpha, beta, bias = (call.attribute(n, d) for n, d in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))
    return (x / (bias + alpha / size * np.asarray(total)) ** beta,)


def _along(call: Call, x: Array) -> tuple[Array, Any]:
    """Return a softmax's input (flattened to 2-D before opset 13) and the axis of its sums."""
    if call.opset >= _SOFTMAX_ALONG_ONE_AXIS:
        return x, call.attribute("axis", -1)
    axis = call.attribute("axis", 1) % max(x.ndim, 1)
    return x.reshape(math.prod(x.shape[:axis]), -1), -1


def _mean(call: Call) -> tuple[Array]:
    count = len(call.inputs)
    return (np.asarray(sum(call[slot] for slot in range(count)) / count),)


def _lp_normalization(call: Call) -> tuple[Array]:
    x, axis = call[0], call.attribute("axis", -1)
    norm = np.linalg.norm(x, ord=call.attribute("p", 2), axis=axis, keepdims=True)
    return (np.where(norm == 0, 0, x / np.where(norm == 0, 1, norm)),)


def _log_softmax(call: Call) -> tuple[Array]:
    x, axis = _along(call, call[0])
    shifted = x - x.max(axis=axis, keepdims=True)
    return ((shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))).reshape(call[0].shape),)


def _softmax(call: Call) -> tuple[Array]:
    x, axis = _along(call, call[0])
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return ((powers / powers.sum(axis=axis, keepdims=True)).reshape(call[0].shape),)


_ROWS: Final = 1 << 22  # elements of windows that are unrolled at a time


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
    # im2col: rows are channels and kernel positions, columns are outputs, contiguous in memory
    order = (0, *range(1 + rank, 1 + 2 * rank), *range(1, 1 + rank))
    for number, image in enumerate(windows):
        for group, channels in enumerate(np.split(image, groups)):
            y[number, group] = _products(channels.transpose(order), rank, kernels[group])
    return y.reshape(windows.shape[0], w.shape[0], *rows)


def _products(view: Array, rank: int, kernels: Array) -> Array:
    """Return the matrix product of kernels and windows, some windows at a time to bound memory."""
    slabs = np.moveaxis(view, -rank, 0)
    rows = max(1, _ROWS // max(1, math.prod(slabs.shape[1:])))
    parts = [
        kernels @ np.moveaxis(slab, 0, -rank).reshape(kernels.shape[1], -1 if slab.size else 0)
        for slab in (slabs[start : start + rows] for start in range(0, max(len(slabs), 1), rows))
    ]
    return np.concatenate(parts, axis=1)


def conv_transpose(call: Call) -> tuple[Array]:
    """Return a transposed convolution, computed as a convolution of the input with zeros inserted."""
    x, w, bias = call[0], call[1], call.optional(2)
    kernel, rank, groups = w.shape[2:], w.ndim - 2, call.attribute("group", 1)
    strides = call.attribute("strides", (1,) * rank)
    dilations = call.attribute("dilations", (1,) * rank)
    sizes = [stride * (size - 1) + 1 for size, stride in zip(x.shape[2:], strides, strict=True)]
    sparse = np.zeros((*x.shape[:2], *sizes))
    sparse[:, :, *(slice(None, None, stride) for stride in strides)] = x
    flipped = np.flip(w, tuple(range(2, w.ndim))).reshape(groups, -1, *w.shape[1:]).swapaxes(1, 2)
    pads = [dilation * (taps - 1) for dilation, taps in zip(dilations, kernel, strict=True)] * 2
    attributes = {"group": groups, "dilations": dilations, "pads": pads}
    inner = Call([sparse, flipped.reshape(-1, *flipped.shape[2:])], attributes, call.opset)
    (y,) = conv(inner)
    y = _cropped(call, y, strides)
    return (y if bias is None else y + bias.reshape(-1, *[1] * rank),)


def _cropped(call: Call, y: Array, strides: Sequence[int]) -> Array:
    """Remove the padding from a transposed convolution and append ``output_padding``."""
    rank = y.ndim - 2
    extra = call.attribute("output_padding", (0,) * rank)
    automatic, wanted = call.attribute("auto_pad", "NOTSET"), call.attribute("output_shape")
    full = [size + more for size, more in zip(y.shape[2:], extra, strict=True)]
    if wanted is None and automatic.startswith("SAME"):
        sizes = zip(call[0].shape[2:], strides, full, strict=True)
        wanted = [min(size * stride, most) for size, stride, most in sizes]
    if wanted is None:
        pads = (0,) * 2 * rank if automatic == "VALID" else call.attribute("pads", (0,) * 2 * rank)
        begins, wanted = pads[:rank], [size - sum(pads[at::rank]) for at, size in enumerate(full)]
    else:
        total = [max(0, size - length) for size, length in zip(full, wanted[-rank:], strict=True)]
        # vendor: onnxruntime puts an odd element of padding at the end with SAME_UPPER, else at the beginning
        begins = [each // 2 if automatic == "SAME_UPPER" else each - each // 2 for each in total]
    ends = [at + length for at, length in zip(begins, wanted[-rank:], strict=True)]
    behind = [(0, max(0, end - size)) for end, size in zip(ends, y.shape[2:], strict=True)]
    return np.pad(y, ((0, 0), (0, 0), *behind))[:, :, *map(slice, begins, ends)]


def average_pool(call: Call) -> tuple[Array]:
    """Return the means of windows, including padding if ``count_include_pad`` is set."""
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
    """Return the maxima of windows, without indices."""
    x = call[0]
    if call.outputs > 1 or x.dtype.kind != "f":
        raise NotImplementedError("MaxPool with indices, or of integers")
    frame = _Frame.of(call, x.shape[2:], call.attribute("kernel_shape"))
    padded = np.pad(x, ((0, 0), (0, 0), *frame.pads), constant_values=-np.inf)
    return (frame.windows(padded).max(axis=tuple(range(-len(frame.kernel), 0))),)


class _Frame:
    """Geometry of the windows of a convolution or pooling.

    Attributes:
        kernel: Size of a window by axis.
        given: Requested padding, before and behind, by axis.
        beyond: Further padding at the end of each axis, for the last window with ``ceil_mode``.
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
        """Return the geometry of a call from its attributes and the sizes of the image."""
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
    # a window that would begin in the padding at the end is left out
    if (count - 1) * stride >= size + pads[0]:
        count -= 1
    return 0, max((count - 1) * stride - length, 0)


OWN: Final[Mapping[str, Compute]] = {
    "Cast": _cast,
    "CastLike": _like,
    "Erf": lambda call: (erf(call[0]),),
    "Gelu": _gelu,
    "Sigmoid": lambda call: (sigmoid(call[0]),),
    "Softsign": lambda call: (call[0] / (1 + np.abs(call[0])),),
    "Mean": lambda call: (
        np.asarray(sum(call[slot] for slot in range(len(call.inputs))) / len(call.inputs)),
    ),
    "GlobalMaxPool": lambda call: (call[0].max(axis=tuple(range(2, call[0].ndim)), keepdims=True),),
    "LpNormalization": _lp_normalization,
    "Einsum": _einsum,
    "BatchNormalization": _batch_normalization,
    "GroupNormalization": _group_normalization,
    "LRN": _local_response,
    "Softmax": _softmax,
    "LogSoftmax": _log_softmax,
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "AveragePool": average_pool,
    "MaxPool": max_pool,
}
"""Definitions that serve in place of ONNX's reference, by operator type."""
