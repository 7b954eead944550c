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


def _reduced(call: CallBody, op_type: str, axes: list[int]) -> str:
    return call.node(op_type, call.x[0], call.constant(axes), keepdims=int(call["keep_dims"]))


def _all_true(call: CallBody, op_type: str, axes: list[int]) -> str:
    # all is the minimum, any the maximum; ONNX reduces truth values only since opset 20
    number = call.node("Cast", call.x[0], to=_INT32.onnx)
    reduced = call.node(op_type, number, call.constant(axes), keepdims=int(call["keep_dims"]))
    return call.node("Cast", reduced, to=call.inputs[0].dtype.onnx)


def _by_attribute(write: Callable[[CallBody, str, list[int]], str], op_type: str) -> GeOperator:
    return GeOperator(
        lambda call: write(call, op_type, _listed(call["axes"])),
        {"axes": REQUIRED, "keep_dims": False},
        kind=op_type,
    )


def _by_input(write: Callable[[CallBody, str, list[int]], str], op_type: str) -> GeOperator:
    return GeOperator(
        lambda call: write(call, op_type, _axes(call)),
        {"keep_dims": False, "axes": None},
        kind=op_type,
        constants=_SECOND,
        inputs=(1, 2),
    )


def _axes(call: CallBody) -> list[int]:
    """Return axes that are an input, or an attribute; without either they are all."""
    if len(call.x) > 1:
        return call.value(1)
    return list(range(call.rank)) if call["axes"] is None else _listed(call["axes"])


def _index(call: CallBody, name: str) -> str:
    """Return indices in the integer type that the caller expects, int32 where it expects none."""
    # ONNX gives int64
    wanted = call.outputs[0].dtype if call.outputs else _INT32
    return call.cast(name, wanted if wanted.numpy.kind in "iu" else _INT32)


def _extreme(op_type: str, dimension: Callable[[CallBody], int]) -> Callable[[CallBody], str]:
    def build(call: CallBody) -> str:
        keeps = int(call["keep_dims"])
        return _index(call, call.node(op_type, call.x[0], axis=call.axis(dimension(call)), keepdims=keeps))

    return build


def _dimension(call: CallBody) -> int:
    if len(call.x) > 1:
        return call.value(1)[0]
    if call["dimension"] is None:
        raise InputError(f"operator {call.op_type!r}: attribute 'dimension' or a second input is required")
    return int(call["dimension"])


def _with_value(op_type: str, reduction: str) -> GeOperator:
    def build(call: CallBody) -> Results:
        axis, keeps = call.axis(call["dimension"]), int(call["keep_dims"])
        index = _index(call, call.node(op_type, call.x[0], axis=axis, keepdims=keeps))
        return index, call.node(reduction, call.x[0], call.constant([axis]), keepdims=keeps)

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


def _cumulated(call: CallBody, axis: int) -> str:
    flags = {"exclusive": int(call["exclusive"]), "reverse": int(call["reverse"])}
    return call.node("CumSum", call.x[0], call.constant(axis), **flags)


_SUMS: Final = {"exclusive": False, "reverse": False}


def _softmax(call: CallBody) -> str:
    axes = [call.axis(axis) for axis in _listed(call["axes"])]
    if len(axes) == 1:
        return call.node("Softmax", call.x[0], axis=axes[0])
    grown = call.node("Exp", _shifted(call, axes))
    return call.node("Div", grown, call.node("ReduceSum", grown, call.constant(axes)))


def _log_softmax(call: CallBody) -> str:
    axes = [call.axis(axis) for axis in _listed(call["axes"])]
    if len(axes) == 1:
        return call.node("LogSoftmax", call.x[0], axis=axes[0])
    shifted = _shifted(call, axes)
    return call.node("Sub", shifted, call.node("ReduceLogSumExp", shifted, call.constant(axes)))


def _shifted(call: CallBody, axes: list[int]) -> str:
    """Return x less its largest element along the axes, so that no exponential overflows."""
    return call.node("Sub", call.x[0], call.node("ReduceMax", call.x[0], call.constant(axes)))


def _layer_norm(*, gives_deviation: bool) -> Callable[[CallBody], Results]:
    def build(call: CallBody) -> Results:
        begin = call.axis(call["begin_norm_axis"])
        axes = call.constant(list(range(begin, call.rank)))
        mean = call.node("ReduceMean", call.x[0], axes)
        centred = call.node("Sub", call.x[0], mean)
        # of the centred values: the mean of squares less the square of the mean cancels in float32
        variance = call.node("ReduceMean", call.node("Mul", centred, centred), axes)
        rstd = call.node(
            "Reciprocal", call.node("Sqrt", call.node("Add", variance, call.number(call["epsilon"])))
        )
        scaled = call.node("Mul", call.node("Mul", centred, rstd), call.x[1])
        return call.node("Add", scaled, call.x[2]), mean, rstd if gives_deviation else variance

    return build


def _rms_norm(call: CallBody) -> Results:
    axes = call.constant(list(range(call.rank - len(call.inputs[1].shape), call.rank)))
    square = call.node("ReduceMean", call.node("Mul", call.x[0], call.x[0]), axes)
    rstd = call.node("Reciprocal", call.node("Sqrt", call.node("Add", square, call.number(call["epsilon"]))))
    return call.node("Mul", call.node("Mul", call.x[0], rstd), call.x[1]), rstd


def _bn_infer(call: CallBody) -> str:
    return _batch_norm(call, call.x[0], call.x[1:])


def _batch_norm(call: CallBody, x: str, parameters: Sequence[str]) -> str:
    """Return channels normalised; parameters are scale, offset, mean and variance."""
    # a matrix has its channels last in either layout
    images = described(call, call.rank) if call.rank in {IMAGE, VOLUME} else None
    if images is None:
        return call.node("BatchNormalization", x, *parameters, epsilon=call["epsilon"])
    result = call.node("BatchNormalization", images.to_host(call, x), *parameters, epsilon=call["epsilon"])
    return images.from_host(call, result)


def _bn_inference(call: CallBody) -> str:
    """Return x normalised; without scale and offset, momentum divides mean and variance."""
    mean, variance, momentum, *affine = call.x[1:]
    if not affine:
        factor = _factor(call, momentum)
        mean, variance = call.node("Mul", mean, factor), call.node("Mul", variance, factor)
    channels = call.inputs[1].shape
    # without scale 1, without offset 0
    fill = (call.constant(np.full(channels, value), call.compute) for value in (1, 0)[len(affine) :])
    return _batch_norm(call, call.x[0], (*affine, *fill, mean, variance))


def _factor(call: CallBody, momentum: str) -> str:
    """Return one over a momentum's first element; of zero it is zero, as in Caffe, whose operator it is."""
    # a tensor of one element, of whatever rank
    first = call.node("Gather", call.node("Reshape", momentum, call.constant([-1])), call.constant(0))
    zero = call.number(0)
    return call.node("Where", call.node("Equal", first, zero), zero, call.node("Reciprocal", first))


_NORM: Final = {"begin_norm_axis": 0, "begin_params_axis": 0}
_KINDS: Final = ("Sum", "Mean", "Max", "Min", "Prod")

TABLE: Final[dict[str, GeOperator]] = {
    **{f"Reduce{kind}D": _by_attribute(_reduced, f"Reduce{kind}") for kind in _KINDS},
    **{f"Reduce{kind}": _by_input(_reduced, f"Reduce{kind}") for kind in _KINDS},
    "ReduceAllD": _by_attribute(_all_true, "ReduceMin"),
    "ReduceAnyD": _by_attribute(_all_true, "ReduceMax"),
    "ReduceAll": _by_input(_all_true, "ReduceMin"),
    "ReduceAny": _by_input(_all_true, "ReduceMax"),
    # positions
    **_arg("ArgMax"),
    **_arg("ArgMin"),
    "ArgMaxWithValue": _with_value("ArgMax", "ReduceMax"),
    "ArgMinWithValue": _with_value("ArgMin", "ReduceMin"),
    # sums and exponentials
    "CumsumD": GeOperator(
        lambda call: _cumulated(call, call["axis"]), {"axis": REQUIRED, **_SUMS}, kind="CumSum"
    ),
    "Cumsum": GeOperator(
        lambda call: _cumulated(call, call.value(1)[0]),
        dict(_SUMS),
        kind="CumSum",
        constants=_SECOND,
        inputs=_PAIR,
    ),
    **{
        name: GeOperator(_softmax, {"axes": [-1], "half_to_float": False}, kind="Softmax")
        for name in ("Softmax", "SoftmaxV2")
    },
    **{
        name: GeOperator(_log_softmax, {"axes": [-1]}, kind="LogSoftmax")
        for name in ("LogSoftmax", "LogSoftmaxV2")
    },
    # normalizations
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
