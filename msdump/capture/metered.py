"""An observer that measures device memory, and passes on what a capture wants to see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from msdump.capture.dumps import Arrays, Watching
from msdump.device.meter import MemoryMeter
from msdump.graph.graph import Graph


class Metered:
    """Watches every operator of one run for the meter, and those of a capture for the capture."""

    wants_outputs = True

    def __init__(self, meter: MemoryMeter, capture: Watching | None, count: int) -> None:
        """Join a meter and a capture for a graph of ``count`` operators."""
        self._meter = meter
        self._capture = capture
        self.watched: Sequence[bool] = (True,) * count
        self.wants_inputs = capture is not None and capture.wants_inputs

    def ran(
        self, position: int, inputs: Arrays, outputs: Sequence[np.ndarray | None], *, saturated: bool
    ) -> Mapping[str, np.ndarray] | None:
        """Measure the results of an operator, then let the capture see it."""
        self._meter.ran(position, outputs)
        if self._capture is None or not self._capture.watched[position]:
            return None
        shown = outputs if self._capture.wants_outputs else ()
        return self._capture.ran(position, inputs, shown, saturated=saturated)

    def enter(self, body: Graph) -> Watching | None:
        """Let the capture see a branch or the body of a loop."""
        return None if self._capture is None else self._capture.enter(body)

    def failed(self, position: int, inputs: Arrays) -> None:
        """Let the capture see a failed operator."""
        if self._capture is not None:
            self._capture.failed(position, inputs)
