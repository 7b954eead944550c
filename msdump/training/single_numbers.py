"""Elementwise operators of a tensor and a single number."""

from __future__ import annotations

from dataclasses import replace

from msdump.dtypes import DType
from msdump.graph.kernel import FLOAT32, HALVES
from msdump.graph.primitives import NUMBER_TYPES, Structure, op
from msdump.training.writer import StepTensor


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
        result = getattr(op, NUMBER_TYPES[name])(tensor, number)
    return result
