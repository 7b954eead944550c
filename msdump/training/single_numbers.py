"""Elementwise operators of a tensor and a single number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from msdump.dtypes import DType
from msdump.graph.kernel import FLOAT32, HALVES
from msdump.training.body import Structure, Value, operators
from msdump.training.tape import op
from msdump.training.writer import StepTensor

_ONNX_TYPES: Final = {"Mul": "Mul", "Div": "Div", "Maximum": "Max", "Minimum": "Min"}
"""ONNX's operators, by MindSpore's names."""


def _body(op_type: str) -> Callable[..., Value]:
    def build(x: Value, number: Value, *, rank: int = 0, to: int = 0) -> Value:
        if to:
            x, number = op.Cast(x, to=to), op.Cast(number, to=to)
        result: Value = getattr(op, op_type)(x, op.Reshape(number, (1,) * rank) if rank else number)
        return result

    return build


operators(
    {
        name: (f"Return {name} of a tensor and a number.", _body(op_type))
        for name, op_type in _ONNX_TYPES.items()
    }
)


def cast(tensor: StepTensor, dtype: DType) -> StepTensor:
    """Write a Cast, unless the tensor has the type; return the result."""
    return tensor if tensor.dtype is dtype else op.Cast(tensor, to=dtype.onnx)


def by_number(name: str, tensor: StepTensor, number: StepTensor | float) -> StepTensor:
    """Write MindSpore's Mul, Div, Maximum or Minimum of a tensor and a number; return the result.

    A half type and a float32 number give float32, float64 and a float32 number float64: kernels read both as
    they are. A runtime may need a hundred times as long for a tensor with a last dimension of 1 and a number
    of fewer dimensions. In both cases the operator has a body, which casts and reshapes.
    """
    structure: dict[str, Structure] = {"rank": tensor.rank} if tensor.shape[-1:] == (1,) else {}
    like = tensor
    if isinstance(number, StepTensor) and number.dtype is not tensor.dtype:
        like = replace(tensor, dtype=FLOAT32 if tensor.dtype in HALVES else tensor.dtype)
        structure["to"] = like.dtype.onnx
    result: StepTensor
    if structure:
        result = op.call(name, tensor, number, like=like, **structure)
    else:
        result = getattr(op, _ONNX_TYPES[name])(tensor, number)
    return result
