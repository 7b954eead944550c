"""Records the runs of one network: numbers them, dumps them, follows them in device memory.

The door to the room: sessions use a ``Recorder`` alone, whichever tree a dump's files stand in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msdump.capture.claims import claim
from msdump.capture.compiled.single_dump import SingleOperator
from msdump.capture.dumps import DumpWriter, dump_of
from msdump.capture.flight.flight import Flight
from msdump.capture.marks import Marks
from msdump.capture.memory.faulty_run import FaultyMemory, faulty_memory
from msdump.capture.memory.run_memory import RunMemory
from msdump.capture.network_dump import Variables
from msdump.capture.process import Process
from msdump.counters import ModelIdentity, Run, RunCounter
from msdump.device.ascend import Ascend
from msdump.device.meter import MemoryUse
from msdump.graph.graph import Graph
from msdump.iterations import IterationSet
from msdump.observer import Observer
from msdump.plan import Context, DumpPlan, Scene
from msdump.store.write.probe import probe
from msdump.store.write.sinks import Summary

Model = ModelIdentity | SingleOperator
"""What a compiled model is called, or the operator that is called alone."""

Execute = Callable[[Observer | None], list[Any]]
"""Runs a network once, seen by an observer or by nobody, and returns its outputs."""


class Recorder:
    """Numbers the runs of one network, dumps them, and follows them in the emulated device's memory.

    Attributes:
        marks: The operators that ``set_dump`` marked.
    """

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
        """Prove a plan's path writable, and write the graph files of the dump.

        Args:
            graph: The graph as the device runs it.
            plan: What is dumped, None: nothing.
            process: What all networks share.
            runs: Counts the runs.
            device: The emulated device, None on CPU and GPU.
            context: Where the network runs.
            model: What the model is called.
            variables: Gives what the initializers that training writes hold now.

        Raises:
            DumpWriteError: The dump path cannot be created or written.
        """
        self._runs = runs
        self.marks = Marks()
        self._process = process
        self._has_nodes = bool(graph.nodes)
        self._memory = None if device is None else RunMemory(device, plan, context.memory_limit)
        self._faults = None if device is None else self._faulty_memory(device, plan)
        self._dump = None if plan is None else self._open_dump(graph, plan, device, model, variables)
        self._flight: Flight | None = None  # that of the last run which was dumped
        self._number = 0 if plan is None else next(process.flight(plan).networks)

    def _faulty_memory(self, device: Ascend, plan: DumpPlan | None) -> FaultyMemory | None:
        """Return the memory that faulty kernels write to; None without any, or with a watcher."""
        is_watched = plan is not None and plan.compiled.scene is Scene.WATCHER
        return None if is_watched else faulty_memory(device, lambda: self.memory_use)

    def _open_dump(
        self, graph: Graph, plan: DumpPlan, device: Ascend | None, model: Model, variables: Variables
    ) -> DumpWriter:
        probe(plan.files.path)  # before claim, which may remove what earlier runs left there
        claim(plan, self._process)
        dump = dump_of(
            graph,
            plan,
            self._process,
            device,
            memory=lambda: self.memory_use,
            model=model,
            variables=variables,
        )
        dump.write_graph_files()
        return dump

    @property
    def memory_use(self) -> MemoryUse | None:
        """Device memory of the run that goes on, or else of the last one; None on CPU and GPU."""
        return None if self._memory is None else self._memory.now

    @property
    def summary(self) -> Summary | None:
        """Files that the process's dump wrote, skipped and lost so far; None without a dump."""
        return None if self._dump is None else self._dump.sink.summary

    @property
    def written(self) -> IterationSet:
        """Iterations that rules and a history let reach the disk, of those that are dumped."""
        return IterationSet() if self._flight is None else self._flight.written

    def record(self, inputs: Mapping[str, Any], execute: Execute) -> list[Any]:
        """Run the network once and dump what the plan asks for; return its outputs.

        Args:
            inputs: What the network is fed.
            execute: Runs it.

        Raises:
            DumpWriteError: A file could not be written.
            DeviceMemoryError: The run does not fit into the device.
            WatchHitError: A watch rule hit, and a hit is to end the run.
        """
        marked = self.marks.take()
        if marked is not None and self._dump is not None:
            self._dump.mark(marked)
        run = self._runs.next
        try:
            return self._run_and_dump(run, inputs, execute)
        finally:  # a run that fails is a run; a graph without operators has none
            if self._has_nodes:
                self._runs.ended(run)

    def _run_and_dump(self, run: Run, inputs: Mapping[str, Any], execute: Execute) -> list[Any]:
        dump = self._dump
        if dump is None:
            return self._run_measured(inputs, None, execute)
        if not self._process.dumps(dump.plan, run.iteration):
            dump.pass_by(run)
            return self._run_measured(inputs, None, execute)
        flight = self._flight = self._process.flight(dump.plan)
        flight.begin(run.iteration)
        try:
            outputs = self._run_measured(inputs, dump.begin(run, inputs), execute)
        except BaseException as error:
            dump.broken_off()  # what was captured stays, and no file may read inputs that change later
            flight.broken_off(run.iteration, error)
            raise
        try:
            dump.end()
            flight.compare_ranks(self._number, run.iteration)
        except BaseException as error:
            flight.broken_off(run.iteration, error)
            raise
        flight.end()
        return outputs

    def _run_measured(
        self, inputs: Mapping[str, Any], observer: Observer | None, execute: Execute
    ) -> list[Any]:
        """Run under an observer, and under those that follow the run in device memory."""
        if self._memory is None:
            return execute(observer)
        if self._faults is not None:
            observer = self._faults.begin(observer)
        # outermost, so that results have addresses before the others ask for them
        outputs = execute(self._memory.begin(inputs, observer))
        self._memory.end(inputs)  # not of a run that failed: its layout is a part of one
        return outputs
