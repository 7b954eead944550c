"""An observer of runs in which kernels are faulty: they do their harm, whoever watches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from msdump.capture.device_image import DeviceImage
from msdump.capture.dumps import Arrays, Watching
from msdump.graph.graph import Graph


class FaultyRun:
    """Lets faulty kernels do their harm in one run, and passes on what a capture wants to see."""

    wants_outputs = True

    def __init__(self, image: DeviceImage, capture: Watching | None, count: int) -> None:
        """Join memory and a capture for a graph of ``count`` operators."""
        image.clear()
        self._image = image
        self._capture = capture
        self.watched: Sequence[bool] = (True,) * count
        self.wants_inputs = capture is not None and capture.wants_inputs

    def ran(
        self, position: int, inputs: Arrays, outputs: Arrays, *, saturated: bool = False
    ) -> Mapping[str, np.ndarray] | None:
        """Let the capture see an operator, then write its results into memory and beyond."""
        if self._capture is not None and self._capture.watched[position]:
            shown = outputs if self._capture.wants_outputs else ()
            self._capture.ran(position, inputs, shown, saturated=saturated)
        return self._image.stomp(position, self._image.put(position, outputs))

    def enter(self, body: Graph) -> Watching | None:
        """Let the capture see a branch or the body of a loop."""
        return None if self._capture is None else self._capture.enter(body)

    def failed(self, position: int, inputs: Arrays) -> None:
        """Let the capture see a failed operator."""
        if self._capture is not None:
            self._capture.failed(position, inputs)
