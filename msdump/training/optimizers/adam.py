"""Optimizers with two moments: Adam and AdamWeightDecay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump.training import options
from msdump.training.optimizers.parameters import (
    DECAY,
    DECAYED,
    RATE,
    SHARE,
    TrainedParameter,
    Variables,
    bind,
    count_steps,
    declare_rate,
    with_decay,
)
from msdump.training.symbols import Item, StepTensor
from msdump.training.writer import StepWriter

MOMENTS: Final = {"learning_rate": RATE, "beta1": SHARE, "beta2": SHARE, "eps": options.above(0.0)}


@dataclass(frozen=True, slots=True)
class Adam:
    """Adam with weight decay in the gradient (L2), and with correction of the first steps.

    Attributes:
        learning_rate: The first learning rate; a run can change it.
        beta1: Share of the first moment that stays.
        beta2: Share of the second moment that stays.
        eps: What is added to the root of the second moment.
        weight_decay: Share of the parameter that is added to its gradient.
        use_nesterov: Look ahead by one step.
        decayed: Which parameters have weight decay, a key of ``DECAYED``.
    """

    learning_rate: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    use_nesterov: bool = False
    decayed: str = "weights"
    cell = "Adam"

    def __post_init__(self) -> None:
        """Refuse values out of range.

        Raises:
            InputError: One or more are.
        """
        options.check(self, MOMENTS | DECAY)

    def write(self, op: StepWriter, trained: Sequence[TrainedParameter], state: Variables) -> None:
        """Write the powers of both shares, the decay, then an Adam for every parameter in order."""
        count_steps(op, state)
        rate = declare_rate(state, self.learning_rate)
        powers = [
            _power(op, state, f"beta{number}_power", beta)
            for number, beta in enumerate((self.beta1, self.beta2), 1)
        ]
        numbers = [np.array(number, np.float32) for number in (self.beta1, self.beta2, self.eps)]
        for item in with_decay(op, trained, self.weight_decay, self.decayed):
            variables = [item.variable, item.moments(state, "moment1"), item.moments(state, "moment2")]
            slots: list[Item] = [*variables, *powers, rate, *numbers, item.gradient]
            updated = op.call(
                "Adam", *slots, like=variables, use_nesterov=int(self.use_nesterov), rank=item.number_rank
            )
            bind(op, variables, updated)


@dataclass(frozen=True, slots=True)
class AdamWeightDecay:
    """Adam whose weight decay leaves the moments alone (AdamW), as MindSpore's class of that name has it.

    Unlike PyTorch's AdamW it does not correct the first steps, and ``eps`` is added to the root of a second
    moment that is not corrected.

    Attributes:
        learning_rate: The first learning rate; a run can change it.
        beta1: Share of the first moment that stays.
        beta2: Share of the second moment that stays.
        eps: What is added to the root of the second moment.
        weight_decay: Share of the parameter that is taken from it, times the learning rate.
        decayed: Which parameters have weight decay, a key of ``DECAYED``.
    """

    learning_rate: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6
    weight_decay: float = 0.0
    decayed: str = "weights"
    cell = "AdamWeightDecay"

    def __post_init__(self) -> None:
        """Refuse values out of range.

        Raises:
            InputError: One or more are.
        """
        options.check(self, MOMENTS | DECAY)

    def write(self, op: StepWriter, trained: Sequence[TrainedParameter], state: Variables) -> None:
        """Write an AdamWeightDecay for every parameter in order."""
        count_steps(op, state)
        rate = declare_rate(state, self.learning_rate)
        # MindSpore keeps these three as tensors of one element
        numbers = [np.array([number], np.float32) for number in (self.beta1, self.beta2, self.eps)]
        for item in trained:
            decay = np.array(self.weight_decay if DECAYED[self.decayed](item) else 0.0, np.float32)
            variables = [item.variable, item.moments(state, "adam_m"), item.moments(state, "adam_v")]
            slots: list[Item] = [*variables, rate, *numbers, decay, item.gradient, False]
            updated = op.call("AdamWeightDecay", *slots, like=variables, rank=item.number_rank)
            bind(op, variables, updated)


def _power(op: StepWriter, state: Variables, name: str, beta: float) -> StepTensor:
    """Write the power of a share, one higher with every step; return its new value."""
    power = state(name, np.ones((), np.float32))
    new: StepTensor = op.call("Assign", power, op.Mul(power, beta), like=power)
    op.bindings[name] = new
    return new
