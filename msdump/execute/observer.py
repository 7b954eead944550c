"""What wants to see operators run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from msdump.graph.graph import Graph

Array = np.ndarray | None
"""A tensor; None for an absent input, an unused output, or a value that is no tensor."""


class Observer(Protocol):
    """What wants to see the operators of one graph run."""

    @property
    def watched(self) -> Sequence[bool]:
        """By node position: whether the observer is called for it."""

    wants_inputs: bool
    wants_outputs: bool

    def ran(
        self, position: int, inputs: Sequence[Array], outputs: Sequence[Array], *, saturated: bool
    ) -> Mapping[str, np.ndarray] | None:
        """Take the tensors of an operator that has just run; views, valid while they are referenced.

        ``saturated`` is the emulated device's overflow status. Control flow is shown as well,
        after its bodies, where it is watched.

        Returns:
            Values of the graph that the operator has overwritten by fault, by name; operators that
            read them later read these, which the observer keeps until the run has ended.
        """

    def failed(self, position: int, inputs: Sequence[Array]) -> None:
        """Take the inputs of an operator that has just failed."""

    def enter(self, body: Graph) -> Observer | None:
        """Return what sees the operators of a branch or loop body that is about to run once; None: nobody.

        A loop enters its body anew for every iteration.
        """
