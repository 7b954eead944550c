"""Watch rules: selected tensors and limits on their quantities.

A condition is a kind of rule: its quantities, parameters and default tensors. A rule hits if a tensor
passes any of the rule's limits. Names and parameters come from MindSpore's debugger (MindInsight,
``mindinsight.debugger``), but for the conditions below the comment "beyond". A rule selects tensors by
operator type and name, side, slot and role.
"""

from __future__ import annotations

import enum
import functools
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from msdump.record import IO, lies_in
from msdump.selector import IterationSet, KernelPattern, PatternKind
from msdump.statistics import StatisticNeed
from msdump.watch import quantities
from msdump.watch.quantities import OVERFLOWS, RANKS_APART, Past, Quantity, Settings


class Role(enum.StrEnum):
    """Roles of tensors in training, such as weight, gradient or loss."""

    WEIGHT = "weight"
    GRADIENT = "gradient"
    ACTIVATION = "activation"
    LOSS = "loss"


class Comparison(enum.Enum):
    """Relation of a quantity to a limit that makes a hit."""

    ABOVE = ">"
    AT_LEAST = ">="
    BELOW = "<"
    AT_MOST = "<="

    def holds(self, value: float, limit: float) -> bool:
        """Return whether a value passes a limit; NaN passes none."""
        return _COMPARE[self](value, limit)


_COMPARE: Final[Mapping[Comparison, Callable[[float, float], bool]]] = {
    Comparison.ABOVE: operator.gt,
    Comparison.AT_LEAST: operator.ge,
    Comparison.BELOW: operator.lt,
    Comparison.AT_MOST: operator.le,
}


class Domain(enum.Enum):
    """Numbers that a parameter takes, as messages word them."""

    NUMBER = "a number"
    NOT_NEGATIVE = "a number from 0"
    POSITIVE = "a number above 0"
    PERCENT = "a number from 0 to 100"
    COUNT = "a whole number from 1"
    TRUTH = "true or false"


@dataclass(frozen=True, slots=True)
class LimitParameter:
    """A parameter that is a limit."""

    quantity: Quantity
    domain: Domain = Domain.NUMBER
    default: float | None = None  # value where the rule gives none; None: no limit then
    comparison: Comparison = Comparison.AT_LEAST  # relation of a measured value to the limit that makes a hit


@dataclass(frozen=True, slots=True)
class SettingParameter:
    """A parameter of a measurement, such as a tolerance."""

    domain: Domain
    default: float | None  # value where the rule gives none; None: limits that need it cannot be given then
    meaning: str  # description, for the reference page


@dataclass(frozen=True, slots=True)
class Condition:
    """A kind of rule."""

    name: str  # name in a configuration
    meaning: str  # description, a sentence
    limits: Mapping[str, LimitParameter] = field(default_factory=dict)  # limits by parameter
    # a limit without parameter: quantity, comparison, value; None without one
    fixed: tuple[Quantity, Comparison, float] | None = None
    settings: Mapping[str, SettingParameter] = field(default_factory=dict)  # other parameters
    role: Role | None = None  # role of the selected tensors unless the rule gives one; None: any
    # types of the selected operators unless the rule gives some; none: all
    types: frozenset[str] = frozenset()
    is_first_only: bool = False  # a tensor is checked only the first time
    # further conditions by name: this one on tensors of a role
    variants: Mapping[str, Role] = field(default_factory=dict)


_above: Final = functools.partial(LimitParameter, comparison=Comparison.ABOVE)
_below: Final = functools.partial(LimitParameter, comparison=Comparison.BELOW)

_TRAIL: Final = {
    "window": SettingParameter(Domain.COUNT, 20, "number of the last steps in the median"),
    "after": SettingParameter(Domain.COUNT, 5, "number of first steps without hits"),
}
_ALL_ZERO: Final = LimitParameter(quantities.ZERO_SHARE, Domain.PERCENT, 100)

_EPSILON: Final = {
    "epsilon": SettingParameter(Domain.NOT_NEGATIVE, 1e-9, "added to the divisor of the change")
}

_CONDITIONS: Final = (
    Condition(
        "operator_overflow",
        "The device recorded an overflow of the operator that wrote the tensor (as for `op_debug_mode` 3).",
        fixed=(quantities.OVERFLOWS, Comparison.ABOVE, 0.0),
    ),
    Condition(
        "tensor_overflow",
        "An element is NaN or infinite.",
        fixed=(quantities.NONFINITE, Comparison.ABOVE, 0.0),
        variants={"weight_overflow": Role.WEIGHT, "gradient_exploding": Role.GRADIENT},
    ),
    Condition(
        "tensor_initialization",
        "In its first iteration, a tensor has too many zeros or exceeds a limit.",
        {
            "zero_percentage_ge": _ALL_ZERO,
            "max_gt": _above(quantities.LARGEST),
            "min_lt": _below(quantities.SMALLEST),
        },
        is_first_only=True,
        variants={"weight_initialization": Role.WEIGHT},
    ),
    Condition(
        "tensor_too_large",
        "The elements are too large.",
        {
            "abs_mean_gt": _above(quantities.ABSOLUTE_MEAN, Domain.NOT_NEGATIVE),
            "max_gt": _above(quantities.LARGEST),
            "min_gt": _above(quantities.SMALLEST),
            "mean_gt": _above(quantities.MEAN),
        },
        variants={"weight_too_large": Role.WEIGHT, "gradient_too_large": Role.GRADIENT},
    ),
    Condition(
        "tensor_too_small",
        "The elements are too small.",
        {
            "abs_mean_lt": _below(quantities.ABSOLUTE_MEAN, Domain.NOT_NEGATIVE),
            "max_lt": _below(quantities.LARGEST),
            "min_lt": _below(quantities.SMALLEST),
            "mean_lt": _below(quantities.MEAN),
        },
        variants={"weight_too_small": Role.WEIGHT, "gradient_vanishing": Role.GRADIENT},
    ),
    Condition("tensor_all_zero", "Too many elements are zero.", {"zero_percentage_ge": _ALL_ZERO}),
    Condition(
        "tensor_range",
        "Too many or too few elements lie in a range.",
        {
            "range_percentage_lt": _below(quantities.SHARE_WITHIN, Domain.PERCENT),
            "range_percentage_gt": _above(quantities.SHARE_WITHIN, Domain.PERCENT),
            "max_min_lt": _below(quantities.SPREAD, Domain.POSITIVE),
            "max_min_gt": _above(quantities.SPREAD, Domain.NOT_NEGATIVE),
        },
        settings={
            "range_start_inclusive": SettingParameter(Domain.NUMBER, None, "the lower end of the range"),
            "range_end_inclusive": SettingParameter(Domain.NUMBER, None, "the upper end of the range"),
        },
        variants={"activation_range": Role.ACTIVATION},
    ),
    Condition(
        "tensor_change_too_large",
        "A tensor changed too much since the step before.",
        {"abs_mean_update_ratio_gt": _above(quantities.UPDATE_RATIO, Domain.NOT_NEGATIVE, 0.1)},
        settings=_EPSILON,
        variants={"weight_change_too_large": Role.WEIGHT},
    ),
    Condition(
        "tensor_change_too_small",
        "A tensor changed too little since the step before.",
        {"abs_mean_update_ratio_lt": _below(quantities.UPDATE_RATIO, Domain.NOT_NEGATIVE, 1e-4)},
        settings=_EPSILON,
        variants={"weight_change_too_small": Role.WEIGHT},
    ),
    Condition(
        "tensor_not_changed",
        "No element changed since the step before.",
        fixed=(quantities.CHANGED_SHARE, Comparison.AT_MOST, 0.0),
        settings={
            "rtol": SettingParameter(Domain.NOT_NEGATIVE, 1e-5, "the change that counts as none, relative"),
            "atol": SettingParameter(Domain.NOT_NEGATIVE, 1e-8, "the change that counts as none, absolute"),
            "equal_nan": SettingParameter(Domain.TRUTH, 0, "NaN counts as unchanged where it was NaN before"),
        },
        variants={"weight_not_changed": Role.WEIGHT},
    ),
    # beyond MindSpore's conditions
    Condition(
        "saturated_float16",
        "Elements of a float16 tensor are at the limit of float16, 65504.",
        {"saturated_percentage_gt": _above(quantities.SATURATED_SHARE, Domain.PERCENT, 0)},
    ),
    Condition(
        "dead_relu",
        "Too many units of a ReLU are zero for the whole batch.",
        {"dead_percentage_ge": LimitParameter(quantities.DEAD_SHARE, Domain.PERCENT, 50)},
        role=Role.ACTIVATION,
        types=frozenset({"ReLU", "Relu", "ReLU6", "ReLUV2"}),
    ),
    Condition(
        "gradient_norm",
        "The norm of a gradient explodes or vanishes.",
        {
            "norm_gt": _above(quantities.NORM, Domain.NOT_NEGATIVE),
            "norm_lt": _below(quantities.NORM, Domain.NOT_NEGATIVE),
            "growth_gt": _above(quantities.NORM_GROWTH, Domain.NOT_NEGATIVE, 100),
            "growth_lt": _below(quantities.NORM_GROWTH, Domain.NOT_NEGATIVE, 0.01),
        },
        settings=_TRAIL,
        role=Role.GRADIENT,
    ),
    Condition(
        "update_to_weight",
        "A step changes a weight by too large or too small a share of the weight's norm.",
        {
            "ratio_gt": _above(quantities.STEP_RATIO, Domain.NOT_NEGATIVE, 0.1),
            "ratio_lt": _below(quantities.STEP_RATIO, Domain.NOT_NEGATIVE),
        },
        role=Role.WEIGHT,
    ),
    Condition(
        "loss_spike",
        "The loss is far above the median of the last steps, or not a number.",
        {"growth_gt": _above(quantities.MEAN_GROWTH, Domain.NOT_NEGATIVE, 3)},
        settings=_TRAIL,
        role=Role.LOSS,
    ),
    Condition(
        "ranks_disagree",
        "Ranks hold different values of a shared tensor, such as a weight, by its statistics.",
        fixed=(quantities.RANKS_APART, Comparison.ABOVE, 0.0),
        role=Role.WEIGHT,
    ),
)

CONDITIONS: Final[Mapping[str, Condition]] = {
    name: replace(each, name=name, meaning=f"As {each.name}.", role=role) if name != each.name else each
    for each in _CONDITIONS
    for name, role in {each.name: each.role, **each.variants}.items()
}
"""The conditions by name."""


PARAMETER: Final = "Parameter"
"""Type that files give weights and graph inputs."""

_ACTIVATIONS: Final = frozenset(
    {
        *("ReLU", "ReLU6", "ReLUV2", "Relu", "LeakyReLU", "LeakyRelu", "Elu", "SeLU", "Softplus", "Softsign"),
        *("Sigmoid", "Tanh", "GeLU", "Gelu", "FastGeLU", "HSwish", "HSigmoid", "SiLU", "Swish", "Mish"),
        *("PReLU", "Softmax", "SoftmaxV2", "LogSoftmax", "LogSoftmaxV2", "CeLU", "HardSwish", "HardSigmoid"),
    }
)
"""Types of operators whose outputs are activations."""

_LOSSES: Final = frozenset(
    {
        *("SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits", "NLLLoss", "MSELoss"),
        *("BCEWithLogitsLoss", "BinaryCrossEntropy", "SmoothL1Loss", "L1Loss", "KLDivLoss", "CTCLoss"),
        *("SoftMarginLoss", "SigmoidCrossEntropyWithLogits", "SoftmaxCrossEntropyLoss"),
        "NegativeLogLikelihoodLoss",
    }
)
"""Types of operators whose first output is a loss."""

_OPTIMIZERS: Final[Mapping[str, tuple[int, int]]] = {
    "ApplyMomentum": (0, 3),
    "ApplyMomentumD": (0, 3),
    "Momentum": (0, 3),
    "SGD": (0, 1),
    "Adam": (0, 9),
    "ApplyAdam": (0, 9),
    "ApplyAdamD": (0, 9),
    "AdamWeightDecay": (0, 8),
    "ApplyAdagrad": (0, 3),
    **dict.fromkeys(("ApplyRMSProp", "ApplyCenteredRMSProp"), (0, 4)),
    "ApplyFtrl": (0, 3),
    "ApplyGradientDescent": (0, 2),
    "Lamb": (0, 9),
}
"""Slots of an optimizer's weight, which it writes in place, and of the gradient, by its type."""

_STATE: Final = frozenset(
    {
        *("moment1", "moment2", "moments", "moment", "accum", "stat", "learning_rate", "momentum"),
        *("scale_sense", "global_step", "beta1_power", "beta2_power", "current_iterator_step"),
        *("last_overflow_iterator_step", "accum_momentum", "weight_decay"),
        *("adam_m", "adam_v", "mean_square", "mean_grad"),
    }
)
"""First components of names that parameters of an optimizer have, which are no weights."""

_OWN_NAME: Final = re.compile(
    rf"(?:optimizer_\d+|[A-Za-z_]\w*?)[._](?=(?:{'|'.join(sorted(_STATE))})(?:[._]|$))"
)
"""Prefix of the names where a step has several optimizers, or one with a name."""

GRADIENTS: Final = "Gradients"
"""First component of the full names of a backward graph's operators."""


@dataclass(frozen=True, slots=True)
class WatchedTensor:
    """An input or output of an operator, the same in every step.

    Attributes:
        op_type: Type of the operator, ``Parameter`` for weights and graph inputs.
        name: Full name of the operator, or its spelling in file names if unknown; or a parameter's name.
    """

    op_type: str
    name: str
    io: IO
    slot: int
    roles: frozenset[Role] = frozenset()

    def __str__(self) -> str:
        """Return ``Default/Add-op0 output.0``."""
        return f"{self.name} {self.io}.{self.slot}"


def subject(
    op_type: str, name: str, io: IO, slot: int, *, is_weight: bool = False, is_loss: bool = False
) -> WatchedTensor:
    """Return a tensor with the roles that follow from its operator.

    >>> sorted(subject("ApplyMomentum", "Default/opt/ApplyMomentum-op1", IO.INPUT, 3).roles)
    [<Role.GRADIENT: 'gradient'>]
    >>> sorted(subject("ReLU", "Default/ReLU-op0", IO.OUTPUT, 0).roles)
    [<Role.ACTIVATION: 'activation'>]
    >>> subject("Parameter", "moment1.fc.weight", IO.OUTPUT, 0, is_weight=True).roles
    frozenset()

    The model or its graph file says which tensors are a weight or the loss.
    """
    roles = set()
    is_backward = name.startswith(GRADIENTS)
    weight_slot, gradient_slot = _OPTIMIZERS.get(op_type, (-1, -1))
    if op_type in _OPTIMIZERS:  # the graph counts the optimizer's state as weights, too
        is_weight = io is IO.INPUT and slot == weight_slot
    if is_weight and not (op_type == PARAMETER and is_state(name)):
        roles.add(Role.WEIGHT)
    if (io is IO.INPUT and slot == gradient_slot) or (io is IO.OUTPUT and is_backward):
        roles.add(Role.GRADIENT)
    if io is IO.OUTPUT and op_type in _ACTIVATIONS and not is_backward:
        roles.add(Role.ACTIVATION)
    if is_loss or (io is IO.OUTPUT and not slot and op_type in _LOSSES and not is_backward):
        roles.add(Role.LOSS)
    return WatchedTensor(op_type, name, io, slot, frozenset(roles))


def is_state(name: str) -> bool:
    """Return whether a parameter is an optimizer's state, by its name or the name's spelling in files.

    >>> is_state("moment1.fc.weight"), is_state("moment1_fc_weight"), is_state("fc.weight")
    (True, True, False)
    >>> is_state("optimizer_0.momentum"), is_state("optimizer_1_moments_fc"), is_state("wide.moment1.fc")
    (True, True, True)
    """
    own = name[match.end() :] if (match := _OWN_NAME.match(name)) else name
    return own in _STATE or any(own.startswith((f"{prefix}.", f"{prefix}_")) for prefix in _STATE)


def state_of(operators: Iterable[tuple[str, Sequence[str]]]) -> frozenset[str]:
    """Return the inputs of optimizers other than weights and gradients, of operators (type, names of inputs).

    >>> sorted(state_of([("ApplyMomentum", ("fc.weight", "accum", "lr", "grad", "mu")), ("Add", ("a", "b"))]))
    ['accum', 'lr', 'mu']
    """
    return frozenset(
        name
        for op_type, inputs in operators
        if op_type in _OPTIMIZERS
        for slot, name in enumerate(inputs)
        if slot not in _OPTIMIZERS[op_type]
    )


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of a quantity.

    Attributes:
        parameter: Name of its parameter, "" for the fixed limit of a condition.
        quantity: The limited quantity.
        comparison: Relation of a measured value to the limit that makes a hit.
        value: The limit.
    """

    parameter: str
    quantity: Quantity
    comparison: Comparison
    value: float


@dataclass(frozen=True, slots=True)
class WatchTarget:
    """Tensors that a rule selects; None or an empty value selects all."""

    # operators by full name, type or regular expression, as items of ``kernels``
    patterns: tuple[KernelPattern, ...] = ()
    types: frozenset[str] = frozenset()  # types of operators, exactly, in any case
    scope: str = ""  # a scope, or a module's path
    role: Role | None = None  # role of the tensor
    io: IO | None = None  # side of the operator
    slot: int | None = None  # index on that side
    iterations: IterationSet = field(default_factory=IterationSet)  # iterations in which tensors are checked

    def takes(self, subject: WatchedTensor) -> bool:
        """Return whether a tensor is selected.

        Raises:
            ConfigValueError: Matching a regular expression takes too long.
        """
        return (
            (self.role is None or self.role in subject.roles)
            and (self.io is None or self.io is subject.io)
            and (self.slot is None or self.slot == subject.slot)
            and (not self.types or subject.op_type.lower() in self.types)
            and (not self.scope or lies_in(subject.name, self.scope))
            and (not self.patterns or any(self._matches(pattern, subject.name) for pattern in self.patterns))
        )

    @staticmethod
    def _matches(pattern: KernelPattern, name: str) -> bool:
        if pattern.matches(name):
            return True
        # without a list of operators, names are known only as spelled in file names
        is_spelled = pattern.kind is PatternKind.NAME and "/" not in name
        return is_spelled and pattern.text.replace("/", "_").replace(".", "_") == name.replace(".", "_")


@dataclass(frozen=True, slots=True)
class WatchRule:
    """A condition on some tensors.

    Attributes:
        name: Name of the rule, under which hits are reported.
        condition: Name of the condition.
        limits: The limits; passing one is a hit.
        settings: The condition's other parameters.
        is_first_only: A tensor is checked only the first time.
    """

    name: str
    condition: str
    limits: tuple[Limit, ...]
    settings: Settings
    target: WatchTarget
    is_first_only: bool = False

    @property
    def compares_ranks(self) -> bool:
        """Whether the rule compares a tensor between ranks."""
        return any(limit.quantity is RANKS_APART for limit in self.limits)

    @property
    def reads_overflows(self) -> bool:
        """Whether the rule reads the device's overflow status of operators."""
        return any(limit.quantity is OVERFLOWS for limit in self.limits)

    @property
    def compares_steps(self) -> bool:
        """Whether the elements of a step are needed in the next one."""
        return any(limit.quantity.past is Past.TENSOR for limit in self.limits)


def need_of(rules: Iterable[WatchRule]) -> StatisticNeed:
    """Return the statistics that any of several rules needs."""
    return quantities.need_of(limit.quantity for rule in rules for limit in rule.limits)
