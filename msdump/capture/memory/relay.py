"""The relay between an observer that watches every operator and a capture that watches some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from msdump.graph.graph import Graph
from msdump.observer import Arrays, Observer, Shown, need_of, take_measured
from msdump.statistics.totals import Totals


class Relay:
    """Passes on to a capture what it wants to see of a run that somebody else watches as a whole.

    Attributes:
        wants_inputs: Whether the capture wants to see what operators read.
        holds_up: Where nothing may run on before the capture has seen an operator.
        need: What the capture needs to know of tensors, None where it needs their elements.
    """

    def __init__(self, capture: Observer | None) -> None:
        """Pass on to a capture, None: to nobody."""
        self._capture = capture
        self.wants_inputs = capture is not None and capture.wants_inputs
        self.holds_up: Sequence[bool] = () if capture is None else capture.holds_up
        self.need = None if capture is None else need_of(capture)

    def ran(
        self, position: int, inputs: Arrays, outputs: Arrays, *, saturated: bool
    ) -> Mapping[str, np.ndarray] | None:
        """Pass on an operator that the capture watches; return what its ``ran`` returns."""
        capture = self._capture
        if capture is None or not capture.watched[position]:
            return None
        shown = outputs if capture.wants_outputs else ()  # as the loop would do for the capture alone
        return capture.ran(position, inputs, shown, saturated=saturated)

    def measured(self, ran: Sequence[Shown], totals: Mapping[int, Totals]) -> bool:
        """Pass on those of operators that the capture watches; return what its ``measured`` returns."""
        capture = self._capture
        assert capture is not None, "it needs no elements"
        shown = [
            (position, inputs, outputs if capture.wants_outputs else ())
            for position, inputs, outputs in ran
            if capture.watched[position]
        ]
        return take_measured(capture, shown, totals)

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
