"""Domains of operators, and the types of ONNX's own that several rooms treat alike."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

MINDSPORE_DOMAIN: Final = "mindspore.ops"
"""Domain of MindSpore's operators that ONNX lacks, under their primitive names.

A model defines each as a function of standard operators, so that any runtime runs it. Here such a function
is one operator with one kernel; functions of one name that differ in structure differ in their overloads.
"""

GE_DOMAIN: Final = "ge"
"""Domain of functions that stand for operators of GE; they compute as ONNX's own do."""

GE_PREFIX: Final = "GE_"
"""Begins their names: onnxruntime takes a function for ONNX's operator of the same name, and crashes."""

WORLD_GROUP: Final = "hccl_world_group"
"""HCCL's name of the group of all ranks, in which collectives take part that name none."""

CONTROL_FLOW: Final = frozenset({"If", "Loop", "Scan", "SequenceMap"})
"""Operators that run other operators: those of the graphs in their attributes."""

SEQUENCES: Final = frozenset(
    {
        *("ConcatFromSequence", "SplitToSequence", "SequenceConstruct", "SequenceEmpty", "SequenceInsert"),
        *("SequenceErase", "SequenceAt", "SequenceLength"),
        *("Optional", "OptionalGetElement", "OptionalHasElement"),
    }
)
"""Operators that put tensors into sequences and optionals, or take them out."""

RANDOM: Final = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
"""Operators that draw random numbers."""

WITH_MEMORY: Final = RANDOM | {"Dropout"}
"""Operators whose kernels remember how often they ran: a seed is that of the first run."""

_RANDOM_PRIMITIVES: Final = frozenset(
    {
        *("Bernoulli", "Multinomial", "StandardNormal", "UniformReal", "UniformInt", "StandardLaplace"),
        *("Gamma", "Poisson", "LogNormalReverse", "RandomChoiceWithMask", "Randperm", "RandomShuffle"),
        *("Dropout2D", "Dropout3D", "DropoutDoMask", "DropoutGenMask", "DropOutDoMask", "DropOutGenMask"),
    }
)
"""MindSpore's and GE's operators that draw random numbers, by type."""

_TRAINING_MODE: Final = 3
"""Inputs of a Dropout that draws: without a third one it hands its input on."""


def is_random(primitive: str, inputs: int) -> bool:
    """Return whether a dumped operator draws random numbers.

    >>> is_random("StandardNormal", 1), is_random("Dropout", 1), is_random("Dropout", 3)
    (True, False, True)

    Args:
        primitive: Its type.
        inputs: Number of its inputs.
    """
    return primitive in _RANDOM_PRIMITIVES or (primitive == "Dropout" and inputs >= _TRAINING_MODE)


CLEAR_FLOAT_STATUS: Final = "NPUClearFloatStatusV2"
"""Lowers the device's overflow status."""

GET_FLOAT_STATUS: Final = "NPUGetFloatStatusV2"
"""Tells the device's overflow status: whether an operator has saturated since it was lowered."""


def uses_float_status(domain: str, op_type: str) -> bool:
    """Tell whether an operator lowers or reads the device's overflow status.

    No function of ONNX's operators can describe it: what it does depends on the operators that ran before.

    >>> uses_float_status("mindspore.ops", "NPUGetFloatStatusV2"), uses_float_status("", "Relu")
    (True, False)
    """
    return domain == MINDSPORE_DOMAIN and op_type in {CLEAR_FLOAT_STATUS, GET_FLOAT_STATUS}


def canonical_domain(domain: str) -> str:
    """Return a domain by the name that it has in a ``Graph``: models write ONNX's own as "" or "ai.onnx".

    >>> canonical_domain("ai.onnx"), canonical_domain("ai.onnx.ml")
    ('', 'ai.onnx.ml')
    """
    return "" if domain == "ai.onnx" else domain


@dataclass(frozen=True, slots=True)
class Update:
    """Inputs that an operator writes in place.

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
    """Return the inputs that an operator writes in place.

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
