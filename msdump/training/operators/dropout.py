"""Dropout, and its gradient."""

from __future__ import annotations

from msdump.training.body import Body, operator

_FLOAT32 = 1


@operator("Dropout")
def dropout(
    op: Body, x: str, keep_prob: str, _seed0: str, _seed1: str, *, generator_seed: int
) -> tuple[str, str]:
    """Keep some elements, divided by the share that is kept; return them and the mask of zeros and ones.

    The random numbers go on from step to step, so that each has a mask of its own.
    """
    numbers = op.RandomUniformLike(x, dtype=_FLOAT32, seed=float(generator_seed))
    mask = op.CastLike(op.Less(numbers, keep_prob), x)
    return op.Div(op.Mul(x, mask), op.CastLike(keep_prob, x)), mask


@operator("DropoutGrad")
def dropout_grad(op: Body, dy: str, mask: str, *, keep_prob: float) -> str:
    """Pass the gradient of what was kept."""
    return str(op.Div(op.Mul(dy, mask), keep_prob))
