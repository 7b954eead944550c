"""Elementwise operators of a tensor and a single number."""

from __future__ import annotations

from typing import Final

from msdump.training.body import operators
from msdump.training.tape import op
from msdump.training.writer import StepTensor

operators(
    {
        "Mul": ("Multiply by a number.", lambda x, number, *, rank: x * op.Reshape(number, (1,) * rank)),
        "Div": ("Divide by a number.", lambda x, number, *, rank: x / op.Reshape(number, (1,) * rank)),
        "Maximum": (
            "Raise smaller elements to a number.",
            lambda x, number, *, rank: op.Max(x, op.Reshape(number, (1,) * rank)),
        ),
        "Minimum": (
            "Lower larger elements to a number.",
            lambda x, number, *, rank: op.Min(x, op.Reshape(number, (1,) * rank)),
        ),
    }
)

_ONNX_TYPES: Final = {"Maximum": "Max", "Minimum": "Min"}


def by_number(name: str, tensor: StepTensor, number: StepTensor | float) -> StepTensor:
    """Write MindSpore's Mul, Div, Maximum or Minimum of a tensor and a number; return the result.

    A runtime may need a hundred times as long for a tensor with a last dimension of 1 and a number of fewer
    dimensions. Such a tensor gets an operator with a body, which reshapes the number.
    """
    result: StepTensor
    if tensor.shape[-1:] == (1,):
        result = op.call(name, tensor, number, like=tensor, rank=tensor.rank)
    else:
        result = getattr(op, _ONNX_TYPES.get(name, name))(tensor, number)
    return result
