"""Optimizers under MindSpore's class names.

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
from msdump.training.body import Structure
from msdump.training.learning_rates import COMMON, RATE, LearningRate, Rate, write_rates
from msdump.training.options import Options
from msdump.training.single_numbers import by_number
from msdump.training.tape import op
from msdump.training.variables import Variables, assign
from msdump.training.writer import Item, StepTensor


@dataclass(frozen=True, slots=True)
class TrainedParameter:
    """A parameter with its gradient, learning rate and weight decay."""

    variable: StepTensor
    gradient: StepTensor
    rate: LearningRate
    decay: float


DECAYED: Final[Mapping[str, Callable[[StepTensor, bool], bool]]] = {
    "weights": lambda _, is_normalization: not is_normalization,
    "matrices": lambda variable, _: variable.rank > 1,
    "all": lambda *_: True,
}
"""Parameters with weight decay: MindSpore's rule (all but scales and shifts of normalisations), the habit of
transformers (neither these nor biases), PyTorch's optimizers as they come."""

NUMBER: Final = options.at_least(0.0)

SHARE: Final = options.between(0.0, 1.0)

DECAY: Final = {"weight_decay": NUMBER, "decayed": options.one_of(DECAYED)}

MOMENTS: Final = {"learning_rate": RATE, "beta1": SHARE, "beta2": SHARE, "eps": options.above(0.0)}


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
    learning_rate: Rate
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
        """Write the operators that update the parameters, in this order or reversed; bind the new values."""
        step = state("global_step", np.zeros(1, np.int32))
        own = LearningRate(COMMON, self.learning_rate)
        rates = write_rates([item.rate for item in trained] or [own], step, state)
        assign(step, np.ones(1, np.int32), "AssignAdd")
        shared = self.shared(state)
        has_slot = "weight_decay" in self.operator.slots.split()
        updates = []
        for item in trained:
            gradient = item.gradient
            if item.decay and not has_slot:
                gradient = op.Sum(by_number("Mul", item.variable, item.decay), gradient)
            operands: dict[str, Item] = {
                "variable": item.variable,
                "gradient": gradient,
                "rate": rates[item.rate.name],
                "weight_decay": np.array(item.decay, np.float32),
            }
            updates.append((item.variable, operands))
        for variable, operands in updates[::-1] if self.is_last_first else updates:
            self._update({**shared, **operands}, variable, state)

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

    learning_rate: Rate = 0.1
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
    rules = {"learning_rate": RATE, "momentum": NUMBER, "dampening": NUMBER} | DECAY

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

    learning_rate: Rate = 0.01
    momentum: float = 0.9
    weight_decay: float = 0.0
    use_nesterov: bool = False
    decayed: str = "weights"
    cell = "Momentum"
    operator = UpdateOperator(
        "ApplyMomentum", "variable moments rate gradient momentum", {"moments": 0.0}, "use_nesterov"
    )
    rules = {"learning_rate": RATE, "momentum": NUMBER} | DECAY

    def shared(self, state: Variables) -> Mapping[str, Item]:
        """Add the momentum as a variable."""
        return {"momentum": state("momentum", np.array(self.momentum, np.float32))}


@dataclass(frozen=True, slots=True)
class Adam(Optimizer):
    """Adam with weight decay in the gradient (L2), and with correction of the first steps."""

    learning_rate: Rate = 0.001
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

    learning_rate: Rate = 0.001
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

    learning_rate: Rate = 0.1
    decay: float = 0.9
    momentum: float = 0.0
    epsilon: float = 1e-10
    weight_decay: float = 0.0
    centered: bool = False
    decayed: str = "weights"
    cell = "RMSProp"
    rules = {
        "learning_rate": RATE,
        "decay": NUMBER,
        "momentum": NUMBER,
        "epsilon": options.above(0.0),
    } | DECAY

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

    learning_rate: Rate = 0.001
    accum: float = 0.1
    weight_decay: float = 0.0
    update_slots: bool = True
    decayed: str = "weights"
    cell = "Adagrad"
    rules = {"learning_rate": RATE, "accum": NUMBER} | DECAY

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
