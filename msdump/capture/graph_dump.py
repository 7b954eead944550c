"""The dump of one compiled graph: its graph files, and what each dumped iteration writes."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from msdump.capture import device_steps
from msdump.capture.capture import Capture
from msdump.capture.process import Process
from msdump.capture.selection import constant_names, inside, parameter_names, select, used_items
from msdump.capture.triggers import OverflowTrigger
from msdump.device.ascend import Ascend
from msdump.errors import DumpWriteError
from msdump.graph import ir_proto, ir_text
from msdump.graph.graph import Graph
from msdump.plan import DeviceTarget, DumpPlan, Naming, PatternKind, Trigger
from msdump.record import Artifact
from msdump.store.clock import CLOCK
from msdump.store.layouts import Layout

_log = logging.getLogger("msdump")

_ORDER_HEADER: Final = "NodeExecutionOrder-FullNameWithScope"
_RANK: Final = 0  # of a run that no launcher distributed, whatever RANK_ID says

VERSIONS: Final = {Naming.CLASSIC: "2.3.0", Naming.V2_5: "2.5.0", Naming.V2_7: "2.10.0"}
"""The MindSpore version that ``.dump_metadata/config.json`` names for each generation of names."""


class GraphDump:
    """Everything that one graph writes below the dump path.

    Attributes:
        plan: What is dumped.
        sink: Where it goes.
    """

    def __init__(self, graph: Graph, plan: DumpPlan, process: Process, device: Ascend | None = None) -> None:
        """Give the graph its number; nothing is written yet.

        Args:
            graph: The graph, fused where the level fuses.
            plan: What is dumped.
            process: What all networks share.
            device: The emulated device, None on CPU and GPU.
        """
        self.plan = plan
        self.sink = process.sink(plan)
        self._graph = graph
        self._process = process
        self._graph_id = process.next_graph_id()
        self._layout = Layout(plan.path, _RANK, plan.net_name)
        self._on_ascend = plan.context.device_target is DeviceTarget.ASCEND
        self._device = device
        self._trigger = None
        if plan.trigger is Trigger.OVERFLOW:
            read = None if device is None else device_steps.reader(device)
            self._trigger = OverflowTrigger(process.overflow_limit(plan), read)
        self._wrote_constants = False
        self._number = 0
        self._inputs: Mapping[str, Any] = {}
        self.mark(frozenset())

    def mark(self, marked: frozenset[str]) -> None:
        """Select anew: the full names of the operators that ``set_dump`` marked have changed."""
        self._selection = select(self._graph, self.plan, marked)
        self._capture = Capture(
            self._graph,
            self.plan,
            self._selection,
            self.sink,
            CLOCK,
            device=self._device,
            trigger=self._trigger,
        )
        self._used = used_items(self.plan, self._names())

    def _tell_hidden(self) -> None:
        """Say why ``kernels`` items name operators that fusion has hidden."""
        asked = {p.text for p in self.plan.selector.patterns if p.kind is PatternKind.NAME}
        for node in self._graph.nodes:
            for part in node.parts:
                name = part.operator.full_name
                if name in asked:
                    _log.warning("%s: kernels: %s", self.plan.source, inside(name, node.operator.full_name))

    def _names(self) -> Iterable[str]:
        yield from (node.operator.full_name for node in self._graph.nodes)
        if not self._on_ascend and self.plan.keeps_outputs:
            yield from parameter_names(self._graph)
            yield from constant_names(self._graph)

    def write_graph_files(self) -> None:
        """Write what exists from compilation on: .ir, .pb, execution order, metadata (CPU and GPU)."""
        if not self._on_ascend and self._process.claim_metadata(self.plan):
            self._write_metadata()
        self._tell_hidden()
        graph, number = self._graph, self._graph_id
        names = [_ORDER_HEADER, *(node.operator.full_name for node in graph.nodes)]
        view = None if self._device is None else self._device.view()
        self._replace(self._layout.graph_ir(number), ir_text.text(graph, number, view).encode())
        self._replace(self._layout.graph_pb(number), ir_proto.encode(graph, number))
        self._replace(self._layout.execution_order(number), "".join(f"{n}\n" for n in names).encode())
        self.sink.flush()

    def _write_metadata(self) -> None:
        device = {
            "device_target": str(self.plan.context.device_target),
            "ms_version": VERSIONS[self.plan.naming],
        }
        self.sink.keep(_artifact(self._layout.config(), self.plan.source_bytes))
        self.sink.keep(_artifact(self._layout.device(), json.dumps(device, separators=(",", ":")).encode()))

    def begin(self, iteration: int, inputs: Mapping[str, Any]) -> Capture:
        """Return the observer of a dumped iteration.

        Args:
            iteration: Its number.
            inputs: What the network is fed.
        """
        self._number, self._inputs = iteration, inputs
        self._process.use(self.plan, self._used)
        self._capture.begin(self._layout.iteration(self._graph_id, iteration), iteration)
        return self._capture

    def end(self) -> None:
        """Finish a dumped iteration: parameters, constants and history (CPU and GPU)."""
        inputs, self._inputs = self._inputs, {}
        if not self._on_ascend:
            if self.plan.keeps_outputs:
                self._write_parameters(inputs)
                self._write_constants()
            self._note(self._number)
        self.sink.flush()

    def broken_off(self) -> None:
        """Complete the files of an iteration that failed; what goes wrong here is only logged."""
        self._inputs = {}
        with contextlib.suppress(DumpWriteError):
            self.sink.flush()

    def passed(self, iteration: int) -> None:
        """Note an iteration that ran undumped; GPU's history lists every run, CPU's the dumped ones."""
        if self.plan.context.device_target is DeviceTarget.GPU:
            self._note(iteration)

    def _note(self, iteration: int) -> None:
        self.sink.append(self._layout.iterations_run(self._graph_id), f"{iteration}\n".encode())

    def _write_parameters(self, inputs: Mapping[str, Any]) -> None:
        for name in self._selection.parameters:
            array = inputs.get(name, self._graph.weights.get(name))
            if isinstance(array, np.ndarray):
                self._capture.write_parameter(name, array)

    def _write_constants(self) -> None:
        if self._wrote_constants:
            return
        self._wrote_constants = True
        directory = self._layout.constants(self._graph_id)
        for number in self._selection.constants:
            array = self._graph.weights[self._graph.constants[number]]
            self._capture.write_constant(number, array, directory)

    def _replace(self, path: str, data: bytes) -> None:
        self.sink.replace(_artifact(path, data))


def _artifact(path: str, data: bytes) -> Artifact:
    return Artifact(*os.path.split(path), (data,))
