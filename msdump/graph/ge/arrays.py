"""GE's operators that choose, move and join elements."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.errors import InputError
from msdump.graph.ge.body import REQUIRED, CallBody, GeOperator, Results

_ANY: Final = (1, 1 << 20)
_LAST: Final = 1 << 62
_INT32: Final = dtypes.from_name("int32")
_INT64: Final = dtypes.from_name("int64")


def _at(*slots: int) -> frozenset[int]:
    return frozenset(slots)


def _joined(b: CallBody, axis: int, parts: tuple[str, ...]) -> str:
    return b.node("Concat", *parts, axis=axis)


def _concat_first(b: CallBody) -> str:
    return _named(b, _joined(b, b.value(0)[0], b.x[1:]), 1)


def _concat_last(b: CallBody) -> str:
    return _joined(b, b.value(len(b.x) - 1)[0], b.x[:-1])


def _named(b: CallBody, name: str, slot: int) -> str:
    """Return a value that may be an output, of the type of an input."""
    b.types[name] = b.inputs[slot].dtype
    return name


def _split(b: CallBody, axis: int, x: int, sizes: list[int] | None, count: int) -> Results:
    if sizes is None:
        length = b.inputs[x].shape[b.axis(axis, len(b.inputs[x].shape))]
        if count < 1 or length % count:
            raise InputError(
                f"operator {b.op_type!r}: {length} elements do not split into num_split = {count}"
            )
        sizes = [length // count] * count
    made = b.several("Split", len(sizes), b.x[x], b.constant(sizes), axis=axis)
    return tuple(_named(b, name, x) for name in made)


def _permuted(b: CallBody, order: list[int]) -> str:
    return b.node("Transpose", b.x[0], perm=order)


def _padded(b: CallBody, pairs: list[int], mode: str = "constant", value: str = "") -> str:
    pads = [*pairs[0::2], *pairs[1::2]]
    return b.node("Pad", b.x[0], b.constant(pads), *filter(None, [value]), mode=mode)


def _pad_v3(b: CallBody) -> str:
    pairs = b.value(1)
    if not b["paddings_contiguous"]:
        half = len(pairs) // 2
        pairs = [item for both in zip(pairs[:half], pairs[half:], strict=True) for item in both]
    return _padded(b, pairs, b["mode"], b.x[2] if len(b.x) > 2 else "")  # noqa: PLR2004 - constant_values


def _flat(nested: Any) -> list[int]:
    if isinstance(nested, (list, tuple)):
        return [number for item in nested for number in _flat(item)]
    return [int(nested)]


def _tiled(b: CallBody, multiples: list[int]) -> str:
    return b.node("Tile", b.x[0], b.constant(multiples))


def _reshaped(b: CallBody, shape: list[int]) -> str:
    return b.node("Reshape", b.x[0], b.constant(shape))


def _squeezed(b: CallBody) -> str:
    axes = [b.axis(number) for number in b["axis"] or b["axes"]] or [
        index for index, size in enumerate(b.inputs[0].shape) if size == 1
    ]
    return b.node("Squeeze", b.x[0], b.constant(axes))


def _gathered(b: CallBody, axis: int) -> str:
    return b.node("Gather", b.x[0], b.x[1], axis=axis)


def _batched_gather(b: CallBody, axis: int) -> str:
    if b["batch_dims"]:
        raise InputError(f"operator {b.op_type!r}: batch_dims = {b['batch_dims']} is not supported, 0 is")
    return _gathered(b, axis)


def _one_hot(b: CallBody, depth: str, on: str, off: str, x_slot: int) -> str:
    values = b.node("Concat", *(b.node("Reshape", name, b.constant([1])) for name in (off, on)), axis=0)
    return _named(b, b.node("OneHot", b.x[0], depth, values, axis=b["axis"]), x_slot)


def _top(b: CallBody) -> Results:
    axis = b["dim"]
    count = b.node("Reshape", b.node("Cast", b.x[1], to=_INT64.onnx), b.constant([1]))
    flags = {"axis": axis, "largest": int(b["largest"]), "sorted": int(b["sorted"])}
    values, indices = b.several("TopK", 2, b.x[0], count, **flags)
    return values, b.cast(indices, _INT32)


def _sliced(b: CallBody, starts: list[int], sizes: list[int]) -> str:
    ends = [_LAST if size == -1 else start + size for start, size in zip(starts, sizes, strict=True)]
    return b.node("Slice", b.x[0], *map(b.constant, (starts, ends, list(range(len(starts))))))


def strided(shape: tuple[int, ...], b: CallBody, begin: list[int], end: list[int], strides: list[int]) -> str:
    """Write a slice with TensorFlow's masks, whose meaning numpy's indices have too."""
    index: list[object] = []
    for bit, (first, last, step) in enumerate(zip(begin, end, strides, strict=True)):
        flag = 1 << bit
        if b["ellipsis_mask"] & flag:
            index.append(Ellipsis)
        elif b["new_axis_mask"] & flag:
            index.append(None)
        elif b["shrink_axis_mask"] & flag:
            index.append(first)
        else:
            low = None if b["begin_mask"] & flag else first
            high = None if b["end_mask"] & flag else last
            index.append(slice(low, high, step))
    return _indexed(b, shape, index)


def _indexed(b: CallBody, shape: tuple[int, ...], index: list[object]) -> str:
    """Write what numpy's index chooses: slices along the axes, then the shape that is left."""
    spent = sum(item is not None and item is not Ellipsis for item in index)
    at = index.index(Ellipsis) if Ellipsis in index else len(index)
    whole: list[object] = [slice(None)] * (len(shape) - spent)
    items = [*index[:at], *whole, *index[at + 1 :]]
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
            start, stop, step = b.axis(item, length), b.axis(item, length) + 1, 1
        starts.append(start)
        ends.append(stop if stop >= 0 else -_LAST)  # behind the first element, counted down
        steps.append(step)
        axis += 1
    chosen = b.node("Slice", b.x[0], *map(b.constant, (starts, ends, list(range(axis)), steps)))
    return b.node("Reshape", chosen, b.constant(result)) if 0 not in result else _emptied(b, result)


def _emptied(b: CallBody, shape: list[int]) -> str:
    array = np.zeros(shape, b.inputs[0].dtype.numpy)
    return b.node("Identity", b.constant(array, array.dtype))


_MASKS: Final = {f"{name}_mask": 0 for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}


def _packed(b: CallBody) -> str:
    parts = [b.node("Unsqueeze", name, b.constant([b["axis"]])) for name in b.x]
    return b.node("Concat", *parts, axis=b["axis"])


def _unpacked(b: CallBody) -> Results:
    axis = b["axis"]
    parts = _split(b, axis, 0, None, b["num"])
    return tuple(_named(b, b.node("Squeeze", part, b.constant([axis])), 0) for part in parts)


def _reversed(b: CallBody, axes: list[int]) -> str:
    first, last, steps = ([number] * len(axes) for number in (-1, -_LAST, -1))
    return b.node("Slice", b.x[0], *map(b.constant, (first, last, axes, steps)))


TABLE: Final[dict[str, GeOperator]] = {
    "ConcatD": GeOperator(
        lambda b: _joined(b, b["concat_dim"], b.x), {"concat_dim": REQUIRED, "N": None}, inputs=_ANY
    ),
    "ConcatV2D": GeOperator(
        lambda b: _joined(b, b["concat_dim"], b.x), {"concat_dim": REQUIRED, "N": None}, inputs=_ANY
    ),
    "Concat": GeOperator(_concat_first, {"N": None}, constants=_at(0), inputs=_ANY),
    "ConcatV2": GeOperator(_concat_last, {"N": None}, constants=_at(-1), inputs=_ANY),
    "SplitD": GeOperator(
        lambda b: _split(b, b["split_dim"], 0, None, b["num_split"]),
        {"split_dim": REQUIRED, "num_split": REQUIRED},
    ),
    "Split": GeOperator(
        lambda b: _split(b, b.value(0)[0], 1, None, b["num_split"]),
        {"num_split": REQUIRED},
        constants=_at(0),
        inputs=(2, 2),
    ),
    "SplitVD": GeOperator(
        lambda b: _split(b, b["split_dim"], 0, list(b["size_splits"]), 0),
        {"size_splits": REQUIRED, "split_dim": REQUIRED, "num_split": None},
    ),
    "SplitV": GeOperator(
        lambda b: _split(b, b.value(2)[0], 0, b.value(1), 0),
        {"num_split": None},
        constants=_at(1, 2),
        inputs=(3, 3),
    ),
    "TransposeD": GeOperator(lambda b: _permuted(b, b.listed("perm", b.rank)), {"perm": REQUIRED}),
    "Transpose": GeOperator(lambda b: _permuted(b, b.value(1)), constants=_at(1), inputs=(2, 2)),
    "PadD": GeOperator(lambda b: _padded(b, _flat(b["paddings"])), {"paddings": REQUIRED}, kind="Pad"),
    "Pad": GeOperator(lambda b: _padded(b, b.value(1)), kind="Pad", constants=_at(1), inputs=(2, 2)),
    "PadV3": GeOperator(
        _pad_v3,
        {"mode": "constant", "paddings_contiguous": True},
        kind="Pad",
        constants=_at(1),
        inputs=(2, 3),
    ),
    "TileD": GeOperator(
        lambda b: _tiled(b, b.listed("multiples", b.rank)), {"multiples": REQUIRED}, kind="Tile"
    ),
    "Tile": GeOperator(lambda b: _tiled(b, b.value(1)), kind="Tile", constants=_at(1), inputs=(2, 2)),
    "ExpandDims": GeOperator(
        lambda b: b.node("Unsqueeze", b.x[0], b.constant(b.value(1))),
        kind="Unsqueeze",
        constants=_at(1),
        inputs=(2, 2),
    ),
    "Squeeze": GeOperator(_squeezed, {"axis": [], "axes": []}, kind="Squeeze"),
    "Unsqueeze": GeOperator(
        lambda b: b.node("Unsqueeze", b.x[0], b.constant(b["axes"])), {"axes": []}, kind="Unsqueeze"
    ),
    "Reshape": GeOperator(
        lambda b: _reshaped(b, b.value(1)),
        {"axis": 0, "num_axes": -1},
        kind="Reshape",
        constants=_at(1),
        inputs=(2, 2),
    ),
    "BroadcastToD": GeOperator(
        lambda b: b.node("Expand", b.x[0], b.constant(b["shape"])), {"shape": REQUIRED}, kind="Expand"
    ),
    "BroadcastTo": GeOperator(
        lambda b: b.node("Expand", b.x[0], b.constant(b.value(1))),
        kind="Expand",
        constants=_at(1),
        inputs=(2, 2),
    ),
    "GatherV2D": GeOperator(lambda b: _gathered(b, b["axis"]), {"axis": REQUIRED}, inputs=(2, 2)),
    "GatherV2": GeOperator(
        lambda b: _batched_gather(b, b.value(2)[0]), {"batch_dims": 0}, constants=_at(2), inputs=(3, 3)
    ),
    "Gather": GeOperator(
        lambda b: _batched_gather(b, 0), {"validate_indices": True, "batch_dims": 0}, inputs=(2, 2)
    ),
    "GatherNd": GeOperator(
        lambda b: b.node("GatherND", b.x[0], b.node("Cast", b.x[1], to=_INT64.onnx)),
        kind="GatherND",
        inputs=(2, 2),
    ),
    "Select": GeOperator(lambda b: _named(b, b.node("Where", *b.x), 1), inputs=(3, 3)),
    "SelectV2": GeOperator(lambda b: _named(b, b.node("Where", *b.x), 1), inputs=(3, 3)),
    "OneHot": GeOperator(
        lambda b: _one_hot(b, b.x[1], b.x[2], b.x[3], 2), {"axis": -1}, kind="OneHot", inputs=(4, 4)
    ),
    "OneHotD": GeOperator(
        lambda b: _one_hot(b, b.constant(b["depth"]), b.x[1], b.x[2], 1),
        {"depth": REQUIRED, "axis": -1},
        kind="OneHot",
        inputs=(3, 3),
    ),
    "TopK": GeOperator(_top, {"sorted": True, "largest": True, "dim": -1}, kind="TopK", inputs=(2, 2)),
    "TopKV2": GeOperator(_top, {"sorted": True, "largest": True, "dim": -1}, kind="TopK", inputs=(2, 2)),
    "SliceD": GeOperator(
        lambda b: _sliced(b, b.listed("offsets", b.rank), b.listed("size", b.rank)),
        {"offsets": REQUIRED, "size": REQUIRED},
        kind="Slice",
    ),
    "Slice": GeOperator(
        lambda b: _sliced(b, b.value(1), b.value(2)), kind="Slice", constants=_at(1, 2), inputs=(3, 3)
    ),
    "StridedSliceD": GeOperator(
        lambda b: strided(b.inputs[0].shape, b, b["begin"], b["end"], b["strides"]),
        {"begin": REQUIRED, "end": REQUIRED, "strides": REQUIRED, **_MASKS},
        kind="Slice",
    ),
    "StridedSlice": GeOperator(
        lambda b: strided(b.inputs[0].shape, b, b.value(1), b.value(2), b.value(3)),
        dict(_MASKS),
        kind="Slice",
        constants=_at(1, 2, 3),
        inputs=(4, 4),
    ),
    "Pack": GeOperator(_packed, {"axis": 0, "N": None}, kind="Concat", inputs=_ANY),
    "Unpack": GeOperator(_unpacked, {"num": REQUIRED, "axis": 0}, kind="Split"),
    "ReverseV2D": GeOperator(lambda b: _reversed(b, b["axis"]), {"axis": REQUIRED}, kind="Slice"),
    "ReverseV2": GeOperator(
        lambda b: _reversed(b, b.value(1)), kind="Slice", constants=_at(1), inputs=(2, 2)
    ),
}
"""Operators by GE's name."""
