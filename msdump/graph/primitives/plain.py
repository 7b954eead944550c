"""Primitives that are operators of ONNX's with the same inputs, and attributes of other names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msdump import dtypes
from msdump.graph.kernel.emulation import FLOAT32
from msdump.graph.primitives.body import operators
from msdump.graph.primitives.call import ARGUMENTS, PLAIN, Call
from msdump.graph.primitives.elementwise import converting

_DOUBLE: Final = dtypes.from_name("float64")
_BOOL: Final = dtypes.from_name("bool")
_INT32: Final = dtypes.from_name("int32")
_INT64: Final = dtypes.from_name("int64")

_SAME: Final = """
    Abs Acosh ACos=Acos Add Asin Asinh Atan Atanh BatchMatMulExt=MatMul Ceil Cos Cosh Div Equal Erf Exp Floor
    Greater GreaterEqual=GreaterOrEqual HSwish=HardSwish Inv=Reciprocal IsInf
    IsNan=IsNaN Less LessEqual=LessOrEqual Log LogicalAnd=And LogicalNot=Not LogicalOr=Or LogicalXor=Xor
    MatrixDeterminant=Det Maximum=Max Minimum=Min Mish Mul Neg Pow RealDiv=Div Reciprocal ReLU=Relu SeLU=Selu
    Select=Where Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Tan Tanh
    BitwiseAnd BitwiseOr BitwiseXor
"""
_OF_BOOLS: Final = {"BitwiseAnd": "And", "BitwiseOr": "Or", "BitwiseXor": "Xor"}
_TRUTHS: Final = frozenset({"And", "Or", "Not", "Xor"})
_SINGLE: Final = frozenset(
    [
        "Acos",
        "Acosh",
        "Asin",
        "Asinh",
        "Atan",
        "Atanh",
        "Cosh",
        "Det",
        "Erf",
        "HardSigmoid",
        "HardSwish",
        "Mish",
        "Selu",
        "Sinh",
        "Softplus",
        "Softsign",
        "Tan",
    ]
)
"""Operators without float64 in onnxruntime."""

_KEEPING: Final = frozenset({"Where", "Identity", *_OF_BOOLS})
"""Operators of any element type."""

_COMPUTED: Final = frozenset(
    map(dtypes.from_name, ("bfloat16", "float16", "float32", "float64", "int32", "int64"))
)
"""Element types that runtimes compute with."""


def _named(op_type: str) -> Callable[[Call], tuple[str, Mapping[str, Any]] | None]:
    def plain(call: Call) -> tuple[str, Mapping[str, Any]] | None:
        kinds = {kind.dtype for kind in call.types if kind is not None}
        if op_type in _KEEPING:
            return (_OF_BOOLS.get(op_type, op_type) if kinds == {_BOOL} else op_type), {}
        results = {kind.dtype for kind in call.outputs if kind is not None}
        known = {_BOOL} if op_type in _TRUTHS else _COMPUTED - ({_DOUBLE} if op_type in _SINGLE else set())
        is_same = len(kinds) == 1 and kinds <= known and results <= {*kinds, _BOOL}
        return (op_type, {}) if is_same or None in kinds else None

    return plain


def _conversions(call: Call) -> Mapping[str, Any]:
    """Return the element types in which a body computes and has its result."""
    result = call.argument("output_type")
    if _NAMES[call.op_type] in _TRUTHS:
        return {"to": _BOOL.onnx}
    declared = call.outputs[0].dtype if call.outputs and call.outputs[0] is not None else None
    if declared is None or declared is _BOOL:
        declared = call.common_type()
    to = declared
    if declared.numpy.kind in "iub" and declared not in _COMPUTED:
        to = _INT64 if declared.numpy.itemsize >= _INT32.numpy.itemsize else _INT32
    if to is _DOUBLE and _NAMES[call.op_type] in _SINGLE:
        to = FLOAT32
    if to.onnx == result:
        return {"to": to.onnx}
    return {"to": to.onnx, "output_type": result}


_NAMES: Final = {
    name: op_type or name for name, _, op_type in (item.partition("=") for item in _SAME.split())
}
for _name, _op_type in _NAMES.items():
    PLAIN[_name] = _named(_op_type)
    if _op_type not in _KEEPING:
        ARGUMENTS[_name] = _conversions
        operators(
            {_name: (f"Return ONNX's {_op_type} of numbers of other element types.", converting(_op_type))}
        )


def with_pads(call: Call, windows: Mapping[str, Any], sizes: Sequence[int | str | None]) -> dict[str, Any]:
    """Return windows with ONNX's pads: the given ones, none, or pads that keep the sizes by the stride.

    ONNX finds the latter in a run where sizes are dynamic.
    """
    rank, mode = len(sizes), call.argument("pad_mode", "pad")
    mode = mode.lower()
    if mode == "valid":
        return {**windows, "pads": (0,) * (2 * rank)}
    if mode == "pad":
        given = call.argument("pad") or call.argument("pad_list") or 0
        given = spatial(given, 2 * rank)
        # MindSpore lists begin and end of each axis in turn
        return {**windows, "pads": (*given[0::2], *given[1::2])}
    begins, ends = [], []
    dilations = windows.get("dilations", (1,) * rank)
    axes = zip(sizes, windows["kernel_shape"], windows["strides"], dilations, strict=True)
    for size, width, stride, dilation in axes:
        if not isinstance(size, int):
            return {**windows, "auto_pad": "SAME_UPPER"}
        total = max((-(-size // stride) - 1) * stride + dilation * (width - 1) + 1 - size, 0)
        begins.append(total // 2)
        ends.append(total - total // 2)
    return {**windows, "pads": (*begins, *ends)}


def spatial(value: Any, rank: int) -> tuple[int, ...]:
    """Return one number for each axis of a window: of (1, 1, h, w) or (h, w), or of one number for all."""
    return (value,) * rank if isinstance(value, int) else tuple(value[-rank:])


def convolution(call: Call, window: Sequence[int], sizes: Sequence[int | str | None]) -> dict[str, Any]:
    """Return ONNX's attributes of a convolution of axes of these sizes."""
    strides, dilations = (spatial(call.argument(name, 1), len(window)) for name in ("stride", "dilation"))
    group = call.argument("group") or call.argument("groups") or 1
    windows = {"kernel_shape": window, "strides": strides, "dilations": dilations, "group": group}
    return with_pads(call, windows, sizes)


def pooling(call: Call) -> dict[str, Any]:
    """Return ONNX's attributes of a pooling operator."""
    sizes = call.shape()[2:]
    names = ("ksize" if "ksize" in call.attributes else "kernel_size", "strides")
    window, strides = (spatial(call.argument(name, 1), len(sizes)) for name in names)
    ceil = int(bool(call.argument("ceil_mode", 0)))
    windows = {"kernel_shape": window, "strides": strides, "ceil_mode": ceil}
    if "pads" not in call.attributes:
        return with_pads(call, windows, sizes)
    pads, dilations = (spatial(call.argument(name, 1), len(sizes)) for name in ("pads", "dilation"))
    return {**windows, "pads": (*pads, *pads), "dilations": dilations}


def _convolution(call: Call) -> tuple[str, Mapping[str, Any]]:
    return "Conv", convolution(call, call.sizes(1)[2:], call.shape()[2:])


def _average_pool(call: Call) -> tuple[str, Mapping[str, Any]]:
    if call.argument("divisor_override", 0):
        raise ValueError("a divisor_override has no operator of ONNX's")
    counts = int(bool(call.argument("count_include_pad", True)))
    return "AveragePool", {**pooling(call), "count_include_pad": counts}


PLAIN.update(
    Conv2D=_convolution,
    Conv3D=_convolution,
    MaxPool=lambda call: ("MaxPool", pooling(call)),
    MaxPool3D=lambda call: ("MaxPool", pooling(call)),
    AvgPool3D=_average_pool,
    AffineGrid=lambda call: ("AffineGrid", {"align_corners": int(call.argument("align_corners", False))}),
    DepthToSpace=lambda call: ("DepthToSpace", {"blocksize": call.argument("block_size")}),
    SpaceToDepth=lambda call: ("SpaceToDepth", {"blocksize": call.argument("block_size")}),
    Shape=lambda _: ("Shape", {}),
    TensorShape=lambda _: ("Shape", {}),
)
PLAIN["GeLU"] = lambda _: ("Gelu", {"approximate": "tanh"})
PLAIN["HSigmoid"] = lambda _: ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5})
PLAIN["LRN"] = lambda call: (
    "LRN",
    {
        "size": 2 * call.argument("depth_radius") + 1,
        "alpha": call.argument("alpha") * (2 * call.argument("depth_radius") + 1),
        "beta": call.argument("beta"),
        "bias": call.argument("bias"),
    },
)
