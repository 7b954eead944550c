"""Variables of a training step, and the operators that give them new values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msdump.training.tape import op
from msdump.training.writer import Item, StepTensor

Variables = Callable[..., StepTensor]
"""Adds a variable of a name with a first value; with ``is_input`` a caller may feed another one in a step."""

Trained = Sequence[tuple[StepTensor, StepTensor]]
"""Parameters in the network's order, each with its gradient."""


def assign(variable: StepTensor, value: Item, operator: str = "Assign") -> StepTensor:
    """Write the operator that gives a variable another value, or AssignAdd; return the new value."""
    new: StepTensor = op.call(operator, variable, value, like=variable)
    op.bindings[variable.name] = new
    return new
