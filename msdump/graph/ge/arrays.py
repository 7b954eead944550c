"""GE's operators that move, reduce or normalise elements of arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msdump import dtypes
from msdump.graph.body import BodyValue as Value
from msdump.graph.ge.body import REQUIRED, CallBody, GeOperator, Results, integers
from msdump.graph.ge.networks import IMAGE, described

_ANY: Final = (1, 1 << 20)
_LAST: Final = 1 << 62  # an end beyond every axis; ONNX clips it to the axis
_INT32: Final = dtypes.from_name("int32")
_INT64: Final = dtypes.from_name("int64")


def _pair(
    name: str, build: Callable[[CallBody], Results], moved: Mapping[str, int], kind: str, **defaults: Any
) -> dict[str, GeOperator]:
    """Return a pair such as Tile and TileD: ``moved`` arguments are inputs of Tile, attributes of TileD."""
    count = len(moved) + 1
    return {
        f"{name}D": GeOperator(build, {**dict.fromkeys(moved, REQUIRED), **defaults}, kind=kind),
        name: GeOperator(build, defaults, kind, tuple(moved.values()), (count, count)),
    }


def _as_output(call: CallBody, value: Value, slot: int) -> Value:
    """Register a value as output with the element type of an input; return it."""
    return call.typed(value, call.inputs[slot].dtype)


def _parts(call: CallBody, axis: int, slot: int, sizes: list[int]) -> tuple[Value, ...]:
    found = call.Split(call.x[slot], sizes, axis=axis, outputs=len(sizes))
    pieces = (found,) if len(sizes) == 1 else found
    return tuple(_as_output(call, piece, slot) for piece in pieces)


def _split(call: CallBody, axis: int, slot: int, count: int) -> tuple[Value, ...]:
    shape = call.inputs[slot].shape
    if not -len(shape) <= axis < len(shape):
        raise call.fault(f"axis {axis} of a tensor of {len(shape)} dimensions")
    if count < 1 or shape[axis] % count:
        raise call.fault(f"{shape[axis]} elements do not split into num_split = {count}")
    return _parts(call, axis, slot, [shape[axis] // count] * count)


def _padded(call: CallBody) -> Value:
    pairs = call.numbers("paddings", 1)
    # GE: begin and end of each axis; ONNX: all begins, then all ends
    return call.Pad(call.x[0], [*pairs[0::2], *pairs[1::2]], mode="constant")


def _with_numbers(op_type: str, name: str, *, each_axis: bool = False) -> Callable[[CallBody], Value]:
    return lambda call: getattr(call, op_type)(
        call.x[0], call.numbers(name, 1, call.rank if each_axis else None)
    )


def _squeezed(call: CallBody) -> Value:
    # without any axis, all of size 1
    axes = [call.axis(number) for number in call["axis"] or call["axes"]] or [
        index for index, size in enumerate(call.inputs[0].shape) if size == 1
    ]
    return call.Squeeze(call.x[0], axes)


def _batched_gather(call: CallBody, axis: int) -> Value:
    if call["batch_dims"]:
        raise call.fault(f"batch_dims = {call['batch_dims']} is not supported, 0 is")
    return call.Gather(call.x[0], call.x[1], axis=axis)


def _top(call: CallBody) -> Results:
    # GE's count is an int32 scalar, ONNX's an int64 of shape (1,)
    count = call.Reshape(call.Cast(call.x[1], to=_INT64.onnx), [1])
    flags = {"axis": call["dim"], "largest": int(call["largest"]), "sorted": int(call["sorted"])}
    values, indices = call.TopK(call.x[0], count, outputs=2, **flags)
    return values, call.cast(indices, _INT32)


def _sliced(call: CallBody) -> Value:
    starts, sizes = call.numbers("offsets", 1, call.rank), call.numbers("size", 2, call.rank)
    # -1: up to the end of the axis
    ends = [_LAST if size == -1 else start + size for start, size in zip(starts, sizes, strict=True)]
    return call.Slice(call.x[0], starts, ends, list(range(len(starts))))


def _packed(call: CallBody) -> Value:
    parts = [call.Unsqueeze(value, [call["axis"]]) for value in call.x]
    return call.Concat(*parts, axis=call["axis"])


def _unpacked(call: CallBody) -> Results:
    axis = call["axis"]
    parts = _split(call, axis, 0, call["num"])
    return tuple(_as_output(call, call.Squeeze(part, [axis]), 0) for part in parts)


def _reversed(call: CallBody) -> Value:
    axes = call.numbers("axis", 1)
    # backwards from the last element, beyond the first one
    first, last, steps = ([number] * len(axes) for number in (-1, -_LAST, -1))
    return call.Slice(call.x[0], first, last, axes, steps)


TABLE: Final[dict[str, GeOperator]] = {
    # joining and splitting
    **dict.fromkeys(
        ("ConcatD", "ConcatV2D"),
        GeOperator(
            lambda call: call.Concat(*call.x, axis=call["concat_dim"]),
            {"concat_dim": REQUIRED, "N": None},
            inputs=_ANY,
        ),
    ),
    "Concat": GeOperator(
        lambda call: _as_output(call, call.Concat(*call.x[1:], axis=call.elements(0)[0]), 1),
        {"N": None},
        constants=(0,),
        inputs=_ANY,
    ),
    "ConcatV2": GeOperator(
        lambda call: call.Concat(*call.x[:-1], axis=call.elements(len(call.x) - 1)[0]),
        {"N": None},
        constants=(-1,),
        inputs=_ANY,
    ),
    "SplitD": GeOperator(
        lambda call: _split(call, call["split_dim"], 0, call["num_split"]),
        {"split_dim": REQUIRED, "num_split": REQUIRED},
    ),
    "Split": GeOperator(
        lambda call: _split(call, call.elements(0)[0], 1, call["num_split"]),
        {"num_split": REQUIRED},
        constants=(0,),
        inputs=(2, 2),
    ),
    **_pair(
        "SplitV",
        lambda call: _parts(call, call.numbers("split_dim", 2)[0], 0, call.numbers("size_splits", 1)),
        {"size_splits": 1, "split_dim": 2},
        "",
        num_split=None,
    ),
    # layout and shape
    **_pair(
        "Transpose",
        lambda call: call.Transpose(call.x[0], perm=call.numbers("perm", 1, call.rank)),
        {"perm": 1},
        "",
    ),
    **_pair("Pad", _padded, {"paddings": 1}, "Pad"),
    **_pair("Tile", _with_numbers("Tile", "multiples", each_axis=True), {"multiples": 1}, "Tile"),
    "ExpandDims": GeOperator(_with_numbers("Unsqueeze", ""), kind="Unsqueeze", constants=(1,), inputs=(2, 2)),
    "Squeeze": GeOperator(_squeezed, {"axis": [], "axes": []}, kind="Squeeze"),
    "Unsqueeze": GeOperator(
        lambda call: call.Unsqueeze(call.x[0], call["axes"]), {"axes": []}, kind="Unsqueeze"
    ),
    "Reshape": GeOperator(
        _with_numbers("Reshape", ""),
        {"axis": 0, "num_axes": -1},
        kind="Reshape",
        constants=(1,),
        inputs=(2, 2),
    ),
    **_pair("BroadcastTo", _with_numbers("Expand", "shape"), {"shape": 1}, "Expand"),
    # choosing
    "GatherV2D": GeOperator(
        lambda call: call.Gather(*call.x, axis=call["axis"]), {"axis": REQUIRED}, inputs=(2, 2)
    ),
    "GatherV2": GeOperator(
        lambda call: _batched_gather(call, call.elements(2)[0]),
        {"batch_dims": 0},
        constants=(2,),
        inputs=(3, 3),
    ),
    "Gather": GeOperator(
        lambda call: _batched_gather(call, 0), {"validate_indices": True, "batch_dims": 0}, inputs=(2, 2)
    ),
    "GatherNd": GeOperator(
        lambda call: call.GatherND(call.x[0], call.Cast(call.x[1], to=_INT64.onnx)),
        kind="GatherND",
        inputs=(2, 2),
    ),
    **dict.fromkeys(
        ("Select", "SelectV2"),
        GeOperator(lambda call: _as_output(call, call.Where(*call.x), 1), inputs=(3, 3)),
    ),
    **dict.fromkeys(
        ("TopK", "TopKV2"),
        GeOperator(_top, {"sorted": True, "largest": True, "dim": -1}, kind="TopK", inputs=(2, 2)),
    ),
    # cutting and stacking
    **_pair("Slice", _sliced, {"offsets": 1, "size": 2}, "Slice"),
    "Pack": GeOperator(_packed, {"axis": 0, "N": None}, kind="Concat", inputs=_ANY),
    "Unpack": GeOperator(_unpacked, {"num": REQUIRED, "axis": 0}, kind="Split"),
    **_pair("ReverseV2", _reversed, {"axis": 1}, "Slice"),
}
"""Operators by GE's name."""


def _reduced(call: CallBody, op_type: str, axes: list[int]) -> Value:
    return getattr(call, op_type)(call.x[0], axes, keepdims=int(call["keep_dims"]))


def _all_true(call: CallBody, op_type: str, axes: list[int]) -> Value:
    # all is the minimum, any the maximum; ONNX reduces truth values only since opset 20
    number = call.Cast(call.x[0], to=_INT32.onnx)
    reduced = getattr(call, op_type)(number, axes, keepdims=int(call["keep_dims"]))
    return call.Cast(reduced, to=call.inputs[0].dtype.onnx)


def _axes(call: CallBody) -> list[int]:
    if len(call.x) > 1:
        return call.elements(1)
    return list(range(call.rank)) if call["axes"] is None else integers(call["axes"])


def _reduction(
    name: str, op_type: str, write: Callable[[CallBody, str, list[int]], Value] = _reduced
) -> dict[str, GeOperator]:
    """Return two operators: axes are an attribute of ReduceSumD, an input of ReduceSum."""

    def build(call: CallBody) -> Value:
        return write(call, op_type, _axes(call))

    return {
        f"{name}D": GeOperator(build, {"axes": REQUIRED, "keep_dims": False}, kind=op_type),
        name: GeOperator(build, {"keep_dims": False, "axes": None}, op_type, constants=(1,), inputs=(1, 2)),
    }


def _position(op_type: str) -> dict[str, GeOperator]:
    def build(call: CallBody) -> Value:
        if len(call.x) > 1:
            number = call.elements(1)[0]
        elif call["dimension"] is None:
            raise call.fault("attribute 'dimension' or a second input is required")
        else:
            number = int(call["dimension"])
        found = getattr(call, op_type)(call.x[0], axis=call.axis(number), keepdims=int(call["keep_dims"]))
        # ONNX gives int64
        wanted = call.outputs[0].dtype if call.outputs else _INT32
        return call.cast(found, wanted if wanted.numpy.kind in "iu" else _INT32)

    by_attribute = {"dimension": REQUIRED, "dtype": None, "keep_dims": False}
    by_input = {"dtype": None, "dimension": None, "keep_dims": False}
    later = GeOperator(build, by_input, kind=op_type, constants=(1,), inputs=(1, 2))
    return {
        f"{op_type}D": GeOperator(build, by_attribute, kind=op_type),
        op_type: later,
        f"{op_type}V2": later,
    }


def _cumulated(call: CallBody) -> Value:
    flags = {name: int(call[name]) for name in ("exclusive", "reverse")}
    return call.CumSum(call.x[0], call.numbers("axis", 1)[0], **flags)


def _softmax(call: CallBody) -> Value:
    axes = [call.axis(axis) for axis in integers(call["axes"])]
    if len(axes) == 1:
        return call.Softmax(call.x[0], axis=axes[0])
    grown = call.Exp(_shifted(call, axes))
    return grown / call.ReduceSum(grown, axes)


def _log_softmax(call: CallBody) -> Value:
    axes = [call.axis(axis) for axis in integers(call["axes"])]
    if len(axes) == 1:
        return call.LogSoftmax(call.x[0], axis=axes[0])
    shifted = _shifted(call, axes)
    return shifted - call.ReduceLogSumExp(shifted, axes)


def _shifted(call: CallBody, axes: list[int]) -> Value:
    """Return x minus its maximum along the axes, so that exponentials do not overflow."""
    return call.x[0] - call.ReduceMax(call.x[0], axes)


def _inverse_root(call: CallBody, square: Value) -> Value:
    return call.Reciprocal(call.Sqrt(square + call.number(call["epsilon"])))


def _layer_norm(call: CallBody) -> Results:
    x, scale, offset = call.x
    axes = list(range(call.axis(call["begin_norm_axis"]), call.rank))
    mean = call.ReduceMean(x, axes)
    centred = x - mean
    # of the centred values: the mean of squares less the square of the mean cancels in float32
    variance = call.ReduceMean(centred * centred, axes)
    rstd = _inverse_root(call, variance)
    return centred * rstd * scale + offset, mean, rstd if call.op_type == "LayerNormV3" else variance


def _rms_norm(call: CallBody) -> Results:
    x, scale = call.x
    axes = list(range(call.rank - len(call.inputs[1].shape), call.rank))
    rstd = _inverse_root(call, call.ReduceMean(x * x, axes))
    return x * rstd * scale, rstd


def _batch_norm(call: CallBody) -> Value:
    """Return channels normalised; further inputs are scale, offset, mean and variance."""
    x, *parameters = call.x
    if call.rank != IMAGE:  # a matrix has its channels last in either layout
        return call.BatchNormalization(x, *parameters, epsilon=call["epsilon"])
    images = described(call)
    result = call.BatchNormalization(images.to_host(call, x), *parameters, epsilon=call["epsilon"])
    return images.from_host(call, result)


_NORM: Final = {"begin_norm_axis": 0, "begin_params_axis": 0}

REDUCTIONS: Final[dict[str, GeOperator]] = {
    **_reduction("ReduceSum", "ReduceSum"),
    **_reduction("ReduceMean", "ReduceMean"),
    **_reduction("ReduceMax", "ReduceMax"),
    **_reduction("ReduceMin", "ReduceMin"),
    **_reduction("ReduceProd", "ReduceProd"),
    **_reduction("ReduceAll", "ReduceMin", _all_true),
    **_reduction("ReduceAny", "ReduceMax", _all_true),
    **_position("ArgMax"),
    **_position("ArgMin"),
    # sums and exponentials
    **_pair("Cumsum", _cumulated, {"axis": 1}, "CumSum", exclusive=False, reverse=False),
    **dict.fromkeys(
        ("Softmax", "SoftmaxV2"),
        GeOperator(_softmax, {"axes": [-1], "half_to_float": False}, kind="Softmax"),
    ),
    **dict.fromkeys(
        ("LogSoftmax", "LogSoftmaxV2"), GeOperator(_log_softmax, {"axes": [-1]}, kind="LogSoftmax")
    ),
    # normalizations
    "LayerNorm": GeOperator(_layer_norm, {**_NORM, "epsilon": 1e-7}, kind="LayerNorm", inputs=(3, 3)),
    "LayerNormV3": GeOperator(_layer_norm, {**_NORM, "epsilon": 1e-5}, kind="LayerNorm", inputs=(3, 3)),
    "RmsNorm": GeOperator(_rms_norm, {"epsilon": 1e-6}, kind="RmsNorm", inputs=(2, 2)),
    "BNInfer": GeOperator(_batch_norm, {"epsilon": REQUIRED}, kind="BatchNorm", inputs=(5, 5)),
}
"""Operators by GE's name."""
