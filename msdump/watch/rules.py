"""Rules: which tensors are looked at, and which limits they must not pass."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from dataclasses import dataclass, field

from msdump.iterations import IterationSet
from msdump.record import IO, lies_in
from msdump.selector import KernelPattern, PatternKind
from msdump.statistics.totals import NOTHING, StatisticNeed
from msdump.watch.conditions import Comparison, Role
from msdump.watch.quantities import OVERFLOWS, RANKS_APART, Quantity, Settings
from msdump.watch.subjects import WatchedTensor


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of a quantity.

    Attributes:
        parameter: Name of the parameter that gives it, "" where the condition itself does.
        quantity: What it limits.
        comparison: How it is passed.
        value: The limit.
    """

    parameter: str
    quantity: Quantity
    comparison: Comparison
    value: float


@dataclass(frozen=True, slots=True)
class WatchTarget:
    """Which tensors a rule looks at; what is None or empty selects nothing away.

    Attributes:
        patterns: Operators by full name, type or regular expression, as items of ``kernels``.
        types: Types of operators, exactly, in any case.
        scope: A scope, or a module's path.
        role: What the tensor is to a training.
        io: Side of the operator.
        slot: Index on that side.
        iterations: Iterations in which it looks.
    """

    patterns: tuple[KernelPattern, ...] = ()
    types: frozenset[str] = frozenset()
    scope: str = ""
    role: Role | None = None
    io: IO | None = None
    slot: int | None = None
    iterations: IterationSet = field(default_factory=IterationSet)

    def takes(self, subject: WatchedTensor) -> bool:
        """Tell whether a tensor is looked at.

        Raises:
            ConfigValueError: Matching a regular expression takes too long.
        """
        return (
            (self.role is None or self.role in subject.roles)
            and (self.io is None or self.io is subject.io)
            and (self.slot is None or self.slot == subject.slot)
            and (not self.types or subject.op_type.lower() in self.types)
            and (not self.scope or lies_in(subject.name, self.scope))
            and (not self.patterns or any(_matches(pattern, subject.name) for pattern in self.patterns))
        )


@dataclass(frozen=True, slots=True)
class WatchRule:
    """A condition on some tensors.

    Attributes:
        name: What hits are told under.
        condition: Name of the condition.
        limits: The limits; one that is passed is a hit.
        settings: The condition's other parameters.
        target: The tensors.
        is_first_only: It looks at a tensor only the first time.
    """

    name: str
    condition: str
    limits: tuple[Limit, ...]
    settings: Settings
    target: WatchTarget
    is_first_only: bool = False

    @property
    def need(self) -> StatisticNeed:
        """What a pass over a tensor's elements has to find out."""
        return functools.reduce(operator.or_, (limit.quantity.need for limit in self.limits), NOTHING)

    @property
    def compares_ranks(self) -> bool:
        """Whether it compares what ranks hold."""
        return any(limit.quantity is RANKS_APART for limit in self.limits)

    @property
    def reads_overflows(self) -> bool:
        """Whether it asks what the device says of the operator, beyond what the tensor holds."""
        return any(limit.quantity is OVERFLOWS for limit in self.limits)

    @property
    def keeps_elements(self) -> bool:
        """Whether the elements of a step are needed in the next one."""
        return any(limit.quantity.needs_elements_before for limit in self.limits)


def need_of(rules: Iterable[WatchRule]) -> StatisticNeed:
    """Return what one pass over a tensor finds out for some rules."""
    return functools.reduce(operator.or_, (rule.need for rule in rules), NOTHING)


def _matches(pattern: KernelPattern, name: str) -> bool:
    if pattern.matches(name):
        return True
    # a dump without a list of operators knows names only as its files spell them
    is_spelled = pattern.kind is PatternKind.NAME and "/" not in name
    return is_spelled and pattern.text.replace("/", "_").replace(".", "_") == name.replace(".", "_")
