"""Gradients of arithmetic, element by element, with broadcasting."""

from __future__ import annotations

from msdump.training.gradients.shapes import unbroadcast
from msdump.training.rules import Backward, Gradients, gradient
from msdump.training.writer import StepWriter


@gradient("Add")
def _add(op: StepWriter, back: Backward) -> Gradients:
    return tuple(
        unbroadcast(op, back.dy, back.node.input(slot)) if is_wanted else None
        for slot, is_wanted in enumerate(back.wants)
    )


@gradient("Mul")
def _mul(op: StepWriter, back: Backward) -> Gradients:
    a, b = back.node.input(0), back.node.input(1)
    da = unbroadcast(op, op.Mul(back.dy, b), a) if back.wants[0] else None
    db = unbroadcast(op, op.Mul(back.dy, a), b) if back.wants[1] else None
    return da, db
