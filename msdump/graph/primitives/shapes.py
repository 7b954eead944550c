"""Tensors in another shape, cut, gathered, scattered, or reduced over axes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from msdump.graph.primitives.body import BOOL, INT32, INT64, Ints, Value, op, operator, operators
from msdump.graph.primitives.call import ARGUMENTS, COMPUTED, Call

_FAR: Final = 2**62
"""Behind the end of any axis."""


def swapped(items: Sequence[Any], axis: int) -> list[Any]:
    """Return sizes or axes with one of them and the last one in each other's place."""
    order = [*items]
    order[axis], order[-1] = order[-1], order[axis]
    return order


def _exchanged(x: Value, *, dim0: int, dim1: int, rank: int) -> Value:
    order = [*range(rank)]
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return op.Transpose(x, perm=order)


def cut(x: Value, outputs: int, *sizes: Ints, **options: Any) -> tuple[Value, ...]:
    """Cut a tensor into parts of the given sizes, or into equal ones."""
    parts = op.Split(x, *sizes, **options, outputs=outputs)
    return parts if outputs > 1 else (parts,)


def _reduced(op_type: str, x: Value, *, axis: Ints | None = None, keep_dims: int = 0) -> Value:
    return getattr(op, op_type)(x, axis or None, keepdims=keep_dims)


operators(
    {
        "Reshape": lambda x, *, shape: op.Reshape(x, shape),
        "ExpandDims": lambda x, *, axis: op.Unsqueeze(x, np.atleast_1d(axis)),
        "Squeeze": lambda x, *, axis=(): op.Squeeze(x, *([] if axis == () else [np.atleast_1d(axis)])),
        "Flatten": lambda x: op.Flatten(x, axis=1),
        "BroadcastTo": lambda x, *, sizes: op.Expand(x, op.Abs(sizes)),  # -1 keeps a size, which is 1
        "ReverseV2": lambda x, *, axis: op.Slice(
            x, (-1,) * len(axis), (-_FAR,) * len(axis), axis, (-1,) * len(axis)
        ),
        "Transpose": lambda x, *, order: op.Transpose(x, perm=[axis % len(order) for axis in order]),
        "TransposeExtView": _exchanged,
        "Concat": lambda *tensors, axis, count: op.Concat(*tensors[:count], axis=axis),
        "Stack": lambda *tensors, axis=0: op.Concat(*(op.Unsqueeze(x, [axis]) for x in tensors), axis=axis),
        "Split": lambda x, *, axis, outputs: cut(x, outputs, axis=axis, num_outputs=outputs),
        "SplitTensorView": lambda x, *, axis, sizes: cut(x, len(sizes), sizes, axis=axis),
        "Unstack": lambda x, *, axis=0, outputs: tuple(
            op.Squeeze(part, [axis]) for part in cut(x, outputs, axis=axis, num_outputs=outputs)
        ),
        "Triu": lambda x, *, diagonal: op.Trilu(x, diagonal, upper=1),
        "Tril": lambda x, *, diagonal: op.Trilu(x, diagonal, upper=0),
        "RealMakeTuple": lambda *numbers: op.Concat(*(op.Reshape(x, [1]) for x in numbers), axis=0),
        "RealTupleGetItem": lambda numbers, place: op.Gather(numbers, place),
        "TensorToScalar": lambda x: op.Identity(x),
        "ScalarToTensor Cast": lambda x, *, output_type: op.Cast(x, to=output_type),
        "Print": lambda: op.constant(np.zeros(1, np.int32)),  # printing is left out
        "Range": lambda start, stop, step: op.Range(start, stop, step),
        "LinSpace": lambda start, stop, *, count: (
            start + op.CastLike(np.arange(count), start) * ((stop - start) / float(max(count - 1, 1)))
        ),
        "Eye": lambda *, rows, columns, output_type: op.EyeLike(
            np.zeros((rows, columns), np.int64), dtype=output_type
        ),
        "Zeros": lambda shape, *, output_type: op.Expand(op.Cast(0, to=output_type), shape),
        "ZerosLike": lambda x: op.Expand(0.0, op.Shape(x)),
        "OnesLike": lambda x: op.Expand(1.0, op.Shape(x)),
        "Gather": lambda params, indices, *, axis: op.Gather(params, indices, axis=axis),
        # sums a gradient into the elements that were looked up along an axis
        "GatherDGradV2": lambda x, _dim, index, dy, *, dim: op.scatter_sum(
            "ScatterElements", op.Shape(x), index, dy, axis=dim
        ),
        "Softmax": lambda x, *, axis: op.Softmax(x, axis=axis if isinstance(axis, int) else axis[0]),
        "ReduceAll": lambda x, *, axis=(), keep_dims=0: op.Cast(
            op.ReduceMin(op.Cast(x, to=INT32), axis or None, keepdims=keep_dims), to=BOOL
        ),
        **{
            name: partial(_reduced, name)
            for name in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")
        },
        # the reflection; begins and ends are the columns of the paddings
        "MirrorPad": lambda x, paddings: op.Pad(
            x, op.Reshape(op.Transpose(paddings, perm=[1, 0]), [-1]), mode="reflect"
        ),
    }
)


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
    return _scattered(dy, op.Slice(_numbered(shape), begin, end, axes, strides), shape)


@operator("PadV3Grad")
def pad_v3_grad(dy: Value, *, mode: str, pads: Ints) -> Value:
    """Sum the gradient of a padded tensor over all places that an element was copied to.

    ``pads``: begins, then ends, of all axes.
    """
    rank = len(pads) // 2
    shape = op.Shape(dy) - [pads[axis] + pads[rank + axis] for axis in range(rank)]
    return _scattered(dy, op.Pad(_numbered(shape), pads, mode=mode), shape)


def _numbered(shape: Value) -> Value:
    """Return a tensor of a shape that numbers its elements."""
    return op.Reshape(op.Range(0, op.ReduceProd(shape, keepdims=0), 1), shape)


def _scattered(dy: Value, numbers: Value, shape: Value) -> Value:
    """Sum a gradient into the elements of a shape that have these numbers."""
    places, values = op.Reshape(numbers, [-1]), op.Reshape(dy, [-1])
    total = op.scatter_sum("ScatterElements", op.ReduceProd(shape, keepdims=1), places, values, axis=0)
    return op.Reshape(total, shape)


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


@operator("ScatterNd", element=1)
def scatter_nd(
    indices: Value, updates: Value, computed: Value | None = None, *, shape: Ints, batch_dims: int = 0
) -> Value:
    """Sum parts into zeros of a shape, which may be computed, at places of several indices each."""
    sizes, indices = op.value(shape or computed), op.Cast(indices, to=INT64)
    if not batch_dims:
        return op.scatter_sum("ScatterND", sizes, indices, updates)
    return _scattered(updates, op.GatherND(_numbered(sizes), indices, batch_dims=batch_dims), sizes)


@operator("Tile")
def tiled(x: Value, *, sizes: Ints, rank: int) -> Value:
    """Repeat a tensor along its axes, and along new ones in front of them."""
    new = max(len(sizes) - rank, 0)
    repeats = (*(1,) * (rank - len(sizes)), *sizes)
    return op.Tile(op.Unsqueeze(x, [*range(new)]) if new else x, repeats)


@operator("Meshgrid")
def mesh(*tensors: Value, indexing: int, count: int) -> tuple[Value, ...]:
    """Repeat rows along the axes of each other; ``indexing`` 1 exchanges the first two."""
    order = [*range(count)]
    if indexing == 1 and count > 1:
        order[:2] = 1, 0
    sizes = [op.Size(tensors[order[axis]]) for axis in range(count)]
    shape = op.Concat(*(op.Reshape(size, [1]) for size in sizes), axis=0)
    places = [[-1 if axis == order[each] else 1 for axis in range(count)] for each in range(count)]
    return tuple(
        op.Expand(op.Reshape(each, place), shape) for each, place in zip(tensors[:count], places, strict=True)
    )


@operator("StridedSlice")
def strided_slice(
    x: Value,
    *bounds: Value,
    begin: Ints,
    end: Ints,
    places: Ints,
    axes: Ints,
    steps: Ints,
    new: Ints,
    removed: Ints,
) -> Value:
    """Cut a part out of a tensor.

    ``begin`` and ``end`` are () where they are computed: they are then elements ``places`` of the inputs.
    ``new``: axes of length 1 that the result has in addition; ``removed``: axes that it lacks.
    """
    first = begin or op.Gather(bounds[0], places)
    last = end or op.Gather(bounds[1], places)
    if axes:
        x = op.Slice(x, first, last, axes, steps)
    x = op.Squeeze(x, removed) if removed else x
    return op.Unsqueeze(x, new) if new else x


def _cuts(call: Call, rank: int) -> dict[str, Any]:
    """Return the parts of a slice by axis, from the numbers and bit masks of a StridedSlice."""
    begin, end, strides = (call.constant(name) for name in ("begin", "end", "strides"))
    masks = [
        int(call.argument(f"{name}_mask", 0))
        for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    ]
    if COMPUTED in (begin, end) and any(masks):
        raise ValueError("a begin or end that is computed in a run, with masks")
    parts: list[tuple[int, ...]] = []
    new: list[int] = []
    removed: list[int] = []
    axis = made = 0
    for place, step in enumerate(strides):
        from_first, to_last, is_ellipsis, is_new, is_single = (bool(mask >> place & 1) for mask in masks)
        if is_ellipsis:
            rest = sum(not (masks[3] >> each & 1) for each in range(place + 1, len(strides)))
            made += rank - rest - axis
            axis = rank - rest
        elif is_new:
            new.append(made)
            made += 1
        else:
            start = 0 if begin is COMPUTED else int(begin[place])
            stop = 0 if end is COMPUTED else int(end[place])
            if is_single:
                stop = start + 1 or _FAR
                removed.append(axis)
            else:
                start = (-_FAR if step < 0 else 0) if from_first else start
                stop = (_FAR if step > 0 else -_FAR) if to_last else stop
                made += 1
            parts.append((start, stop, place, axis, int(step)))
            axis += 1
    columns = ([row[column] for row in parts] for column in range(5))
    found = dict(zip(("begin", "end", "places", "axes", "steps"), columns, strict=True))
    found |= {name: [] for name, given in (("begin", begin), ("end", end)) if given is COMPUTED}
    return {**found, "new": new, "removed": removed}


def _gradient_cuts(call: Call) -> dict[str, Any]:
    cuts = _cuts(call, len(call.output_sizes()))
    return {"axes": cuts["axes"], "pads": (), "cuts": (*cuts["begin"], *cuts["end"], *cuts["steps"])}


@operator("SpaceToBatchND")
def space_to_batch(x: Value, *, block: Ints, pads: Ints, padded: Ints) -> Value:
    """Move blocks of the last axes into the batch; ``padded``: the padded sizes of all axes."""
    kept = len(padded) - len(block)
    parts = [size for n, b in zip(padded[kept:], block, strict=True) for size in (n // b, b)]
    whole = op.Reshape(op.Pad(x, pads), (*padded[:kept], *parts))
    inner = range(kept, kept + 2 * len(block), 2)
    turned = op.Transpose(whole, perm=[*(axis + 1 for axis in inner), *range(kept), *inner])
    return op.Reshape(turned, (-1, *padded[1:kept], *parts[::2]))


def _blocks(call: Call) -> dict[str, Any]:
    block, paddings = call.argument("block_shape"), call.argument("paddings")
    zeros = (0,) * (len(call.shape()) - len(block))
    begins, ends = ((*zeros, *(pair[side] for pair in paddings)) for side in (0, 1))
    sizes = zip(call.sizes(), begins, ends, strict=True)
    return {"block": block, "pads": (*begins, *ends), "padded": tuple(map(sum, sizes))}


@operator("Diag")
def diagonal_matrix(x: Value, *, output_shape: Ints) -> Value:
    """Put the elements on the diagonal of zeros."""
    count = op.Reshape(op.Size(x), [1])
    is_diagonal = op.Cast(op.EyeLike(op.Expand(0, op.Concat(count, count, axis=0))), to=BOOL)
    return op.Reshape(op.Where(is_diagonal, op.Reshape(x, [-1]), op.CastLike(0, x)), output_shape)


@operator("Pad PadV3")
def padded(x: Value, *operands: Value, mode: str, pads: Ints) -> Value:
    """Put elements around a tensor: a value, which is the last operand, or copies of its own."""
    value = op.CastLike(operands[1], x) if mode == "constant" and operands[1:] else None
    return op.Pad(x, pads, value, mode=mode)


def _mirror(call: Call) -> dict[str, Any]:
    if call.argument("mode") != "REFLECT":
        raise ValueError(f"the mode {call.argument('mode')}")
    return {}


def _pads(call: Call) -> dict[str, Any]:
    """Return ONNX's pads: begins, then ends, of all axes."""
    given, rank = call.argument("paddings"), len(call.shape())
    if call.op_type == "Pad":
        return {"mode": "constant", "pads": [*(pair[0] for pair in given), *(pair[1] for pair in given)]}
    numbers = [int(number) for number in given]
    if not call.argument("paddings_contiguous", True):
        numbers = np.array(numbers).reshape(2, -1).T.reshape(-1).tolist()
    # pairs of begin and end, the last axis first
    numbers += [0] * (2 * rank - len(numbers))
    mode = {"circular": "wrap"}.get(call.argument("mode"), call.argument("mode"))
    return {"mode": mode, "pads": [*numbers[-2::-2], *numbers[-1::-2]]}


def _parts(call: Call) -> dict[str, Any]:
    axis = call.argument("dim")
    return {"axis": axis, "sizes": [call.output_sizes(slot)[axis] for slot in range(len(call.outputs))]}


ARGUMENTS.update(
    StridedSlice=lambda call: _cuts(call, len(call.shape())),
    StridedSliceGrad=_gradient_cuts,
    SpaceToBatchND=_blocks,
    Pad=_pads,
    PadV3=_pads,
    PadV3Grad=_pads,
    MirrorPad=_mirror,
    SplitTensorView=_parts,
    UnsortedSegmentSum=lambda call: {"num_segments": call.output_sizes()[0], "rank": len(call.sizes(1))},
)
