"""Observers of running operators: the interface between the loop that runs them and the rooms that watch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from msdump.graph import Graph
from msdump.statistics import StatisticNeed, TotalsArray

Array = np.ndarray | None
"""A tensor; None for an absent input, an unused output, or a value that is no tensor."""

Arrays = Sequence[Array]
"""The inputs or the outputs of an operator, one for each slot."""


RanNode = tuple[int, Arrays, Arrays]
"""Of an operator that has run: its place in the graph's execution order, its inputs and outputs."""


class Observer:
    """An observer of the operators of one graph: a capture, a meter, the watcher, or several in a row.

    By itself it ignores what it is shown.

    Attributes:
        watched: By node position: whether the observer is called for it.
        wants_inputs: Whether it is shown what operators read.
        wants_outputs: Whether it is shown what they wrote.
        completes_before_next: By node position: whether nothing runs on before ``ran`` has returned, since it
            may change values, or what is watched; empty: nowhere. Elsewhere the operators of a segment are
            shown once all of them have run.
        need: What one pass over the elements of tensors has to find, so that ``measured`` is called in place
            of ``ran``; None: the elements are needed.
    """

    watched: Sequence[bool]
    wants_inputs = False
    wants_outputs = False
    completes_before_next: Sequence[bool] = ()
    need: StatisticNeed | None = None

    def starting(self, position: int, inputs: Arrays) -> None:
        """Observe the inputs of a collective that is about to run; ``ran`` or ``failed`` follows.

        Other operators are seen once they have run: theirs hold nothing else before.

        Args:
            position: Place of the operator in the graph's execution order.
            inputs: Its inputs, nothing where the observer does not want them.
        """

    def ran(
        self, position: int, inputs: Arrays, outputs: Arrays, *, saturated: bool = False
    ) -> Mapping[str, np.ndarray] | None:
        """Observe an operator that has just run; its tensors are views, valid while they are referenced.

        Control flow is shown as well, after its bodies, where it is watched.

        Args:
            position: Place of the operator in the graph's execution order.
            inputs: Its inputs, nothing where the observer does not want them.
            outputs: Its outputs, nothing where the observer does not want them.
            saturated: The emulated device's overflow status after the operator.

        Returns:
            Values of the graph that the operator has overwritten by fault, by name; operators that
            read them later read these, which the observer keeps until the run has ended.
        """

    def together(self) -> AbstractContextManager[None]:
        """Return a context in which operators that have run together are shown; work may wait for its end."""
        return nullcontext()

    def measured(self, ran: Sequence[RanNode], found: TotalsArray) -> bool:  # noqa: ARG002
        """Observe operators that have run together, in place of ``ran``.

        Args:
            ran: The operators; their tensors are arrays of the right type and shape whose elements mean
                nothing. While types and shapes stay the same it is the same object from run to run, so that
                what depends on nothing else may be kept with it.
            found: What was found of the tensors that are there, in their order (``tensors_of``).

        Returns:
            Whether nothing else is needed; where it is, all of them run and are shown once more.
        """
        return False

    def failed(self, position: int, inputs: Arrays) -> None:
        """Observe the inputs of an operator that has just failed."""

    def looks_into(self, body: Graph) -> bool:  # noqa: ARG002
        """Return whether the observer has to see a branch or loop body run, or anything inside it.

        Else the body may run as a part of the operator that it belongs to, and is not entered.
        """
        return False

    def enter(self, body: Graph) -> Observer | None:
        """Return the observer of a branch or loop body that is about to run once, None for none.

        A loop enters its body anew for every iteration.
        """


def tensors_of(ran: Iterable[tuple[object, Arrays, Arrays]]) -> list[np.ndarray]:
    """Return the tensors of operators that are there, operator by operator, inputs first."""
    return [array for _, inputs, outputs in ran for array in (*inputs, *outputs) if array is not None]


def places_of(kept: Iterable[np.ndarray], tensors: Iterable[np.ndarray]) -> list[int]:
    """Return where each of some tensors stands among others: the same objects."""
    places = {id(array): place for place, array in enumerate(tensors)}
    return [places[id(array)] for array in kept]
