"""An observer that recognises a run by its results of varying size, so that it need not be measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msdump.device.meter import MemoryMeter, MemoryUse
from msdump.graph.graph import Graph
from msdump.observer import Arrays


class Recognition:
    """Compares a run with those before it, and measures it from where it is like none of them.

    It watches the operators whose results vary, and every operator once the run is a new one. The
    graph has no branches and loops.

    Attributes:
        meter: The run before which this one is like so far, or else what measures this one.
        watched: By node position: whether it wants to see the operator.
    """

    wants_inputs = False
    wants_outputs = True

    def __init__(
        self, known: Sequence[MemoryMeter], varying: Sequence[bool], begun: Callable[[], MemoryMeter]
    ) -> None:
        """Begin a run.

        Args:
            known: Earlier runs with inputs of the same shapes, at least one.
            varying: By node position: whether the sizes of the operator's results depend on contents.
            begun: Returns a meter in whose memory weights and inputs lie.
        """
        self.meter = known[-1]
        self.watched = varying
        self._known = known
        self._begun = begun

    @property
    def use(self) -> MemoryUse:
        """What the run needs, as far as it is known."""
        return self.meter.use

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
        if self._known:
            self._known = [run for run in self._known if run.agrees(position, outputs)]
            if self._known:
                self.meter = self._known[-1]
                return
            self._measure_from(position)
        self.meter.ran(position, outputs)

    def _measure_from(self, position: int) -> None:
        like, self.meter = self.meter, self._begun()
        self.meter.follow(like, position)
        self.watched = (True,) * len(self.watched)

    def enter(self, body: Graph) -> None:
        """See nothing of branches and loops, of which there are none."""

    def failed(self, position: int, inputs: Arrays) -> None:
        """See nothing of a failed operator."""
