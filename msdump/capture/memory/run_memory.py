"""The emulated device's memory while a network runs: measured, or remembered where nothing has changed."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from msdump.capture.compiled import watcher
from msdump.capture.memory.metered import Metered
from msdump.capture.memory.recognition import Recognition
from msdump.capture.memory.relay import Relay
from msdump.device.ascend import Ascend
from msdump.device.meter import MemoryMeter, MemoryUse
from msdump.device.residence import Residence, residence
from msdump.graph.graph import Graph
from msdump.graph.variation import content_sized
from msdump.observer import Observer
from msdump.plan import DumpPlan, Scene

_MOST_RUNS: Final = 64  # whose addresses are kept, of all sets of input shapes together


class RunMemory:
    """Keeps the addresses of each run's tensors, and holds runs to the device's limit.

    A run is measured operator by operator. The layout is remembered by the shapes of what was fed.
    Where the sizes of tensors depend on its contents, a later run is recognised by the results
    that vary; control flow in such a network is measured in every run.
    """

    def __init__(self, device: Ascend, plan: DumpPlan | None, limit: int | None) -> None:
        """Follow the runs of a network from its first one on.

        Args:
            device: The emulated device with the graph.
            plan: What is dumped: outputs that the watcher reads again stay in memory.
            limit: Bytes of the device, None: as many as needed.
        """
        self._device = device
        self._plan = plan
        self._limit = limit
        self._remembered: dict[Hashable, _SimilarRuns] = {}
        self._run: MemoryMeter | Recognition | None = None
        self._new_key: Hashable = None  # of a run that may have to be remembered
        self._inner_residences: dict[int, Residence] = {}

    @property
    def now(self) -> MemoryUse | None:
        """Memory of the run that goes on, or else of the last one; None before the first."""
        return None if self._run is None else self._run.use

    def begin(self, inputs: Mapping[str, Any], capture: Observer | None) -> Observer | None:
        """Begin a run; return its observer, which passes operators on to the capture.

        Args:
            inputs: What the network is fed.
            capture: What wants to see operators, None: nothing.

        Raises:
            DeviceMemoryError: Weights and inputs do not fit.
        """
        key = tuple((name, _sizes(item)) for name, item in inputs.items())
        similar = self._remembered.get(key)
        self._new_key = None
        if similar is not None and not similar.varying:
            self._run = similar.runs[0]  # the same addresses: nobody needs to look at operators for them
            return capture
        self._new_key = key
        # A capture asks for addresses while the run goes on, when it may still be like several earlier ones.
        if similar is not None and capture is None:
            self._run = Recognition(similar.runs, similar.watched, lambda: self._meter(inputs))
            return self._run
        self._run = self._meter(inputs)
        return Metered(self._run, Relay(capture), self._device.graph, self._residence_inside)

    def end(self, inputs: Mapping[str, Any]) -> None:
        """Remember the run that has ended, where a later one with such inputs can be recognised."""
        if self._new_key is None or self._run is None:
            return
        varying = self._varying(frozenset(inputs) | self._device.graph.variables)
        # recognition compares results of the main graph alone, not those inside branches and loops
        if varying and any(node.bodies for node in self._device.graph.nodes):
            return
        run = self._run.meter if isinstance(self._run, Recognition) else self._run
        similar = self._remembered.get(self._new_key)
        if similar is None or not any(run is earlier or run.is_like(earlier) for earlier in similar.runs):
            self._remember(self._new_key, varying, run)

    def _remember(self, key: Hashable, varying: tuple[int, ...], run: MemoryMeter) -> None:
        """Remember a run; the oldest one of the oldest shapes makes place for it."""
        if sum(len(similar.runs) for similar in self._remembered.values()) >= _MOST_RUNS:
            oldest_key, oldest = next(iter(self._remembered.items()))
            del oldest.runs[0]
            if not oldest.runs:
                del self._remembered[oldest_key]
        watched = tuple(position in varying for position in range(len(self._device.graph.nodes)))
        self._remembered.setdefault(key, _SimilarRuns(any(watched), watched)).runs.append(run)

    def _meter(self, inputs: Mapping[str, Any]) -> MemoryMeter:
        return MemoryMeter(self._main_residence, self._limit, {**self._device.graph.weights, **inputs})

    @functools.cached_property
    def _varying(self) -> Any:
        """A function: names of the inputs that are fed -> operators whose results have sizes of their own."""
        return functools.cache(functools.partial(content_sized, self._device.graph))

    @functools.cached_property
    def _main_residence(self) -> Residence:
        return self._residence(self._device)

    def _residence_inside(self, body: Graph) -> Residence:
        """Return what lies in device memory when, inside a branch or a loop body."""
        if body.index not in self._inner_residences:
            device = next(inner for inner in self._device.walk() if inner.graph.index == body.index)
            self._inner_residences[body.index] = self._residence(device)
        return self._inner_residences[body.index]

    def _residence(self, device: Ascend) -> Residence:
        plan = self._plan
        is_watched = plan is not None and plan.compiled.scene is Scene.WATCHER
        stays = watcher.resident(device.graph, plan) if plan is not None and is_watched else ()
        return residence(device.graph, device.placement, stays, prepares=device.is_compiled)


@dataclass(frozen=True, slots=True)
class _SimilarRuns:
    """Runs with inputs of the same shapes.

    Attributes:
        varying: Whether the sizes of results depend on contents.
        watched: By position, whether the sizes of an operator's results depend on contents.
        runs: Runs in which they differ; a single one where there are no such operators.
    """

    varying: bool
    watched: tuple[bool, ...]
    runs: list[MemoryMeter] = field(default_factory=list)


def _sizes(item: Any) -> Hashable:
    """Return the shape of a tensor, the shapes of a sequence; anything else has no place in memory."""
    if isinstance(item, np.ndarray):
        shape: tuple[int, ...] = item.shape
        return shape
    if isinstance(item, (list, tuple)):
        return tuple(("item", np.shape(part)) for part in item)
    return type(item).__name__  # tells an optional that is absent from one that is there
