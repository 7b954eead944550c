"""The optimizers of a training step, under MindSpore's class names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from msdump.errors import InputError, name_hint
from msdump.training.writer import StepTensor, StepWriter

State = Callable[[str, np.ndarray], StepTensor]
"""Adds a variable of the optimizer: its name and first value."""

Trained = Sequence[tuple[StepTensor, StepTensor]]
"""Parameters in the network's order, each with its gradient."""


class Optimizer(Protocol):
    """Writes the update of the parameters."""

    @property
    def cell(self) -> str:
        """MindSpore's class, the scope's name."""

    def write(self, op: StepWriter, trained: Trained, state: State) -> None:
        """Write the operators that update every parameter, and bind the new values."""


@dataclass(frozen=True, slots=True)
class Momentum:
    """``var -= learning_rate * accum``, with ``accum = momentum * accum + gradient``.

    Attributes:
        learning_rate: The first learning rate; a run can change it.
        momentum: Share of the accumulation that stays.
        weight_decay: Share of the parameter that is added to its gradient.
        use_nesterov: Look ahead by one step.
    """

    learning_rate: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 0.0
    use_nesterov: bool = False
    cell = "Momentum"

    def write(self, op: StepWriter, trained: Trained, state: State) -> None:
        """Write an ApplyMomentum for every parameter, the last one first, as MindSpore does."""
        count_steps(op, state)
        rate = state("learning_rate", np.array(self.learning_rate, np.float32))
        momentum = state("momentum", np.array(self.momentum, np.float32))
        for variable, gradient in reversed(trained):
            moments = state(f"moments.{variable.name}", np.zeros(variable.sizes(), variable.dtype.numpy))
            decayed = with_decay(op, variable, gradient, self.weight_decay)
            new, moved = op.call(
                "ApplyMomentum",
                *(variable, moments, rate, decayed, momentum),
                like=[variable, moments],
                use_nesterov=int(self.use_nesterov),
            )
            op.bindings |= {variable.name: new, moments.name: moved}


def count_steps(op: StepWriter, state: State) -> StepTensor:
    """Write the operator that counts the steps."""
    step = state("global_step", np.zeros(1, np.int32))
    new: StepTensor = op.call("AssignAdd", step, np.ones(1, np.int32), like=step)
    op.bindings[step.name] = new
    return new


def with_decay(op: StepWriter, variable: StepTensor, gradient: StepTensor, decay: float) -> StepTensor:
    """Write the decay of a parameter into its gradient; scales and shifts of normalisations have none."""
    if not decay or not decays(variable.name):
        return gradient
    (total,) = op.emit("Sum", (op.Mul(variable, float(decay)), gradient), {})
    return total


def decays(name: str) -> bool:
    """Tell whether weight decay applies to a parameter: MindSpore's rule goes by its name."""
    return "gamma" not in name and "beta" not in name


OPTIMIZERS: Final[Mapping[str, Callable[..., Optimizer]]] = {"momentum": Momentum}
"""By the name that ``--optimizer`` takes."""


def optimizer_of(text: str | Optimizer) -> Optimizer:
    """Return an optimizer by its name and numbers, ``momentum:0.01,0.9``.

    Raises:
        InputError: An unknown name, or something that is no number.
    """
    if not isinstance(text, str):
        return text
    name, _, numbers = text.partition(":")
    if name not in OPTIMIZERS:
        raise InputError(
            f"unknown optimizer {name!r}: allowed are {', '.join(OPTIMIZERS)}{name_hint(name, OPTIMIZERS)}"
        )
    try:
        values = [float(number) for number in numbers.split(",")] if numbers else []
        return OPTIMIZERS[name](*values)
    except (TypeError, ValueError) as error:
        raise InputError(f"optimizer {text!r}: numbers behind the colon are expected, {name}:0.01") from error
