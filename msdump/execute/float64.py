"""Operators in float64: the effect of rounding on each, and numpy definitions that replace ONNX's reference.

ONNX's reference evaluator computes most operators in float64 with numpy. Own definitions replace it where it
computes in float32 (Erf, Gelu, GroupNormalization), has faults (LRN, LpNormalization; GlobalMaxPool of other
ranks than 4, Mean that broadcasts, Softsign of scalars; old Softmax and BatchNormalization) or takes
many times as long (convolutions, poolings, Sigmoid, Einsum). Of LSTM, GRU and RNN it ignores
``sequence_lens``, ``clip``, ``input_forget`` and ``activations``; the formulas here follow ONNX's operator
documents, and a reversed direction reads each sequence from its own end, as onnxruntime does.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from msdump import dtypes
from msdump.device import numpy_cast
from msdump.graph.kernel import HALVES

Array = np.ndarray


@dataclass(frozen=True, slots=True)
class Call:
    """One standard operator with its inputs."""

    # arrays by slot, every floating point one in float64; None for one that is absent
    inputs: Sequence[Array | None]
    attributes: Mapping[str, Any]
    opset: int  # version of ai.onnx
    outputs: int = 1  # number of requested outputs

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

Terms = Callable[[Call], float]
"""Returns from how many elements of the inputs one element of a result is computed."""


def doubled(array: Array) -> Array:
    """Convert a floating point array to float64; return other arrays unchanged."""
    if array.dtype.kind == "f" or array.dtype in {row.numpy for row in HALVES}:
        return array.astype(np.float64)
    return array


def one(_: Call) -> float:
    """Return from how many elements one element of an elementwise result is computed."""
    return 1.0


def width(call: Call) -> float:
    """Return it for operators without a rule: the longest last axis of an input."""
    return float(
        max((array.shape[-1] for array in call.inputs if array is not None and array.ndim), default=1)
    )


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


EXACT: Final = frozenset(
    {
        *(
            "Identity",
            "Neg",
            "Abs",
            "Floor",
            "Ceil",
            "Round",
            "Sign",
            "Not",
            "IsNaN",
            "Relu",
            "Equal",
            "Greater",
        ),
        *("GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor", "Max", "Min", "Where", "Clip", "Cast"),
        *(
            "CastLike",
            "ThresholdedRelu",
            "ReduceMax",
            "ReduceMin",
            "MaxPool",
            "GlobalMaxPool",
            "ArgMax",
            "ArgMin",
        ),
        *("TopK", "IsInf", "Hardmax", "Mod", "NonMaxSuppression"),
    }
)
"""Operators that move, choose or compare elements: every right kernel gives the same."""

LINEAR: Final[Mapping[str, Terms]] = {
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
"""Sums of products, whose terms are rounded and added in any order; from how many one element is computed."""

SMOOTH: Final[Mapping[str, Terms]] = {
    **dict.fromkeys(
        ("Add", "Sub", "Mul", "Div", "Sqrt", "Reciprocal", "LeakyRelu", "PRelu", "Exp", "Log", "Sin"), one
    ),
    **dict.fromkeys(
        ("Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Tanh"), one
    ),
    **dict.fromkeys(
        ("Erf", "Sigmoid", "Softplus", "Softsign", "Mish", "HardSwish", "Pow", "Gelu", "Swish"), one
    ),
    **dict.fromkeys(("HardSigmoid", "Elu", "Selu", "Celu"), one),
    **dict.fromkeys(
        ("ReduceProd", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"), _reduced
    ),
    "BatchNormalization": lambda call: _image(call) if call.attribute("training_mode", 0) else 1.0,
    "LayerNormalization": _behind,
    "RMSNormalization": _behind,
    "InstanceNormalization": _image,
    "GroupNormalization": _image,
    "LRN": lambda call: float(call.attribute("size")),
    **dict.fromkeys(("LpNormalization", "Softmax", "LogSoftmax"), _last),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), lambda call: float(call[1].shape[-1] + call[2].shape[-1])),
}
"""Approximations, and results that are made in several steps; from how many elements one is computed."""

KNOWN: Final = EXACT | LINEAR.keys() | SMOOTH.keys()
"""The operators that ONNX's reference or an own definition computes."""


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


class _Axis(NamedTuple):
    """Windows along one axis: padding before, behind and beyond it (for ``ceil_mode``), count, steps."""

    before: int
    behind: int
    beyond: int
    number: int
    stride: int
    dilation: int

    def at(self, place: int) -> slice:
        """Return the elements at a place of all windows."""
        start = place * self.dilation
        return slice(start, start + (self.number - 1) * self.stride + 1, self.stride)


def _axes(call: Call, sizes: Sequence[int], kernel: Sequence[int]) -> Iterator[_Axis]:
    rank, automatic = len(sizes), call.attribute("auto_pad", "NOTSET")
    pads = call.attribute("pads", (0,) * 2 * rank)
    rounds = math.ceil if call.attribute("ceil_mode", 0) else math.floor
    steps = (call.attribute(name, (1,) * rank) for name in ("strides", "dilations"))
    for axis, (size, taps, stride, dilation) in enumerate(zip(sizes, kernel, *steps, strict=True)):
        span, before, behind = dilation * (taps - 1) + 1, pads[axis], pads[rank + axis]
        if automatic != "NOTSET":
            wanted = (math.ceil(size / stride) - 1) * stride + span - size
            total = max(wanted, 0) if automatic.startswith("SAME") else 0
            before = total // 2 if automatic == "SAME_UPPER" else total - total // 2
            behind = total - before
        room = size + before + behind - span
        if room < 0:
            raise ValueError(f"a window of {span} elements in {size + before + behind}")
        count = rounds(room / stride) + 1
        # a window that would begin in the padding at the end is left out
        count -= rounds is math.ceil and (count - 1) * stride >= size + before
        yield _Axis(before, behind, max((count - 1) * stride - room, 0), count, stride, dilation)


def _taps(
    call: Call, x: Array, kernel: Sequence[int], fill: float = 0.0, beyond: float = 0.0
) -> Iterator[tuple[tuple[int, ...], Array]]:
    """Yield each place of a kernel with the elements of padded images there, of all windows."""
    axes, around = [*_axes(call, x.shape[2:], kernel)], ((0, 0), (0, 0))
    padded = np.pad(x, (*around, *((axis.before, axis.behind) for axis in axes)), constant_values=fill)
    padded = np.pad(padded, (*around, *((0, axis.beyond) for axis in axes)), constant_values=beyond)
    for place in np.ndindex(*kernel):
        windows: Any = slice(None), slice(None), *(axis.at(at) for axis, at in zip(axes, place, strict=True))
        yield place, padded[windows]


def conv(call: Call) -> tuple[Array]:
    """Return a convolution: the sum over the places of its kernel of matrix products over channels."""
    x, bias, groups, y = call[0], call.optional(2), call.attribute("group", 1), np.zeros(())
    w: Any = call[1]
    for place, part in _taps(call, x, w.shape[2:]):
        channels = part.reshape(len(x), groups, w.shape[1], -1)
        product = w[:, :, *place].reshape(groups, -1, w.shape[1]) @ channels
        y = y + product.reshape(len(x), w.shape[0], *part.shape[2:])
    return (y if bias is None else y + bias.reshape(-1, *[1] * (w.ndim - 2)),)


def conv_transpose(call: Call) -> tuple[Array]:
    """Return a transposed convolution: each place of its kernel adds to every stride-th element."""
    x, bias, groups = call[0], call.optional(2), call.attribute("group", 1)
    w: Any = call[1]
    rank, sizes = w.ndim - 2, x.shape[2:]
    strides, dilations = (call.attribute(name, (1,) * rank) for name in ("strides", "dilations"))
    extra = call.attribute("output_padding", (0,) * rank)
    steps = [*zip(sizes, strides, dilations, w.shape[2:], extra, strict=True)]
    full = [
        (size - 1) * stride + dilation * (taps - 1) + 1 + more for size, stride, dilation, taps, more in steps
    ]
    y = np.zeros((len(x), groups * w.shape[1], *full))
    channels = x.reshape(len(x), groups, w.shape[0] // groups, -1)
    for place in np.ndindex(*w.shape[2:]):
        product = w[:, :, *place].reshape(groups, -1, w.shape[1]).swapaxes(1, 2) @ channels
        starts = [at * dilation for at, dilation in zip(place, dilations, strict=True)]
        where = (
            slice(start, start + (size - 1) * stride + 1, stride)
            for start, size, stride in zip(starts, sizes, strides, strict=True)
        )
        y[(slice(None), slice(None), *where)] += product.reshape(len(x), -1, *sizes)
    y = _cropped(call, y, strides)
    return (y if bias is None else y + bias.reshape(-1, *[1] * rank),)


def _cropped(call: Call, y: Array, strides: Sequence[int]) -> Array:
    """Remove the padding from a transposed convolution, or choose it for a given shape."""
    rank, full = y.ndim - 2, y.shape[2:]
    automatic, wanted = call.attribute("auto_pad", "NOTSET"), call.attribute("output_shape")
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
    behind = [(0, max(0, end - size)) for end, size in zip(ends, full, strict=True)]
    return np.pad(y, ((0, 0), (0, 0), *behind))[:, :, *map(slice, begins, ends)]


def average_pool(call: Call) -> tuple[Array]:
    """Return the means of windows, including padding if ``count_include_pad`` is set."""
    x, kernel = call[0], call.attribute("kernel_shape")
    ones = np.ones((1, 1, *x.shape[2:]))
    fill = call.attribute("count_include_pad", 0)
    total, number = (
        functools.reduce(np.add, (part for _, part in _taps(call, *each)))
        for each in ((x, kernel), (ones, kernel, fill))
    )
    return (total / number,)


def max_pool(call: Call) -> tuple[Array]:
    """Return the maxima of windows, without indices."""
    if call.outputs > 1 or call[0].dtype.kind != "f":
        raise NotImplementedError("MaxPool with indices, or of integers")
    parts = (part for _, part in _taps(call, call[0], call.attribute("kernel_shape"), -np.inf, -np.inf))
    return (functools.reduce(np.maximum, parts),)


OWN: Final[Mapping[str, Compute]] = {
    "Cast": _cast,
    "CastLike": _like,
    "Erf": lambda call: (erf(call[0]),),
    "Gelu": _gelu,
    "Sigmoid": lambda call: (sigmoid(call[0]),),
    "Softsign": lambda call: (call[0] / (1 + np.abs(call[0])),),
    "Mean": _mean,
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


_Activation = Callable[[Array], Array]
_Step = Callable[[Array, tuple[Array, ...]], tuple[Array, ...]]
"""Returns the next states, the hidden one first, from an input times its weights and the states."""

_PLAIN: Final[Mapping[str, _Activation]] = {
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "softplus": lambda x: np.logaddexp(0, x),
}
_SCALED: Final[Mapping[str, tuple[Callable[[Array, float, float], Array], float | None, float | None]]] = {
    "affine": (lambda x, alpha, beta: alpha * x + beta, 1.0, 0.0),
    "leakyrelu": (lambda x, alpha, _: np.where(x >= 0, x, alpha * x), 0.01, None),
    "thresholdedrelu": (lambda x, alpha, _: np.where(x > alpha, x, 0), 1.0, None),
    "scaledtanh": (lambda x, alpha, beta: alpha * np.tanh(beta * x), 1.0, 1.0),
    "hardsigmoid": (lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1), 0.2, 0.5),
    "elu": (lambda x, alpha, _: np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0))), 1.0, None),
}
"""Activations with parameters: the function, and the defaults of alpha and beta, None where it takes none."""


def _activations(call: Call, defaults: Sequence[str], directions: int) -> Iterator[_Activation]:
    """Yield the activation functions of all directions, with parameters taken from alpha and beta."""
    alphas, betas = (iter(call.attribute(f"activation_{each}", ())) for each in ("alpha", "beta"))
    for text in call.attribute("activations") or [*defaults] * directions:
        name = (text.decode() if isinstance(text, bytes) else text).lower()
        if name in _PLAIN:
            yield _PLAIN[name]
            continue
        if name not in _SCALED:
            raise NotImplementedError(name)
        function, alpha, beta = _SCALED[name]
        first = 0.0 if alpha is None else float(next(alphas, alpha))
        second = 0.0 if beta is None else float(next(betas, beta))
        yield lambda x, f=function, a=first, b=second: f(x, a, b)  # type: ignore[misc]


def _clipped(call: Call) -> _Activation:
    limit = call.attribute("clip")
    return (lambda x: x) if limit is None else (lambda x: np.clip(x, -limit, limit))


def _lstm(call: Call, direction: int, functions: Sequence[_Activation]) -> _Step:
    f, g, h = functions
    clip, is_coupled = _clipped(call), call.attribute("input_forget", 0)
    recurrent, (bias, inner) = call[2][direction].T, _biases(call, direction, 4)
    peep = call.optional(7)
    hidden = recurrent.shape[0]
    peeps = np.zeros((3, hidden)) if peep is None else peep[direction].reshape(3, hidden)

    def step(product: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
        before, cell = states
        i, o, forget, c = np.split(product + before @ recurrent + bias + inner, 4, -1)
        i = f(clip(i + peeps[0] * cell))
        forget = 1 - i if is_coupled else f(clip(forget + peeps[2] * cell))
        cell = forget * cell + i * g(clip(c))
        return f(clip(o + peeps[1] * cell)) * h(cell), cell  # vendor: onnxruntime does not clip the cell

    return step


def _gru(call: Call, direction: int, functions: Sequence[_Activation]) -> _Step:
    f, g = functions
    clip, is_before = _clipped(call), call.attribute("linear_before_reset", 0)
    hidden = call[2].shape[-1]
    recurrent, (bias, inner) = call[2][direction].T, _biases(call, direction, 3)
    gates, last = slice(0, 2 * hidden), slice(2 * hidden, None)

    def step(product: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
        (before,) = states
        summed = product[:, gates] + before @ recurrent[:, gates] + bias[gates] + inner[gates]
        z, r = np.split(f(clip(summed)), 2, -1)
        if is_before:
            passed = r * (before @ recurrent[:, last] + inner[last])
        else:
            passed = (r * before) @ recurrent[:, last] + inner[last]
        return ((1 - z) * g(clip(product[:, last] + passed + bias[last])) + z * before,)

    return step


def _rnn(call: Call, direction: int, functions: Sequence[_Activation]) -> _Step:
    clip, recurrent, (bias, inner) = _clipped(call), call[2][direction].T, _biases(call, direction, 1)
    return lambda product, states: (functions[0](clip(product + states[0] @ recurrent + bias + inner)),)


def _biases(call: Call, direction: int, gates: int) -> tuple[Array, Array]:
    bias = call.optional(3)
    size = gates * call[2].shape[-1]
    if bias is None:
        return np.zeros(size), np.zeros(size)
    return bias[direction][:size], bias[direction][size:]


def _recurrent(
    make: Callable[[Call, int, Sequence[_Activation]], _Step], activations: Sequence[str], states: int
) -> Compute:
    """Return a function that computes the outputs (steps, directions, batch, hidden) and the last states."""

    def compute(call: Call) -> tuple[Array, ...]:
        is_batch_first = call.attribute("layout", 0)
        x = np.swapaxes(call[0], 0, 1) if is_batch_first else call[0]
        steps, batch, hidden = *x.shape[:2], call[2].shape[-1]
        direction: Any = call.attribute("direction", "forward")
        direction = direction.decode() if isinstance(direction, bytes) else direction
        reversed_ = {"forward": (False,), "reverse": (True,)}.get(direction, (False, True))
        functions = [*_activations(call, activations, len(reversed_))]
        count = len(functions) // len(reversed_)
        given = call.optional(4)
        lengths = np.full(batch, steps) if given is None else given
        y = np.zeros((steps, len(reversed_), batch, hidden))
        last = np.zeros((states, len(reversed_), batch, hidden))
        for number in range(states):
            initial = call.optional(5 + number)
            if initial is not None:
                last[number] = np.swapaxes(initial, 0, 1) if is_batch_first else initial
        for at, is_reversed in enumerate(reversed_):
            step = make(call, at, functions[at * count : (at + 1) * count])
            products = x @ call[1][at].T
            for time in range(steps):
                (running,) = np.nonzero(time < lengths)
                row = lengths[running] - 1 - time if is_reversed else np.full(len(running), time)
                found = step(products[row, running], tuple(last[:, at, running]))
                last[:, at, running] = found
                y[row, at, running] = found[0]
        if is_batch_first:
            return y.transpose(2, 0, 1, 3), *last.transpose(0, 2, 1, 3)
        return y, *last

    return compute


_TANH: Final = "tanh"
RECURRENT: Final[Mapping[str, Compute]] = {
    "LSTM": _recurrent(_lstm, ("sigmoid", _TANH, _TANH), 2),
    "GRU": _recurrent(_gru, ("sigmoid", _TANH), 1),
    "RNN": _recurrent(_rnn, (_TANH,), 1),
}
"""By operator type."""
