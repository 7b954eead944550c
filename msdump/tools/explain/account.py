"""What is told of an operator of a dump, and what is known to tell it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msdump.graph.graph import Graph
from msdump.plan import DumpPlan
from msdump.reasons import Reason
from msdump.record import IO
from msdump.tools.explain.dumped import DumpedTensor
from msdump.tools.explain.subjects import Subject


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known beside the dump.

    Attributes:
        model: The model, None: not given.
        plan: What the configuration means; without one, that everything is dumped.
        is_configured: Whether there is a configuration.
    """

    model: Graph | None
    plan: DumpPlan
    is_configured: bool


@dataclass(frozen=True, slots=True)
class SlotAccount:
    """What there is of an input or output, and why no more.

    Attributes:
        io: Input or output.
        slot: Its index, None for a side of an operator of which nothing tells how many there are.
        value: Its name in the model, "" without one.
        tensors: What the dump holds, in the order of time.
        reason: Why it has no file in any iteration; None where that differs or nothing tells.
        missing: Numbers of the iterations that lack it, by the reason.
    """

    io: IO
    slot: int | None
    value: str = ""
    tensors: tuple[DumpedTensor, ...] = ()
    reason: Reason | None = None
    missing: Mapping[Reason, tuple[int | None, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a dump holds of an operator, and why no more.

    Attributes:
        subject: The operator, weight, graph input or constant.
        slots: Its inputs, then its outputs; those of the operator that it is fused into.
        constants: Files beside the iterations, of a constant.
    """

    subject: Subject
    slots: tuple[SlotAccount, ...]
    constants: tuple[DumpedTensor, ...] = ()
