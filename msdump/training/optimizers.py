"""Optimizers under MindSpore's class names.

All have a ``learning_rate``, which a run can change, a ``weight_decay``, the share of a parameter that is
added to its gradient, ``decayed``, a key of ``DECAYED``, and ``name``, the attribute of the training cell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from msdump.errors import InputError
from msdump.graph.primitives import SLOTS, op
from msdump.training import options
from msdump.training.learning_rates import COMMON, RATE, LearningRate, Rate, write_rates
from msdump.training.options import Options
from msdump.training.single_numbers import by_number
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

POSITIVE: Final = options.above(0.0)

COMMON_RULES: Final = {
    "learning_rate": RATE,
    "weight_decay": NUMBER,
    "decayed": options.one_of(DECAYED),
    "name": options.identifier(),
}


@dataclass(frozen=True, slots=True)
class UpdateOperator:
    """The operator that updates one parameter.

    Attributes:
        name: MindSpore's name; it returns the new parameter and the new moments. Its inputs are variable,
            gradient, rate, weight_decay, moments, keys of ``shared``, and options of the optimizer.
        moments: Name prefix and initial value of the additional variables of each parameter.
        variables: Options that are variables of the step.
        attributes: Options that are attributes.
    """

    name: str
    moments: Mapping[str, float]
    variables: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()


class Optimizer(Options):
    """Base of optimizers: frozen dataclasses of options, which update each parameter by one operator.

    Weight decay is added to the gradient, unless it is an input of the operator.

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
    name: str

    @property
    def operator(self) -> UpdateOperator:
        """The operator that updates one parameter."""
        raise NotImplementedError

    def shared(self, state: Variables) -> Mapping[str, Item]:
        """Write the operands that the updates of all parameters share; return them by names of slots."""
        names = self.operator.variables
        return {name: state(name, np.array(getattr(self, name), np.float32)) for name in names}

    def write(self, trained: Sequence[TrainedParameter], state: Variables, scale: float) -> None:
        """Write the operators that update the parameters, in this order or reversed; bind the new values."""
        step = state("global_step", np.zeros(1, np.int32))
        own = LearningRate(COMMON, self.learning_rate)
        rates = write_rates([item.rate for item in trained] or [own], step, state)
        assign(step, np.ones(1, np.int32), "AssignAdd")
        shared = self.shared(state)
        gradients = {item.variable.name: item.gradient for item in trained}
        if all(slot.name != "weight_decay" for slot in SLOTS[self.operator.name]):
            for item in filter(lambda item: item.decay, trained):
                share = by_number("Mul", item.variable, item.decay * scale)
                gradients[item.variable.name] = op.Sum(share, item.gradient)
        if scale != 1:
            gradients = {name: by_number("Mul", item, 1 / scale) for name, item in gradients.items()}
        for item in reversed(trained) if self.is_last_first else trained:
            operands: dict[str, Item] = {**shared, "rate": rates[item.rate.name]}
            operands["gradient"] = gradients[item.variable.name]
            operands["weight_decay"] = np.array(item.decay, np.float32)
            variable = item.variable
            operator, sizes = self.operator, variable.sizes()
            moments = {
                prefix: state(f"{prefix}.{variable.name}", np.full(sizes, first, variable.dtype.numpy))
                for prefix, first in operator.moments.items()
            }
            given = {**operands, **moments, "variable": variable}
            variables = [variable, *moments.values()]
            # scalars are reshaped to this rank if the parameter's last size is 1: see operators/updates.py
            rank = variable.rank if variable.shape[-1:] == (1,) else 0
            slots = [slot.name for slot in SLOTS[operator.name] if slot.default is None]
            updated = op.call(
                operator.name,
                *(
                    given[name] if name in given else np.array(getattr(self, name), np.float32)
                    for name in slots
                ),
                like=variables,
                **{name: _plain(getattr(self, name)) for name in operator.attributes},
                rank=rank,
            )
            op.bindings |= {old.name: new for old, new in zip(variables, updated, strict=True)}


def _plain(option: float) -> float:
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
    name: str = ""
    cell = "SGD"
    operator = UpdateOperator("SGD", {"accum": 0.0, "stat": 1.0}, ("momentum",), ("dampening", "nesterov"))
    rules = COMMON_RULES | {"momentum": NUMBER, "dampening": NUMBER}

    def __post_init__(self) -> None:
        """Refuse values out of range, and nesterov without momentum."""
        Options.__post_init__(self)
        if self.nesterov and (self.momentum == 0 or self.dampening > 0):
            raise InputError("SGD: nesterov needs a momentum above 0 and no dampening")


@dataclass(frozen=True, slots=True)
class Momentum(Optimizer):
    """``var -= learning_rate * accum``, with ``accum = momentum * accum + gradient``."""

    learning_rate: Rate = 0.01
    momentum: float = 0.9
    weight_decay: float = 0.0
    use_nesterov: bool = False
    decayed: str = "weights"
    name: str = ""
    cell = "Momentum"
    operator = UpdateOperator("ApplyMomentum", {"moments": 0.0}, ("momentum",), ("use_nesterov",))
    rules = COMMON_RULES | {"momentum": NUMBER}


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
    name: str = ""
    cell = "Adam"
    operator = UpdateOperator("Adam", {"moment1": 0.0, "moment2": 0.0}, attributes=("use_nesterov",))
    is_last_first = False
    rules = COMMON_RULES | {"beta1": SHARE, "beta2": SHARE, "eps": POSITIVE}

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
    name: str = ""
    cell = "AdamWeightDecay"
    operator = UpdateOperator("AdamWeightDecay", {"adam_m": 0.0, "adam_v": 0.0})
    is_last_first = False
    rules = COMMON_RULES | {"beta1": SHARE, "beta2": SHARE, "eps": POSITIVE}


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
    name: str = ""
    cell = "RMSProp"
    rules = COMMON_RULES | {"decay": NUMBER, "momentum": NUMBER, "epsilon": POSITIVE}

    @property
    def operator(self) -> UpdateOperator:
        """ApplyRMSProp, or ApplyCenteredRMSProp."""
        moments = {"mean_square": 1.0, "moment": 0.0}
        if self.centered:
            return UpdateOperator("ApplyCenteredRMSProp", {"mean_grad": 0.0, **moments})
        return UpdateOperator("ApplyRMSProp", moments)


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
    name: str = ""
    cell = "Adagrad"
    rules = COMMON_RULES | {"accum": NUMBER}

    @property
    def operator(self) -> UpdateOperator:
        """ApplyAdagrad."""
        return UpdateOperator("ApplyAdagrad", {"accum": self.accum}, attributes=("update_slots",))


OPTIMIZERS: Final[Mapping[str, Callable[..., Optimizer]]] = {
    "sgd": SGD,
    "momentum": Momentum,
    "adam": Adam,
    "adamw": AdamWeightDecay,
    "rmsprop": RMSProp,
    "adagrad": Adagrad,
}
"""By the name that ``--optimizer`` takes."""
