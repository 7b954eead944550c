"""Tensors in another shape, cut, gathered, scattered, or reduced over axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msdump.graph.primitives.body import INT64, Ints, Value, operator, operators
from msdump.graph.primitives.call import ARGUMENTS
from msdump.graph.primitives.tape import op

operators(
    {
        "Reshape": ("Give a tensor another shape.", lambda x, *, shape: op.Reshape(x, shape)),
        "ZerosLike": ("Return zeros in the shape of a tensor.", lambda x: op.Expand(0.0, op.Shape(x))),
    }
)


def swapped(items: Sequence[Any], axis: int) -> list[Any]:
    """Return sizes or axes with one of them and the last one in each other's place."""
    order = [*items]
    order[axis], order[-1] = order[-1], order[axis]
    return order


@operator("Slice")
def slice_of(x: Value, begin: Value, size: Value) -> Value:
    """Return ``size`` elements along each axis from ``begin`` on; -1: all that follow."""
    whole = op.Shape(x)
    return op.Slice(x, begin, op.Where(size < 0, whole, begin + size))


@operator("StridedSliceGrad")
def strided_slice_grad(
    dy: Value, shape: Value, begin: Value, end: Value, strides: Value, *, axes: Ints, pads: Ints, cuts: Ints
) -> Value:
    """Return a gradient at the places that a slice took, zero elsewhere.

    ``pads``: how much the slice left out at the begins, then at the ends, where its strides are 1; ``cuts``:
    begins, ends and strides of ``axes`` in place of the inputs', or ().
    """
    if pads:
        return op.Pad(dy, pads)
    if cuts:
        count = len(axes)
        parts: Any = [cuts[start : start + count] for start in range(0, 3 * count, count)]
        begin, end, strides = parts
    return scattered(dy, op.Slice(numbered(shape), begin, end, axes, strides), shape)


@operator("PadV3Grad")
def pad_v3_grad(dy: Value, *, mode: str, pads: Ints) -> Value:
    """Sum the gradient of a padded tensor over all places that an element was copied to.

    ``pads``: begins, then ends, of all axes.
    """
    rank = len(pads) // 2
    shape = op.Shape(dy) - [pads[axis] + pads[rank + axis] for axis in range(rank)]
    return scattered(dy, op.Pad(numbered(shape), pads, mode=mode), shape)


def numbered(shape: Value) -> Value:
    """Return a tensor of a shape that numbers its elements."""
    count = op.ReduceProd(shape, keepdims=0)
    return op.Reshape(op.Range(0, count, 1), shape)


def scattered(dy: Value, numbers: Value, shape: Value) -> Value:
    """Sum a gradient into the elements of a shape that have these numbers."""
    places, values = op.Reshape(numbers, [-1]), op.Reshape(dy, [-1])
    total = op.scatter_sum("ScatterElements", op.ReduceProd(shape, keepdims=1), places, values, axis=0)
    return op.Reshape(total, shape)


@operator("OnesLike")
def ones_like(x: Value) -> Value:
    """Return ones in the shape of a tensor."""
    return op.Expand(1.0, op.Shape(x))


@operator("CumProd")
def cum_prod(x: Value, *, axis: int = 0, exclusive: int = 1, reverse: int, rank: int = 2) -> Value:
    """Multiply the elements up to each one along an axis, or from it on; ``exclusive``: without itself."""
    rows = op.Range(0, op.Gather(op.Shape(x), axis), 1)
    row, factor = op.Unsqueeze(rows, [1]), op.Unsqueeze(rows, [0])
    before, behind = (row, factor) if reverse else (factor, row)
    is_factor = before < behind if exclusive else op.LessOrEqual(before, behind)
    first = axis % rank
    mask = op.Unsqueeze(is_factor, [*range(2, rank - first + 1)]) if first < rank - 1 else is_factor
    factors = op.Where(mask, op.Unsqueeze(x, [first]), 1.0)
    return op.ReduceProd(factors, [first + 1], keepdims=0)


@operator("ReduceAll")
def reduce_all(x: Value, _axis: Value, _keep_dims: Value, *, axis: Ints = (), keep_dims: int = 0) -> Value:
    """Return whether all elements are true."""
    return op.Cast(op.ReduceMin(op.Cast(x, to=6), axis or None, keepdims=keep_dims), to=9)


@operator("AllFinite")
def all_finite(*gradients: Value, count: int) -> Value:
    """Return whether any element of any gradient is infinite or NaN.

    The name says the opposite; MindSpore negates the result, too.
    """
    # x * 0 is NaN for infinities and NaN alone, and a sum with a NaN is one
    sums = [op.Cast(op.ReduceSum(x * op.CastLike(0.0, x), keepdims=0), to=1) for x in gradients]
    return op.IsNaN(op.Sum(*sums))


@operator("UnsortedSegmentSum")
def unsorted_segment_sum(x: Value, segments: Value, *, num_segments: int, rank: int) -> Value:
    """Sum rows by the number of their segment; ``rank`` is that of the numbers."""
    shape = op.Concat([num_segments], op.Slice(op.Shape(x), [rank], [1 << 30]), axis=0)
    # ScatterND takes int64 alone
    rows = op.Unsqueeze(op.Cast(segments, to=INT64), [-1])
    return op.scatter_sum("ScatterND", shape, rows, x)


@operator("GatherDGradV2")
def gather_d_grad(x: Value, _dim: Value, index: Value, dy: Value, *, dim: int) -> Value:
    """Sum a gradient into the elements that were looked up along an axis."""
    return op.scatter_sum("ScatterElements", op.Shape(x), index, dy, axis=dim)


@operator("ScatterNd", element=1)
def scatter_nd(
    indices: Value, updates: Value, computed: Value | None = None, *, shape: Ints, batch_dims: int
) -> Value:
    """Sum parts into zeros of a shape, which may be computed, at places of several indices each."""
    sizes = op.value(shape or computed)
    if not batch_dims:
        return op.scatter_sum("ScatterND", sizes, indices, updates)
    taken = op.GatherND(numbered(sizes), indices, batch_dims=batch_dims)
    return scattered(updates, taken, sizes)


@operator("Flatten")
@operator("ExpandDims")
@operator("Squeeze")
def reshaped(x: Value, *, output_shape: Ints) -> Value:
    """Give the elements another shape."""
    return op.Reshape(x, output_shape, allowzero=1)


@operator("Transpose")
def transposed(x: Value, *, order: Ints) -> Value:
    """Put the axes into another order."""
    return op.Transpose(x, perm=[axis % len(order) for axis in order])


@operator("Concat")
def concatenated(*tensors: Value, axis: int, count: int) -> Value:
    """Join tensors along an axis."""
    return op.Concat(*tensors[:count], axis=axis)


@operator("Split")
def split(x: Value, *, axis: int, outputs: int) -> tuple[Value, ...]:
    """Cut a tensor into equal parts."""
    parts = op.Split(x, axis=axis, num_outputs=outputs, outputs=outputs)
    return parts if outputs > 1 else (parts,)


@operator("BroadcastTo")
def broadcast(x: Value, *, output_shape: Ints) -> Value:
    """Repeat a tensor to a shape."""
    return op.Expand(x, output_shape)


@operator("Gather")
def gather(params: Value, indices: Value, *, axis: int) -> Value:
    """Pick slices along an axis."""
    return op.Gather(params, indices, axis=axis)


@operator("Cast")
def cast(x: Value, *, output_type: int) -> Value:
    """Convert the elements."""
    return op.Cast(x, to=output_type)


@operator("Softmax")
def softmax(x: Value, *, axis: int | Ints) -> Value:
    """Return exponentials over their sum along an axis."""
    return op.Softmax(x, axis=axis if isinstance(axis, int) else axis[0])


def _reduction(op_type: str) -> Any:
    def reduce(x: Value, *, axis: Ints | None = None, keep_dims: int = 0) -> Value:
        return getattr(op, op_type)(x, axis or None, keepdims=keep_dims)

    return reduce


operators(
    {
        name: (f"{name} over axes, all of them where none are given.", _reduction(name))
        for name in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")
    }
)


ARGUMENTS["UnsortedSegmentSum"] = lambda call: {
    "num_segments": call.output_sizes()[0],
    "rank": len(call.sizes(1)),
}
