"""GE's operators that choose, move and join elements.

Where GE has a pair of operators such as Tile and TileD, the first reads its numbers from an input, the
second from an attribute.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.errors import InputError
from msdump.graph.ge.body import REQUIRED, CallBody, GeOperator, Results

_ANY: Final = (1, 1 << 20)
_LAST: Final = 1 << 62  # beyond the end of every axis; ONNX cuts it to the axis
_INT32: Final = dtypes.from_name("int32")
_INT64: Final = dtypes.from_name("int64")


def _at(*slots: int) -> frozenset[int]:
    return frozenset(slots)


def _joined(call: CallBody, axis: int, parts: tuple[str, ...]) -> str:
    return call.node("Concat", *parts, axis=axis)


def _concat_first(call: CallBody) -> str:
    return _named(call, _joined(call, call.value(0)[0], call.x[1:]), 1)


def _concat_last(call: CallBody) -> str:
    return _joined(call, call.value(len(call.x) - 1)[0], call.x[:-1])


def _named(call: CallBody, name: str, slot: int) -> str:
    """Return a value after noting that its element type is that of an input; it may be an output then."""
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
    return tuple(_named(call, name, slot) for name in pieces)


def _permuted(call: CallBody, order: list[int]) -> str:
    return call.node("Transpose", call.x[0], perm=order)


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


def _flat(nested: Any) -> list[int]:
    """Return the numbers of nested lists in their order."""
    if isinstance(nested, (list, tuple)):
        return [number for item in nested for number in _flat(item)]
    return [int(nested)]


def _tiled(call: CallBody, multiples: list[int]) -> str:
    return call.node("Tile", call.x[0], call.constant(multiples))


def _reshaped(call: CallBody, shape: list[int]) -> str:
    return call.node("Reshape", call.x[0], call.constant(shape))


def _squeezed(call: CallBody) -> str:
    # without any axis, all of size 1
    axes = [call.axis(number) for number in call["axis"] or call["axes"]] or [
        index for index, size in enumerate(call.inputs[0].shape) if size == 1
    ]
    return call.node("Squeeze", call.x[0], call.constant(axes))


def _gathered(call: CallBody, axis: int) -> str:
    return call.node("Gather", call.x[0], call.x[1], axis=axis)


def _batched_gather(call: CallBody, axis: int) -> str:
    if call["batch_dims"]:
        raise InputError(
            f"operator {call.op_type!r}: batch_dims = {call['batch_dims']} is not supported, 0 is"
        )
    return _gathered(call, axis)


def _one_hot(call: CallBody, depth: str, on: str, off: str, x_slot: int) -> str:
    values = call.node(
        "Concat", *(call.node("Reshape", name, call.constant([1])) for name in (off, on)), axis=0
    )
    return _named(call, call.node("OneHot", call.x[0], depth, values, axis=call["axis"]), x_slot)


def _top(call: CallBody) -> Results:
    axis = call["dim"]
    # GE's count is an int32 scalar, ONNX's an int64 of shape (1,)
    count = call.node("Reshape", call.node("Cast", call.x[1], to=_INT64.onnx), call.constant([1]))
    flags = {"axis": axis, "largest": int(call["largest"]), "sorted": int(call["sorted"])}
    values, indices = call.several("TopK", 2, call.x[0], count, **flags)
    return values, call.cast(indices, _INT32)


def _sliced(call: CallBody, starts: list[int], sizes: list[int]) -> str:
    # -1: up to the end of the axis
    ends = [_LAST if size == -1 else start + size for start, size in zip(starts, sizes, strict=True)]
    return call.node("Slice", call.x[0], *map(call.constant, (starts, ends, list(range(len(starts))))))


def strided(
    shape: tuple[int, ...], call: CallBody, begin: list[int], end: list[int], strides: list[int]
) -> str:
    """Append a slice with TensorFlow's masks, which mean what numpy's indices do; return its value."""
    index: list[object] = []
    for bit, (first, last, step) in enumerate(zip(begin, end, strides, strict=True)):
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
    return _indexed(call, shape, index)


def _indexed(call: CallBody, shape: tuple[int, ...], index: list[object]) -> str:
    """Append what numpy's index chooses, slices along the axes and a Reshape; return its value."""
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
    return call.node("Reshape", chosen, call.constant(result)) if 0 not in result else _emptied(call, result)


def _emptied(call: CallBody, shape: list[int]) -> str:
    array = np.zeros(shape, call.inputs[0].dtype.numpy)
    return call.node("Identity", call.constant(array, array.dtype))


_MASKS: Final = {f"{name}_mask": 0 for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}


def _packed(call: CallBody) -> str:
    parts = [call.node("Unsqueeze", name, call.constant([call["axis"]])) for name in call.x]
    return call.node("Concat", *parts, axis=call["axis"])


def _unpacked(call: CallBody) -> Results:
    axis = call["axis"]
    parts = _split(call, axis, 0, None, call["num"])
    return tuple(_named(call, call.node("Squeeze", part, call.constant([axis])), 0) for part in parts)


def _reversed(call: CallBody, axes: list[int]) -> str:
    # backwards from the last element, beyond the first one
    first, last, steps = ([number] * len(axes) for number in (-1, -_LAST, -1))
    return call.node("Slice", call.x[0], *map(call.constant, (first, last, axes, steps)))


TABLE: Final[dict[str, GeOperator]] = {
    # joining and splitting
    "ConcatD": GeOperator(
        lambda call: _joined(call, call["concat_dim"], call.x),
        {"concat_dim": REQUIRED, "N": None},
        inputs=_ANY,
    ),
    "ConcatV2D": GeOperator(
        lambda call: _joined(call, call["concat_dim"], call.x),
        {"concat_dim": REQUIRED, "N": None},
        inputs=_ANY,
    ),
    "Concat": GeOperator(_concat_first, {"N": None}, constants=_at(0), inputs=_ANY),
    "ConcatV2": GeOperator(_concat_last, {"N": None}, constants=_at(-1), inputs=_ANY),
    "SplitD": GeOperator(
        lambda call: _split(call, call["split_dim"], 0, None, call["num_split"]),
        {"split_dim": REQUIRED, "num_split": REQUIRED},
    ),
    "Split": GeOperator(
        lambda call: _split(call, call.value(0)[0], 1, None, call["num_split"]),
        {"num_split": REQUIRED},
        constants=_at(0),
        inputs=(2, 2),
    ),
    "SplitVD": GeOperator(
        lambda call: _split(call, call["split_dim"], 0, list(call["size_splits"]), 0),
        {"size_splits": REQUIRED, "split_dim": REQUIRED, "num_split": None},
    ),
    "SplitV": GeOperator(
        lambda call: _split(call, call.value(2)[0], 0, call.value(1), 0),
        {"num_split": None},
        constants=_at(1, 2),
        inputs=(3, 3),
    ),
    # layout and shape
    "TransposeD": GeOperator(
        lambda call: _permuted(call, call.listed("perm", call.rank)), {"perm": REQUIRED}
    ),
    "Transpose": GeOperator(lambda call: _permuted(call, call.value(1)), constants=_at(1), inputs=(2, 2)),
    "PadD": GeOperator(
        lambda call: _padded(call, _flat(call["paddings"])), {"paddings": REQUIRED}, kind="Pad"
    ),
    "Pad": GeOperator(lambda call: _padded(call, call.value(1)), kind="Pad", constants=_at(1), inputs=(2, 2)),
    "PadV3": GeOperator(
        _pad_v3,
        {"mode": "constant", "paddings_contiguous": True},
        kind="Pad",
        constants=_at(1),
        inputs=(2, 3),
    ),
    "TileD": GeOperator(
        lambda call: _tiled(call, call.listed("multiples", call.rank)), {"multiples": REQUIRED}, kind="Tile"
    ),
    "Tile": GeOperator(
        lambda call: _tiled(call, call.value(1)), kind="Tile", constants=_at(1), inputs=(2, 2)
    ),
    "ExpandDims": GeOperator(
        lambda call: call.node("Unsqueeze", call.x[0], call.constant(call.value(1))),
        kind="Unsqueeze",
        constants=_at(1),
        inputs=(2, 2),
    ),
    "Squeeze": GeOperator(_squeezed, {"axis": [], "axes": []}, kind="Squeeze"),
    "Unsqueeze": GeOperator(
        lambda call: call.node("Unsqueeze", call.x[0], call.constant(call["axes"])),
        {"axes": []},
        kind="Unsqueeze",
    ),
    "Reshape": GeOperator(
        lambda call: _reshaped(call, call.value(1)),
        {"axis": 0, "num_axes": -1},
        kind="Reshape",
        constants=_at(1),
        inputs=(2, 2),
    ),
    "BroadcastToD": GeOperator(
        lambda call: call.node("Expand", call.x[0], call.constant(call["shape"])),
        {"shape": REQUIRED},
        kind="Expand",
    ),
    "BroadcastTo": GeOperator(
        lambda call: call.node("Expand", call.x[0], call.constant(call.value(1))),
        kind="Expand",
        constants=_at(1),
        inputs=(2, 2),
    ),
    # choosing
    "GatherV2D": GeOperator(lambda call: _gathered(call, call["axis"]), {"axis": REQUIRED}, inputs=(2, 2)),
    "GatherV2": GeOperator(
        lambda call: _batched_gather(call, call.value(2)[0]),
        {"batch_dims": 0},
        constants=_at(2),
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
    "Select": GeOperator(lambda call: _named(call, call.node("Where", *call.x), 1), inputs=(3, 3)),
    "SelectV2": GeOperator(lambda call: _named(call, call.node("Where", *call.x), 1), inputs=(3, 3)),
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
    "TopK": GeOperator(_top, {"sorted": True, "largest": True, "dim": -1}, kind="TopK", inputs=(2, 2)),
    "TopKV2": GeOperator(_top, {"sorted": True, "largest": True, "dim": -1}, kind="TopK", inputs=(2, 2)),
    # cutting and stacking
    "SliceD": GeOperator(
        lambda call: _sliced(call, call.listed("offsets", call.rank), call.listed("size", call.rank)),
        {"offsets": REQUIRED, "size": REQUIRED},
        kind="Slice",
    ),
    "Slice": GeOperator(
        lambda call: _sliced(call, call.value(1), call.value(2)),
        kind="Slice",
        constants=_at(1, 2),
        inputs=(3, 3),
    ),
    "StridedSliceD": GeOperator(
        lambda call: strided(call.inputs[0].shape, call, call["begin"], call["end"], call["strides"]),
        {"begin": REQUIRED, "end": REQUIRED, "strides": REQUIRED, **_MASKS},
        kind="Slice",
    ),
    "StridedSlice": GeOperator(
        lambda call: strided(call.inputs[0].shape, call, call.value(1), call.value(2), call.value(3)),
        dict(_MASKS),
        kind="Slice",
        constants=_at(1, 2, 3),
        inputs=(4, 4),
    ),
    "Pack": GeOperator(_packed, {"axis": 0, "N": None}, kind="Concat", inputs=_ANY),
    "Unpack": GeOperator(_unpacked, {"num": REQUIRED, "axis": 0}, kind="Split"),
    "ReverseV2D": GeOperator(lambda call: _reversed(call, call["axis"]), {"axis": REQUIRED}, kind="Slice"),
    "ReverseV2": GeOperator(
        lambda call: _reversed(call, call.value(1)), kind="Slice", constants=_at(1), inputs=(2, 2)
    ),
}
"""Operators by GE's name."""
