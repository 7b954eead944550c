"""The values of an explanation: the given situation, and the account of an operator's inputs and outputs."""

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
    """The model and the configuration that are given beside the dump.

    Attributes:
        model: The model, None where it is not given.
        plan: The plan of the configuration; without one, a plan that dumps everything.
        is_configured: Whether there is a configuration.
    """

    model: Graph | None
    plan: DumpPlan
    is_configured: bool


@dataclass(frozen=True, slots=True)
class SlotAccount:
    """The files of an input or output, and the reasons why there are no more.

    Attributes:
        io: Input or output.
        slot: Its index; None stands for all inputs or outputs, where their number is not known.
        value: Name of the value in the model, "" without a model.
        tensors: Its tensors in the dump, in the order of time.
        reason: Reason why it has no file in any iteration; None where reasons differ or are not known.
        missing: Numbers of the iterations that lack it, by reason.
    """

    io: IO
    slot: int | None
    value: str = ""
    tensors: tuple[DumpedTensor, ...] = ()
    reason: Reason | None = None
    missing: Mapping[Reason, tuple[int | None, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The files of an operator in a dump, and the reasons why there are no more.

    Attributes:
        subject: The operator, weight, graph input or constant.
        slots: Accounts of its inputs, then of its outputs; of a fused operator those of the fused kernel.
        constants: Files of a constant, which stand beside the iterations.
    """

    subject: Subject
    slots: tuple[SlotAccount, ...]
    constants: tuple[DumpedTensor, ...] = ()
