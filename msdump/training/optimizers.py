"""Optimizers under MindSpore's class names, and the operators that update variables.

The formulas are from MindSpore's kernels. Learning rate, moments' coefficients and the like are float32
whatever the type of the parameter is; a body turns them into that type.

All have a ``learning_rate``, which a run can change, a ``weight_decay``, the share of a parameter that is
added to its gradient, and ``decayed``, a key of ``DECAYED``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np

from msdump.errors import InputError
from msdump.training import options
from msdump.training.body import Structure, Value, operator
from msdump.training.options import Options
from msdump.training.tape import op
from msdump.training.writer import Item, StepTensor


@operator("AssignAdd")
def assign_add(variable: Value, value: Value) -> Value:
    """Add to a variable."""
    return variable + value


@operator("Assign")
def assign_body(_variable: Value, value: Value) -> Value:
    """Give a variable another value."""
    return op.Identity(value)


@operator("ApplyMomentum")
def apply_momentum(
    variable: Value,
    accumulation: Value,
    rate: Value,
    gradient: Value,
    momentum: Value,
    *,
    use_nesterov: int,
    rank: int,
) -> tuple[Value, Value]:
    """Return the new variable and accumulation: accum = momentum accum + g; var -= rate accum."""
    rate, momentum = _number(rate, rank), _number(momentum, rank)
    moved = accumulation * momentum + gradient
    step = moved * momentum + gradient if use_nesterov else moved
    return variable - step * rate, moved


@operator("SGD")
def sgd(
    variable: Value,
    gradient: Value,
    rate: Value,
    accumulation: Value,
    momentum: Value,
    stat: Value,
    *,
    dampening: float,
    weight_decay: float,
    nesterov: int,
    rank: int,
) -> tuple[Value, Value, Value]:
    """Return the new variable, accumulation and stat.

    accum = momentum accum + (1 - dampening) g, and var -= rate accum. ``stat`` is 1 before the first step,
    when the accumulation is the gradient as it is, and 0 behind it. Without momentum both stay as they are.
    """
    rate, momentum = _number(rate, rank), _number(momentum, rank)
    if weight_decay:
        gradient = gradient + variable * _number(weight_decay, rank)
    going = accumulation * momentum + gradient * _number(1.0 - dampening, rank)
    moved = op.Where(stat > 0.0, gradient, going)
    step = gradient + moved * momentum if nesterov else moved
    has_momentum = momentum > 0.0
    return (
        variable - op.Where(has_momentum, step, gradient) * rate,
        op.Where(has_momentum, moved, accumulation),
        op.Where(has_momentum, stat * 0.0, stat),
    )


@operator("Adam")
def adam(
    variable: Value,
    m: Value,
    v: Value,
    beta1_power: Value,
    beta2_power: Value,
    rate: Value,
    beta1: Value,
    beta2: Value,
    epsilon: Value,
    gradient: Value,
    *,
    use_nesterov: int,
    rank: int,
) -> tuple[Value, Value, Value]:
    """Return the new variable and moments.

    var -= rate sqrt(1 - beta2^t) / (1 - beta1^t) m / (sqrt(v) + eps)
    """
    beta1, beta2 = _number(beta1, rank), _number(beta2, rank)
    first, second = _moving_averages(m, v, beta1, beta2, gradient)
    correction = op.Sqrt(1.0 - op.of_element(beta2_power)) / (1.0 - op.of_element(beta1_power))
    step = _number(rate, rank) * correction
    ahead = first * beta1 + gradient * (1.0 - beta1) if use_nesterov else first
    change = ahead * step / (op.Sqrt(second) + _number(epsilon, rank))
    return variable - change, first, second


@operator("AdamWeightDecay")
def adam_weight_decay(
    variable: Value,
    m: Value,
    v: Value,
    rate: Value,
    beta1: Value,
    beta2: Value,
    epsilon: Value,
    decay: Value,
    gradient: Value,
    _use_locking: Value,
    *,
    rank: int,
) -> tuple[Value, Value, Value]:
    """Return the new variable and moments: var -= rate (m / (sqrt(v) + eps) + decay var)."""
    first, second = _moving_averages(m, v, _number(beta1, rank), _number(beta2, rank), gradient)
    scaled = first / (op.Sqrt(second) + _number(epsilon, rank))
    change = scaled + variable * _number(decay, rank)
    return variable - change * _number(rate, rank), first, second


def _number(number: Value | float, rank: int) -> Value:
    """Return a number in the element type of the variables, with as many dimensions as they have.

    A runtime may need a hundred times as long to multiply a tensor with a last dimension of 1 by a scalar.
    """
    element = op.of_element(number) if isinstance(number, Value) else op.value(number)
    return op.Reshape(element, (1,) * rank) if rank else element


def _moving_averages(m: Value, v: Value, beta1: Value, beta2: Value, gradient: Value) -> tuple[Value, Value]:
    """Return the moving averages of a gradient and of its square."""
    first = m + (gradient - m) * (1.0 - beta1)
    second = v + (gradient * gradient - v) * (1.0 - beta2)
    return first, second


class Variables(Protocol):
    """The variables of an optimizer."""

    def __call__(self, name: str, array: np.ndarray, *, is_input: bool = False) -> StepTensor:
        """Add a variable with its first value; for an input a caller may feed another value in a step."""


@dataclass(frozen=True, slots=True)
class TrainedParameter:
    """A parameter with its gradient; ``is_normalization``: it is scale or shift of a normalisation."""

    variable: StepTensor
    gradient: StepTensor
    is_normalization: bool = False

    @property
    def number_rank(self) -> int:
        """Rank of numbers to multiply the parameter with: 0, or its own where its last size is 1."""
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

    def write(self, trained: Sequence[TrainedParameter], state: Variables) -> None:
        """Write the operators that update the parameters, in the network's order, and bind the new values."""


DECAYED: Final[Mapping[str, Callable[[TrainedParameter], bool]]] = {
    "weights": lambda item: not item.is_normalization,
    "matrices": lambda item: item.variable.rank > 1,
    "all": lambda _: True,
}
"""Parameters with weight decay: MindSpore's rule (all but scales and shifts of normalisations), the habit of
transformers (neither these nor biases), PyTorch's optimizers as they come."""

RATE: Final = options.at_least(0.0)

SHARE: Final = options.between(0.0, 1.0)

DECAY: Final = {"weight_decay": options.at_least(0.0), "decayed": options.one_of(DECAYED)}


def begin_update(state: Variables, rate: float) -> StepTensor:
    """Write the operator that counts the steps; return the learning rate, which a caller may feed."""
    step = state("global_step", np.zeros(1, np.int32))
    op.bindings[step.name] = op.call("AssignAdd", step, np.ones(1, np.int32), like=step)
    return state("learning_rate", np.array(rate, np.float32), is_input=True)


def assign(variable: StepTensor, value: StepTensor) -> StepTensor:
    """Write the operator that gives a variable another value; return that value."""
    new = op.bindings[variable.name] = op.call("Assign", variable, value, like=variable)
    return new


def with_decay(trained: Sequence[TrainedParameter], decay: float, decayed: str) -> list[TrainedParameter]:
    """Write the weight decay into the gradients."""
    return [
        replace(item, gradient=op.Sum(item.variable * decay, item.gradient))
        if decay and DECAYED[decayed](item)
        else item
        for item in trained
    ]


def update(
    name: str,
    item: TrainedParameter,
    variables: Sequence[StepTensor],
    slots: Sequence[Item],
    **structure: Structure,
) -> None:
    """Write the operator that updates a parameter and its moments, and bind their new values."""
    updated = op.call(name, *slots, like=variables, **structure, rank=item.number_rank)
    op.bindings |= {variable.name: new for variable, new in zip(variables, updated, strict=True)}


@dataclass(frozen=True, slots=True)
class SGD(Options):
    """``var -= learning_rate * accum``, ``accum = momentum * accum + (1 - dampening) * gradient``.

    The accumulation of the first step is the gradient; without momentum there is none. Weight decay is a part
    of the operator, and MindSpore gives all parameters the same one.
    """

    learning_rate: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    decayed: str = "all"
    cell = "SGD"
    rules = {"learning_rate": RATE, "momentum": RATE, "dampening": RATE} | DECAY

    def __post_init__(self) -> None:
        """Refuse values out of range, and nesterov without momentum."""
        Options.__post_init__(self)
        if self.nesterov and (self.momentum == 0 or self.dampening > 0):
            raise InputError("SGD: nesterov needs a momentum above 0 and no dampening")

    def write(self, trained: Sequence[TrainedParameter], state: Variables) -> None:
        """Write an SGD for every parameter, the last one first, as MindSpore does."""
        rate = begin_update(state, self.learning_rate)
        momentum = state("momentum", np.array(self.momentum, np.float32))
        for item in reversed(trained):
            accumulation, stat = item.moments(state, "accum"), item.moments(state, "stat", 1.0)
            update(
                *("SGD", item, [item.variable, accumulation, stat]),
                [item.variable, item.gradient, rate, accumulation, momentum, stat],
                dampening=self.dampening,
                weight_decay=self.weight_decay if DECAYED[self.decayed](item) else 0.0,
                nesterov=int(self.nesterov),
            )


@dataclass(frozen=True, slots=True)
class Momentum(Options):
    """``var -= learning_rate * accum``, with ``accum = momentum * accum + gradient``."""

    learning_rate: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 0.0
    use_nesterov: bool = False
    decayed: str = "weights"
    cell = "Momentum"
    rules = {"learning_rate": RATE, "momentum": RATE} | DECAY

    def write(self, trained: Sequence[TrainedParameter], state: Variables) -> None:
        """Write an ApplyMomentum for every parameter, the last one first, as MindSpore does."""
        rate = begin_update(state, self.learning_rate)
        momentum = state("momentum", np.array(self.momentum, np.float32))
        for item in reversed(with_decay(trained, self.weight_decay, self.decayed)):
            variables = [item.variable, item.moments(state, "moments")]
            slots = [*variables, rate, item.gradient, momentum]
            update("ApplyMomentum", item, variables, slots, use_nesterov=int(self.use_nesterov))


MOMENTS: Final = {"learning_rate": RATE, "beta1": SHARE, "beta2": SHARE, "eps": options.above(0.0)}


@dataclass(frozen=True, slots=True)
class Adam(Options):
    """Adam with weight decay in the gradient (L2), and with correction of the first steps."""

    learning_rate: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    use_nesterov: bool = False
    decayed: str = "weights"
    cell = "Adam"
    rules = MOMENTS | DECAY

    def write(self, trained: Sequence[TrainedParameter], state: Variables) -> None:
        """Write the powers of both shares, the decay, then an Adam for every parameter in order."""
        rate = begin_update(state, self.learning_rate)
        powers = []
        for number, beta in enumerate((self.beta1, self.beta2), 1):
            power = state(f"beta{number}_power", np.ones((), np.float32))
            powers.append(assign(power, power * beta))
        numbers = [np.array(number, np.float32) for number in (self.beta1, self.beta2, self.eps)]
        for item in with_decay(trained, self.weight_decay, self.decayed):
            variables = [item.variable, item.moments(state, "moment1"), item.moments(state, "moment2")]
            slots: list[Item] = [*variables, *powers, rate, *numbers, item.gradient]
            update("Adam", item, variables, slots, use_nesterov=int(self.use_nesterov))


@dataclass(frozen=True, slots=True)
class AdamWeightDecay(Options):
    """Adam with a weight decay apart from the moments (AdamW), as MindSpore's class of that name has it.

    Unlike PyTorch's AdamW it does not correct the first steps, and ``eps`` is added to the root of a second
    moment that is not corrected.
    """

    learning_rate: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6
    weight_decay: float = 0.0
    decayed: str = "weights"
    cell = "AdamWeightDecay"
    rules = MOMENTS | DECAY

    def write(self, trained: Sequence[TrainedParameter], state: Variables) -> None:
        """Write an AdamWeightDecay for every parameter in order."""
        rate = begin_update(state, self.learning_rate)
        # MindSpore keeps these three as tensors of one element
        numbers = [np.array([number], np.float32) for number in (self.beta1, self.beta2, self.eps)]
        for item in trained:
            decay = np.array(self.weight_decay if DECAYED[self.decayed](item) else 0.0, np.float32)
            variables = [item.variable, item.moments(state, "adam_m"), item.moments(state, "adam_v")]
            slots: list[Item] = [*variables, rate, *numbers, decay, item.gradient, False]
            update("AdamWeightDecay", item, variables, slots)


OPTIMIZERS: Final[Mapping[str, Callable[..., Optimizer]]] = {
    "sgd": SGD,
    "momentum": Momentum,
    "adam": Adam,
    "adamw": AdamWeightDecay,
}
"""By the name that ``--optimizer`` takes."""


def optimizer_of(text: str | Optimizer) -> Optimizer:
    """Return an optimizer by its name and options, ``momentum:0.01,0.9`` or ``adamw:0.001,weight_decay=0.1``.

    Raises:
        InputError: An unknown name or option, or a value that an option does not take.
    """
    return options.parsed(text, OPTIMIZERS, "optimizer") if isinstance(text, str) else text
