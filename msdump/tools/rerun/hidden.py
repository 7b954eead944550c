"""Overflows inside of a fused kernel, which what follows in it hides: ReLU6 makes 6 of an infinity."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from msdump.execute.operators.float64.conversions import doubled
from msdump.execute.operators.float64.evaluator import Change
from msdump.graph.graph import Node
from msdump.observer import Array

_NEAR: Final = 2.0**-8
"""Difference of elements that agree, relative to the largest one: what overflowed was held in float16."""

_SAME_SIZE: Final = 1 - 2.0**-8
"""By how much sizes on both sides of the edge may be mistaken."""

_FULL: Final = 65504.0
"""The largest number of float16."""

Run = Callable[[Change], tuple[Array, ...]]
"""Runs a kernel in float64 on what it read, and lets a function change the results of its parts."""


def overflowed_part(node: Node, run: Run, slot: int, dumped: np.ndarray) -> str:
    """Return the name of the part of a kernel whose infinities explain its output; "" where none does.

    Every element that is off must be what the parts behind it make of an infinity, and must have been made of
    a larger number than those that are right; of several such parts one is told whose numbers go beyond
    float16. Only parts are told behind which elements keep their places.

    Args:
        node: The kernel.
        run: Runs it.
        slot: Number of the output.
        dumped: The output, all of it finite.
    """
    output = doubled(dumped).reshape(-1)
    edges = {part.name: _edge(part.name, run, slot, output) for part in node.parts[:-1]}
    told = [part for part in node.parts[:-1] if edges[part.name]]
    part = next((part for part in told if edges[part.name] >= _FULL), next(iter(told), None))
    return "" if part is None else part.operator.full_name.rpartition("/")[2]


@dataclass(slots=True)
class _Infinite:
    """Replaces the results of one part by infinities of their signs.

    Attributes:
        part: Name of the part.
        sizes: How large its first result was, none before it ran.
    """

    part: str
    sizes: np.ndarray = field(default_factory=lambda: np.empty(0))

    def sizes_at(self, output: np.ndarray) -> np.ndarray | None:
        """Return how large the number was that each element of an output was made of; None if unknown."""
        if self.sizes.size == output.size:
            return self.sizes.reshape(-1)
        try:
            return np.broadcast_to(self.sizes, output.shape).reshape(-1)
        except ValueError:
            return None

    def __call__(self, part: Node, results: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        if part.name != self.part:
            return results
        array = results[part.outputs[0]]
        self.sizes = np.abs(array)
        return {name: np.copysign(np.inf, array) for name, array in results.items()}


def _edge(part: str, run: Run, slot: int, output: np.ndarray) -> float:
    """Return the smallest size of a part's infinities, if they explain all elements that are off; else 0."""
    overflow = _Infinite(part)
    exact, infinite = run(lambda _, results: results)[slot], run(overflow)[slot]
    if exact is None or infinite is None or not output.size == exact.size == infinite.size:
        return 0.0
    sizes = overflow.sizes_at(exact)
    if sizes is None:
        return 0.0
    allowed = _NEAR * float(np.max(np.abs(exact), initial=0.0))
    is_off = np.abs(output - exact.reshape(-1)) > allowed
    is_infinite = np.abs(output - infinite.reshape(-1)) <= allowed
    if not is_off.any() or not is_infinite[is_off].all():
        return 0.0
    smallest = float(sizes[is_off].min())
    return smallest if smallest >= _SAME_SIZE * np.max(sizes[~is_infinite], initial=0.0) else 0.0
