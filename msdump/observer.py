"""Observers of running operators: the interface between the loop that runs them and the rooms that watch."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from msdump.graph import Graph
from msdump.statistics import StatisticNeed, TotalsArray

Array = np.ndarray | None
"""A tensor; None for an absent input, an unused output, or a value that is no tensor."""

Arrays = Sequence[Array]
"""The inputs or the outputs of an operator, one for each slot."""


class NodeRun(NamedTuple):
    """An operator that has run; its tensors are views, valid while they are referenced."""

    position: int  # place of the operator in the graph's execution order
    inputs: Arrays  # its inputs; empty where the observer does not want them
    outputs: Arrays  # its outputs; empty where the observer does not want them
    is_saturated: bool = False  # the emulated device's overflow status after the operator


class Interest(NamedTuple):
    """The operators and tensors that an observer is shown."""

    # by place in the execution order, whether an operator is shown; empty: none is
    positions: tuple[bool, ...] = ()
    inputs: bool = False  # whether inputs are shown
    outputs: bool = False  # whether outputs are shown
    # the statistics that are wanted in place of elements; None: the elements are wanted
    need: StatisticNeed | None = None
    # whether each operator is shown before the next one runs, because the observer may change its interest.
    # Else the operators of a segment are shown together, after it
    one_by_one: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether no operator is shown."""
        return not any(self.positions)

    def shows(self, position: int) -> bool:
        """Return whether the operator at a position is shown."""
        return bool(self.positions) and self.positions[position]

    def joined(self, other: Interest) -> Interest:
        """Return the interest in all that either of two interests of the same graph shows.

        Statistics are not enough where one of them wants elements.
        """
        if other.is_empty or self.is_empty:
            return self if other.is_empty else other
        needs = [interest.need for interest in (self, other) if interest.need is not None]
        return Interest(
            tuple(map(operator.or_, self.positions, other.positions)),
            self.inputs or other.inputs,
            self.outputs or other.outputs,
            needs[0] | needs[1] if len(needs) == 2 else None,  # noqa: PLR2004 - both
            self.one_by_one or other.one_by_one,
        )


NO_INTEREST: Final = Interest()


class ElementsNeededError(Exception):
    """An observer needs elements, not statistics: the operators run once more, with elements shown."""


class Observer:
    """An observer of the operators of one graph: a capture, a meter, the watcher, or several in a row."""

    # the operators and tensors that it is shown. Segments are planned anew when it is replaced
    interest = NO_INTEREST

    def starting(self, position: int, inputs: Arrays) -> None:
        """Observe the inputs of a collective before it runs; ``ran`` or ``failed`` is called afterwards."""

    def ran(self, batch: Sequence[NodeRun], found: TotalsArray | None = None) -> None:
        """Observe operators that have run; If, Loop and Scan come after the operators of their bodies.

        Args:
            batch: The operators in order. With statistics, their arrays have types and shapes, but no
                elements; runs with the same types and shapes pass the same object.
            found: The statistics of the tensors of ``batch`` in the order of ``tensors_of``; None if
                elements are shown.

        Raises:
            ElementsNeededError: The statistics do not suffice.
        """

    def failed(self, position: int, inputs: Arrays) -> None:
        """Observe the inputs of an operator that has just failed."""

    def looks_into(self, body: Graph) -> bool:  # noqa: ARG002
        """Return whether a branch or loop body is observed; if not, If or Loop may run as one operator."""
        return False

    def enter(self, body: Graph) -> Observer | None:
        """Return the observer of one pass of a branch or loop body, None if the pass is not observed."""


def tensors_of(batch: Iterable[tuple[Any, ...]]) -> list[np.ndarray]:
    """Return inputs and outputs (items 1 and 2) of operators in order, without absent ones (None)."""
    return [array for run in batch for array in (*run[1], *run[2]) if array is not None]


def places_of(kept: Iterable[np.ndarray], tensors: Iterable[np.ndarray]) -> list[int]:
    """Return the index in ``tensors`` of each kept tensor, found by object identity."""
    places = {id(array): place for place, array in enumerate(tensors)}
    return [places[id(array)] for array in kept]
