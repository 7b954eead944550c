"""Reductions over axes, the places of extreme elements, and sums along an axis."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.graph.primitives.body import DOUBLE, INT64, Ints, Value, operator, operators
from msdump.graph.primitives.tape import op

_BOOL: Final = dtypes.from_name("bool").onnx


def _place(op_type: str, reduction: str) -> tuple[str, Any]:
    def build(
        x: Value, *, axis: int | None = None, keep_dims: int = 0, output_type: int
    ) -> tuple[Value, ...]:
        if axis is None:
            x, axis = op.Reshape(x, (-1,)), 0
        place = op.Cast(getattr(op, op_type)(x, axis=axis, keepdims=keep_dims), to=output_type)
        return (place, getattr(op, reduction)(x, (axis,), keepdims=keep_dims)) if reduction else (place,)

    return f"Return where the extreme element is: {op_type}.", build


def _first_to_each(x: Value, axis: int, rank: int) -> tuple[Value, Value]:
    """Return all elements for each element along an axis, on a new last axis; and whether it is behind."""
    order = [each for each in range(rank) if each != axis % rank]
    rows = op.Unsqueeze(op.Transpose(x, perm=[*order, axis % rank]), [-2])
    numbers = op.Range(0, op.Gather(op.Shape(x), axis), 1)
    return rows, op.Unsqueeze(numbers, [0]) > op.Unsqueeze(numbers, [1])


def _turned_back(rows: Value, axis: int, rank: int) -> Value:
    order = [*range(rank - 1)]
    order.insert(axis % rank, rank - 1)
    return op.Transpose(rows, perm=order)


def _running(reduction: str) -> tuple[str, Any]:
    def build(x: Value, *, axis: int, rank: int) -> tuple[Value, Value]:
        rows, is_behind = _first_to_each(x, axis, rank)
        # a row's own first element never exceeds the result
        known = op.Where(is_behind, op.Slice(rows, (0,), (1,), (-1,)), rows)
        extremes = getattr(op, reduction)(known, (-1,), keepdims=1)
        is_extreme = op.And(op.Equal(rows, extremes), op.Not(is_behind))
        numbers = op.Range(0, op.Gather(op.Shape(x), axis), 1)
        places = op.ReduceMax(op.Where(is_extreme, numbers, 0), (-1,), keepdims=0)
        return _turned_back(op.Squeeze(extremes, (-1,)), axis, rank), _turned_back(places, axis, rank)

    return f"Return {reduction} up to each element along an axis, and its last place.", build


operators(
    {
        "Argmax": _place("ArgMax", ""),
        "Argmin": _place("ArgMin", ""),
        "ArgMaxWithValue": _place("ArgMax", "ReduceMax"),
        "ArgMinWithValue": _place("ArgMin", "ReduceMin"),
        "Cummax": _running("ReduceMax"),
        "Cummin": _running("ReduceMin"),
        "CumSum": (
            "Sum up to each element along an axis.",
            lambda x, *, axis, exclusive=0, reverse=0: op.CumSum(
                x, np.array(axis), exclusive=exclusive, reverse=reverse
            ),
        ),
        "CumsumExt": (
            "Sum up to each element along an axis.",
            lambda x, *, dim, output_type: op.CumSum(op.Cast(x, to=output_type), np.array(dim)),
        ),
        "ReduceAny": (
            "Return whether any element is true.",
            lambda x, *, axis=(), keep_dims=0: op.Cast(
                op.ReduceMax(op.Cast(x, to=INT64), axis or None, keepdims=keep_dims), to=_BOOL
            ),
        ),
        "Trace": (
            "Sum the diagonal.",
            lambda x: op.ReduceSum(
                op.Where(op.Cast(op.EyeLike(x, dtype=INT64), to=_BOOL), x, 0.0), keepdims=0
            ),
        ),
    }
)


@operator("CumulativeLogsumexp")
def cumulative_logsumexp(x: Value, axis: Value, *, exclusive: int = 0, reverse: int = 0) -> Value:
    """Return the logarithm of the sum of exponentials up to each element along an axis."""
    highest = op.ReduceMax(x, op.Reshape(op.Cast(axis, to=INT64), [-1]), keepdims=1)
    total = op.CumSum(op.Exp(x - highest), axis, exclusive=exclusive, reverse=reverse)
    return op.Log(total) + highest


@operator("ReduceStd")
def reduce_std(
    x: Value, *, axis: Ints = (), unbiased: int = 1, keep_dims: int = 0, input_shape: Ints
) -> tuple[Value, Value]:
    """Return standard deviation and mean over axes."""
    axes = axis or tuple(range(len(input_shape)))
    mean = op.ReduceMean(x, axes, keepdims=1)
    centered = x - mean
    count = math.prod(input_shape[each] for each in axes) - (1 if unbiased else 0)
    deviation = op.Sqrt(op.ReduceSum(centered * centered, axes, keepdims=keep_dims) / float(count))
    return deviation, mean if keep_dims else op.Squeeze(mean, axes)


@operator("LpNorm")
def lp_norm(x: Value, *, axis: int | Ints, p: int = 2, keep_dims: int = 0) -> Value:
    """Return the p-th root of the sum of p-th powers over axes."""
    axes = (axis,) if isinstance(axis, int) else axis
    return op.Pow(op.ReduceSum(op.Pow(op.Abs(x), float(p)), axes, keepdims=keep_dims), 1.0 / p)


@operator("L2Normalize")
def l2_normalize(x: Value, *, axis: int | Ints, epsilon: float) -> Value:
    """Divide by the root of the sum of squares over axes."""
    return x / _root(x, axis, epsilon)


@operator("L2NormalizeGrad")
def l2_normalize_grad(x: Value, y: Value, dy: Value, *, axis: int | Ints, epsilon: float) -> Value:
    """Return (dy - y sum(y dy)) over the root of the sum of squares."""
    axes = (axis,) if isinstance(axis, int) else axis
    return (dy - y * op.ReduceSum(y * dy, axes, keepdims=1)) / _root(x, axis, epsilon)


def _root(x: Value, axis: int | Ints, epsilon: float) -> Value:
    axes = (axis,) if isinstance(axis, int) else axis
    return op.Sqrt(op.Max(op.ReduceSum(x * x, axes, keepdims=1), epsilon))


@operator("Median")
def median(
    x: Value, *, input_shape: Ints, axis: int = 0, keep_dims: int = 0, global_median: int = 0
) -> tuple[Value, Value]:
    """Return the lower one of the elements in the middle, and its place."""
    if global_median:
        x, axis = op.Reshape(x, (-1,)), 0
    size = math.prod(input_shape) if global_median else input_shape[axis]
    count = (size + 1) // 2
    values, places = op.TopK(x, (count,), axis=axis, largest=0, outputs=2)
    parts = (op.Slice(item, (count - 1,), (count,), (axis,)) for item in (values, places))
    squeezed = [item if keep_dims else op.Squeeze(item, (axis,)) for item in parts]
    return squeezed[0], squeezed[1]


@operator("Histogram")
def histogram(x: Value, *, bins: int, output_type: int, min: float, max: float) -> Value:  # noqa: A002
    """Count elements in equal bins between two numbers; between the extremes where the two are equal."""
    flat = op.Cast(op.Reshape(x, (-1,)), to=DOUBLE)
    low, high = op.value(np.array(min)), op.value(np.array(max))
    if min == max:
        low, high = op.ReduceMin(flat, keepdims=0), op.ReduceMax(flat, keepdims=0)
        margin = op.Cast(op.Equal(low, high), to=DOUBLE)
        low, high = low - margin, high + margin
    place = op.Floor((flat - low) * np.array(float(bins)) / (high - low))
    inside = op.And(op.Not(flat < low), op.Not(flat > high))
    number = op.Where(inside, op.Min(op.Cast(place, to=INT64), bins - 1), -1)
    is_bin = op.Equal(op.Unsqueeze(number, [1]), np.arange(bins))
    return op.Cast(op.ReduceSum(op.Cast(is_bin, to=INT64), [0], keepdims=0), to=output_type)


@operator("SortExt")
def sort_ext(x: Value, *, dim: int, descending: int, input_shape: Ints) -> tuple[Value, Value]:
    """Sort along an axis; return the elements and their places."""
    values, places = op.TopK(x, (input_shape[dim],), axis=dim, largest=descending, outputs=2)
    return values, places


@operator("TopkExt")
def topk_ext(x: Value, *, k: int, dim: int, largest: int) -> tuple[Value, Value]:
    """Return the largest or smallest elements along an axis, and their places."""
    values, places = op.TopK(x, (k,), axis=dim, largest=largest, outputs=2)
    return values, places


@operator("Roll")
def roll(x: Value, *, shifts: Ints, dims: Ints = ()) -> Value:
    """Move elements along axes; elements behind an end come in at the other."""
    shape = op.Shape(x)
    if not dims:
        return op.Reshape(roll(op.Reshape(x, (-1,)), shifts=shifts, dims=(0,)), shape)
    for shift, axis in zip(shifts, dims, strict=True):
        size = op.Gather(shape, axis)
        x = op.Gather(x, op.Mod(op.Range(0, size, 1) - shift, size), axis=axis)
    return x
