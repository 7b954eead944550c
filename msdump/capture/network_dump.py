"""The dump of one network in MindSpore's tree: its main graph, and those of its branches and loops."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from msdump.capture.capture import Capture
from msdump.capture.graphs.graph_dump import GraphDump
from msdump.capture.process import Process
from msdump.capture.selection import inside, selectable, used_items
from msdump.capture.suggestions import operators
from msdump.communication.world import current
from msdump.counters import Run
from msdump.device.ascend import Ascend
from msdump.errors import DumpWriteError
from msdump.graph.graph import Graph
from msdump.plan import DeviceTarget, DumpPlan, Naming
from msdump.record import Artifact
from msdump.selector import PatternKind
from msdump.store.run_paths import Layout

_log = logging.getLogger("msdump.capture")

Variables = Callable[[], Mapping[str, np.ndarray]]
"""Gives what the initializers that training writes hold now, by name, as views."""

VERSIONS: Final = {Naming.CLASSIC: "2.3.0", Naming.V2_5: "2.5.0", Naming.V2_7: "2.10.0"}
"""The MindSpore version that ``.dump_metadata/config.json`` names for each generation of names."""


class NetworkDump:
    """Everything that one network writes below the dump path.

    Attributes:
        plan: What is dumped.
        sink: Where it goes.
    """

    def __init__(
        self,
        graph: Graph,
        plan: DumpPlan,
        process: Process,
        device: Ascend | None = None,
        *,
        variables: Variables = dict,
    ) -> None:
        """Give the graphs their numbers; nothing is written yet.

        Args:
            graph: The main graph, fused where the level fuses.
            plan: What is dumped.
            process: What all networks share.
            device: The emulated device, None on CPU and GPU.
            variables: Gives what the initializers that training writes hold now.
        """
        self.plan = plan
        self.sink = process.sink(plan)
        self._process = process
        self._variables = variables
        self._on_ascend = plan.context.device_target is DeviceTarget.ASCEND
        self._layout = Layout(plan.files.path, current().identity.rank, plan.files.net_name)
        devices = {} if device is None else {inner.graph.index: inner for inner in device.walk()}
        self._graphs = tuple(
            GraphDump(inner, plan, process, self._layout, devices.get(inner.index)) for inner in graph.walk()
        )
        self._main = self._graphs[0]
        self._iteration = 0
        self._inputs: Mapping[str, Any] = {}  # of the run that goes on: written when it ends
        self.mark(frozenset())

    def mark(self, marked: frozenset[str]) -> None:
        """Select anew: the full names of the operators that ``set_dump`` marked have changed."""
        for dump in self._graphs:
            dump.mark(marked)
        # each graph has a new capture now, so that those of its bodies are handed to it anew
        captures = {dump.graph.index: dump.capture for dump in self._graphs}
        for dump in self._graphs:
            dump.capture.bodies = {body.index: captures[body.index] for body in dump.graph.bodies}
        self._used = used_items(self.plan, selectable(self._main.graph, self.plan))
        self._process.suggest(self.plan, self._used, operators(self._main.graph))

    def write_graph_files(self) -> None:
        """Write what exists from compilation on: graph files, metadata (CPU and GPU)."""
        if not self._on_ascend and self._process.claim_metadata(self.plan):
            self._write_metadata()
        self._warn_of_hidden()
        for dump in self._graphs:
            dump.write_graph_files()
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

    def _write_metadata(self) -> None:
        """Write a copy of the configuration, and the device: once for a configuration, as MindSpore does."""
        device = {
            "device_target": str(self.plan.context.device_target),
            "ms_version": VERSIONS[self.plan.files.naming],
        }
        self._keep(self._layout.config(), self.plan.source_bytes)
        self._keep(self._layout.device(), json.dumps(device, separators=(",", ":")).encode())

    def _keep(self, path: str, data: bytes) -> None:
        self.sink.keep(Artifact(*os.path.split(path), (data,)))

    def begin(self, run: Run, inputs: Mapping[str, Any]) -> Capture:
        """Return the observer of a dumped run.

        Args:
            run: Its numbers.
            inputs: What the network is fed.
        """
        self._iteration, self._inputs = run.iteration, inputs
        self._process.use(self.plan, self._used)
        for dump in self._graphs:
            dump.begin(run.iteration)
        return self._main.capture

    def end(self) -> None:
        """Finish a dumped iteration: parameters, constants and history (CPU and GPU)."""
        inputs, self._inputs = self._inputs, {}
        try:
            if not self._on_ascend and self.plan.what.keeps_outputs:
                self._write_parameters(inputs)
        finally:  # also where parameters could not be written
            self._list()
        self.sink.flush()

    def _write_parameters(self, inputs: Mapping[str, Any]) -> None:
        self._main.write_parameters({**self._variables(), **inputs})
        self._main.write_constants()
        for dump in self._entered():
            dump.write_parameters({})  # a body has weights of its own; its inputs are no parameters
            dump.write_constants()

    def _list(self) -> None:
        """Add the iteration to the history: one that failed has been executed, too."""
        if not self._on_ascend:
            self._main.note(self._iteration)

    def _entered(self) -> Iterator[GraphDump]:
        """Yield the dumps of the branches and loops that ran; of one without operators nothing is dumped."""
        return (dump for dump in self._graphs[1:] if dump.capture.entered and dump.graph.operators)

    def broken_off(self) -> None:
        """Complete the files of an iteration that failed and list it; what goes wrong here is only logged."""
        self._inputs = {}
        for complete in (self._list, self.sink.flush):
            with contextlib.suppress(DumpWriteError):
                complete()

    def pass_by(self, run: Run) -> None:
        """Add a run that is not dumped to the history, on GPU."""
        # vendor: CPU lists dumped iterations alone, GPU every run
        if self.plan.context.device_target is DeviceTarget.GPU:
            self._main.note(run.iteration)
