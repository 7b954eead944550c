"""Operators in float64 by numpy: elementwise, normalizations, products, windows."""

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
        outputs: How many outputs are asked for.
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


class Kind(enum.Enum):
    """What rounding does to an operator's results."""

    EXACT = enum.auto()
    """Nothing: elements are moved, chosen or compared, and every right kernel gives the same."""
    ROUNDED = enum.auto()
    """The exact result is rounded once."""
    LINEAR = enum.auto()
    """Sums of products, whose terms are rounded and added in any order."""
    SMOOTH = enum.auto()
    """Approximations, and results that are made in several steps."""


def one(_call: Call) -> float:
    """Return that a result depends on one element of each input."""
    return 1.0


def nothing(_call: Call) -> float:
    """Return that no larger numbers stand between the inputs and a result."""
    return 0.0


@dataclass(frozen=True, slots=True)
class Definition:
    """One operator.

    Attributes:
        compute: Returns the outputs of a call.
        kind: What rounding does to them.
        terms: Returns how many elements of the inputs a result is made of.
        disturbed: How many of the inputs, from the first on, hold data; those behind steer, as scales do.
        between: Returns the magnitudes of what kernels take the result for the difference of; 0: of nothing
            that is larger than it.
    """

    compute: Callable[[Call], tuple[Array, ...]]
    kind: Kind
    terms: Callable[[Call], float] = one
    disturbed: int | None = None
    between: Callable[[Call], Array | float] = nothing


_WIDE: Final = (dtypes.from_name("float32"), dtypes.from_name("float64"))


def doubled(array: Array) -> Array:
    """Return an array in float64 where it has a floating point type, else as it is."""
    if array.dtype.kind == "f" or array.dtype in {row.numpy for row in HALVES}:
        return array.astype(np.float64)
    return array


def _cast(call: Call) -> tuple[Array]:
    dtype, x = dtypes.from_onnx(call.attribute("to")), call[0]
    if dtype in _WIDE:
        return (x.astype(np.float64),)
    if dtype in HALVES:  # a model that asks for a smaller type means it: its values are those of the type
        return (numpy_cast(x, dtype).astype(np.float64),)
    if dtype.numpy.kind not in "iub" or x.dtype.kind not in "iubf":
        raise NotImplementedError(f"Cast to {dtype.name}")
    with np.errstate(invalid="ignore"):
        return (x.astype(dtype.numpy),)


def _like(call: Call) -> tuple[Array]:
    if call[1].dtype.kind == "f":
        return (call[0].astype(np.float64),)
    return (call[0].astype(call[1].dtype),)


DEFINITIONS: Final[Mapping[str, Definition]] = {
    "Cast": Definition(_cast, Kind.EXACT),
    "CastLike": Definition(_like, Kind.EXACT),
}
"""Operators that change element types."""


_erf = np.frompyfunc(math.erf, 1, 1)  # numpy has no error function
_SQRT_HALF: Final = math.sqrt(0.5)
_GELU_TANH: Final = math.sqrt(2 / math.pi)
_GELU_CUBE: Final = 0.044715


def erf(x: Array) -> Array:
    """Return the error function of every element."""
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


def _clip(call: Call) -> tuple[Array]:
    low, high = (
        bound if bound is not None else call.attribute(name, default)
        for bound, name, default in (
            (call.optional(1), "min", -np.inf),
            (call.optional(2), "max", np.inf),
        )
    )
    x = call[0]
    if x.dtype.kind != "f":  # infinite bounds would make floats of integers
        low, high = (None if bound in {-np.inf, np.inf} else bound for bound in (low, high))
    return (np.asarray(x if low is None and high is None else np.clip(x, low, high)),)


def _divided(call: Call) -> tuple[Array]:
    x, y = call[0], call[1]
    if x.dtype.kind == "f":
        return (x / y,)
    quotient = np.abs(x.astype(object)) // np.abs(y.astype(object))  # integers: towards zero
    return ((quotient * (np.sign(x) * np.sign(y)).astype(object)).astype(x.dtype),)


def _folded(function: Callable[[Array, Array], Array]) -> Callable[[Call], tuple[Array]]:
    def compute(call: Call) -> tuple[Array]:
        result = call[0]
        for slot in range(1, len(call.inputs)):
            result = function(result, call[slot])
        return (result,)

    return compute


def _mean(call: Call) -> tuple[Array]:
    (total,) = _folded(np.add)(call)
    return (total / len(call.inputs),)


def _unary(function: Callable[[Array], Any]) -> Callable[[Call], tuple[Array]]:
    return lambda call: (np.asarray(function(call[0])),)


def _binary(function: Callable[[Array, Array], Array]) -> Callable[[Call], tuple[Array]]:
    return lambda call: (function(call[0], call[1]),)


def _shaped(function: Callable[..., Array], **defaults: float) -> Callable[[Call], tuple[Array]]:
    """Return an activation with attributes, which come behind the input in the order of their defaults."""

    def compute(call: Call) -> tuple[Array]:
        values: list[Any] = [call.attribute(name, default) for name, default in defaults.items()]
        return (function(call[0], *values),)

    return compute


def _elu(x: Array, alpha: float) -> Array:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _selu(x: Array, alpha: float, gamma: float) -> Array:
    return gamma * _elu(x, alpha)


def _celu(x: Array, alpha: float) -> Array:
    return np.asarray(np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(np.minimum(x, 0) / alpha)))


def _exponential(**defaults: float) -> Callable[[Call], Array]:
    """Return what the exponential is worth from which kernels take 1, where an input is negative."""

    def between(call: Call) -> Array:
        size = np.prod([abs(call.attribute(name, default)) for name, default in defaults.items()])
        return np.asarray(np.where(call[0] < 0, size, 0.0))

    return between


def _each(
    make: Callable[..., Callable[[Call], tuple[Array, ...]]], functions: Mapping[str, Callable[..., Any]]
) -> dict[str, Callable[[Call], tuple[Array, ...]]]:
    return {name: make(function) for name, function in functions.items()}


_SELU_ALPHA: Final = 1.67326319217681884765625
_SELU_GAMMA: Final = 1.05070102214813232421875

_EXACT: Final[Mapping[str, Callable[[Call], tuple[Array, ...]]]] = {
    **_each(_unary, {
        "Identity": np.asarray, "Neg": np.negative, "Abs": np.abs, "Floor": np.floor, "Ceil": np.ceil,
        "Round": np.rint, "Sign": np.sign, "Not": np.logical_not, "IsNaN": np.isnan,
        "Relu": lambda x: np.maximum(x, 0),
    }),
    **_each(_binary, {
        "Equal": np.equal, "Greater": np.greater, "GreaterOrEqual": np.greater_equal, "Less": np.less,
        "LessOrEqual": np.less_equal, "And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor,
    }),
    "Max": _folded(np.maximum),
    "Min": _folded(np.minimum),
    "Where": lambda call: (np.where(call[0], call[1], call[2]),),
    "Clip": _clip,
    "ThresholdedRelu": _shaped(lambda x, alpha: np.where(x > alpha, x, 0.0), alpha=1.0),
}  # fmt: skip

_ROUNDED: Final[Mapping[str, Callable[[Call], tuple[Array, ...]]]] = {
    "Add": _binary(np.add),
    "Sub": _binary(np.subtract),
    "Mul": _binary(np.multiply),
    "Div": _divided,
    "Sqrt": _unary(np.sqrt),
    "Reciprocal": _unary(np.reciprocal),
    "LeakyRelu": _shaped(lambda x, alpha: np.where(x >= 0, x, alpha * x), alpha=0.01),
    "PRelu": _binary(lambda x, slope: np.where(x >= 0, x, slope * x)),
}

_LINEAR: Final[Mapping[str, Callable[[Call], tuple[Array, ...]]]] = {"Sum": _folded(np.add), "Mean": _mean}

_SMOOTH: Final[Mapping[str, Callable[[Call], tuple[Array, ...]]]] = {
    **_each(_unary, {
        "Exp": np.exp, "Log": np.log, "Sin": np.sin, "Cos": np.cos, "Tan": np.tan, "Asin": np.arcsin,
        "Acos": np.arccos, "Atan": np.arctan, "Sinh": np.sinh, "Cosh": np.cosh, "Asinh": np.arcsinh,
        "Acosh": np.arccosh, "Atanh": np.arctanh, "Tanh": np.tanh, "Erf": erf, "Sigmoid": sigmoid,
        "Softplus": softplus, "Softsign": lambda x: x / (1 + np.abs(x)),
        "Mish": lambda x: x * np.tanh(softplus(x)),
        "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    }),
    "Pow": _binary(lambda x, y: np.power(x, y.astype(x.dtype))),
    "Gelu": _gelu,
    "Swish": _shaped(lambda x, alpha: x * sigmoid(alpha * x), alpha=1.0),
    "Elu": _shaped(_elu, alpha=1.0),
    "Selu": _shaped(_selu, alpha=_SELU_ALPHA, gamma=_SELU_GAMMA),
    "Celu": _shaped(_celu, alpha=1.0),
    "HardSigmoid": _shaped(lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1), alpha=0.2, beta=0.5),
}  # fmt: skip

_BETWEEN: Final[Mapping[str, Callable[[Call], Array]]] = {
    "Elu": _exponential(alpha=1.0),
    "Selu": _exponential(alpha=_SELU_ALPHA, gamma=_SELU_GAMMA),
    "Celu": _exponential(alpha=1.0),
}

ELEMENTWISE: Final[Mapping[str, Definition]] = {
    **{name: Definition(compute, Kind.EXACT) for name, compute in _EXACT.items()},
    **{name: Definition(compute, Kind.ROUNDED) for name, compute in _ROUNDED.items()},
    **{
        name: Definition(compute, Kind.LINEAR, lambda call: len(call.inputs))
        for name, compute in _LINEAR.items()
    },
    **{
        name: Definition(compute, Kind.SMOOTH, between=_BETWEEN.get(name, nothing))
        for name, compute in _SMOOTH.items()
    },
}
"""The operators of ONNX whose every element depends on one element of each input."""


_SOFTMAX_ALONG_ONE_AXIS: Final = 13
_EPSILON: Final = 1e-5


def _channels(array: Array, rank: int) -> Array:
    """Return a vector of channels with the axes of images."""
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


def _standardized(x: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array, Array]:
    mean = x.mean(axis=axes, keepdims=True)
    factor = 1 / np.sqrt(x.var(axis=axes, keepdims=True) + epsilon)
    return (x - mean) * factor, mean, factor


def _layer_normalization(call: Call) -> tuple[Array, ...]:
    x = call[0]
    axis = call.attribute("axis", -1)
    axes = tuple(range(axis % x.ndim, x.ndim))
    y, mean, factor = _standardized(x, axes, call.attribute("epsilon", _EPSILON))
    y = y * call[1]
    bias = call.optional(2)
    return (y if bias is None else y + bias, mean, factor)[: max(call.outputs, 1)]


def _rms_normalization(call: Call) -> tuple[Array]:
    x = call[0]
    axes = tuple(range(call.attribute("axis", -1) % x.ndim, x.ndim))
    mean_square = np.mean(x * x, axis=axes, keepdims=True)
    return (x / np.sqrt(mean_square + call.attribute("epsilon", _EPSILON)) * call[1],)


def _instance_normalization(call: Call) -> tuple[Array]:
    x = call[0]
    y, _, _ = _standardized(x, tuple(range(2, x.ndim)), call.attribute("epsilon", _EPSILON))
    return (y * _channels(call[1], x.ndim) + _channels(call[2], x.ndim),)


def _group_normalization(call: Call) -> tuple[Array]:
    x, groups = call[0], call.attribute("num_groups")
    grouped = x.reshape(x.shape[0], groups, -1)
    y = _standardized(grouped, (2,), call.attribute("epsilon", _EPSILON))[0].reshape(x.shape)
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
    """Return what a softmax sums along the last axis, and the shape to give back; see opset 13."""
    if call.opset >= _SOFTMAX_ALONG_ONE_AXIS:
        return x, call.attribute("axis", -1)
    axis = call.attribute("axis", 1) % max(x.ndim, 1)
    return x.reshape(math.prod(x.shape[:axis]), -1), -1


def _log_softmax(call: Call) -> tuple[Array]:
    x, axis = _along(call, call[0])
    shifted = x - x.max(axis=axis, keepdims=True)
    return ((shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))).reshape(call[0].shape),)


def _softmax(call: Call) -> tuple[Array]:
    x, axis = _along(call, call[0])
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return ((powers / powers.sum(axis=axis, keepdims=True)).reshape(call[0].shape),)


def _lp_normalization(call: Call) -> tuple[Array]:
    x, axis = call[0], call.attribute("axis", -1)
    norm = np.linalg.norm(x, ord=call.attribute("p", 2), axis=axis, keepdims=True)
    return (np.where(norm == 0, 0, x / np.where(norm == 0, 1, norm)),)


def _last(call: Call) -> float:
    return float(call[0].shape[-1] if call[0].ndim else 1)


def _image(call: Call) -> float:
    return float(call[0].size / max(call[0].shape[1], 1))


def _behind(call: Call) -> float:
    x = call[0]
    return float(math.prod(x.shape[call.attribute("axis", -1) % x.ndim :]))


NORMALIZATIONS: Final[Mapping[str, Definition]] = {
    "BatchNormalization": Definition(
        _batch_normalization,
        Kind.SMOOTH,
        lambda call: _image(call) if call.attribute("training_mode", 0) else 1.0,
    ),
    "LayerNormalization": Definition(_layer_normalization, Kind.SMOOTH, _behind),
    "RMSNormalization": Definition(_rms_normalization, Kind.SMOOTH, _behind),
    "InstanceNormalization": Definition(_instance_normalization, Kind.SMOOTH, _image),
    "GroupNormalization": Definition(_group_normalization, Kind.SMOOTH, _image),
    "LRN": Definition(_local_response, Kind.SMOOTH, lambda call: float(call.attribute("size"))),
    "LpNormalization": Definition(_lp_normalization, Kind.SMOOTH, _last),
    "Softmax": Definition(_softmax, Kind.SMOOTH, _last),
    "LogSoftmax": Definition(_log_softmax, Kind.SMOOTH, _last),
}
"""Operators that bring tensors to a scale."""


_AXES_ARE_INPUTS: Final = {"ReduceSum": 13}
_AXES_ARE_INPUTS_SINCE: Final = 18


def _gemm(call: Call) -> tuple[Array]:
    a, b = (
        call[slot].T if call.attribute(name, 0) else call[slot]
        for slot, name in enumerate(("transA", "transB"))
    )
    y = call.attribute("alpha", 1.0) * (a @ b)
    c = call.optional(2)
    return (y if c is None else y + call.attribute("beta", 1.0) * c,)


def _gemm_terms(call: Call) -> float:
    return float(call[0].shape[0 if call.attribute("transA", 0) else 1])


def _einsum(call: Call) -> tuple[Array]:
    operands = [call[slot] for slot in range(len(call.inputs))]
    return (np.asarray(np.einsum(call.attribute("equation"), *operands, optimize=True)),)


def _einsum_terms(call: Call) -> float:
    return float(max(call[slot].size for slot in range(len(call.inputs))) ** 0.5)


def _axes(call: Call, since: int) -> tuple[int, ...] | None:
    """Return the axes that are reduced, None for none."""
    axes: Any = call.attribute("axes") if call.opset < since else call.optional(1)
    if axes is None or len(axes) == 0:
        rank = call[0].ndim
        return None if call.attribute("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(int(axis) for axis in np.asarray(axes).reshape(-1))


Reduce = Callable[..., Array]


def _reduction(name: str, reduce: Reduce) -> tuple[Callable[[Call], tuple[Array]], Callable[[Call], float]]:
    since = _AXES_ARE_INPUTS.get(name, _AXES_ARE_INPUTS_SINCE)

    def compute(call: Call) -> tuple[Array]:
        axes = _axes(call, since)
        if axes is None:
            return (call[0],)
        return (np.asarray(reduce(call[0], axis=axes, keepdims=bool(call.attribute("keepdims", 1)))),)

    def terms(call: Call) -> float:
        return float(math.prod(call[0].shape[axis] for axis in _axes(call, since) or ()))

    return compute, terms


def _logarithm_of_sum(x: Array, **how: Any) -> Array:
    most = np.max(x, axis=how["axis"], keepdims=True)
    total = np.log(np.sum(np.exp(x - most), **how))
    return np.asarray(total + (most if how["keepdims"] else most.squeeze(how["axis"])))


_REDUCTIONS: Final[Mapping[str, tuple[Reduce, Kind]]] = {
    "ReduceSum": (np.sum, Kind.LINEAR),
    "ReduceMean": (np.mean, Kind.LINEAR),
    "ReduceL1": (lambda x, **how: np.sum(np.abs(x), **how), Kind.LINEAR),
    "ReduceMax": (np.max, Kind.EXACT),
    "ReduceMin": (np.min, Kind.EXACT),
    "ReduceProd": (np.prod, Kind.SMOOTH),
    "ReduceL2": (lambda x, **how: np.sqrt(np.sum(x * x, **how)), Kind.SMOOTH),
    "ReduceSumSquare": (lambda x, **how: np.sum(x * x, **how), Kind.SMOOTH),
    "ReduceLogSum": (lambda x, **how: np.log(np.sum(x, **how)), Kind.SMOOTH),
    "ReduceLogSumExp": (_logarithm_of_sum, Kind.SMOOTH),
}


def _rule(name: str) -> Definition:
    reduce, kind = _REDUCTIONS[name]
    compute, terms = _reduction(name, reduce)
    return Definition(compute, kind, terms)


PRODUCTS: Final[Mapping[str, Definition]] = {
    "MatMul": Definition(
        lambda call: (np.asarray(call[0] @ call[1]),), Kind.LINEAR, lambda call: float(call[0].shape[-1])
    ),
    "Gemm": Definition(_gemm, Kind.LINEAR, _gemm_terms),
    "Einsum": Definition(_einsum, Kind.LINEAR, _einsum_terms),
    **{name: _rule(name) for name in _REDUCTIONS},
}
"""Operators that add up products, or the elements along axes."""


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


WINDOWS: Final[Mapping[str, Definition]] = {
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
