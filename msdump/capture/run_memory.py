"""The emulated device's memory while a network runs: measured, or remembered where nothing can change."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Mapping
from typing import Any, Final

import numpy as np

from msdump.capture import watcher
from msdump.capture.dumps import Watching
from msdump.capture.metered import Metered
from msdump.device.ascend import Ascend
from msdump.device.meter import MemoryMeter, MemoryUse
from msdump.device.residence import Residence, residence
from msdump.graph.graph import Graph
from msdump.graph.variation import sizes_vary
from msdump.plan import DumpPlan, Scene

_MOST: Final = 64  # sets of input shapes whose addresses are kept


class RunMemory:
    """Tells where the tensors of each run lie, and holds runs to the device's limit.

    A run is measured operator by operator. The layout is remembered by the shapes of what was
    fed, unless the sizes of tensors depend on its contents: such a network is measured in every run.

    Attributes:
        now: What the run that goes on, or else the last one, needs; None before the first.
    """

    def __init__(self, device: Ascend, plan: DumpPlan | None, limit: int | None) -> None:
        """Begin with nothing remembered.

        Args:
            device: The emulated device with the graph.
            plan: What is dumped: outputs that the watcher reads again stay in memory.
            limit: Bytes of the device, None: as many as needed.
        """
        self.now: MemoryUse | None = None
        self._device = device
        self._plan = plan
        self._limit = limit
        self._remembered: dict[Hashable, MemoryUse] = {}
        self._measured: Hashable = None
        self._inner_lives: dict[int, Residence] = {}

    def begin(self, inputs: Mapping[str, Any], capture: Watching | None) -> Watching | Metered | None:
        """Begin a run; return what is to observe it.

        Args:
            inputs: What the network is fed.
            capture: What wants to see operators, None: nothing.

        Raises:
            DeviceMemoryError: Weights and inputs do not fit.
        """
        key = tuple((name, _sizes(item)) for name, item in inputs.items())
        self._measured = None
        if key in self._remembered:
            self.now = self._remembered[key]
            return capture
        graph = self._device.graph
        meter = MemoryMeter(self._lives, self._limit, {**graph.weights, **inputs})
        self.now, self._measured = meter.use, key
        return Metered(meter, capture, graph, self._lives_inside)

    def end(self, inputs: Mapping[str, Any]) -> None:
        """Remember the run that has ended, where all others with such inputs are like it."""
        if self._measured is None or self.now is None or self._varies(frozenset(inputs)):
            return
        if len(self._remembered) >= _MOST:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[self._measured] = self.now

    @functools.cached_property
    def _varies(self) -> Any:
        return functools.cache(functools.partial(sizes_vary, self._device.graph))

    @functools.cached_property
    def _lives(self) -> Residence:
        return self._residence(self._device)

    def _lives_inside(self, body: Graph) -> Residence:
        """Return what lies in device memory when, inside a branch or a loop body."""
        if body.index not in self._inner_lives:
            device = next(inner for inner in self._device.walk() if inner.graph.index == body.index)
            self._inner_lives[body.index] = self._residence(device)
        return self._inner_lives[body.index]

    def _residence(self, device: Ascend) -> Residence:
        plan = self._plan
        is_watched = plan is not None and plan.scene is Scene.WATCHER
        stays = watcher.resident(device.graph, plan) if plan is not None and is_watched else ()
        return residence(device.graph, device.placement, stays, prepares=device.is_compiled)


def _sizes(item: Any) -> Hashable:
    """Return the shape of a tensor, the shapes of a sequence; anything else has no place in memory."""
    if isinstance(item, np.ndarray):
        shape: tuple[int, ...] = item.shape
        return shape
    if isinstance(item, (list, tuple)):
        return tuple(("item", np.shape(part)) for part in item)
    return type(item).__name__
