"""An observer that measures device memory, and passes on what a capture wants to see."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from msdump.capture.memory.relay import Relay
from msdump.device.meter import Meter
from msdump.device.residence import Residence
from msdump.graph.graph import Graph
from msdump.observer import Array, Arrays, RanNode, TensorSlot
from msdump.record import IO
from msdump.statistics.totals import SeveralTotals

if TYPE_CHECKING:
    from msdump.store.session_files import SessionFiles


class Metered:
    """Watches every operator of one run for the meter, and those of a capture for the capture."""

    wants_outputs = True

    def __init__(
        self, meter: Meter, relay: Relay, graph: Graph, residence_of: Callable[[Graph], Residence]
    ) -> None:
        """Join a meter and a capture of one graph.

        Args:
            meter: Follows the run in device memory.
            relay: Passes operators on to the capture.
            graph: The graph.
            residence_of: Returns what lies in memory when, for a branch or a loop body.
        """
        self._meter = meter
        self._graph = graph
        self._relay = relay
        self._residence_of = residence_of
        self.watched: Sequence[bool] = (True,) * len(graph.nodes)
        self.wants_inputs = relay.wants_inputs
        self.holds_up = relay.holds_up
        self.need = relay.need
        # what does not fit ends the run: nothing behind it may have been written before this is known
        self.saves = () if meter.has_limit else relay.saves

    def starting(self, position: int, inputs: Arrays) -> None:
        """Let the capture see a collective that is about to run."""
        self._relay.starting(position, inputs)

    def ran(
        self, position: int, inputs: Arrays, outputs: Arrays, *, saturated: bool = False
    ) -> Mapping[str, np.ndarray] | None:
        """Measure the results of an operator, then let the capture see it."""
        # in this order: files tell the addresses of results, which the meter gives them
        self._meter.ran(position, outputs)
        return self._relay.ran(position, inputs, outputs, saturated=saturated)

    def measured(self, ran: Sequence[RanNode], found: SeveralTotals) -> bool:
        """Let the capture see operators that have run together, then measure their results."""
        is_enough = self._relay.measured(ran, found)
        if is_enough:  # else they are shown once more
            for position, _, outputs in ran:
                self._meter.ran(position, outputs)
        return is_enough

    def begin_saving(self, tensors: Sequence[TensorSlot]) -> SessionFiles | None:
        """Return the capture's files of what a session makes."""
        return self._relay.begin_saving(tensors)

    def saved(self, tensors: Sequence[TensorSlot], files: SessionFiles) -> None:
        """Measure what a session has seen, and let the capture know."""
        results: dict[int, list[Array]] = {}
        for tensor, array in zip(tensors, files.stand_ins(), strict=True):
            if array is not None and tensor.io is IO.OUTPUT:
                unused: list[Array] = [None] * len(self._graph.nodes[tensor.position].outputs)
                results.setdefault(tensor.position, unused)[tensor.slot] = array
        for position, arrays in results.items():
            self._meter.ran(position, arrays)
        self._relay.saved(tensors, files)

    def looks_into(self, body: Graph) -> bool:  # noqa: ARG002 - the signature of an observer
        """Return True: every operator is measured."""
        return True

    def enter(self, body: Graph) -> Metered:
        """Measure a branch or the body of a loop as well, and let the capture see it."""
        meter = self._meter.enter(body, self._residence_of(body))
        return Metered(meter, self._relay.inside(body), body, self._residence_of)

    def failed(self, position: int, inputs: Arrays) -> None:
        """Let the capture see a failed operator."""
        self._relay.failed(position, inputs)
