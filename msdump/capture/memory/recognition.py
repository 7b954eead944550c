"""An observer that recognises a run by its results of varying size, so that it need not be measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msdump.device.meter import MemoryMeter, MemoryUse
from msdump.graph.graph import Graph
from msdump.observer import Arrays


class Recognition:
    """Compares a run with earlier ones, and measures it from where it is like none of them.

    It watches the operators whose results vary, and every operator once the run is a new one. The
    graph has no branches and loops.

    Attributes:
        meter: An earlier run that this one is like so far, or else the meter of this one.
        watched: By node position: whether it wants to see the operator.
        holds_up: The same at first: what it sees there decides what it wants to see later.
    """

    wants_inputs = False
    wants_outputs = True

    def __init__(
        self, earlier: Sequence[MemoryMeter], varying: Sequence[bool], new_meter: Callable[[], MemoryMeter]
    ) -> None:
        """Begin a run.

        Args:
            earlier: Earlier runs with inputs of the same shapes, at least one.
            varying: By node position: whether the sizes of the operator's results depend on contents.
            new_meter: Returns a meter in whose memory weights and inputs lie.
        """
        self.meter = earlier[-1]
        self.watched = self.holds_up = varying
        self._candidates = earlier
        self._new_meter = new_meter

    @property
    def use(self) -> MemoryUse:
        """Device memory of the run so far."""
        return self.meter.use

    def starting(self, position: int, inputs: Arrays) -> None:
        """Ignore what is about to run."""

    def ran(
        self,
        position: int,
        inputs: Arrays,  # noqa: ARG002 - the signature of an observer
        outputs: Arrays,
        *,
        saturated: bool = False,  # noqa: ARG002
    ) -> None:
        """Compare or measure the results of an operator.

        Raises:
            DeviceMemoryError: A tensor does not fit; it is named.
        """
        if self._candidates:
            self._candidates = [run for run in self._candidates if run.agrees(position, outputs)]
            if self._candidates:
                self.meter = self._candidates[-1]  # any of them: they agree up to here
                return
            self._measure_from(position)
        self.meter.ran(position, outputs)

    def _measure_from(self, position: int) -> None:
        """Measure from an operator on; up to it the run lies in memory as the last candidate did."""
        last_candidate, self.meter = self.meter, self._new_meter()
        self.meter.follow(last_candidate, position)
        self.watched = (True,) * len(self.watched)

    def looks_into(self, body: Graph) -> bool:  # noqa: ARG002
        """Return False: there are no bodies."""
        return False

    def enter(self, body: Graph) -> None:
        """Return None: a network with branches or loops is measured in every run and never recognised."""

    def failed(self, position: int, inputs: Arrays) -> None:
        """Ignore a failed operator, which has no results."""
