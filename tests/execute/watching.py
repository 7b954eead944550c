"""An observer that keeps the tensors that it is shown."""

import numpy as np

from msdump.observer import Interest, Observer


class Watch(Observer):
    """Keeps copies of tensors: of every operator, of each one of some number, or of none (0)."""

    def __init__(self, graph, every=1, *, looks_in=True, shown=None, path=()):
        """Watch a graph, its bodies too where it looks into them."""
        positions = tuple(every > 0 and position % every == 0 for position in range(len(graph.nodes)))
        self.interest = Interest(positions, inputs=True, outputs=True)
        # [inputs, outputs, overflow status] of each pass by (indices of bodies, position); "failed" has
        # position and inputs of the operator that failed
        self.shown = {} if shown is None else shown
        self._every, self._looks_in, self._path = every, looks_in, path

    def ran(self, batch, found=None):  # noqa: ARG002 - the observer's signature
        """Keep the tensors of operators."""
        for position, inputs, outputs, is_saturated in batch:
            row = [_copies(inputs), _copies(outputs), np.array(is_saturated)]
            self.shown.setdefault((self._path, position), []).append(row)

    def failed(self, position, inputs):
        """Keep the inputs of an operator that failed."""
        self.shown["failed"] = (position, _copies(inputs))

    def looks_into(self, body):  # noqa: ARG002 - the observer's signature
        """Look into every body, or into none."""
        return self._looks_in

    def enter(self, body):
        """Watch a body."""
        return Watch(body, self._every, shown=self.shown, path=(*self._path, body.index))


def _copies(arrays):
    return [None if array is None else array.copy() for array in arrays]
