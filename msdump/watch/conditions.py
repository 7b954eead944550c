"""The table of conditions: what each limits, by which parameters, and of which tensors.

The names and parameters of MindSpore's debugger (MindInsight, ``mindinsight.debugger``) mean what they mean
there: a condition is met where any of its limits is passed. Names below a comment "beyond" are msdump's own.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from msdump.watch import quantities
from msdump.watch.known import Bounds
from msdump.watch.quantities import Quantity


class Role(enum.StrEnum):
    """What a tensor is to a training."""

    WEIGHT = "weight"
    GRADIENT = "gradient"
    ACTIVATION = "activation"
    LOSS = "loss"


class Comparison(enum.Enum):
    """How a quantity passes a limit."""

    ABOVE = ">"
    AT_LEAST = ">="
    BELOW = "<"
    AT_MOST = "<="

    def holds(self, bounds: Bounds, limit: float) -> bool | None:
        """Tell whether a quantity passes a limit; None where its bounds do not tell.

        >>> Comparison.ABOVE.holds(Bounds(1, 3), 2), Comparison.ABOVE.holds(Bounds(1, 3), 3)
        (None, False)
        >>> Comparison.AT_LEAST.holds(Bounds(3, 3), 3)
        True
        """
        compare = _COMPARE[self]
        is_above = self in {Comparison.ABOVE, Comparison.AT_LEAST}
        surest, other = (bounds.low, bounds.high) if is_above else (bounds.high, bounds.low)
        if compare(surest, limit):
            return True
        return None if compare(other, limit) else False


_COMPARE: Final[Mapping[Comparison, Callable[[float, float], bool]]] = {
    Comparison.ABOVE: operator.gt,
    Comparison.AT_LEAST: operator.ge,
    Comparison.BELOW: operator.lt,
    Comparison.AT_MOST: operator.le,
}


class Domain(enum.Enum):
    """Which numbers a parameter takes, in the words of its message."""

    NUMBER = "a number"
    NOT_NEGATIVE = "a number from 0"
    POSITIVE = "a number above 0"
    PERCENT = "a number from 0 to 100"
    COUNT = "a whole number from 1"
    TRUTH = "true or false"


@dataclass(frozen=True, slots=True)
class LimitParameter:
    """A parameter that is a limit.

    Attributes:
        quantity: What it limits.
        comparison: How the limit is passed.
        domain: Which numbers it takes.
        default: Its value where the rule gives none; None: it limits nothing then.
    """

    quantity: Quantity
    comparison: Comparison
    domain: Domain = Domain.NUMBER
    default: float | None = None


@dataclass(frozen=True, slots=True)
class SettingParameter:
    """A parameter that is no limit, but says how something is measured.

    Attributes:
        domain: Which numbers it takes.
        default: Its value where the rule gives none; None: limits that need it cannot be given then.
        meaning: What it says.
    """

    domain: Domain
    default: float | None
    meaning: str


@dataclass(frozen=True, slots=True)
class Condition:
    """What a kind of rule checks.

    Attributes:
        name: Its name.
        meaning: What it tells, in a sentence.
        limits: Its limits by the parameter that gives each.
        fixed: A limit that no parameter changes: quantity, comparison, value; None without one.
        settings: Its other parameters.
        role: What the tensors are that it looks at where a rule says nothing; None: any.
        types: Operators whose outputs it looks at, by type; none: all.
        is_first_only: It looks at a tensor only the first time it sees it.
    """

    name: str
    meaning: str
    limits: Mapping[str, LimitParameter] = field(default_factory=dict)
    fixed: tuple[Quantity, Comparison, float] | None = None
    settings: Mapping[str, SettingParameter] = field(default_factory=dict)
    role: Role | None = None
    types: frozenset[str] = frozenset()
    is_first_only: bool = False


_OVERFLOW: Final = (quantities.NONFINITE, Comparison.ABOVE, 0.0)
_TOO_LARGE: Final = {
    "abs_mean_gt": LimitParameter(quantities.ABSOLUTE_MEAN, Comparison.ABOVE, Domain.NOT_NEGATIVE),
    "max_gt": LimitParameter(quantities.LARGEST, Comparison.ABOVE),
    "min_gt": LimitParameter(quantities.SMALLEST, Comparison.ABOVE),
    "mean_gt": LimitParameter(quantities.MEAN, Comparison.ABOVE),
}
_TOO_SMALL: Final = {
    "abs_mean_lt": LimitParameter(quantities.ABSOLUTE_MEAN, Comparison.BELOW, Domain.NOT_NEGATIVE),
    "max_lt": LimitParameter(quantities.LARGEST, Comparison.BELOW),
    "min_lt": LimitParameter(quantities.SMALLEST, Comparison.BELOW),
    "mean_lt": LimitParameter(quantities.MEAN, Comparison.BELOW),
}
_ALL_ZERO: Final = LimitParameter(quantities.ZERO_SHARE, Comparison.AT_LEAST, Domain.PERCENT, 100)
_INITIALIZATION: Final = {
    "zero_percentage_ge": _ALL_ZERO,
    "max_gt": LimitParameter(quantities.LARGEST, Comparison.ABOVE),
    "min_lt": LimitParameter(quantities.SMALLEST, Comparison.BELOW),
}
_RANGE: Final = {
    "range_percentage_lt": LimitParameter(quantities.SHARE_WITHIN, Comparison.BELOW, Domain.PERCENT),
    "range_percentage_gt": LimitParameter(quantities.SHARE_WITHIN, Comparison.ABOVE, Domain.PERCENT),
    "max_min_lt": LimitParameter(quantities.SPREAD, Comparison.BELOW, Domain.POSITIVE),
    "max_min_gt": LimitParameter(quantities.SPREAD, Comparison.ABOVE, Domain.NOT_NEGATIVE),
}
_ENDS: Final = {
    "range_start_inclusive": SettingParameter(Domain.NUMBER, None, "the lower end of the range"),
    "range_end_inclusive": SettingParameter(Domain.NUMBER, None, "the upper end of the range"),
}
_CHANGE_LARGE: Final = {
    "abs_mean_update_ratio_gt": LimitParameter(
        quantities.UPDATE_RATIO, Comparison.ABOVE, Domain.NOT_NEGATIVE, 0.1
    )
}
_CHANGE_SMALL: Final = {
    "abs_mean_update_ratio_lt": LimitParameter(
        quantities.UPDATE_RATIO, Comparison.BELOW, Domain.NOT_NEGATIVE, 1e-4
    )
}
_EPSILON: Final = {
    "epsilon": SettingParameter(Domain.NOT_NEGATIVE, 1e-9, "added to what the change is divided by")
}
_NOT_CHANGED: Final = (quantities.CHANGED_SHARE, Comparison.AT_MOST, 0.0)
_TOLERANCES: Final = {
    "rtol": SettingParameter(Domain.NOT_NEGATIVE, 1e-5, "the change that counts as none, relative"),
    "atol": SettingParameter(Domain.NOT_NEGATIVE, 1e-8, "the change that counts as none, absolute"),
    "equal_nan": SettingParameter(Domain.TRUTH, 0, "NaN counts as unchanged where it was NaN before"),
}
_TRAIL: Final = {
    "window": SettingParameter(Domain.COUNT, 20, "steps that the median is taken of"),
    "after": SettingParameter(Domain.COUNT, 5, "steps that pass before anything is told"),
}

_RELU: Final = frozenset({"ReLU", "Relu", "ReLU6", "ReLUV2"})

_CONDITIONS: Final = (
    Condition(
        "operator_overflow",
        "The device says that the operator overflowed when it wrote the tensor, as `op_debug_mode` 3 has it.",
        fixed=(quantities.OVERFLOWS, Comparison.ABOVE, 0.0),
    ),
    Condition("tensor_overflow", "An element is NaN or infinite.", fixed=_OVERFLOW),
    Condition("weight_overflow", "As tensor_overflow.", fixed=_OVERFLOW, role=Role.WEIGHT),
    Condition("gradient_exploding", "As tensor_overflow.", fixed=_OVERFLOW, role=Role.GRADIENT),
    Condition(
        "tensor_initialization",
        "A tensor begins with too many zeros, or beyond a limit.",
        _INITIALIZATION,
        is_first_only=True,
    ),
    Condition(
        "weight_initialization",
        "As tensor_initialization.",
        _INITIALIZATION,
        role=Role.WEIGHT,
        is_first_only=True,
    ),
    Condition("tensor_too_large", "The elements are too large.", _TOO_LARGE),
    Condition("weight_too_large", "As tensor_too_large.", _TOO_LARGE, role=Role.WEIGHT),
    Condition("gradient_too_large", "As tensor_too_large.", _TOO_LARGE, role=Role.GRADIENT),
    Condition("tensor_too_small", "The elements are too small.", _TOO_SMALL),
    Condition("weight_too_small", "As tensor_too_small.", _TOO_SMALL, role=Role.WEIGHT),
    Condition("gradient_vanishing", "As tensor_too_small.", _TOO_SMALL, role=Role.GRADIENT),
    Condition("tensor_all_zero", "Too many elements are zero.", {"zero_percentage_ge": _ALL_ZERO}),
    Condition("tensor_range", "Too many or too few elements lie in a range.", _RANGE, settings=_ENDS),
    Condition("activation_range", "As tensor_range.", _RANGE, settings=_ENDS, role=Role.ACTIVATION),
    Condition(
        "tensor_change_too_large",
        "A tensor changed too much since the step before.",
        _CHANGE_LARGE,
        settings=_EPSILON,
    ),
    Condition(
        "weight_change_too_large",
        "As tensor_change_too_large.",
        _CHANGE_LARGE,
        settings=_EPSILON,
        role=Role.WEIGHT,
    ),
    Condition(
        "tensor_change_too_small",
        "A tensor changed too little since the step before.",
        _CHANGE_SMALL,
        settings=_EPSILON,
    ),
    Condition(
        "weight_change_too_small",
        "As tensor_change_too_small.",
        _CHANGE_SMALL,
        settings=_EPSILON,
        role=Role.WEIGHT,
    ),
    Condition(
        "tensor_not_changed",
        "No element changed since the step before.",
        fixed=_NOT_CHANGED,
        settings=_TOLERANCES,
    ),
    Condition(
        "weight_not_changed",
        "As tensor_not_changed.",
        fixed=_NOT_CHANGED,
        settings=_TOLERANCES,
        role=Role.WEIGHT,
    ),
    # beyond MindSpore's
    Condition(
        "saturated_float16",
        "Elements of a float16 tensor stand at its limit, 65504.",
        {
            "saturated_percentage_gt": LimitParameter(
                quantities.SATURATED_SHARE, Comparison.ABOVE, Domain.PERCENT, 0
            )
        },
    ),
    Condition(
        "dead_relu",
        "Too many units of a ReLU are zero for the whole batch.",
        {
            "dead_percentage_ge": LimitParameter(
                quantities.DEAD_SHARE, Comparison.AT_LEAST, Domain.PERCENT, 50
            )
        },
        role=Role.ACTIVATION,
        types=_RELU,
    ),
    Condition(
        "gradient_norm",
        "The norm of a gradient explodes or vanishes.",
        {
            "norm_gt": LimitParameter(quantities.NORM, Comparison.ABOVE, Domain.NOT_NEGATIVE),
            "norm_lt": LimitParameter(quantities.NORM, Comparison.BELOW, Domain.NOT_NEGATIVE),
            "growth_gt": LimitParameter(quantities.NORM_GROWTH, Comparison.ABOVE, Domain.NOT_NEGATIVE, 100),
            "growth_lt": LimitParameter(quantities.NORM_GROWTH, Comparison.BELOW, Domain.NOT_NEGATIVE, 0.01),
        },
        settings=_TRAIL,
        role=Role.GRADIENT,
    ),
    Condition(
        "update_to_weight",
        "A step changes a weight by too much or too little of its norm.",
        {
            "ratio_gt": LimitParameter(quantities.STEP_RATIO, Comparison.ABOVE, Domain.NOT_NEGATIVE, 0.1),
            "ratio_lt": LimitParameter(quantities.STEP_RATIO, Comparison.BELOW, Domain.NOT_NEGATIVE),
        },
        role=Role.WEIGHT,
    ),
    Condition(
        "loss_spike",
        "The loss is far above the median of the last steps, or no number.",
        {"growth_gt": LimitParameter(quantities.MEAN_GROWTH, Comparison.ABOVE, Domain.NOT_NEGATIVE, 3)},
        settings=_TRAIL,
        role=Role.LOSS,
    ),
    Condition(
        "ranks_disagree",
        "Ranks hold different bits of a tensor that they should share, such as a weight.",
        fixed=(quantities.RANKS_APART, Comparison.ABOVE, 0.0),
        role=Role.WEIGHT,
    ),
)

CONDITIONS: Final[Mapping[str, Condition]] = {condition.name: condition for condition in _CONDITIONS}
"""The conditions by name."""
