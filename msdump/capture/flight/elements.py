"""The elements that rules compare with those of the next step, in bounded memory."""

from __future__ import annotations

import weakref
from dataclasses import replace

import numpy as np

from msdump.watch.quantities import Seen


class KeptElements:
    """Copies elements for the next step, as many as the memory allows."""

    def __init__(self, most_bytes: int) -> None:
        """Keep nothing yet.

        Args:
            most_bytes: Most memory of all copies together.
        """
        self._most_bytes = most_bytes
        self._bytes = 0

    def remember(self, seen: Seen, needs_elements: bool) -> Seen:  # noqa: FBT001 - as RuleWatch calls it
        """Return a tensor as it is kept: its statistics, and a copy of its elements where they are needed."""
        if not needs_elements or seen.elements is None:
            return replace(seen, elements=None)
        array = seen.elements()
        if self._bytes + array.nbytes > self._most_bytes:
            return replace(seen, elements=None)
        copy: np.ndarray = array.copy()
        self._bytes += copy.nbytes
        weakref.finalize(copy, self._give_back, copy.nbytes).atexit = False
        return replace(seen, elements=lambda: copy)

    def _give_back(self, size: int) -> None:
        self._bytes -= size
