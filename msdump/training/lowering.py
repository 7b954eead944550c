"""The table of forward operators that a MindSpore training step has in another form.

ONNX and MindSpore cut some layers differently: a Gemm is a MatMul and a BiasAdd, a convolution with bias a
Conv2D and a BiasAdd, a BatchNormalization computes with the statistics of its batch. An operator without an
entry stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msdump.training.symbols import StepOperator
from msdump.training.writer import StepWriter

Lowering = Callable[[StepWriter, StepOperator], None]
"""Writes an operator's replacement; the last operators of it write the outputs of the original."""

LOWERINGS: Final[dict[tuple[str, str], Lowering]] = {}
"""By domain and type; the modules of ``lowerings`` fill it."""


def lowering(*op_types: str, domain: str = "") -> Callable[[Lowering], Lowering]:
    """Register what replaces some forward operators.

    Args:
        op_types: Their types.
        domain: Their domain: "" is ONNX's own.
    """

    def register(replace: Lowering) -> Lowering:
        for op_type in op_types:
            LOWERINGS[domain, op_type] = replace
        return replace

    return register


def keep(op: StepWriter, node: StepOperator) -> None:
    """Write a forward operator as it is."""
    op.emit(
        node.op_type,
        node.inputs,
        node.attributes,
        outputs=[node.output(slot) for slot in range(len(node.outputs) + len(node.absent))],
        domain=node.domain,
        primitive=node.primitive,
    )


def lower(op: StepWriter, node: StepOperator) -> None:
    """Write a forward operator as a training step has it."""
    LOWERINGS.get((node.domain, node.op_type), keep)(op, node)
