"""Device memory over a run: addresses of tensors, and the limit of the device."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from msdump.capture.compiled import watcher
from msdump.device import Ascend, MemoryUse, Residence, residence
from msdump.errors import DeviceMemoryError
from msdump.graph import Graph, has_content_sizes
from msdump.observer import Arrays, NodeRun, Observer, places_of, tensors_of
from msdump.plan import DumpPlan, Scene
from msdump.statistics import TotalsArray


class Metered(Observer):
    """Places the results of each operator of a run in memory, and passes operators on to a capture."""

    def __init__(
        self,
        memory: MemoryUse,
        capture: Observer | None,
        graph: Graph,
        residence_of: Callable[[Graph], Residence],
    ) -> None:
        """Join memory and a capture of one graph."""
        self._capture = capture or Observer()
        wanted = self._capture.interest
        self.interest = wanted._replace(positions=(True,) * len(graph.nodes), outputs=True)
        self._memory = memory
        self._residence_of = residence_of

    def starting(self, position: int, inputs: Arrays) -> None:
        """Pass on a collective that is about to run, where the capture watches it."""
        if self._capture.interest.shows(position):
            self._capture.starting(position, inputs)

    def ran(self, batch: Sequence[NodeRun], found: TotalsArray | None = None) -> None:
        """Measure the results of operators, and let the capture see them.

        Raises:
            DeviceMemoryError: A tensor does not fit; earlier operators have been passed to the capture.
        """
        if found is not None:
            self._pass_on(batch, found)
            for position, _, outputs, _ in batch:  # not if the capture raised: the batch then comes again
                self._memory.ran(position, outputs)
            return
        for number, (position, _, outputs, _) in enumerate(batch):
            try:
                self._memory.ran(position, outputs)
            except DeviceMemoryError:
                self._pass_on(batch[:number])
                raise
        self._pass_on(batch)  # last: files show the addresses of results

    def _pass_on(self, batch: Sequence[NodeRun], found: TotalsArray | None = None) -> None:
        wanted = self._capture.interest
        # the filter that the execution loop applies for a capture alone
        passed_on = [
            run if wanted.outputs else run._replace(outputs=()) for run in batch if wanted.shows(run.position)
        ]
        if found is not None:
            found = found.at(places_of(tensors_of(passed_on), tensors_of(batch)))
        if passed_on:
            self._capture.ran(passed_on, found)

    def failed(self, position: int, inputs: Arrays) -> None:
        """Pass on a failed operator."""
        self._capture.failed(position, inputs)

    def looks_into(self, body: Graph) -> bool:  # noqa: ARG002 - the signature of an observer
        """Return True: every operator is measured."""
        return True

    def enter(self, body: Graph) -> Metered:
        """Measure a branch or the body of a loop as well, and let the capture see it."""
        memory = self._memory.enter(body, self._residence_of(body))
        return Metered(memory, self._capture.enter(body), body, self._residence_of)


_MOST_RUNS: Final = 64  # kept address maps, one for each combination of input shapes


class RunMemory:
    """Keeps the addresses of each run's tensors, and holds runs to the device's limit.

    The addresses of a run are found operator by operator if it is dumped or limited, and reused by runs with
    the same input shapes, unless sizes depend on contents. Any other run is not observed, which would double
    its time and its packed weights, and has no addresses.
    """

    def __init__(self, device: Ascend, plan: DumpPlan | None, limit: int | None) -> None:
        """Follow the runs of a network from its first one on."""
        self._device = device
        self._plan = plan
        self._limit = limit
        self._remembered: dict[Hashable, MemoryUse] = {}
        self._new_key: Hashable = None  # input shapes of a run that ``end`` may remember
        self._residences: dict[int, Residence] = {}  # by index of the graph
        # memory of the current run, or else of the last one; None before the first run and for a run that
        # is not measured
        self.now: MemoryUse | None = None

    def begin(self, inputs: Mapping[str, Any], capture: Observer | None) -> Observer | None:
        """Begin a run; return its observer, which passes operators on to the capture.

        Raises:
            DeviceMemoryError: Weights and inputs do not fit.
        """
        key = tuple((name, _sizes(item)) for name, item in inputs.items())
        self.now, self._new_key = self._remembered.get(key), None
        if self.now is not None:
            return capture  # the same addresses: no operator needs to be watched for them
        if capture is None and self._limit is None:
            return None
        varies = self._varies(frozenset(inputs) | self._device.graph.variables)
        self._new_key = None if varies else key
        arrays = {**self._device.graph.weights, **inputs}
        self.now = MemoryUse.begin(self._residence(self._device.graph), self._limit, arrays)
        return Metered(self.now, capture, self._device.graph, self._residence)

    def end(self) -> None:
        """Remember a run that has ended, where the shapes of its inputs decide all sizes."""
        if self._new_key is None or self.now is None:
            return
        if len(self._remembered) >= _MOST_RUNS:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[self._new_key] = self.now

    @functools.cached_property
    def _varies(self) -> Any:
        """A function from the names of fed inputs to whether sizes depend on their contents."""
        return functools.cache(functools.partial(has_content_sizes, self._device.graph))

    def _residence(self, graph: Graph) -> Residence:
        """Return the lifetimes of the values of the graph, or of a branch or loop body, in device memory."""
        if graph.index not in self._residences:
            device = next(inner for inner in self._device.walk() if inner.graph.index == graph.index)
            plan = self._plan
            is_watched = plan is not None and plan.compiled.scene is Scene.WATCHER
            stays = watcher.resident(device.graph, plan) if plan is not None and is_watched else ()
            self._residences[graph.index] = residence(
                device.graph, device.placement, stays, prepares=device.is_compiled
            )
        return self._residences[graph.index]


def _sizes(item: Any) -> Hashable:
    """Return the shape of a tensor or the shapes of a sequence; of another value the name of its type."""
    if isinstance(item, np.ndarray):
        shape: tuple[int, ...] = item.shape
        return shape
    if isinstance(item, (list, tuple)):
        return tuple(("item", np.shape(part)) for part in item)
    return type(item).__name__  # separates absent optionals from present ones
