"""Segments of a program, and the views that consist of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from msdump.execute.runtime import OrtValue, Run
from msdump.execute.segments.operators import ProgramOperator
from msdump.graph.kernel.linked import NO_LOOKS, SessionLooks
from msdump.observer import RanNode, TensorSlot
from msdump.statistics.insession import SessionMeasures
from msdump.statistics.totals import StatisticNeed


@dataclass(frozen=True, slots=True)
class MeasuredOperators:
    """Operators as an observer is shown them while their tensors have the same types and shapes.

    Attributes:
        kinds: Types and shapes of the values that the session measures.
        watched: What the observer watches.
        ran: The operators.
        places: Which of the measured values their tensors are.
        counts: The number of elements of each.
    """

    kinds: bytes
    watched: Sequence[bool]
    ran: Sequence[RanNode]
    places: slice | Sequence[int]
    counts: np.ndarray


@dataclass(slots=True, eq=False)
class Measuring:
    """What the session of a segment finds of values, run after run.

    Attributes:
        found: Where it writes that.
        addresses: What it is fed.
        last: What an observer was shown in the last run.
    """

    found: SessionMeasures
    addresses: OrtValue
    last: MeasuredOperators | None = None


@dataclass(slots=True, eq=False)
class Segment:
    """Operators that run one after the other, as one session where there are several.

    Attributes:
        operators: The operators.
        single: The operator, where it is one; it runs by itself.
        shown: Those that an observer looks at.
        outputs: Values that are read after the segment, or looked at.
        feeds: (feed name, slot) of everything that is fed.
        names: Names of the outputs in the session.
        results: Slot of each output.
        dead: Slots that nobody reads after the segment.
        looks: What its session does about values where it makes them, in place of giving them to be shown.
        saved: The tensors that it writes to files, in its order.
        run: The session's function, None before the first run.
        measuring: What its session measures, None where it measures nothing, and before the first run.
        fed_addresses: What it was told of files in the last run, and the value that it was fed for it.
    """

    operators: tuple[ProgramOperator, ...]
    single: ProgramOperator | None
    shown: tuple[ProgramOperator, ...] = ()
    outputs: tuple[str, ...] = ()
    feeds: tuple[tuple[str, int], ...] = ()
    names: list[str] = field(default_factory=list)
    results: tuple[int, ...] = ()
    dead: tuple[int, ...] = ()
    looks: SessionLooks = NO_LOOKS
    saved: tuple[TensorSlot, ...] = ()
    run: Run | None = None
    measuring: Measuring | None = None
    fed_addresses: tuple[np.ndarray, OrtValue] | None = None

    @property
    def positions(self) -> range:
        """Places of its operators in the graph's execution order."""
        return range(self.operators[0].position, self.operators[-1].position + 1)


@dataclass(frozen=True, slots=True)
class ProgramView:
    """The segments of a program for one way to look at it.

    Attributes:
        watched: By position, whether an observer looks at an operator; None: at none.
        holds_up: By position, whether nothing runs on before it has seen an operator; empty: nowhere.
        wants_inputs: Whether it looks at inputs.
        wants_outputs: Whether it looks at outputs.
        dimensions: Sizes of named dimensions in the first run.
        entered: Positions of control flow whose bodies are looked into.
        need: What it wants to know of tensors in place of their elements, None: elements.
        saves: By position, whether a session may write the tensors, which are not shown then; empty: nowhere.
        given: Positions of operators of which it has wanted elements.
        segments: The segments in order; those that the runtime refuses are cut into smaller ones.
    """

    watched: Sequence[bool] | None
    holds_up: Sequence[bool]
    wants_inputs: bool
    wants_outputs: bool
    dimensions: dict[str, int]
    entered: frozenset[int] = frozenset()
    need: StatisticNeed | None = None
    saves: Sequence[bool] = ()
    given: set[int] = field(default_factory=set)
    segments: list[Segment] = field(default_factory=list)

    def shows(self, operator: ProgramOperator) -> bool:
        """Tell whether an operator is looked at, its tensors or that it ran."""
        return self.watched is not None and self.watched[operator.position]

    def names(self, operator: ProgramOperator) -> tuple[str, ...]:
        """Return the values of an operator that are looked at, "" for absent ones."""
        if not self.shows(operator):
            return ()
        inputs = operator.inputs if self.wants_inputs else ()
        return (*inputs, *operator.outputs) if self.wants_outputs else inputs
