"""Records the runs of one network: numbers them, dumps them, follows them in device memory.

The interface of this package: sessions use only ``Recorder``, for every tree of files.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from msdump.capture.capture import Capture, Marks
from msdump.capture.compiled import watcher
from msdump.capture.compiled.dump import CompiledDump, SingleDump, SingleOperator
from msdump.capture.graph_files import GraphDump, write_graph_files
from msdump.capture.process import DumpWriter, Process, claim
from msdump.capture.selection import inside, operators, selectable, used_items
from msdump.capture.steps import Memory
from msdump.capture.watch import RunWatch
from msdump.communication import current
from msdump.counters import ModelIdentity, Run, RunCounter
from msdump.device import Ascend, MemoryUse, Residence, residence
from msdump.errors import DeviceMemoryError, DumpWriteError
from msdump.graph import Graph, has_content_sizes
from msdump.observer import Arrays, NodeRun, Observer, places_of, tensors_of
from msdump.plan import Context, DeviceTarget, DumpPlan, Naming, Scene, Tree
from msdump.record import Artifact
from msdump.selector import IterationSet, PatternKind
from msdump.statistics import TotalsArray
from msdump.store import Layout, PathKind
from msdump.store.write import Summary, probe


class Metered(Observer):
    """Places the results of each operator of a run in memory, and passes operators on to a capture."""

    def __init__(
        self,
        memory: MemoryUse,
        capture: Observer | None,
        graph: Graph,
        residence_of: Callable[[Graph], Residence],
    ) -> None:
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
        """Measure results and pass operators on, all before the first that raises a DeviceMemoryError."""
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
        """Begin a run; return its observer; DeviceMemoryError if weights and inputs do not fit."""
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


def dump_of(
    graph: Graph,
    plan: DumpPlan,
    process: Process,
    device: Ascend | None,
    *,
    memory: Memory,
    model: ModelIdentity | SingleOperator,
    variables: Variables = dict,
) -> DumpWriter:
    """Return the dump of a network; nothing is written yet.

    Args:
        graph: The graph, fused or compiled where the level does so.
        plan: The dump plan.
        process: The state that all networks share.
        device: The emulated device, None on CPU and GPU.
        memory: Gives the device memory of the current run.
        model: Name of a compiled model, or the operator that is called alone.
        variables: Gives the present values of the initializers that training writes.
    """
    if plan.files.tree is Tree.RANKS:
        return NetworkDump(graph, plan, process, device, variables=variables)
    assert device is not None, "only Ascend compiles whole graphs"
    if isinstance(model, ModelIdentity):
        return CompiledDump(plan, process, device, memory, model)
    return SingleDump(plan, process, device, memory, model)


_log = logging.getLogger("msdump.capture")

Variables = Callable[[], Mapping[str, np.ndarray]]
"""Gives the present values of the initializers that training writes, by name, as views."""

VERSIONS: Final = {Naming.CLASSIC: "2.3.0", Naming.V2_5: "2.5.0", Naming.V2_7: "2.10.0"}
"""The MindSpore version that ``.dump_metadata/config.json`` names for each generation of names."""


class NetworkDump(DumpWriter):
    """Everything that one network writes below the dump path."""

    def __init__(
        self,
        graph: Graph,
        plan: DumpPlan,
        process: Process,
        device: Ascend | None = None,
        *,
        variables: Variables = dict,
    ) -> None:
        """Give the graphs their numbers; nothing is written yet."""
        super().__init__(plan, process)
        self._variables = variables
        self._on_ascend = plan.context.device_target is DeviceTarget.ASCEND
        self._layout = Layout(plan.files.path, current().identity.rank, plan.files.net_name)
        devices = {} if device is None else {inner.graph.index: inner for inner in device.walk()}
        ids = [next(process.counters.graph_ids) for _ in range(graph.kernel_graphs)]
        self._graphs = tuple(
            GraphDump(
                inner,
                plan,
                process,
                self._layout,
                devices.get(inner.index),
                first_id=min(ids, default=None),
            )
            for inner in graph.walk()
        )
        self._main = self._graphs[0]
        # kernel graphs that only group values have no operators
        self._empty_ids = set(ids).difference(*(dump.ids.values() for dump in self._graphs))
        self._iteration = 0
        self._inputs: Mapping[str, Any] = {}  # of the run in progress, written at its end
        self.mark(frozenset())

    def mark(self, marked: frozenset[str]) -> None:
        """Select the dumped operators again, for new full names that ``set_dump`` marked."""
        for dump in self._graphs:
            dump.mark(marked)
        # each graph has a new capture, which must refer to the new captures of the graph's bodies
        captures = {dump.graph.index: dump.capture for dump in self._graphs}
        for dump in self._graphs:
            dump.capture.bodies = {body.index: captures[body.index] for body in dump.graph.bodies}
        self._used = used_items(self.plan, selectable(self._main.graph, self.plan))
        self._process.suggest(self.plan, self._used, operators(self._main.graph))

    def write_graph_files(self) -> None:
        """Write the files of the compilation: graph files, metadata (CPU and GPU)."""
        if not self._on_ascend and self._process.claim_metadata(self.plan):
            device = {
                "device_target": str(self.plan.context.device_target),
                "ms_version": VERSIONS[self.plan.files.naming],
            }
            self._keep(self._layout.path(PathKind.CONFIG), self.plan.source_bytes)
            self._keep(self._layout.path(PathKind.DEVICE), json.dumps(device, separators=(",", ":")).encode())
        self._warn_of_hidden()
        for dump in self._graphs:
            dump.write_graph_files()
        nothing = replace(self._main.graph, nodes=(), inputs=(), outputs=(), weights={}, constants=())
        for number in self._empty_ids:
            write_graph_files(nothing, number, self._layout, self.sink)
        self.sink.flush()  # a failure is raised where the network is loaded, not by its first run

    def _warn_of_hidden(self) -> None:
        """Warn of ``kernels`` items that name operators which fusion has hidden in others."""
        patterns = self.plan.what.selector.patterns
        asked = {pattern.text for pattern in patterns if pattern.kind is PatternKind.NAME}
        for dump in self._graphs:
            for node in dump.graph.nodes:
                for part in node.parts:
                    name = part.operator.full_name
                    if name in asked:
                        reason = inside(name, node.operator.full_name)
                        _log.warning("%s: kernels: %s", self.plan.source, reason)

    def _keep(self, path: str, data: bytes) -> None:
        self.sink.keep(Artifact(*os.path.split(path), (data,)))

    def begin(self, run: Run, inputs: Mapping[str, Any]) -> Capture:
        """Return the observer of a dumped run."""
        self._iteration, self._inputs = run.iteration, inputs
        self._process.use(self.plan, self._used)
        for dump in self._graphs:
            dump.begin(run.iteration)
        return self._main.capture

    def end(self) -> None:
        """Finish a dumped iteration: parameters, constants and list of iterations (CPU and GPU)."""
        inputs, self._inputs = self._inputs, {}
        try:
            if not self._on_ascend and self.plan.what.keeps_outputs:
                self._main.write_parameters({**self._variables(), **inputs})
                self._main.write_constants()
                for dump in self._entered():
                    dump.write_parameters({})  # a body has weights of its own; its inputs are no parameters
                    dump.write_constants()
        finally:  # also where parameters could not be written
            self._list()
        super().end()

    def _list(self) -> None:
        """Add the iteration, also a failed one, to the csv file of the iterations."""
        if not self._on_ascend:
            self._note(self._iteration)

    def _note(self, iteration: int) -> None:
        """Add an iteration to the csv file of the first kernel graph that ran."""
        ran = [number for dump in (self._main, *self._entered()) for number in dump.ids.values()]
        number = min(ran or self._empty_ids or self._main.ids.values())
        self.sink.append(self._layout.path(PathKind.ITERATIONS_RUN, number), f"{iteration}\n".encode())

    def _entered(self) -> Iterator[GraphDump]:
        """Yield the dumps of the branches and loops that ran, except ones without operators."""
        return (dump for dump in self._graphs[1:] if dump.capture.entered and dump.graph.operators)

    def broken_off(self) -> None:
        """Complete the files of an iteration that failed and list it; failures are only logged."""
        self._inputs = {}
        with contextlib.suppress(DumpWriteError):
            self._list()
        super().broken_off()

    def pass_by(self, run: Run) -> None:
        """Add a run that is not dumped to the csv file of iterations, on GPU."""
        # vendor: CPU lists dumped iterations alone, GPU every run
        if self.plan.context.device_target is DeviceTarget.GPU:
            self._note(run.iteration)


Model = ModelIdentity | SingleOperator
"""Name of a compiled model, or the operator that is called alone."""

Execute = Callable[[Observer | None], list[Any]]
"""Runs a network once, under an observer or none, and returns its outputs."""


class Recorder:
    """Numbers the runs of one network, dumps them, and follows them in the emulated device's memory."""

    def __init__(
        self,
        graph: Graph,
        plan: DumpPlan | None,
        process: Process,
        runs: RunCounter,
        *,
        device: Ascend | None,
        context: Context,
        model: Model,
        variables: Variables = dict,
    ) -> None:
        """Check that the dump path is writable, and write the graph files of the dump.

        Args:
            graph: The graph as the device runs it.
            plan: The dump plan, None: nothing is dumped.
            process: The state that all networks share.
            runs: Counts the runs.
            device: The emulated device, None on CPU and GPU.
            context: Where the network runs.
            model: The model's name.
            variables: Gives the present values of the initializers that training writes.

        Raises:
            DumpWriteError: The dump path cannot be created or written.
        """
        self._runs = runs
        self.marks = Marks()  # the operators that ``set_dump`` marked
        self._process = process
        self._has_nodes = bool(graph.nodes)
        self._memory = None
        if device is not None:
            self._memory = RunMemory(device, plan, context.memory_limit)
        self._dump: DumpWriter | None = None
        if plan is not None:
            probe(plan.files.path)  # before claim, which may remove files of earlier runs
            claim(plan, process)
            parts = graph, plan, process, device
            self._dump = dump_of(*parts, memory=lambda: self.memory_use, model=model, variables=variables)
            self._dump.write_graph_files()
        self._watch: RunWatch | None = None  # rules and history of the last dumped run
        self._number = 0 if plan is None else next(process.watch(plan).networks)

    @property
    def memory_use(self) -> MemoryUse | None:
        """Device memory of the current run, or else of the last one; None on CPU and GPU."""
        return None if self._memory is None else self._memory.now

    @property
    def summary(self) -> Summary | None:
        """Files that the process's dump wrote, skipped and lost so far; None without a dump."""
        return None if self._dump is None else self._dump.sink.summary

    @property
    def written(self) -> IterationSet:
        """Dumped iterations on disk: rules and the history may hold back others."""
        return IterationSet(()) if self._watch is None else self._watch.written

    def record(self, inputs: Mapping[str, Any], execute: Execute) -> list[Any]:
        """Run the network once and dump it by the plan; return its outputs.

        Args:
            inputs: The network's inputs, by name.
            execute: Runs it.

        Raises:
            DumpWriteError: A file could not be written.
            DeviceMemoryError: The run does not fit into the device.
            WatchHitError: A watch rule hit, and a hit is to end the run.
        """
        marked = self.marks.take()
        if marked is not None and self._dump is not None:
            self._dump.mark(marked)
        run, dump, memory = self._runs.next, self._dump, self._memory
        try:
            if dump is None or not self._process.dumps(dump.plan, run.iteration):
                if dump is not None:
                    dump.pass_by(run)
                outputs = execute(None if memory is None else memory.begin(inputs, None))
                if memory is not None:
                    memory.end()
                return outputs
            watch = self._watch = self._process.watch(dump.plan)
            before = watch.sink.summary
            watch.begin(run.iteration)
            try:
                try:
                    observer: Observer | None = dump.begin(run, inputs)
                    if memory is not None:  # its observer comes first: files need the addresses of results
                        observer = memory.begin(inputs, observer)
                    outputs = execute(observer)
                    if memory is not None:
                        memory.end()  # not after a failure: the addresses are incomplete
                except BaseException:
                    dump.broken_off()  # writes captured files now: the caller may change the inputs later
                    raise
                dump.end()
                watch.compare_ranks(self._number, run.iteration)
            except BaseException as error:
                watch.broken_off(run.iteration, before, error)
                raise
            watch.end(run.iteration, before)
            return outputs
        finally:  # failed runs count too, runs of a graph without operators do not
            if self._has_nodes:
                self._runs.ended(run)
