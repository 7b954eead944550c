"""Elements that are looked up, written, counted or put in order by their places or values."""

from __future__ import annotations

import numpy as np

from msdump.graph.primitives.body import BOOL, INT32, INT64, Value, op, operator, operators


@operator("TensorScatterElements")
def tensor_scatter_elements(data: Value, indices: Value, update: Value, *, axis: int, reduce: str) -> Value:
    """Write or, if ``reduce`` is "add", add elements at places of an axis."""
    if reduce == "add":
        return data + op.scatter_sum("ScatterElements", op.Shape(data), indices, update, axis=axis)
    return op.ScatterElements(data, indices, update, axis=axis)


def _by_int32(values: Value, places: Value) -> tuple[Value, Value]:
    return values, op.Cast(places, to=INT32)


@operator("Sort")
def sort(x: Value, *, axis: int = -1, descending: int = 0) -> tuple[Value, Value]:
    """Return the elements in order along an axis, and their places in Int32."""
    count = op.Shape(x, start=axis, **({} if axis == -1 else {"end": axis + 1}))
    return _by_int32(*op.TopK(x, count, axis=axis, largest=descending, outputs=2))


@operator("MaskedSelect")
def masked_select(x: Value, mask: Value) -> Value:
    """Return the elements at true places, in a row."""
    whole = op.Expand(x, op.Shape(mask))
    return op.Compress(whole, op.Reshape(op.Expand(mask, op.Shape(whole)), [-1]))


@operator("SearchSorted")
def search_sorted(sequence: Value, values: Value, *, right: int, output_type: int) -> Value:
    """Return the place of each value in a sorted row: the number of elements below it."""
    above, below = op.Unsqueeze(values, [-1]), op.Unsqueeze(sequence, [-2])
    is_below = op.LessOrEqual(below, above) if right else below < above
    return op.Cast(op.ReduceSum(op.Cast(is_below, to=INT64), [-1], keepdims=0), to=output_type)


@operator("Unique")
def unique(x: Value) -> tuple[Value, Value]:
    """Return the different elements in the order of the first of each, and for all elements their places."""
    values, _, places, _ = op.Unique(op.Cast(x, to=INT64), sorted=0, outputs=4)
    return op.CastLike(values, x), op.CastLike(places, x)


@operator("NMSWithMask")
def nms_with_mask(boxes: Value, *, iou_threshold: float) -> tuple[Value, Value, Value]:
    """Return boxes by falling score, their numbers, and which of them overlap no better one too far."""
    count = op.Shape(boxes, start=0, end=1)
    score = op.Slice(boxes, (4,), (5,), (1,))
    ordered, order = op.TopK(op.Squeeze(score, [1]), count, outputs=2)
    sorted_boxes = op.Gather(boxes, order)
    corners = op.Unsqueeze(op.Slice(sorted_boxes, (0,), (4,), (1,)), [0])
    limit = np.array([iou_threshold], np.float32)
    chosen = op.NonMaxSuppression(corners, op.Unsqueeze(ordered, [0, 1]), count, limit)
    places = op.Slice(chosen, (2,), (3,), (1,))
    marks = op.ScatterND(op.Expand(0, count), places, op.Expand(1, op.Slice(op.Shape(chosen), (0,), (1,))))
    return sorted_boxes, op.Cast(order, to=INT32), op.Cast(marks, to=BOOL)


def _long(indices: Value) -> Value:
    return op.Cast(indices, to=INT64)


operators(
    {
        "GatherD": lambda x, _dim, index, *, dim: op.GatherElements(x, index, axis=dim),
        "GatherNd": lambda x, indices: op.GatherND(x, _long(indices)),
        "MaskedFill": lambda x, mask, value: op.Where(mask, op.CastLike(value, x), x),
        "NonZero": lambda x: op.Transpose(op.NonZero(op.Cast(x, to=BOOL)), perm=[1, 0]),
        "ScatterNdUpdate TensorScatterUpdate": lambda x, indices, updates: op.ScatterND(
            x, _long(indices), updates
        ),
        "TensorScatterAdd": lambda x, indices, updates: (
            x + op.scatter_sum("ScatterND", op.Shape(x), _long(indices), updates)
        ),
        "Scatter": lambda data, _axis, indices, update, *, axis, reduce: tensor_scatter_elements(
            data, indices, update, axis=axis, reduce=reduce
        ),
        "ReverseSequence": lambda x, lengths, *, seq_dim, batch_dim=0: op.ReverseSequence(
            x, _long(lengths), time_axis=seq_dim, batch_axis=batch_dim
        ),
        "TopK": lambda x, k: _by_int32(*op.TopK(x, op.Reshape(_long(k), [1]), outputs=2)),
        "SortExt": lambda x, *, dim, descending, input_shape: op.TopK(
            x, (input_shape[dim],), axis=dim, largest=descending, outputs=2
        ),
        "TopkExt": lambda x, *, k, dim, largest: op.TopK(x, (k,), axis=dim, largest=largest, outputs=2),
    }
)
