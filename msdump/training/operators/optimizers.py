"""Optimizers: every operator returns the new values of what it updates in place."""

from __future__ import annotations

from msdump.training.body import Body, operator


@operator("AssignAdd")
def assign_add(op: Body, variable: str, value: str) -> str:
    """Add to a variable."""
    return str(op.Add(variable, value))


@operator("Assign")
def assign(op: Body, _variable: str, value: str) -> str:
    """Give a variable another value."""
    return str(op.Identity(value))


@operator("ApplyMomentum")
def apply_momentum(
    op: Body, variable: str, accumulation: str, rate: str, gradient: str, momentum: str, *, use_nesterov: int
) -> tuple[str, str]:
    """Return the new variable and accumulation: accum = momentum accum + g; var -= rate accum."""
    moved = op.Add(op.Mul(accumulation, momentum), gradient)
    step = op.Add(op.Mul(moved, momentum), gradient) if use_nesterov else moved
    return str(op.Sub(variable, op.Mul(step, rate))), str(moved)
