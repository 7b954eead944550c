"""Softmaxes as MindSpore has them: the axis is an input."""

from __future__ import annotations

from msdump.training.lowering import lowering
from msdump.training.symbols import StepOperator
from msdump.training.writer import StepWriter


@lowering("Softmax")
def _softmax(op: StepWriter, node: StepOperator) -> None:
    axis = node.attribute("axis", -1)
    op.call("Softmax", node.input(0), [axis], outputs=[node.outputs[0]], axis=axis)


@lowering("LogSoftmax")
def _log_softmax(op: StepWriter, node: StepOperator) -> None:
    axis = node.attribute("axis", -1)
    op.call("LogSoftmax", node.input(0), axis, outputs=[node.outputs[0]], axis=axis)
