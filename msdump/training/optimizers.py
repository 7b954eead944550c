"""Optimizers under MindSpore's class names, and the operators that update variables.

The formulas are from MindSpore's kernels. Learning rate, moments' coefficients and the like are always
float32; a body converts them to the parameter's type.

All have a ``learning_rate``, which a run can change, a ``weight_decay``, the share of a parameter that is
added to its gradient, and ``decayed``, a key of ``DECAYED``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from msdump.errors import InputError
from msdump.training import options
from msdump.training.body import Structure, Value, operator
from msdump.training.options import Options
from msdump.training.single_numbers import by_number
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
    nesterov: int,
    rank: int,
) -> tuple[Value, Value, Value]:
    """Return the new variable, accumulation and stat.

    accum = momentum accum + (1 - dampening) g, and var -= rate accum. ``stat`` is 1 before the first step,
    when the accumulation is the gradient as it is, and 0 behind it. Without momentum both stay as they are.
    """
    rate, momentum = _number(rate, rank), _number(momentum, rank)
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


@operator("ApplyRMSProp")
def apply_rms_prop(
    variable: Value,
    mean_square: Value,
    moment: Value,
    rate: Value,
    gradient: Value,
    decay: Value,
    momentum: Value,
    epsilon: Value,
    *,
    rank: int,
) -> tuple[Value, Value, Value]:
    """Return the new variable, mean square and moment.

    moment = momentum moment + rate g / sqrt(mean of g squared + eps); var -= moment
    """
    square = mean_square + (gradient * gradient - mean_square) * (1.0 - _number(decay, rank))
    step = gradient * _number(rate, rank) / op.Sqrt(square + _number(epsilon, rank))
    moved = moment * _number(momentum, rank) + step
    return variable - moved, square, moved


@operator("ApplyCenteredRMSProp")
def apply_centered_rms_prop(
    variable: Value,
    mean_gradient: Value,
    mean_square: Value,
    moment: Value,
    gradient: Value,
    rate: Value,
    decay: Value,
    momentum: Value,
    epsilon: Value,
    *,
    rank: int,
) -> tuple[Value, Value, Value, Value]:
    """Return the new variable, mean gradient, mean square and moment.

    As ApplyRMSProp, with the variance of the gradient in place of its mean square. Where rounding makes the
    variance negative, variable and moment stay as they are.
    """
    share = 1.0 - _number(decay, rank)
    mean = mean_gradient + (gradient - mean_gradient) * share
    square = mean_square + (gradient * gradient - mean_square) * share
    variance = square - mean * mean + _number(epsilon, rank)
    step = gradient * _number(rate, rank) / op.Sqrt(variance)
    moved = moment * _number(momentum, rank) + step
    is_positive = variance > 0.0
    return (
        op.Where(is_positive, variable - moved, variable),
        mean,
        square,
        op.Where(is_positive, moved, moment),
    )


@operator("ApplyAdagrad")
def apply_adagrad(
    variable: Value, accumulation: Value, rate: Value, gradient: Value, *, update_slots: int, rank: int
) -> tuple[Value, Value]:
    """Return the new variable and accumulation: accum += g squared; var -= rate g / sqrt(accum)."""
    total = accumulation + gradient * gradient if update_slots else accumulation
    return variable - gradient * _number(rate, rank) / op.Sqrt(total), total


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


Variables = Callable[..., StepTensor]
"""Adds a variable of a name with a first value; with ``is_input`` a caller may feed another one in a step."""

Trained = Sequence[tuple[StepTensor, StepTensor]]
"""Parameters in the network's order, each with its gradient."""


@dataclass(frozen=True, slots=True)
class TrainedParameter:
    """A parameter with its gradient; ``is_normalization``: whether it scales or shifts in a normalisation."""

    variable: StepTensor
    gradient: StepTensor
    is_normalization: bool = False


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

MOMENTS: Final = {"learning_rate": RATE, "beta1": SHARE, "beta2": SHARE, "eps": options.above(0.0)}


def assign(variable: StepTensor, value: Item, operator: str = "Assign") -> StepTensor:
    """Write the operator that gives a variable another value, or AssignAdd; return the new value."""
    new: StepTensor = op.call(operator, variable, value, like=variable)
    op.bindings[variable.name] = new
    return new


@dataclass(frozen=True, slots=True)
class UpdateOperator:
    """The operator that updates one parameter.

    Attributes:
        name: MindSpore's name; it returns the new parameter and the new moments.
        slots: Names of its inputs: variable, gradient, rate, weight_decay, moments, keys of ``shared``; any
            other is an option of the optimizer.
        moments: Name prefix and initial value of the additional variables of each parameter.
        attributes: Options of the optimizer that are attributes of the operator.
    """

    name: str
    slots: str
    moments: Mapping[str, float]
    attributes: str = ""


class Optimizer(Options):
    """Base of optimizers: frozen dataclasses of options, which update each parameter by one operator.

    Weight decay is added to the gradient, unless the operator has a slot for it.

    Attributes:
        cell: MindSpore's class, the scope's name.
        is_last_first: Whether the last parameter is updated first.
    """

    __slots__ = ()
    cell: ClassVar[str]
    is_last_first: ClassVar[bool] = True
    learning_rate: float
    weight_decay: float
    decayed: str

    @property
    def operator(self) -> UpdateOperator:
        """The operator that updates one parameter."""
        raise NotImplementedError

    def shared(self, state: Variables) -> Mapping[str, Item]:  # noqa: ARG002 - protocol
        """Write the operands that the updates of all parameters share; return them by names of slots."""
        return {}

    def write(self, trained: Sequence[TrainedParameter], state: Variables) -> None:
        """Write the operators that update the parameters, in the network's order, and bind the new values."""
        step = state("global_step", np.zeros(1, np.int32))
        assign(step, np.ones(1, np.int32), "AssignAdd")
        rate = state("learning_rate", np.array(self.learning_rate, np.float32), is_input=True)
        slots = self.operator.slots.split()
        shared: dict[str, Item] = {"rate": rate, **self.shared(state)}
        updates = []
        for item in trained:
            decay = self.weight_decay if DECAYED[self.decayed](item) else 0.0
            gradient = item.gradient
            if decay and "weight_decay" not in slots:
                gradient = op.Sum(by_number("Mul", item.variable, decay), gradient)
            updates.append((item.variable, gradient, decay))
        for variable, gradient, decay in updates[::-1] if self.is_last_first else updates:
            share = np.array(decay, np.float32)
            operands = {**shared, "variable": variable, "gradient": gradient, "weight_decay": share}
            self._update(operands, variable, state)

    def _update(self, operands: Mapping[str, Item], variable: StepTensor, state: Variables) -> None:
        """Write the operator that updates a parameter, and bind the new values."""
        operator, sizes = self.operator, variable.sizes()
        moments = {
            prefix: state(f"{prefix}.{variable.name}", np.full(sizes, first, variable.dtype.numpy))
            for prefix, first in operator.moments.items()
        }
        given: Mapping[str, Item] = {**operands, **moments}
        variables = [variable, *moments.values()]
        updated = op.call(
            operator.name,
            *(
                given[slot] if slot in given else np.array(getattr(self, slot), np.float32)
                for slot in operator.slots.split()
            ),
            like=variables,
            **{name: _plain(getattr(self, name)) for name in operator.attributes.split()},
            # see ``_number``: scalars are reshaped to this rank if the parameter's last size is 1
            rank=variable.rank if variable.shape[-1:] == (1,) else 0,
        )
        op.bindings |= {old.name: new for old, new in zip(variables, updated, strict=True)}


def _plain(option: Structure) -> Structure:
    return int(option) if isinstance(option, bool) else option


@dataclass(frozen=True, slots=True)
class SGD(Optimizer):
    """``var -= learning_rate * accum``, ``accum = momentum * accum + (1 - dampening) * gradient``.

    The accumulation of the first step is the gradient; without momentum there is none.
    """

    learning_rate: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    decayed: str = "weights"
    cell = "SGD"
    operator = UpdateOperator(
        "SGD",
        "variable gradient rate accum momentum stat",
        {"accum": 0.0, "stat": 1.0},
        "dampening nesterov",
    )
    rules = {"learning_rate": RATE, "momentum": RATE, "dampening": RATE} | DECAY

    def __post_init__(self) -> None:
        """Refuse values out of range, and nesterov without momentum."""
        Options.__post_init__(self)
        if self.nesterov and (self.momentum == 0 or self.dampening > 0):
            raise InputError("SGD: nesterov needs a momentum above 0 and no dampening")

    def shared(self, state: Variables) -> Mapping[str, Item]:
        """Add the momentum as a variable."""
        return {"momentum": state("momentum", np.array(self.momentum, np.float32))}


@dataclass(frozen=True, slots=True)
class Momentum(Optimizer):
    """``var -= learning_rate * accum``, with ``accum = momentum * accum + gradient``."""

    learning_rate: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 0.0
    use_nesterov: bool = False
    decayed: str = "weights"
    cell = "Momentum"
    operator = UpdateOperator(
        "ApplyMomentum", "variable moments rate gradient momentum", {"moments": 0.0}, "use_nesterov"
    )
    rules = {"learning_rate": RATE, "momentum": RATE} | DECAY

    def shared(self, state: Variables) -> Mapping[str, Item]:
        """Add the momentum as a variable."""
        return {"momentum": state("momentum", np.array(self.momentum, np.float32))}


@dataclass(frozen=True, slots=True)
class Adam(Optimizer):
    """Adam with weight decay in the gradient (L2), and with correction of the first steps."""

    learning_rate: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    use_nesterov: bool = False
    decayed: str = "weights"
    cell = "Adam"
    operator = UpdateOperator(
        "Adam",
        "variable moment1 moment2 beta1_power beta2_power rate beta1 beta2 eps gradient",
        {"moment1": 0.0, "moment2": 0.0},
        "use_nesterov",
    )
    is_last_first = False
    rules = MOMENTS | DECAY

    def shared(self, state: Variables) -> Mapping[str, Item]:
        """Write the new powers of beta1 and beta2, which are variables."""
        powers: dict[str, Item] = {}
        for name in ("beta1", "beta2"):
            power = state(f"{name}_power", np.ones((), np.float32))
            powers[f"{name}_power"] = assign(power, power * getattr(self, name))
        return powers


@dataclass(frozen=True, slots=True)
class AdamWeightDecay(Optimizer):
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
    operator = UpdateOperator(
        "AdamWeightDecay",
        "variable adam_m adam_v rate beta1 beta2 eps weight_decay gradient use_locking",
        {"adam_m": 0.0, "adam_v": 0.0},
    )
    is_last_first = False
    rules = MOMENTS | DECAY

    def shared(self, state: Variables) -> Mapping[str, Item]:  # noqa: ARG002 - none of these is a variable
        """Return beta1, beta2 and eps as tensors of one element, as MindSpore keeps them."""
        numbers = {name: np.array([getattr(self, name)], np.float32) for name in ("beta1", "beta2", "eps")}
        return numbers | {"use_locking": False}


@dataclass(frozen=True, slots=True)
class RMSProp(Optimizer):
    """Steps of the gradient divided by the root of its mean square, or of its variance (``centered``)."""

    learning_rate: float = 0.1
    decay: float = 0.9
    momentum: float = 0.0
    epsilon: float = 1e-10
    weight_decay: float = 0.0
    centered: bool = False
    decayed: str = "weights"
    cell = "RMSProp"
    rules = {"learning_rate": RATE, "decay": RATE, "momentum": RATE, "epsilon": options.above(0.0)} | DECAY

    @property
    def operator(self) -> UpdateOperator:
        """ApplyRMSProp, or ApplyCenteredRMSProp, which has the rate behind the gradient."""
        moments = {"mean_square": 1.0, "moment": 0.0}
        if not self.centered:
            slots = "variable mean_square moment rate gradient decay momentum epsilon"
            return UpdateOperator("ApplyRMSProp", slots, moments)
        slots = "variable mean_grad mean_square moment gradient rate decay momentum epsilon"
        return UpdateOperator("ApplyCenteredRMSProp", slots, {"mean_grad": 0.0, **moments})


@dataclass(frozen=True, slots=True)
class Adagrad(Optimizer):
    """Steps of the gradient divided by the root of the sum of its squares, which begins at ``accum``.

    Without ``update_slots`` the sum stays as it is, as MindSpore documents it; its CPU ignores the option.
    """

    learning_rate: float = 0.001
    accum: float = 0.1
    weight_decay: float = 0.0
    update_slots: bool = True
    decayed: str = "weights"
    cell = "Adagrad"
    rules = {"learning_rate": RATE, "accum": RATE} | DECAY

    @property
    def operator(self) -> UpdateOperator:
        """ApplyAdagrad."""
        slots = "variable accum rate gradient"
        return UpdateOperator("ApplyAdagrad", slots, {"accum": self.accum}, "update_slots")


OPTIMIZERS: Final[Mapping[str, Callable[..., Optimizer]]] = {
    "sgd": SGD,
    "momentum": Momentum,
    "adam": Adam,
    "adamw": AdamWeightDecay,
    "rmsprop": RMSProp,
    "adagrad": Adagrad,
}
"""By the name that ``--optimizer`` takes."""


def optimizer_of(text: str | Optimizer) -> Optimizer:
    """Return an optimizer by its name and options, ``momentum:0.01,0.9`` or ``adamw:0.001,weight_decay=0.1``.

    Raises:
        InputError: An unknown name or option, or a value that an option does not take.
    """
    return options.parsed(text, OPTIMIZERS, "optimizer") if isinstance(text, str) else text
