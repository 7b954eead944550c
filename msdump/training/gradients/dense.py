"""Gradients of dense layers."""

from __future__ import annotations

from msdump.training.lowerings.dense import matmul
from msdump.training.rules import Backward, Gradients, mindspore_gradient
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


@mindspore_gradient("BiasAdd")
def _bias_add(op: StepWriter, back: Backward) -> Gradients:
    dy, bias = back.dy, back.node.input(1)
    db = op.call("BiasAddGrad", dy, 0, like=bias, rank=dy.rank) if back.wants[1] else None
    return dy, db
