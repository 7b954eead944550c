"""An observer that measures device memory, and passes on what a capture wants to see."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from msdump.device.meter import Meter
from msdump.device.residence import Residence
from msdump.graph.graph import Graph
from msdump.observer import Arrays, Observer


class Metered:
    """Watches every operator of one run for the meter, and those of a capture for the capture."""

    wants_outputs = True

    def __init__(
        self, meter: Meter, capture: Observer | None, graph: Graph, lives: Callable[[Graph], Residence]
    ) -> None:
        """Join a meter and a capture of one graph.

        Args:
            meter: Follows the run in device memory.
            capture: Sees operators as well, None: nobody does.
            graph: The graph.
            lives: Tells what lies in memory when, inside a branch or a loop body.
        """
        self._meter = meter
        self._capture = capture
        self._lives = lives
        self.watched: Sequence[bool] = (True,) * len(graph.nodes)
        self.wants_inputs = capture is not None and capture.wants_inputs

    def ran(
        self, position: int, inputs: Arrays, outputs: Arrays, *, saturated: bool = False
    ) -> Mapping[str, np.ndarray] | None:
        """Measure the results of an operator, then let the capture see it."""
        self._meter.ran(position, outputs)
        if self._capture is None or not self._capture.watched[position]:
            return None
        shown = outputs if self._capture.wants_outputs else ()
        return self._capture.ran(position, inputs, shown, saturated=saturated)

    def enter(self, body: Graph) -> Metered:
        """Measure a branch or the body of a loop as well, and let the capture see it."""
        capture = None if self._capture is None else self._capture.enter(body)
        return Metered(self._meter.enter(body, self._lives(body)), capture, body, self._lives)

    def failed(self, position: int, inputs: Arrays) -> None:
        """Let the capture see a failed operator."""
        if self._capture is not None:
            self._capture.failed(position, inputs)
