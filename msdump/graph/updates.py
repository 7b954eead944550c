"""Operators that write some of their inputs in place, and how many outputs they declare.

An ONNX function cannot write its inputs: it has outputs for the new values. Files show such an operator as
MindSpore has it: the new value in the input that is written, and the outputs that the primitive declares.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from msdump.graph.operator_types import MINDSPORE_DOMAIN


@dataclass(frozen=True, slots=True)
class Update:
    """What an operator writes in place.

    Attributes:
        declared: How many of its outputs, from the first on, the primitive declares; None: all.
        new_values: Position of the output that holds the new value, by the slot of the input.
    """

    declared: int | None = None
    new_values: Mapping[int, int] = field(default_factory=dict)


NO_UPDATE: Final = Update()
"""That of an operator that writes none of its inputs."""

_ASSIGNED: Final = Update(1, {0: 0})
_ADAM: Final = Update(3, {0: 0, 1: 1, 2: 2})

UPDATES: Final[Mapping[str, Update]] = {
    **dict.fromkeys(("Assign", "AssignAdd", "AssignSub"), _ASSIGNED),
    "ApplyMomentum": Update(1, {0: 0, 1: 1}),
    "SGD": Update(1, {0: 0, 3: 1, 5: 2}),
    **dict.fromkeys(("Adam", "AdamWeightDecay"), _ADAM),
    # x, gamma, beta, moving_mean, moving_variance, ... -> y, four of the batch, the moving ones
    "BatchNorm": Update(5, {3: 5, 4: 6}),
}
"""MindSpore's operators that write inputs, by type."""


def update_of(op_type: str, domain: str) -> Update:
    """Return what an operator writes in place.

    >>> update_of("ApplyMomentum", "mindspore.ops").new_values
    {0: 0, 1: 1}
    >>> update_of("Adam", "ai.onnx.preview.training") is NO_UPDATE
    True
    """
    return UPDATES.get(op_type, NO_UPDATE) if domain == MINDSPORE_DOMAIN else NO_UPDATE


@functools.cache
def written_inputs(primitive: str) -> frozenset[int]:
    """Return the slots of the inputs that a dumped operator shows as it has written them.

    BatchNorm has none: dumps do not tell its form in training from that of inference.

    >>> sorted(written_inputs("ApplyMomentum")), sorted(written_inputs("BatchNorm"))
    ([0, 1], [])
    """
    update = UPDATES.get(primitive, NO_UPDATE)
    shows_one = any(output < (update.declared or 0) for output in update.new_values.values())
    return frozenset(update.new_values) if shows_one else frozenset()
