"""Variables of a step, operators that give them new values, and operators of a tensor and a number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import onnx

from msdump.dtypes import DType
from msdump.graph.kernel import FLOAT32, HALVES
from msdump.graph.primitives import NUMBER_TYPES, Structure, op
from msdump.training.writer import Item, StepTensor


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


Variables = Callable[..., StepTensor]
"""Adds a variable of a name with a first value; with ``is_input`` a caller may feed another one in a step."""

Trained = Sequence[tuple[StepTensor, StepTensor]]
"""Parameters, each with its gradient."""


def assign(variable: StepTensor, value: Item, operator: str = "Assign") -> StepTensor:
    """Write the operator that gives a variable another value, or AssignAdd; return the new value."""
    new: StepTensor = op.call(operator, variable, value, like=variable)
    op.bindings[variable.name] = new
    return new


Write = Callable[[], None]
"""Writes operators, and binds variables to new values."""


def update_if(condition: StepTensor, *, then: Write | None = None, otherwise: Write | None = None) -> None:
    """Write an If with branches that give variables new values; without a new one a variable keeps its value.

    One branch may be missing. If both are given, ``then`` binds each variable that ``otherwise`` binds.
    """
    before = dict(op.bindings)
    changed: list[str] = []

    def body(write: Write | None) -> tuple[onnx.GraphProto, Sequence[StepTensor]]:
        def results() -> Sequence[StepTensor]:
            if write:
                write()
            new = {name: value for name, value in op.bindings.items() if before.get(name) is not value}
            changed.extend(name for name in new if name not in changed)
            return [
                new[name] if name in new else op.Identity(before.get(name, op.types[name]))
                for name in changed
            ]

        op.bindings = dict(before)
        return op.body("then_branch" if write is then else "else_branch", results)

    # the branch that binds most variables comes first: the other one returns as many
    first, second = (then, otherwise) if then else (otherwise, then)
    written = {write: body(write) for write in (first, second)}
    (then_graph, _), (else_graph, values) = written[then], written[otherwise]
    results = [replace(item, name=op.value_name("If"), value=None) for item in values]
    op.emit("If", [condition], {"then_branch": then_graph, "else_branch": else_graph}, outputs=results)
    op.bindings = before | dict(zip(changed, results, strict=True))
