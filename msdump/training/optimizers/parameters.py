"""What an optimizer is given and asked for: parameters, their gradients, variables of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np

from msdump.training import options
from msdump.training.symbols import StepTensor
from msdump.training.writer import StepWriter


class Variables(Protocol):
    """The variables of an optimizer: a call adds one."""

    def __call__(self, name: str, array: np.ndarray, *, is_input: bool = False) -> StepTensor:
        """Add a variable.

        Args:
            name: Its name.
            array: Its first value.
            is_input: Whether a caller may feed another value for a step.
        """


@dataclass(frozen=True, slots=True)
class TrainedParameter:
    """A parameter that an optimizer updates.

    Attributes:
        variable: The parameter.
        gradient: Its gradient.
        is_normalization: Whether it is scale or shift of a normalisation.
    """

    variable: StepTensor
    gradient: StepTensor
    is_normalization: bool = False

    @property
    def number_rank(self) -> int:
        """How many dimensions numbers get that are multiplied with it: 0 but where its last one is 1."""
        return self.variable.rank if self.variable.shape[-1:] == (1,) else 0

    def moments(self, state: Variables, prefix: str, first: float = 0.0) -> StepTensor:
        """Add a variable of the parameter's shape and type, ``moments.fc1.weight``."""
        array = np.zeros(self.variable.sizes(), self.variable.dtype.numpy)
        if first:
            array.fill(first)
        return state(f"{prefix}.{self.variable.name}", array)


Trained = Sequence[tuple[StepTensor, StepTensor]]
"""Parameters in the network's order, each with its gradient."""


class Optimizer(Protocol):
    """Writes the update of the parameters."""

    @property
    def cell(self) -> str:
        """MindSpore's class, the scope's name."""

    def write(self, op: StepWriter, trained: Sequence[TrainedParameter], state: Variables) -> None:
        """Write the operators that update every parameter, and bind the new values.

        Args:
            op: Writes operators, in the optimizer's scope.
            trained: The parameters in the network's order.
            state: Adds the optimizer's variables.
        """


DECAYED: Final[Mapping[str, Callable[[TrainedParameter], bool]]] = {
    "weights": lambda item: not item.is_normalization,
    "matrices": lambda item: item.variable.rank > 1,
    "all": lambda _: True,
}
"""Which parameters weight decay applies to: MindSpore's rule (all but scales and shifts of normalisations),
the transformers' habit (neither these nor biases), PyTorch's optimizers as they come."""

RATE: Final = options.at_least(0.0)
SHARE: Final = options.between(0.0, 1.0)
DECAY: Final = {"weight_decay": options.at_least(0.0), "decayed": options.one_of(DECAYED)}


def count_steps(op: StepWriter, state: Variables) -> StepTensor:
    """Write the operator that counts the steps."""
    step = state("global_step", np.zeros(1, np.int32))
    new: StepTensor = op.call("AssignAdd", step, np.ones(1, np.int32), like=step)
    op.bindings[step.name] = new
    return new


def declare_rate(state: Variables, rate: float) -> StepTensor:
    """Add the learning rate, which a caller may feed."""
    return state("learning_rate", np.array(rate, np.float32), is_input=True)


def with_decay(
    op: StepWriter, trained: Sequence[TrainedParameter], decay: float, decayed: str
) -> list[TrainedParameter]:
    """Write the decay of parameters into their gradients."""
    return [
        replace(item, gradient=_decay(op, item, decay)) if decay and DECAYED[decayed](item) else item
        for item in trained
    ]


def _decay(op: StepWriter, item: TrainedParameter, decay: float) -> StepTensor:
    (total,) = op.emit("Sum", (op.Mul(item.variable, decay), item.gradient), {})
    return total


def bind(op: StepWriter, variables: Sequence[StepTensor], updated: Sequence[StepTensor]) -> None:
    """Bind the new values of variables."""
    op.bindings |= {variable.name: new for variable, new in zip(variables, updated, strict=True)}
