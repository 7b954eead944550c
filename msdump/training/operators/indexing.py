"""Slices, gathers and scatters, and their gradients."""

from __future__ import annotations

from msdump.training.body import INT64, Body, operator

Ints = tuple[int, ...]


@operator("ZerosLike")
def zeros_like(op: Body, x: str) -> str:
    """Return zeros in the shape of a tensor."""
    return str(op.Expand(0.0, op.Shape(x)))


@operator("Slice")
def slice_of(op: Body, x: str, begin: str, size: str) -> str:
    """Return ``size`` elements along each axis from ``begin`` on; -1: all that follow."""
    whole = op.Shape(x)
    return str(op.Slice(x, begin, op.Where(op.Less(size, 0), whole, op.Add(begin, size))))


@operator("StridedSliceGrad")
def strided_slice_grad(
    op: Body, dy: str, shape: str, begin: str, end: str, strides: str, *, axes: Ints, pads: Ints
) -> str:
    """Return a gradient at the places that a slice took, zero elsewhere.

    ``pads``: how much the slice left out at the begins, then at the ends, where its strides are 1.
    """
    if pads:
        return str(op.Pad(dy, pads))
    return _scattered(op, dy, op.Slice(_numbered(op, shape), begin, end, axes, strides), shape)


@operator("PadV3Grad")
def pad_v3_grad(op: Body, dy: str, _paddings: str, *, mode: str, pads: Ints) -> str:
    """Sum the gradient of a padded tensor over all places that an element was copied to.

    ``pads``: begins, then ends, of all axes.
    """
    rank = len(pads) // 2
    shape = op.Sub(op.Shape(dy), [pads[axis] + pads[rank + axis] for axis in range(rank)])
    return _scattered(op, dy, op.Pad(_numbered(op, shape), pads, mode=mode), shape)


@operator("Gather")
def gather(op: Body, x: str, indices: str, _axis: str, _batch_dims: str, *, axis: int) -> str:
    """Look up indices along an axis."""
    return str(op.Gather(x, indices, axis=axis))


@operator("UnsortedSegmentSum")
def unsorted_segment_sum(op: Body, x: str, segments: str, *, num_segments: int, rank: int) -> str:
    """Sum rows by the number of their segment; ``rank`` is that of the numbers."""
    shape = op.Concat([num_segments], op.Slice(op.Shape(x), [rank], [1 << 30]), axis=0)
    # ScatterND takes int64 alone
    rows = op.Unsqueeze(op.Cast(segments, to=INT64), [-1])
    return op.scatter_sum("ScatterND", shape, rows, x)


@operator("GatherDGradV2")
def gather_d_grad(op: Body, x: str, _dim: str, index: str, dy: str, *, dim: int) -> str:
    """Sum a gradient into the elements that were looked up along an axis."""
    return op.scatter_sum("ScatterElements", op.Shape(x), index, dy, axis=dim)


@operator("ScatterNd", element=1)
def scatter_nd(op: Body, indices: str, updates: str, shape: str, *, batch_dims: int) -> str:
    """Sum parts into zeros of a shape at places that are told by several indices each."""
    if not batch_dims:
        return op.scatter_sum("ScatterND", shape, indices, updates)
    taken = op.GatherND(_numbered(op, shape), indices, batch_dims=batch_dims)
    return _scattered(op, updates, taken, shape)


def _numbered(op: Body, shape: str) -> str:
    """Return a tensor of a shape whose elements are numbered."""
    count = op.ReduceProd(shape, keepdims=0)
    return str(op.Reshape(op.Range(0, count, 1), shape))


def _scattered(op: Body, dy: str, numbers: str, shape: str) -> str:
    """Sum a gradient into the elements of a shape that have these numbers."""
    places, values = op.Reshape(numbers, [-1]), op.Reshape(dy, [-1])
    total = op.scatter_sum("ScatterElements", op.ReduceProd(shape, keepdims=1), places, values, axis=0)
    return str(op.Reshape(total, shape))
