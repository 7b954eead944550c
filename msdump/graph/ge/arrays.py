"""GE's operators that move or reduce elements of arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.errors import InputError
from msdump.graph.ge.body import REQUIRED, CallBody, GeOperator, Results, integers
from msdump.graph.ge.networks import IMAGE, VOLUME, described

_ANY: Final = (1, 1 << 20)
_LAST: Final = 1 << 62  # beyond the end of every axis; ONNX cuts it to the axis
_INT32: Final = dtypes.from_name("int32")
_INT64: Final = dtypes.from_name("int64")


def _pair(
    name: str,
    build: Callable[[CallBody], Results],
    moved: Mapping[str, int],
    kind: str,
    **defaults: Any,
) -> dict[str, GeOperator]:
    """Return two operators, Tile and TileD: ``moved`` are inputs of the first, attributes of the second."""
    count = len(moved) + 1
    return {
        f"{name}D": GeOperator(build, {**dict.fromkeys(moved, REQUIRED), **defaults}, kind=kind),
        name: GeOperator(build, defaults, kind, tuple(moved.values()), (count, count)),
    }


def _as_output(call: CallBody, name: str, slot: int) -> str:
    """Return a value as a possible output, of the element type of an input."""
    call.types[name] = call.inputs[slot].dtype
    return name


def _split(call: CallBody, axis: int, slot: int, sizes: list[int] | None, count: int) -> Results:
    if sizes is None:
        length = call.inputs[slot].shape[call.axis(axis, len(call.inputs[slot].shape))]
        if count < 1 or length % count:
            raise InputError(
                f"operator {call.op_type!r}: {length} elements do not split into num_split = {count}"
            )
        sizes = [length // count] * count
    pieces = call.several("Split", len(sizes), call.x[slot], call.constant(sizes), axis=axis)
    return tuple(_as_output(call, name, slot) for name in pieces)


def _padded(call: CallBody, pairs: list[int], mode: str = "constant", value: str = "") -> str:
    pads = [*pairs[0::2], *pairs[1::2]]  # GE: begin and end of each axis; ONNX: all begins, then all ends
    return call.node("Pad", call.x[0], call.constant(pads), *filter(None, [value]), mode=mode)


def _pad_v3(call: CallBody) -> str:
    # begin and end of each axis, as in TensorFlow
    pairs = call.value(1)
    if not call["paddings_contiguous"]:
        # MindSpore may give all begins and then all ends
        half = len(pairs) // 2
        pairs = [item for both in zip(pairs[:half], pairs[half:], strict=True) for item in both]
    return _padded(call, pairs, call["mode"], call.x[2] if len(call.x) > 2 else "")  # noqa: PLR2004 - constant_values


def _with_numbers(op_type: str, name: str, *, each_axis: bool = False) -> Callable[[CallBody], str]:
    return lambda call: call.node(
        op_type, call.x[0], call.constant(call.numbers(name, 1, call.rank if each_axis else None))
    )


def _squeezed(call: CallBody) -> str:
    # without any axis, all of size 1
    axes = [call.axis(number) for number in call["axis"] or call["axes"]] or [
        index for index, size in enumerate(call.inputs[0].shape) if size == 1
    ]
    return call.node("Squeeze", call.x[0], call.constant(axes))


def _batched_gather(call: CallBody, axis: int) -> str:
    if call["batch_dims"]:
        raise InputError(
            f"operator {call.op_type!r}: batch_dims = {call['batch_dims']} is not supported, 0 is"
        )
    return call.node("Gather", call.x[0], call.x[1], axis=axis)


def _one_hot(call: CallBody, depth: str, on: str, off: str, x_slot: int) -> str:
    values = call.node(
        "Concat", *(call.node("Reshape", name, call.constant([1])) for name in (off, on)), axis=0
    )
    return _as_output(call, call.node("OneHot", call.x[0], depth, values, axis=call["axis"]), x_slot)


def _top(call: CallBody) -> Results:
    axis = call["dim"]
    # GE's count is an int32 scalar, ONNX's an int64 of shape (1,)
    count = call.node("Reshape", call.node("Cast", call.x[1], to=_INT64.onnx), call.constant([1]))
    flags = {"axis": axis, "largest": int(call["largest"]), "sorted": int(call["sorted"])}
    values, indices = call.several("TopK", 2, call.x[0], count, **flags)
    return values, call.cast(indices, _INT32)


def _sliced(call: CallBody) -> str:
    starts, sizes = call.numbers("offsets", 1, call.rank), call.numbers("size", 2, call.rank)
    # -1: up to the end of the axis
    ends = [_LAST if size == -1 else start + size for start, size in zip(starts, sizes, strict=True)]
    return call.node("Slice", call.x[0], *map(call.constant, (starts, ends, list(range(len(starts))))))


def _strided(call: CallBody) -> str:
    """Append a slice with TensorFlow's masks, which mean the same as numpy's indices; return its value."""
    index: list[object] = []
    numbers = (call.numbers(name, slot) for slot, name in enumerate(("begin", "end", "strides"), 1))
    for bit, (first, last, step) in enumerate(zip(*numbers, strict=True)):
        flag = 1 << bit
        if call["ellipsis_mask"] & flag:
            index.append(Ellipsis)
        elif call["new_axis_mask"] & flag:
            index.append(None)
        elif call["shrink_axis_mask"] & flag:
            index.append(first)
        else:
            low = None if call["begin_mask"] & flag else first
            high = None if call["end_mask"] & flag else last
            index.append(slice(low, high, step))
    return _indexed(call, call.inputs[0].shape, index)


def _indexed(call: CallBody, shape: tuple[int, ...], index: list[object]) -> str:
    """Append slices along the axes and a Reshape, as numpy's index selects; return the value."""
    # axes that the index names; an Ellipsis stands for all others
    spent = sum(item is not None and item is not Ellipsis for item in index)
    position = index.index(Ellipsis) if Ellipsis in index else len(index)
    whole: list[object] = [slice(None)] * (len(shape) - spent)
    items = [*index[:position], *whole, *index[position + 1 :]]
    starts, ends, steps, result, axis = [], [], [], [], 0
    for item in items:
        if item is None:
            result.append(1)
            continue
        length = shape[axis]
        if isinstance(item, slice):
            start, stop, step = item.indices(length)
            result.append(len(range(start, stop, step)))
        else:
            assert isinstance(item, int)
            start, stop, step = call.axis(item, length), call.axis(item, length) + 1, 1
        starts.append(start)
        ends.append(stop if stop >= 0 else -_LAST)  # behind the first element, counted down
        steps.append(step)
        axis += 1
    chosen = call.node("Slice", call.x[0], *map(call.constant, (starts, ends, list(range(axis)), steps)))
    # a 0 in ONNX's shape means the size of the input's axis, not an empty axis
    if 0 not in result:
        return call.node("Reshape", chosen, call.constant(result))
    return call.node("Identity", call.constant(np.zeros(result), call.inputs[0].dtype.numpy))


_MASKS: Final = {f"{name}_mask": 0 for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}


def _packed(call: CallBody) -> str:
    parts = [call.node("Unsqueeze", name, call.constant([call["axis"]])) for name in call.x]
    return call.node("Concat", *parts, axis=call["axis"])


def _unpacked(call: CallBody) -> Results:
    axis = call["axis"]
    parts = _split(call, axis, 0, None, call["num"])
    return tuple(_as_output(call, call.node("Squeeze", part, call.constant([axis])), 0) for part in parts)


def _reversed(call: CallBody) -> str:
    axes = call.numbers("axis", 1)
    # backwards from the last element, beyond the first one
    first, last, steps = ([number] * len(axes) for number in (-1, -_LAST, -1))
    return call.node("Slice", call.x[0], *map(call.constant, (first, last, axes, steps)))


TABLE: Final[dict[str, GeOperator]] = {
    # joining and splitting
    **dict.fromkeys(
        ("ConcatD", "ConcatV2D"),
        GeOperator(
            lambda call: call.node("Concat", *call.x, axis=call["concat_dim"]),
            {"concat_dim": REQUIRED, "N": None},
            inputs=_ANY,
        ),
    ),
    "Concat": GeOperator(
        lambda call: _as_output(call, call.node("Concat", *call.x[1:], axis=call.value(0)[0]), 1),
        {"N": None},
        constants=(0,),
        inputs=_ANY,
    ),
    "ConcatV2": GeOperator(
        lambda call: call.node("Concat", *call.x[:-1], axis=call.value(len(call.x) - 1)[0]),
        {"N": None},
        constants=(-1,),
        inputs=_ANY,
    ),
    "SplitD": GeOperator(
        lambda call: _split(call, call["split_dim"], 0, None, call["num_split"]),
        {"split_dim": REQUIRED, "num_split": REQUIRED},
    ),
    "Split": GeOperator(
        lambda call: _split(call, call.value(0)[0], 1, None, call["num_split"]),
        {"num_split": REQUIRED},
        constants=(0,),
        inputs=(2, 2),
    ),
    **_pair(
        "SplitV",
        lambda call: _split(call, call.numbers("split_dim", 2)[0], 0, call.numbers("size_splits", 1), 0),
        {"size_splits": 1, "split_dim": 2},
        "",
        num_split=None,
    ),
    # layout and shape
    **_pair(
        "Transpose",
        lambda call: call.node("Transpose", call.x[0], perm=call.numbers("perm", 1, call.rank)),
        {"perm": 1},
        "",
    ),
    **_pair("Pad", lambda call: _padded(call, call.numbers("paddings", 1)), {"paddings": 1}, "Pad"),
    "PadV3": GeOperator(
        _pad_v3,
        {"mode": "constant", "paddings_contiguous": True},
        kind="Pad",
        constants=(1,),
        inputs=(2, 3),
    ),
    **_pair("Tile", _with_numbers("Tile", "multiples", each_axis=True), {"multiples": 1}, "Tile"),
    "ExpandDims": GeOperator(_with_numbers("Unsqueeze", ""), kind="Unsqueeze", constants=(1,), inputs=(2, 2)),
    "Squeeze": GeOperator(_squeezed, {"axis": [], "axes": []}, kind="Squeeze"),
    "Unsqueeze": GeOperator(
        lambda call: call.node("Unsqueeze", call.x[0], call.constant(call["axes"])),
        {"axes": []},
        kind="Unsqueeze",
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
        lambda call: call.node("Gather", *call.x, axis=call["axis"]), {"axis": REQUIRED}, inputs=(2, 2)
    ),
    "GatherV2": GeOperator(
        lambda call: _batched_gather(call, call.value(2)[0]),
        {"batch_dims": 0},
        constants=(2,),
        inputs=(3, 3),
    ),
    "Gather": GeOperator(
        lambda call: _batched_gather(call, 0), {"validate_indices": True, "batch_dims": 0}, inputs=(2, 2)
    ),
    "GatherNd": GeOperator(
        lambda call: call.node("GatherND", call.x[0], call.node("Cast", call.x[1], to=_INT64.onnx)),
        kind="GatherND",
        inputs=(2, 2),
    ),
    **dict.fromkeys(
        ("Select", "SelectV2"),
        GeOperator(lambda call: _as_output(call, call.node("Where", *call.x), 1), inputs=(3, 3)),
    ),
    "OneHot": GeOperator(
        lambda call: _one_hot(call, call.x[1], call.x[2], call.x[3], 2),
        {"axis": -1},
        kind="OneHot",
        inputs=(4, 4),
    ),
    "OneHotD": GeOperator(
        lambda call: _one_hot(call, call.constant(call["depth"]), call.x[1], call.x[2], 1),
        {"depth": REQUIRED, "axis": -1},
        kind="OneHot",
        inputs=(3, 3),
    ),
    **dict.fromkeys(
        ("TopK", "TopKV2"),
        GeOperator(_top, {"sorted": True, "largest": True, "dim": -1}, kind="TopK", inputs=(2, 2)),
    ),
    # cutting and stacking
    **_pair("Slice", _sliced, {"offsets": 1, "size": 2}, "Slice"),
    **_pair("StridedSlice", _strided, {"begin": 1, "end": 2, "strides": 3}, "Slice", **_MASKS),
    "Pack": GeOperator(_packed, {"axis": 0, "N": None}, kind="Concat", inputs=_ANY),
    "Unpack": GeOperator(_unpacked, {"num": REQUIRED, "axis": 0}, kind="Split"),
    **_pair("ReverseV2", _reversed, {"axis": 1}, "Slice"),
}
"""Operators by GE's name."""


def _reduced(call: CallBody, op_type: str, axes: list[int]) -> str:
    return call.node(op_type, call.x[0], call.constant(axes), keepdims=int(call["keep_dims"]))


def _all_true(call: CallBody, op_type: str, axes: list[int]) -> str:
    # all is the minimum, any the maximum; ONNX reduces truth values only since opset 20
    number = call.node("Cast", call.x[0], to=_INT32.onnx)
    reduced = call.node(op_type, number, call.constant(axes), keepdims=int(call["keep_dims"]))
    return call.node("Cast", reduced, to=call.inputs[0].dtype.onnx)


def _by_attribute(write: Callable[[CallBody, str, list[int]], str], op_type: str) -> GeOperator:
    return GeOperator(
        lambda call: write(call, op_type, integers(call["axes"])),
        {"axes": REQUIRED, "keep_dims": False},
        kind=op_type,
    )


def _by_input(write: Callable[[CallBody, str, list[int]], str], op_type: str) -> GeOperator:
    return GeOperator(
        lambda call: write(call, op_type, _axes(call)),
        {"keep_dims": False, "axes": None},
        kind=op_type,
        constants=(1,),
        inputs=(1, 2),
    )


def _axes(call: CallBody) -> list[int]:
    if len(call.x) > 1:
        return call.value(1)
    return list(range(call.rank)) if call["axes"] is None else integers(call["axes"])


def _index(call: CallBody, name: str) -> str:
    # ONNX gives int64
    wanted = call.outputs[0].dtype if call.outputs else _INT32
    return call.cast(name, wanted if wanted.numpy.kind in "iu" else _INT32)


def _extreme(op_type: str) -> Callable[[CallBody], str]:
    def build(call: CallBody) -> str:
        axis, keeps = call.axis(_dimension(call)), int(call["keep_dims"])
        return _index(call, call.node(op_type, call.x[0], axis=axis, keepdims=keeps))

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
    build = _extreme(op_type)
    by_attribute = {"dimension": REQUIRED, "dtype": None, "keep_dims": False}
    by_input = {"dtype": None, "dimension": None, "keep_dims": False}
    return {
        f"{op_type}D": GeOperator(build, by_attribute, kind=op_type),
        **dict.fromkeys(
            (op_type, f"{op_type}V2"),
            GeOperator(build, by_input, kind=op_type, constants=(1,), inputs=(1, 2)),
        ),
    }


def _cumulated(call: CallBody) -> str:
    axis = call.constant(call.numbers("axis", 1)[0])
    flags = {name: int(call[name]) for name in ("exclusive", "reverse")}
    return call.node("CumSum", call.x[0], axis, **flags)


def _softmax(call: CallBody) -> str:
    axes = [call.axis(axis) for axis in integers(call["axes"])]
    if len(axes) == 1:
        return call.node("Softmax", call.x[0], axis=axes[0])
    grown = call.node("Exp", _shifted(call, axes))
    return call.node("Div", grown, call.node("ReduceSum", grown, call.constant(axes)))


def _log_softmax(call: CallBody) -> str:
    axes = [call.axis(axis) for axis in integers(call["axes"])]
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


def _batch_norm(call: CallBody, parameters: Sequence[str]) -> str:
    """Return channels normalised; parameters are scale, offset, mean and variance."""
    # a matrix has its channels last in either layout
    images = described(call, call.rank) if call.rank in {IMAGE, VOLUME} else None
    if images is None:
        return call.node("BatchNormalization", call.x[0], *parameters, epsilon=call["epsilon"])
    x = images.to_host(call, call.x[0])
    return images.from_host(call, call.node("BatchNormalization", x, *parameters, epsilon=call["epsilon"]))


def _bn_inference(call: CallBody) -> str:
    """Return x normalised; without scale and offset, momentum divides mean and variance."""
    mean, variance, momentum, *affine = call.x[1:]
    if not affine:
        factor = _factor(call, momentum)
        mean, variance = call.node("Mul", mean, factor), call.node("Mul", variance, factor)
    channels = call.inputs[1].shape
    # without scale 1, without offset 0
    fill = (call.constant(np.full(channels, value), call.compute) for value in (1, 0)[len(affine) :])
    return _batch_norm(call, (*affine, *fill, mean, variance))


def _factor(call: CallBody, momentum: str) -> str:
    """Return one over a momentum's first element, 0 for 0, as in Caffe (the operator's origin)."""
    # a tensor of one element, of whatever rank
    first = call.node("Gather", call.node("Reshape", momentum, call.constant([-1])), call.constant(0))
    zero = call.number(0)
    return call.node("Where", call.node("Equal", first, zero), zero, call.node("Reciprocal", first))


_NORM: Final = {"begin_norm_axis": 0, "begin_params_axis": 0}
_KINDS: Final = ("Sum", "Mean", "Max", "Min", "Prod")

REDUCTIONS: Final[dict[str, GeOperator]] = {
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
    **_pair("Cumsum", _cumulated, {"axis": 1}, "CumSum", exclusive=False, reverse=False),
    **dict.fromkeys(
        ("Softmax", "SoftmaxV2"),
        GeOperator(_softmax, {"axes": [-1], "half_to_float": False}, kind="Softmax"),
    ),
    **dict.fromkeys(
        ("LogSoftmax", "LogSoftmaxV2"), GeOperator(_log_softmax, {"axes": [-1]}, kind="LogSoftmax")
    ),
    # normalizations
    "LayerNorm": GeOperator(
        _layer_norm(gives_deviation=False), {**_NORM, "epsilon": 1e-7}, kind="LayerNorm", inputs=(3, 3)
    ),
    "LayerNormV3": GeOperator(
        _layer_norm(gives_deviation=True), {**_NORM, "epsilon": 1e-5}, kind="LayerNorm", inputs=(3, 3)
    ),
    "RmsNorm": GeOperator(_rms_norm, {"epsilon": 1e-6}, kind="RmsNorm", inputs=(2, 2)),
    "BNInference": GeOperator(
        _bn_inference,
        {"epsilon": 1e-5, "use_global_stats": True, "mode": 1},
        kind="BatchNorm",
        inputs=(4, 6),
    ),
    "BNInfer": GeOperator(
        lambda call: _batch_norm(call, call.x[1:]), {"epsilon": REQUIRED}, kind="BatchNorm", inputs=(5, 5)
    ),
}
"""Operators by GE's name."""
