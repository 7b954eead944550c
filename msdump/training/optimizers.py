"""Optimizers under MindSpore's names, learning rates, and groups of parameters with options of their own.

A learning rate is one number, or one for each step: a list is a variable, of which each step gathers the
element with the number of the steps so far. Names and operators are as in MindSpore's ``Optimizer``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np

from msdump.errors import InputError, name_hint
from msdump.graph.kernel import FLOAT32, HALVES
from msdump.graph.primitives import NUMBER_TYPES, SLOTS, Structure, op
from msdump.training import options
from msdump.training.options import Options, Rules
from msdump.training.writer import ROOT, Item, StepTensor

Rate = float | Sequence[float]
"""A learning rate, or the rates of the steps."""

RATE: Final = options.each(options.at_least(0.0))

COMMON: Final = "learning_rate"
"""Name of the variable of parameters in no group with a rate of its own."""


LearningRate = tuple[str, Rate]
"""Name of a learning rate's variable, and its value."""


Variables = Callable[..., StepTensor]
"""Adds a variable of a name with a first value; with ``is_input`` a caller may feed another one in a step."""

Trained = Sequence[tuple[StepTensor, StepTensor]]
"""Parameters, each with its gradient."""


def by_number(name: str, tensor: StepTensor, number: StepTensor | float) -> StepTensor:
    """Write MindSpore's Mul, Div, Maximum or Minimum of a tensor and a number; return the result.

    A half type and a float32 number give float32, float64 and a float32 number float64: kernels read both as
    they are. A runtime may need a hundred times as long for a tensor with a last dimension of 1 and a number
    of fewer dimensions. In both cases the operator has a body, which casts and reshapes.
    """
    structure: dict[str, Structure] = {"rank": tensor.rank} if tensor.shape[-1:] == (1,) else {}
    like = tensor
    if isinstance(number, StepTensor) and number.dtype is not tensor.dtype:
        like = replace(tensor, dtype=FLOAT32 if tensor.dtype in HALVES else tensor.dtype)
        structure["to"] = like.dtype.onnx
    result: StepTensor
    if structure:
        result = op.call(name, tensor, number, like=like, **structure)
    else:
        result = getattr(op, NUMBER_TYPES[name])(tensor, number)
    return result


def assign(variable: StepTensor, value: Item, operator: str = "Assign") -> StepTensor:
    """Write the operator that gives a variable another value, or AssignAdd; return the new value."""
    new: StepTensor = op.call(operator, variable, value, like=variable)
    op.bindings[variable.name] = new
    return new


def write_rates(
    rates: Sequence[LearningRate], step: StepTensor, state: Variables
) -> Mapping[str, StepTensor]:
    """Write the learning rates of a step; return scalars by variable; InputError for lists of two lengths."""
    names = [name for name, _ in rates]
    arrays = {name: np.array(value, np.float32) for name, value in rates}
    lengths = {array.size for array in arrays.values() if array.ndim}
    if len(lengths) > 1:
        raise InputError(
            f"lists of learning rates have {', '.join(map(str, sorted(lengths)))} elements: groups of one "
            "optimizer need lists of one length"
        )
    scalars: dict[str, StepTensor] = {}
    for name, array in arrays.items():
        variable = scalars[name] = state(name, array, is_input=True)
        place, cell = op.place, COMMON
        if set(names) != {COMMON}:
            # a list of cells, one for each parameter; equal ones are one, under the number of the first
            place, cell = place.inside((COMMON, "CellList")), str(names.index(name))
        if variable.rank:
            with op.at(place.inside((cell, "_IteratorLearningRate"))):
                element = op.Gather(variable, step, axis=0)
            scalars[name] = op.call("Reshape", element, like=element.shaped(()), shape=())
        elif lengths:  # vendor: a number beside lists is a schedule too, and may change in the last bit
            with op.at(place.inside((cell, "_ConvertToCell"))):
                scalars[name] = variable + 1.0 - 1.0
    return scalars


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
    """The operator that updates one parameter."""

    # MindSpore's name; it returns the new parameter and the new moments. Its inputs are variable, gradient,
    # rate, weight_decay, moments, keys of ``shared``, and options of the optimizer
    name: str
    # name prefix and initial value of the additional variables of each parameter
    moments: Mapping[str, float]
    variables: tuple[str, ...] = ()  # options that are variables of the step
    attributes: tuple[str, ...] = ()  # options that are attributes


class Optimizer(Options):
    """Base of optimizers: frozen dataclasses of options, which update each parameter by one operator.

    Weight decay is added to the gradient, unless it is an input of the operator.
    """

    __slots__ = ()
    cell: ClassVar[str]  # MindSpore's class, the scope's name
    is_last_first: ClassVar[bool] = True  # whether the last parameter is updated first
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
        own = (COMMON, self.learning_rate)
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
            operands: dict[str, Item] = {**shared, "rate": rates[item.rate[0]]}
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
            chosen = ((name, getattr(self, name)) for name in operator.attributes)
            updated = op.call(
                operator.name,
                *(
                    given[name] if name in given else np.array(getattr(self, name), np.float32)
                    for name in slots
                ),
                like=variables,
                **{name: int(value) if isinstance(value, bool) else value for name, value in chosen},
                rank=rank,
            )
            op.bindings |= {old.name: new for old, new in zip(variables, updated, strict=True)}


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


@dataclass(frozen=True, slots=True)
class Group(Options):
    """Learning rate and weight decay of a group of parameters; None: the optimizer's."""

    learning_rate: Rate | None = None
    weight_decay: float | None = None
    rules: ClassVar[Rules] = {
        "learning_rate": options.optional(RATE),
        "weight_decay": options.optional(NUMBER),
    }


@dataclass(frozen=True, slots=True)
class Optimizers:
    """The optimizers of a training step.

    As in a MindSpore cell with several optimizers, each has a scope and variables of its own, which bear its
    name, or else its number: ``Default/optimizer_0-SGD``, ``optimizer_0.learning_rate``. One alone without a
    name has no prefix. Patterns with equal optimizers, name included, have one in common.

    A group of parameters that several optimizers update is a group in each of them. As in MindSpore, an
    optimizer with groups updates group by group, the other parameters last, and scales and shifts of
    normalisations have the weight decay of their group.
    """

    by_pattern: Mapping[str, Optimizer]  # optimizers by patterns of the names of their parameters
    groups: Mapping[str, Group]  # groups by patterns of names
    normalizing: Collection[str]  # names of scales and shifts of normalisations
    order: Sequence[str] = ()  # patterns in the order of updates; empty: group by group

    def write(self, trained: Trained, state: Variables, scale: float = 1.0) -> None:
        """Write the operators of all optimizers, which divide the gradients by their factor ``scale``."""
        assigned = [*self._assigned(trained)]
        for number, (optimizer, parameters) in enumerate(assigned):
            name = optimizer.name or (f"optimizer_{number}" if len(assigned) > 1 else "")
            with op.at(ROOT.inside((name or "optimizer", optimizer.cell))):
                optimizer.write(parameters, _prefixed(state, f"{name}." if name else ""), scale)

    def arranged(self, trained: Trained) -> Trained:
        """Return the parameters with their gradients optimizer by optimizer, group by group."""
        return [(item.variable, item.gradient) for _, part in self._assigned(trained) for item in part]

    def in_order(self, trained: Trained) -> Trained:
        """Return the parameters with their gradients in the order in which the optimizers update them."""
        return [
            (item.variable, item.gradient)
            for optimizer, parameters in self._assigned(trained)
            for item in (reversed(parameters) if optimizer.is_last_first else parameters)
        ]

    def _assigned(self, trained: Trained) -> Iterator[tuple[Optimizer, Sequence[TrainedParameter]]]:
        parts = _partition(trained, self.by_pattern, "optimizer")
        others = [item.name for item, _ in parts[""]] if "" not in self.by_pattern else ()
        if others:
            raise InputError(
                f"no optimizer for {_listed(others)}; add an optimizer without a pattern, or "
                "leave them out of trainable"
            )
        if trained and not all(parts[pattern] for pattern in self.by_pattern):
            raise InputError("the optimizer without a pattern has no parameters: other optimizers have all")
        groups = _partition(trained, self.groups, "group")
        order = self._order(trained)
        distinct: dict[str, tuple[Optimizer, set[str]]] = {}
        for pattern, optimizer in self.by_pattern.items():
            values = [np.asarray(value).tolist() for value in astuple(optimizer)]  # lists of rates, too
            _, own = distinct.setdefault(f"{optimizer.cell} {values}", (optimizer, set()))
            own |= {item.name for item, _ in parts[pattern]}
        names = [item.name or f"optimizer_{number}" for number, (item, _) in enumerate(distinct.values())]
        if len(set(names)) < len(names):
            raise InputError(f"optimizers that differ have one name: {_listed(names)}; give each its own")
        for optimizer, own in distinct.values():
            grouped = {name: [pair for pair in part if pair[0].name in own] for name, part in groups.items()}
            parameters = self._parameters(optimizer, {name: part for name, part in grouped.items() if part})
            # stable: without an order the groups follow one another
            yield optimizer, sorted(parameters, key=lambda each: order.get(each.variable.name, 0))

    def _order(self, trained: Trained) -> Mapping[str, int]:
        if not self.order:
            return {}
        parts = _partition(trained, self.order, ORDER)
        if parts[""]:
            others = _listed([item.name for item, _ in parts[""]])
            raise InputError(f"{ORDER} lacks {others}; add the names, or a last pattern '*'")
        names = (item.name for pattern in self.order for item, _ in parts[pattern])
        return {name: place for place, name in enumerate(names)}

    def _parameters(self, optimizer: Optimizer, parts: Mapping[str, Trained]) -> list[TrainedParameter]:
        """Return the parameters of an optimizer, by groups, with rate and decay."""
        parameters = []
        # vendor: scales and shifts are no exception any more where there are groups
        exempt = () if any(pattern in self.groups for pattern in parts) else self.normalizing
        for number, (pattern, part) in enumerate(parts.items()):
            group = self.groups.get(pattern, Group())
            rate = (COMMON, optimizer.learning_rate)
            if group.learning_rate is not None:
                rate = (f"{COMMON}_group_{number}", group.learning_rate)
            decay = optimizer.weight_decay if group.weight_decay is None else group.weight_decay
            for item, gradient in part:
                has_decay = DECAYED[optimizer.decayed](item, item.name in exempt)
                parameters.append(TrainedParameter(item, gradient, rate, decay if has_decay else 0.0))
        return parameters


def _prefixed(state: Variables, prefix: str) -> Variables:
    return lambda name, *arguments, **choices: state(prefix + name, *arguments, **choices)


def _partition(trained: Trained, patterns: Iterable[str], title: str) -> dict[str, Trained]:
    """Return the parameters by the first pattern that matches their names."""
    parts: dict[str, Trained] = {}
    rest = list(trained)
    names = [item.name for item, _ in trained]
    for pattern in filter(None, patterns):
        matches = re.compile(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL).fullmatch
        parts[pattern] = [pair for pair in rest if matches(pair[0].name)]
        if not parts[pattern] and any(map(matches, names)):
            raise InputError(f"{title} {pattern!r}: earlier patterns have all its parameters")
        if not parts[pattern] and names:
            raise InputError(
                f"{title} {pattern!r}: no trained parameter has this name; there are {_listed(names)}"
                f"{name_hint(pattern, names)}"
            )
        rest = [pair for pair in rest if not matches(pair[0].name)]
    return {**parts, "": rest}


_MOST: Final = 12
"""Names that a message lists."""


def _listed(names: Sequence[str]) -> str:
    others = f", ... ({len(names)} in all)" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + others


OptimizerChoice = str | Optimizer | Mapping[str, str | Optimizer]

ORDER: Final = "order_params"
"""The key among the groups that has the order of updates, as in MindSpore."""

GroupChoices = Mapping[str, Any]
"""By pattern a Group or its options as a text or mapping; under ``ORDER`` names as a text or a sequence."""


def optimizers_of(choice: OptimizerChoice, groups: GroupChoices, normalizing: Collection[str]) -> Optimizers:
    """Return the optimizers of a step; InputError for an unknown name or option, or a wrong value."""
    optimizers = choice if isinstance(choice, Mapping) else {"": choice}
    order = groups.get(ORDER, ())
    return Optimizers(
        {pattern: options.parsed(item, OPTIMIZERS, "optimizer") for pattern, item in optimizers.items()},
        {
            pattern: item if isinstance(item, Group) else options.built(Group, item, f"group {pattern!r}")
            for pattern, item in groups.items()
            if pattern != ORDER
        },
        normalizing,
        tuple(order.split() if isinstance(order, str) else order),
    )
