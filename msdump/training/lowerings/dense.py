"""Dense layers and products as MindSpore has them: MatMul with flags, BiasAdd, BatchMatMul."""

from __future__ import annotations

import math
from typing import Final

from msdump.training.lowering import lowering
from msdump.training.lowerings.layouts import as_matrix, is_fixed, reshaped
from msdump.training.symbols import Item, Shape, StepOperator, StepTensor
from msdump.training.writer import StepWriter

BROADCAST_LIMIT: Final = 1 << 24
"""The most bytes that an operand is broadcast to, 16 MiB.

MindSpore's ``ops.matmul`` always writes one matrix for every matrix of the other operand. Up to this size
that costs a millisecond or two. For the weights of a language model it would cost as much as the product, and
more memory than there is (a head of 768 x 50257 for a batch of 8: 1.2 GB), so that larger operands stay as
they are; the product repeats their matrices itself.
"""


def matmul(
    op: StepWriter, a: StepTensor, b: StepTensor, *, ta: bool, tb: bool, out: StepTensor | None = None
) -> StepTensor:
    """Write MindSpore's product of two matrices."""
    rows, columns = a.shape[1 if ta else 0], b.shape[0 if tb else 1]
    result: StepTensor = op.call(
        "MatMul",
        *(a, b, ta, tb),
        like=StepTensor("", a.dtype, (rows, columns)),
        outputs=None if out is None else [out],
        transpose_a=int(ta),
        transpose_b=int(tb),
    )
    return result


@lowering("Gemm")
def _gemm(op: StepWriter, node: StepOperator) -> None:
    alpha, beta = node.attribute("alpha", 1.0), node.attribute("beta", 1.0)
    x, out = node.input(0), node.outputs[0]
    bias = node.inputs[2] if len(node.inputs) > 2 else None  # noqa: PLR2004 - the third input
    if x.rank > 2:  # noqa: PLR2004 - more than a matrix
        _dense(op, node, bias)
        return
    ta, tb = bool(node.attribute("transA", 0)), bool(node.attribute("transB", 0))
    plain = alpha == 1.0 and bias is None
    product = matmul(op, x, node.input(1), ta=ta, tb=tb, out=out if plain else None)
    if alpha != 1.0:
        (product,) = op.emit("Mul", (product, alpha), {}, outputs=[out] if bias is None else 1)
    if bias is None:
        return
    if beta != 1.0:
        bias = op.Mul(bias, beta)
    if bias.rank == 1 and bias.shape == out.shape[1:]:
        op.call("BiasAdd", product, bias, 0, outputs=[out], rank=out.rank)
    else:
        op.emit("Add", (product, bias), {}, outputs=[out])


def _dense(op: StepWriter, node: StepOperator, bias: StepTensor | None) -> None:
    """Write a dense layer over more than a matrix as one over the rows of all dimensions."""
    x, w, out = node.input(0), node.input(1), node.outputs[0]
    is_transposed = bool(node.attributes["transB"])
    if is_fixed(out.shape):
        result = matmul(op, as_matrix(op, x), w, ta=False, tb=is_transposed)
        if bias is not None:
            result = op.call("BiasAdd", result, bias, 0, like=result, rank=2)
        reshaped(op, result, out, out)
        return
    weight = op.Transpose(w, perm=[1, 0]) if is_transposed else w
    product = multiplied(op, x, weight, out if bias is None else None)
    if bias is not None:
        op.emit("Add", (product, bias), {}, outputs=[out], primitive="Add")


@lowering("MatMul")
def _matmul(op: StepWriter, node: StepOperator) -> None:
    a, b, out = node.input(0), node.input(1), node.outputs[0]
    if a.rank == b.rank == 2:  # noqa: PLR2004 - matrices
        matmul(op, a, b, ta=False, tb=False, out=out)
    else:
        multiplied(op, a, b, out)


def multiplied(op: StepWriter, a: StepTensor, b: StepTensor, out: StepTensor | None = None) -> StepTensor:
    """Write MindSpore's ``ops.matmul`` of operands of any rank: one operator to gradients, MatMulExt."""
    with op.as_one("MatMulExt", a, b):
        first, second = as_matrices(op, a, b)
        if a.rank > 1 and b.rank > 1:
            return batch_matmul(op, first, second, out)
        product = batch_matmul(op, first, second)
        # a vector leaves no dimension behind
        shape = (*product.shape[:-2], *a.shape[:-1][-1:], *b.shape[1:][-1:])
        return reshaped(op, product, StepTensor("", product.dtype, shape), out)


def as_matrices(op: StepWriter, a: StepTensor, b: StepTensor) -> tuple[StepTensor, StepTensor]:
    """Return both operands of a product as matrices: a vector is a row on the left, a column on the right."""
    row = reshaped(op, a, StepTensor("", a.dtype, (1, *a.shape))) if a.rank == 1 else a
    column = reshaped(op, b, StepTensor("", b.dtype, (*b.shape, 1))) if b.rank == 1 else b
    return row, column


def batch_matmul(op: StepWriter, a: StepTensor, b: StepTensor, out: StepTensor | None = None) -> StepTensor:
    """Write MindSpore's product of stacks of matrices, one of which may be repeated for the other."""
    batch = _joined(a.shape[:-2], b.shape[:-2])
    rank = len(batch) + 2
    if not batch:
        return matmul(op, a, b, ta=False, tb=False, out=out)
    slots: list[Item] = [_broadcast(op, a, batch), _broadcast(op, b, batch), False, False]
    result: StepTensor = op.call(
        "BatchMatMul",
        *slots,
        like=StepTensor("", a.dtype, (*batch, a.shape[-2], b.shape[-1])),
        outputs=None if out is None else [out],
        transpose_a=0,
        transpose_b=0,
        rank=rank,
    )
    return result


def _joined(a: Shape, b: Shape) -> Shape:
    """Return the shape that two shapes are broadcast to; a free dimension is taken for that of both."""
    length = max(len(a), len(b))
    pairs = zip((1,) * (length - len(a)) + a, (1,) * (length - len(b)) + b, strict=True)
    return tuple(second if first == 1 else first for first, second in pairs)


def _broadcast(op: StepWriter, x: StepTensor, batch: Shape) -> StepTensor:
    """Return matrices with one for each of the other operand, unless they would be too large."""
    shape = [size for size in (*batch, *x.shape[-2:]) if isinstance(size, int)]
    is_free = len(shape) < len(batch) + 2
    if x.shape[:-2] == batch or is_free or math.prod(shape) * x.dtype.numpy.itemsize > BROADCAST_LIMIT:
        return x
    result: StepTensor = op.Expand(x, shape)
    return result


@lowering("Add")
def _add(op: StepWriter, node: StepOperator) -> None:
    if node.primitive == "BiasAdd" and node.outputs[0].rank == 2:  # noqa: PLR2004 - matrices
        x, bias = node.inputs if node.input(1).rank == 1 else reversed(node.inputs)
        op.call("BiasAdd", x, bias, 0, outputs=[node.outputs[0]], rank=2)
    else:
        op.emit("Add", node.inputs, {}, outputs=node.outputs, primitive="Add")
