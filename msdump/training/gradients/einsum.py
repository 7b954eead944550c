"""Gradients of Einsum: the operand's term and that of the result change places."""

from __future__ import annotations

import string
from collections.abc import Sequence

from msdump.errors import GraphError
from msdump.training.lowerings.layouts import reshaped
from msdump.training.rules import Backward, Gradients, gradient
from msdump.training.symbols import StepTensor
from msdump.training.writer import StepWriter


@gradient("Einsum")
def _einsum(op: StepWriter, back: Backward) -> Gradients:
    node = back.node
    operands = [node.input(slot) for slot in range(len(node.inputs))]
    terms, result = spelled_out(node.attributes["equation"], [item.rank for item in operands])
    if any(len(set(term)) < len(term) for term in terms):
        raise GraphError(f"{node.place.path}/{node.primitive}: a diagonal has no gradient")
    gradients: list[StepTensor | None] = []
    for slot, is_wanted in enumerate(back.wants):
        others = [other for other in range(len(operands)) if other != slot]
        fed = [back.dy, *(operands[other] for other in others)]
        names = [result, *(terms[other] for other in others)]
        gradients.append(_swapped(op, fed, names, operands[slot], terms[slot]) if is_wanted else None)
    return gradients


def spelled_out(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Return the terms of the operands and of the result, an ellipsis written out as letters.

    Args:
        equation: ``"...ij,jk->...ik"``; without an arrow the result has every letter that occurs once.
        ranks: Number of dimensions of each operand.

    >>> spelled_out("...ij,jk->...ik", [3, 2])
    (['Aij', 'jk'], 'Aik')
    >>> spelled_out("ij,jk", [2, 2])
    (['ij', 'jk'], 'ik')
    """
    left, arrow, result = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    free = [letter for letter in string.ascii_uppercase + string.ascii_lowercase if letter not in equation]
    lengths = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True)]
    dots = "".join(free[: max(lengths)]) if "..." in left else ""
    if not arrow:
        letters = "".join(terms).replace(".", "")
        once = sorted(letter for letter in set(letters) if letters.count(letter) == 1)
        result = ("..." if dots else "") + "".join(once)
    written = [
        term.replace("...", dots[len(dots) - length :]) for term, length in zip(terms, lengths, strict=True)
    ]
    return written, result.replace("...", dots)


def _swapped(
    op: StepWriter, fed: Sequence[StepTensor], terms: Sequence[str], x: StepTensor, term: str
) -> StepTensor:
    """Return the gradient of one operand.

    Args:
        op: Writes the operators.
        fed: The gradient of the result, and the other operands.
        terms: Their terms.
        x: The operand.
        term: Its term.
    """
    known = set("".join(terms))
    # a dimension of size 1 may have been broadcast: it is summed over, like those that the term lacks
    kept = [letter for letter, size in zip(term, x.shape, strict=True) if letter in known and size != 1]
    (summed,) = op.emit("Einsum", fed, {"equation": f"{','.join(terms)}->{''.join(kept)}"})
    if len(kept) == x.rank:
        return StepTensor(summed.name, x.dtype, x.shape)
    # what occurs in this operand alone was summed: its gradient is the same all along
    wide = tuple(size if letter in kept else 1 for letter, size in zip(term, x.shape, strict=True))
    spread = reshaped(op, summed, StepTensor("", x.dtype, wide))
    if wide == x.shape:
        return spread
    (result,) = op.emit("Expand", (spread, op.Shape(x)), {})
    return StepTensor(result.name, x.dtype, x.shape)
