"""GE's operators that reduce axes, choose along them, or normalise over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.errors import InputError
from msdump.graph.ge.body import REQUIRED, CallBody, GeOperator, Results
from msdump.graph.ge.images import IMAGE, VOLUME, described

_INT32: Final = dtypes.from_name("int32")
_SECOND: Final = frozenset({1})
_PAIR: Final = (2, 2)


def _listed(value: Any) -> list[int]:
    return [int(item) for item in value] if isinstance(value, (list, tuple)) else [int(value)]


def _reduced(b: CallBody, op_type: str, axes: list[int]) -> str:
    return b.node(op_type, b.x[0], b.constant(axes), keepdims=int(b["keep_dims"]))


def _all_true(b: CallBody, op_type: str, axes: list[int]) -> str:
    number = b.node("Cast", b.x[0], to=_INT32.onnx)
    found = b.node(op_type, number, b.constant(axes), keepdims=int(b["keep_dims"]))
    return b.node("Cast", found, to=b.inputs[0].dtype.onnx)


def _by_attribute(write: Callable[[CallBody, str, list[int]], str], op_type: str) -> GeOperator:
    return GeOperator(
        lambda b: write(b, op_type, _listed(b["axes"])), {"axes": REQUIRED, "keep_dims": False}, kind=op_type
    )


def _by_input(write: Callable[[CallBody, str, list[int]], str], op_type: str) -> GeOperator:
    return GeOperator(
        lambda b: write(b, op_type, _axes(b)),
        {"keep_dims": False, "axes": None},
        kind=op_type,
        constants=_SECOND,
        inputs=(1, 2),
    )


def _axes(b: CallBody) -> list[int]:
    """Return axes that are an input, or an attribute; without either they are all."""
    if len(b.x) > 1:
        return b.value(1)
    return list(range(b.rank)) if b["axes"] is None else _listed(b["axes"])


def _index(b: CallBody, name: str) -> str:
    """Return indices in the integer type that the caller expects, int32 where it expects none."""
    wanted = b.outputs[0].dtype if b.outputs else _INT32
    return b.cast(name, wanted if wanted.numpy.kind in "iu" else _INT32)


def _extreme(op_type: str, dimension: Callable[[CallBody], int]) -> Callable[[CallBody], str]:
    def build(b: CallBody) -> str:
        keeps = int(b["keep_dims"])
        return _index(b, b.node(op_type, b.x[0], axis=b.axis(dimension(b)), keepdims=keeps))

    return build


def _dimension(b: CallBody) -> int:
    if len(b.x) > 1:
        return b.value(1)[0]
    if b["dimension"] is None:
        raise InputError(f"operator {b.op_type!r}: attribute 'dimension' or a second input is required")
    return int(b["dimension"])


def _with_value(op_type: str, reduction: str) -> GeOperator:
    def build(b: CallBody) -> Results:
        axis, keeps = b.axis(b["dimension"]), int(b["keep_dims"])
        index = _index(b, b.node(op_type, b.x[0], axis=axis, keepdims=keeps))
        return index, b.node(reduction, b.x[0], b.constant([axis]), keepdims=keeps)

    return GeOperator(build, {"dimension": REQUIRED, "keep_dims": False}, kind=op_type)


def _arg(op_type: str) -> dict[str, GeOperator]:
    by_attribute = {"dimension": REQUIRED, "dtype": None, "keep_dims": False}
    return {
        f"{op_type}D": GeOperator(_extreme(op_type, _dimension), by_attribute, kind=op_type),
        **{
            f"{op_type}{version}": GeOperator(
                _extreme(op_type, _dimension),
                {"dtype": None, "dimension": None, "keep_dims": False},
                kind=op_type,
                constants=_SECOND,
                inputs=(1, 2),
            )
            for version in ("", "V2")
        },
    }


def _cumulated(b: CallBody, axis: int) -> str:
    flags = {"exclusive": int(b["exclusive"]), "reverse": int(b["reverse"])}
    return b.node("CumSum", b.x[0], b.constant(axis), **flags)


_SUMS: Final = {"exclusive": False, "reverse": False}


def _softmax(b: CallBody) -> str:
    axes = [b.axis(axis) for axis in _listed(b["axes"])]
    if len(axes) == 1:
        return b.node("Softmax", b.x[0], axis=axes[0])
    grown = b.node("Exp", _shifted(b, axes))
    return b.node("Div", grown, b.node("ReduceSum", grown, b.constant(axes)))


def _log_softmax(b: CallBody) -> str:
    axes = [b.axis(axis) for axis in _listed(b["axes"])]
    if len(axes) == 1:
        return b.node("LogSoftmax", b.x[0], axis=axes[0])
    shifted = _shifted(b, axes)
    return b.node("Sub", shifted, b.node("ReduceLogSumExp", shifted, b.constant(axes)))


def _shifted(b: CallBody, axes: list[int]) -> str:
    return b.node("Sub", b.x[0], b.node("ReduceMax", b.x[0], b.constant(axes)))


def _layer_norm(*, gives_deviation: bool) -> Callable[[CallBody], Results]:
    def build(b: CallBody) -> Results:
        begin = b.axis(b["begin_norm_axis"])
        axes = b.constant(list(range(begin, b.rank)))
        mean = b.node("ReduceMean", b.x[0], axes)
        centred = b.node("Sub", b.x[0], mean)
        variance = b.node("ReduceMean", b.node("Mul", centred, centred), axes)
        rstd = b.node("Reciprocal", b.node("Sqrt", b.node("Add", variance, b.number(b["epsilon"]))))
        scaled = b.node("Mul", b.node("Mul", centred, rstd), b.x[1])
        return b.node("Add", scaled, b.x[2]), mean, rstd if gives_deviation else variance

    return build


def _rms_norm(b: CallBody) -> Results:
    axes = b.constant(list(range(b.rank - len(b.inputs[1].shape), b.rank)))
    square = b.node("ReduceMean", b.node("Mul", b.x[0], b.x[0]), axes)
    rstd = b.node("Reciprocal", b.node("Sqrt", b.node("Add", square, b.number(b["epsilon"]))))
    return b.node("Mul", b.node("Mul", b.x[0], rstd), b.x[1]), rstd


def _bn_infer(b: CallBody) -> str:
    return _batch_norm(b, b.x[0], b.x[1:])


def _batch_norm(b: CallBody, x: str, parameters: Sequence[str]) -> str:
    """Return channels normalised; parameters are scale, offset, mean and variance."""
    images = described(b, b.rank) if b.rank in {IMAGE, VOLUME} else None
    if images is None:
        return b.node("BatchNormalization", x, *parameters, epsilon=b["epsilon"])
    made = b.node("BatchNormalization", images.to_host(b, x), *parameters, epsilon=b["epsilon"])
    return images.from_host(b, made)


def _bn_inference(b: CallBody) -> str:
    """Return x normalised; without scale and offset, momentum divides mean and variance."""
    mean, variance, momentum, *affine = b.x[1:]
    if not affine:
        factor = _factor(b, momentum)
        mean, variance = b.node("Mul", mean, factor), b.node("Mul", variance, factor)
    channels = b.inputs[1].shape
    fill = (b.constant(np.full(channels, value), b.compute) for value in (1, 0)[len(affine) :])
    return _batch_norm(b, b.x[0], (*affine, *fill, mean, variance))


def _factor(b: CallBody, momentum: str) -> str:
    """Return one over a momentum's first element; of zero it is zero, as in Caffe, whose operator it is."""
    first = b.node("Gather", b.node("Reshape", momentum, b.constant([-1])), b.constant(0))
    zero = b.number(0)
    return b.node("Where", b.node("Equal", first, zero), zero, b.node("Reciprocal", first))


_NORM: Final = {"begin_norm_axis": 0, "begin_params_axis": 0}
_KINDS: Final = ("Sum", "Mean", "Max", "Min", "Prod")

TABLE: Final[dict[str, GeOperator]] = {
    **{f"Reduce{kind}D": _by_attribute(_reduced, f"Reduce{kind}") for kind in _KINDS},
    **{f"Reduce{kind}": _by_input(_reduced, f"Reduce{kind}") for kind in _KINDS},
    "ReduceAllD": _by_attribute(_all_true, "ReduceMin"),
    "ReduceAnyD": _by_attribute(_all_true, "ReduceMax"),
    "ReduceAll": _by_input(_all_true, "ReduceMin"),
    "ReduceAny": _by_input(_all_true, "ReduceMax"),
    **_arg("ArgMax"),
    **_arg("ArgMin"),
    "ArgMaxWithValue": _with_value("ArgMax", "ReduceMax"),
    "ArgMinWithValue": _with_value("ArgMin", "ReduceMin"),
    "CumsumD": GeOperator(lambda b: _cumulated(b, b["axis"]), {"axis": REQUIRED, **_SUMS}, kind="CumSum"),
    "Cumsum": GeOperator(
        lambda b: _cumulated(b, b.value(1)[0]), dict(_SUMS), kind="CumSum", constants=_SECOND, inputs=_PAIR
    ),
    **{
        name: GeOperator(_softmax, {"axes": [-1], "half_to_float": False}, kind="Softmax")
        for name in ("Softmax", "SoftmaxV2")
    },
    **{
        name: GeOperator(_log_softmax, {"axes": [-1]}, kind="LogSoftmax")
        for name in ("LogSoftmax", "LogSoftmaxV2")
    },
    "LayerNorm": GeOperator(
        _layer_norm(gives_deviation=False), {**_NORM, "epsilon": 1e-7}, kind="LayerNorm", inputs=(3, 3)
    ),
    "LayerNormV3": GeOperator(
        _layer_norm(gives_deviation=True), {**_NORM, "epsilon": 1e-5}, kind="LayerNorm", inputs=(3, 3)
    ),
    "RmsNorm": GeOperator(_rms_norm, {"epsilon": 1e-6}, kind="RmsNorm", inputs=_PAIR),
    "BNInference": GeOperator(
        _bn_inference,
        {"epsilon": 1e-5, "use_global_stats": True, "mode": 1},
        kind="BatchNorm",
        inputs=(4, 6),
    ),
    "BNInfer": GeOperator(_bn_infer, {"epsilon": REQUIRED}, kind="BatchNorm", inputs=(5, 5)),
}
"""Operators by GE's name."""
