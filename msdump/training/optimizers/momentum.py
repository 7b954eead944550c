"""Optimizers with one moment or none: SGD and Momentum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from msdump.errors import InputError
from msdump.training import options
from msdump.training.optimizers.parameters import (
    DECAY,
    DECAYED,
    RATE,
    TrainedParameter,
    Variables,
    bind,
    count_steps,
    declare_rate,
    with_decay,
)
from msdump.training.writer import StepWriter


@dataclass(frozen=True, slots=True)
class SGD:
    """``var -= learning_rate * accum``, ``accum = momentum * accum + (1 - dampening) * gradient``.

    The accumulation of the first step is the gradient. Weight decay is a part of the operator, and MindSpore
    gives all parameters the same one.

    Attributes:
        learning_rate: The first learning rate; a run can change it.
        momentum: Share of the accumulation that stays; 0: plain descent.
        weight_decay: Share of the parameter that is added to its gradient.
        dampening: Share of the gradient that the accumulation leaves out.
        nesterov: Look ahead by one step.
        decayed: Which parameters have weight decay, a key of ``DECAYED``.
    """

    learning_rate: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    decayed: str = "all"
    cell = "SGD"

    def __post_init__(self) -> None:
        """Refuse values out of range.

        Raises:
            InputError: One or more are.
        """
        options.check(self, {"learning_rate": RATE, "momentum": RATE, "dampening": RATE} | DECAY)
        if self.nesterov and (self.momentum == 0 or self.dampening > 0):
            raise InputError("SGD: nesterov needs a momentum above 0 and no dampening")

    def write(self, op: StepWriter, trained: Sequence[TrainedParameter], state: Variables) -> None:
        """Write an SGD for every parameter, the last one first, as MindSpore does."""
        count_steps(op, state)
        rate = declare_rate(state, self.learning_rate)
        momentum = state("momentum", np.array(self.momentum, np.float32))
        for item in reversed(trained):
            accumulation, stat = item.moments(state, "accum"), item.moments(state, "stat", 1.0)
            variables = [item.variable, accumulation, stat]
            updated = op.call(
                "SGD",
                *(item.variable, item.gradient, rate, accumulation, momentum, stat),
                like=variables,
                dampening=self.dampening,
                weight_decay=self.weight_decay if DECAYED[self.decayed](item) else 0.0,
                nesterov=int(self.nesterov),
                rank=item.number_rank,
            )
            bind(op, variables, updated)


@dataclass(frozen=True, slots=True)
class Momentum:
    """``var -= learning_rate * accum``, with ``accum = momentum * accum + gradient``.

    Attributes:
        learning_rate: The first learning rate; a run can change it.
        momentum: Share of the accumulation that stays.
        weight_decay: Share of the parameter that is added to its gradient.
        use_nesterov: Look ahead by one step.
        decayed: Which parameters have weight decay, a key of ``DECAYED``.
    """

    learning_rate: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 0.0
    use_nesterov: bool = False
    decayed: str = "weights"
    cell = "Momentum"

    def __post_init__(self) -> None:
        """Refuse values out of range.

        Raises:
            InputError: One or more are.
        """
        options.check(self, {"learning_rate": RATE, "momentum": RATE} | DECAY)

    def write(self, op: StepWriter, trained: Sequence[TrainedParameter], state: Variables) -> None:
        """Write an ApplyMomentum for every parameter, the last one first, as MindSpore does."""
        count_steps(op, state)
        rate = declare_rate(state, self.learning_rate)
        momentum = state("momentum", np.array(self.momentum, np.float32))
        for item in reversed(with_decay(op, trained, self.weight_decay, self.decayed)):
            variables = [item.variable, item.moments(state, "moments")]
            updated = op.call(
                "ApplyMomentum",
                *(*variables, rate, item.gradient, momentum),
                like=variables,
                use_nesterov=int(self.use_nesterov),
                rank=item.number_rank,
            )
            bind(op, variables, updated)
