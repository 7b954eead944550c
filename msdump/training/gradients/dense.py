"""Gradients of dense layers and products."""

from __future__ import annotations

from msdump.training.gradients.shapes import unbroadcast
from msdump.training.lowerings.dense import as_matrices, batch_matmul, matmul
from msdump.training.lowerings.layouts import as_matrix, reshaped, transposed
from msdump.training.rules import Backward, Gradients, mindspore_gradient
from msdump.training.symbols import Shape, StepTensor
from msdump.training.writer import StepWriter


@mindspore_gradient("MatMul")
def _matmul(op: StepWriter, back: Backward) -> Gradients:
    a, b = back.node.input(0), back.node.input(1)
    ta, tb = (bool(back.node.attributes[f"transpose_{side}"]) for side in "ab")
    dy = back.dy
    db = da = None
    if back.wants[0]:
        da = matmul(op, b, dy, ta=tb, tb=True) if ta else matmul(op, dy, b, ta=False, tb=not tb)
    if back.wants[1]:
        # w (out, in) of a Dense layer: dy^T x, which needs no transposed copy
        db = matmul(op, dy, a, ta=True, tb=ta) if tb else matmul(op, a, dy, ta=not ta, tb=False)
    return da, db


@mindspore_gradient("MatMulExt")
def _matmul_ext(op: StepWriter, back: Backward) -> Gradients:
    """Multiply by the other operand transposed; what was repeated is summed.

    The gradient of a weight, which all matrices of the other operand are multiplied by, is one product over
    all their rows.
    """
    a, b = back.node.input(0), back.node.input(1)
    first, second = as_matrices(op, a, b)
    dy = reshaped(op, back.dy, StepTensor("", a.dtype, _matrix_shape(back.dy, a, b)))
    da = db = None
    if back.wants[0]:
        product = batch_matmul(op, dy, transposed(op, second))
        da = reshaped(op, unbroadcast(op, product, first), a)
    if back.wants[1] and second.rank == 2 < first.rank:
        rows = transposed(op, as_matrix(op, first))
        db = reshaped(op, matmul(op, rows, as_matrix(op, dy), ta=False, tb=False), b)
    elif back.wants[1]:
        product = batch_matmul(op, transposed(op, first), dy)
        db = reshaped(op, unbroadcast(op, product, second), b)
    return da, db


def _matrix_shape(dy: StepTensor, a: StepTensor, b: StepTensor) -> Shape:
    """Return the shape of a gradient as matrices: a vector has left no dimension behind."""
    shape = dy.shape if b.rank > 1 else (*dy.shape, 1)
    return shape if a.rank > 1 else (*shape[:-1], 1, shape[-1])


@mindspore_gradient("BiasAdd")
def _bias_add(op: StepWriter, back: Backward) -> Gradients:
    dy, bias = back.dy, back.node.input(1)
    db = op.call("BiasAddGrad", dy, 0, like=bias, rank=dy.rank) if back.wants[1] else None
    return dy, db
