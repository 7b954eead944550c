"""Primitives that are operators of ONNX's with the same inputs, and attributes of other names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from msdump import dtypes
from msdump.graph.kernel.emulation import FLOAT32
from msdump.graph.primitives.body import Value, op, operators
from msdump.graph.primitives.call import ARGUMENTS, PLAIN, Call

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
    """
    Acos Acosh Asin Asinh Atan Atanh Cosh Det Erf HardSigmoid HardSwish Mish Selu Sinh Softplus Softsign Tan
    """.split()  # noqa: SIM905 - a list of texts would be a screen long
)
"""Operators without float64 in onnxruntime."""

_KEEPING: Final = frozenset({"Where", "Identity", *_OF_BOOLS})
"""Operators of any element type."""

_COMPUTED: Final = frozenset(
    map(dtypes.from_name, ("bfloat16", "float16", "float32", "float64", "int32", "int64"))
)
"""Element types that runtimes compute with."""


def _as_it_is(op_type: str, call: Call) -> tuple[str, Mapping[str, Any]] | None:
    """Return ONNX's operator if it takes the element types of a call."""
    kinds = {kind.dtype for kind in call.types if kind is not None}
    if op_type in _KEEPING:
        return (_OF_BOOLS.get(op_type, op_type) if kinds == {_BOOL} else op_type), {}
    results = {kind.dtype for kind in call.outputs if kind is not None}
    known = {_BOOL} if op_type in _TRUTHS else _COMPUTED - ({_DOUBLE} if op_type in _SINGLE else set())
    is_same = len(kinds) == 1 and kinds <= known and results <= {*kinds, _BOOL}
    return (op_type, {}) if is_same or None in kinds else None


def _converted(op_type: str, *operands: Value, rank: int = 0, to: int = 0, output_type: int = 0) -> Value:
    """Compute in an element type that ONNX's operator takes, and convert the result to ``output_type``.

    ``rank``: that of the first operand, where the second is a number.
    """
    values = [op.Cast(item, to=to) if to else item for item in operands]
    if rank:
        values[1] = op.Reshape(values[1], (1,) * rank)
    result: Value = getattr(op, op_type)(*values)
    return op.Cast(result, to=output_type) if output_type else result


def _conversions(op_type: str, call: Call) -> Mapping[str, Any]:
    """Return the element types in which a body computes and has its result."""
    if op_type in _TRUTHS:
        return {"to": _BOOL.onnx}
    to = call.outputs[0].dtype if call.outputs and call.outputs[0] is not None else None
    if to is None or to is _BOOL:
        to = call.common_type()
    if to.numpy.kind in "iub" and to not in _COMPUTED:
        to = _INT64 if to.numpy.itemsize >= _INT32.numpy.itemsize else _INT32
    if to is _DOUBLE and op_type in _SINGLE:
        to = FLOAT32
    result = call.argument("output_type")
    return {"to": to.onnx} if to.onnx == result else {"to": to.onnx, "output_type": result}


for _item in _SAME.split():
    _name, _, _op_type = _item.partition("=")
    _op_type = _op_type or _name
    PLAIN[_name] = partial(_as_it_is, _op_type)
    if _op_type not in _KEEPING:
        ARGUMENTS[_name] = partial(_conversions, _op_type)
        operators({_name: partial(_converted, _op_type)})


def with_pads(call: Call, windows: Mapping[str, Any], sizes: Sequence[int | str | None]) -> dict[str, Any]:
    """Return windows with ONNX's pads: the given ones, none, or pads that keep the sizes by the stride.

    ONNX finds the latter in a run where sizes are dynamic.
    """
    rank, mode = len(sizes), call.argument("pad_mode", "pad").lower()
    if mode == "valid":
        return {**windows, "pads": (0,) * (2 * rank)}
    if mode == "pad":
        given = spatial(call.argument("pad") or call.argument("pad_list") or 0, 2 * rank)
        # MindSpore lists begin and end of each axis in turn
        return {**windows, "pads": (*given[0::2], *given[1::2])}
    totals = []
    dilations = windows.get("dilations", (1,) * rank)
    axes = zip(sizes, windows["kernel_shape"], windows["strides"], dilations, strict=True)
    for size, width, stride, dilation in axes:
        if not isinstance(size, int):
            return {**windows, "auto_pad": "SAME_UPPER"}
        totals.append(max((-(-size // stride) - 1) * stride + dilation * (width - 1) + 1 - size, 0))
    return {**windows, "pads": (*(each // 2 for each in totals), *(each - each // 2 for each in totals))}


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


def _average_pool(call: Call) -> dict[str, Any]:
    if call.argument("divisor_override", 0):
        raise ValueError("a divisor_override has no operator of ONNX's")
    return {**pooling(call), "count_include_pad": int(bool(call.argument("count_include_pad", True)))}


def local_response(call: Call) -> dict[str, Any]:
    """Return ONNX's attributes of a normalisation by the channels around; MindSpore's alpha is for one."""
    size = 2 * call.argument("depth_radius") + 1
    others = {name: call.argument(name) for name in ("beta", "bias")}
    return {"size": size, "alpha": call.argument("alpha") * size, **others}


_WITH_ATTRIBUTES: Final[Mapping[str, tuple[str, Callable[[Call], Mapping[str, Any]]]]] = {
    **dict.fromkeys(
        ("Conv2D", "Conv3D"), ("Conv", lambda call: convolution(call, call.sizes(1)[2:], call.shape()[2:]))
    ),
    **dict.fromkeys(("MaxPool", "MaxPool3D"), ("MaxPool", pooling)),
    "AvgPool3D": ("AveragePool", _average_pool),
    "AffineGrid": ("AffineGrid", lambda call: {"align_corners": int(call.argument("align_corners", False))}),
    **{
        name: (name, lambda call: {"blocksize": call.argument("block_size")})
        for name in ("DepthToSpace", "SpaceToDepth")
    },
    **dict.fromkeys(("Shape", "TensorShape"), ("Shape", lambda _: {})),
    "GeLU": ("Gelu", lambda call: {"approximate": call.argument("approximate", "tanh")}),
    "HSigmoid": ("HardSigmoid", lambda _: {"alpha": 1 / 6, "beta": 0.5}),
    "LRN": ("LRN", local_response),
}


def _with_attributes(name: str, call: Call) -> tuple[str, Mapping[str, Any]]:
    op_type, attributes = _WITH_ATTRIBUTES[name]
    return op_type, attributes(call)


PLAIN.update({name: partial(_with_attributes, name) for name in _WITH_ATTRIBUTES})
