"""Reductions over axes, the places of extreme elements, and sums along an axis."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from msdump.graph.primitives.body import BOOL, DOUBLE, INT64, Ints, Value, op, operator, operators


def _place(
    op_type: str, reduction: str, x: Value, *, axis: int | None = None, keep_dims: int = 0, output_type: int
) -> tuple[Value, ...]:
    """Return where the extreme element is and, with a reduction, the element."""
    if axis is None:
        x, axis = op.Reshape(x, (-1,)), 0
    place = op.Cast(getattr(op, op_type)(x, axis=axis, keepdims=keep_dims), to=output_type)
    return (place, getattr(op, reduction)(x, (axis,), keepdims=keep_dims)) if reduction else (place,)


def _running(reduction: str, x: Value, *, axis: int, rank: int) -> tuple[Value, ...]:
    """Return the extreme element up to each one along an axis, and its last place."""
    order = [*(each for each in range(rank) if each != axis % rank), axis % rank]
    # all elements for each element along the axis, on a new last axis
    rows = op.Unsqueeze(op.Transpose(x, perm=order), [-2])
    numbers = op.Range(0, op.Gather(op.Shape(x), axis), 1)
    is_behind = op.Unsqueeze(numbers, [0]) > op.Unsqueeze(numbers, [1])
    # a row's own first element never exceeds the result
    known = op.Where(is_behind, op.Slice(rows, (0,), (1,), (-1,)), rows)
    extremes = getattr(op, reduction)(known, (-1,), keepdims=1)
    is_extreme = op.And(op.Equal(rows, extremes), op.Not(is_behind))
    places = op.ReduceMax(op.Where(is_extreme, numbers, 0), (-1,), keepdims=0)
    back = [order.index(each) for each in range(rank)]
    return tuple(op.Transpose(each, perm=back) for each in (op.Squeeze(extremes, (-1,)), places))


operators(
    {
        "Argmax": partial(_place, "ArgMax", ""),
        "Argmin": partial(_place, "ArgMin", ""),
        "ArgMaxWithValue": partial(_place, "ArgMax", "ReduceMax"),
        "ArgMinWithValue": partial(_place, "ArgMin", "ReduceMin"),
        "Cummax": partial(_running, "ReduceMax"),
        "Cummin": partial(_running, "ReduceMin"),
        "CumSum": lambda x, *, axis, exclusive=0, reverse=0: op.CumSum(
            x, np.array(axis), exclusive=exclusive, reverse=reverse
        ),
        "CumsumExt": lambda x, *, dim, output_type: op.CumSum(op.Cast(x, to=output_type), np.array(dim)),
        "ReduceAny": lambda x, *, axis=(), keep_dims=0: op.Cast(
            op.ReduceMax(op.Cast(x, to=INT64), axis or None, keepdims=keep_dims), to=BOOL
        ),
        "Trace": lambda x: op.ReduceSum(
            op.Where(op.Cast(op.EyeLike(x, dtype=INT64), to=BOOL), x, 0.0), keepdims=0
        ),
        # the p-th root of the sum of p-th powers
        "LpNorm": lambda x, *, axis, p=2, keep_dims=0: op.Pow(
            op.ReduceSum(op.Pow(op.Abs(x), float(p)), _axes(axis), keepdims=keep_dims), 1.0 / p
        ),
        "L2Normalize": lambda x, *, axis, epsilon: x / _root(x, _axes(axis), epsilon),
        "L2NormalizeGrad": lambda x, y, dy, *, axis, epsilon: (
            (dy - y * op.ReduceSum(y * dy, _axes(axis), keepdims=1)) / _root(x, _axes(axis), epsilon)
        ),
    }
)


def _axes(axis: int | Ints) -> Ints:
    return (axis,) if isinstance(axis, int) else axis


def _root(x: Value, axes: Ints, epsilon: float) -> Value:
    return op.Sqrt(op.Max(op.ReduceSum(x * x, axes, keepdims=1), epsilon))


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
