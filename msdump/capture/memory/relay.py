"""The relay between an observer that watches every operator and a capture that watches some of them."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from msdump.graph.graph import Graph
from msdump.observer import (
    Arrays,
    Observer,
    RanNode,
    TensorSlot,
    need_of,
    places_of,
    saves_of,
    saving,
    take_measured,
    tensors_of,
)
from msdump.statistics.totals import SeveralTotals

if TYPE_CHECKING:
    from msdump.store.session_files import SessionFiles


class Relay:
    """Passes on to a capture what it wants to see of a run that somebody else watches as a whole.

    Attributes:
        wants_inputs: Whether the capture wants to see what operators read.
        holds_up: Where nothing may run on before the capture has seen an operator.
        need: What the capture needs to know of tensors, None where it needs their elements.
        saves: Where a session may do all that the capture wants of outputs; empty: nowhere.
    """

    def __init__(self, capture: Observer | None) -> None:
        """Pass on to a capture, None: to nobody."""
        self._capture = capture
        self.wants_inputs = capture is not None and capture.wants_inputs
        self.holds_up: Sequence[bool] = () if capture is None else capture.holds_up
        self.need = None if capture is None else need_of(capture)
        self.saves = _saves(capture)

    def ran(
        self, position: int, inputs: Arrays, outputs: Arrays, *, saturated: bool
    ) -> Mapping[str, np.ndarray] | None:
        """Pass on an operator that the capture watches; return what its ``ran`` returns."""
        capture = self._capture
        if capture is None or not capture.watched[position]:
            return None
        shown = outputs if capture.wants_outputs else ()  # as the loop would do for the capture alone
        return capture.ran(position, inputs, shown, saturated=saturated)

    def measured(self, ran: Sequence[RanNode], found: SeveralTotals) -> bool:
        """Pass on those of operators that the capture watches; return what its ``measured`` returns."""
        capture = self._capture
        assert capture is not None, "it needs no elements"
        shown = [
            (position, inputs, outputs if capture.wants_outputs else ())
            for position, inputs, outputs in ran
            if capture.watched[position]
        ]
        return take_measured(capture, shown, found.at(places_of(tensors_of(shown), tensors_of(ran))))

    def begin_saving(self, tensors: Sequence[TensorSlot]) -> SessionFiles | None:
        """Return the capture's files of what a session makes."""
        assert self._capture is not None, "else nothing is saved"
        return saving(self._capture).begin_saving(tensors)

    def saved(self, tensors: Sequence[TensorSlot], files: SessionFiles) -> None:
        """Pass on what a session has written."""
        assert self._capture is not None, "else nothing is saved"
        saving(self._capture).saved(tensors, files)

    def starting(self, position: int, inputs: Arrays) -> None:
        """Pass on a collective that is about to run, where the capture watches it."""
        if self._capture is not None and self._capture.watched[position]:
            self._capture.starting(position, inputs)

    def failed(self, position: int, inputs: Arrays) -> None:
        """Pass on a failed operator."""
        if self._capture is not None:
            self._capture.failed(position, inputs)

    def inside(self, body: Graph) -> Relay:
        """Return the relay to the capture's observer of a branch or the body of a loop."""
        return Relay(None if self._capture is None else self._capture.enter(body))


def _saves(capture: Observer | None) -> Sequence[bool]:
    saves = () if capture is None else saves_of(capture)
    if capture is None or not any(saves):
        return ()
    # what the capture does not watch, a session only sees
    return tuple(map(operator.or_, saves, map(operator.not_, capture.watched)))
