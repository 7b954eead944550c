"""Device memory while a network runs: every value gets an address when it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from msdump.device.memory import Block, DeviceMemory, lifetimes
from msdump.graph.graph import Graph


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """What a run needed.

    Attributes:
        peak: Most bytes in use at one time.
        total: Bytes of all tensors, as if no memory were used again.
        blocks: Address and size that each value had.
    """

    peak: int
    total: int
    blocks: Mapping[str, Block]


class MemoryMeter:
    """Follows one run: weights and inputs first, results as they are made, until nobody reads them."""

    def __init__(self, graph: Graph, limit: int | None, inputs: Mapping[str, object]) -> None:
        """Place the weights and inputs.

        Raises:
            DeviceMemoryError: They do not fit.
        """
        self._memory = DeviceMemory(limit)
        self._lives = lifetimes(graph)
        self._outputs = tuple(node.outputs for node in graph.nodes)
        self._blocks: dict[str, Block] = {}
        for name in self._lives.first:
            self._allocate(name, graph.weights.get(name, inputs.get(name)))

    def ran(self, position: int, outputs: Sequence[np.ndarray | None]) -> None:
        """Place an operator's results and release what nobody reads any more.

        Raises:
            DeviceMemoryError: A result does not fit; it is named.
        """
        for name, array in zip(self._outputs[position], outputs, strict=True):
            self._allocate(name, array)
        for name in self._lives.dead[position]:
            if name in self._memory.blocks:
                self._memory.release(name)

    def use(self) -> MemoryUse:
        """Return what was needed so far."""
        return MemoryUse(self._memory.peak, self._memory.total, dict(self._blocks))

    def _allocate(self, name: str, array: object) -> None:
        if name and isinstance(array, np.ndarray):
            self._blocks[name] = self._memory.allocate(name, array.nbytes)
