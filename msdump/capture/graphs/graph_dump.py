"""The dump of one graph in MindSpore's tree: its graph files, and the files of each dumped iteration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from msdump.capture.capture import Capture
from msdump.capture.process import Process
from msdump.capture.selection import select
from msdump.capture.steps.device import reader
from msdump.capture.triggers import OverflowTrigger
from msdump.device.ascend import Ascend
from msdump.graph.files import ir_proto, ir_text
from msdump.graph.graph import Graph
from msdump.plan import DumpPlan, Trigger
from msdump.record import Artifact
from msdump.store.clock import CLOCK
from msdump.store.read.texts import ORDER_HEADER
from msdump.store.run_paths import Layout


class GraphDump:
    """Everything that one graph writes below the dump path.

    Attributes:
        graph: The graph.
        capture: Observes its operators.
    """

    def __init__(
        self, graph: Graph, plan: DumpPlan, process: Process, layout: Layout, device: Ascend | None
    ) -> None:
        """Give the graph its number; nothing is written yet.

        Args:
            graph: The graph, fused where the level fuses.
            plan: What is dumped.
            process: What all networks share.
            layout: Where the files stand.
            device: The emulated device, None on CPU and GPU.
        """
        self.graph = graph
        self._plan = plan
        self._sink = process.sink(plan)
        self._graph_id = next(process.counters.graph_ids)
        self._layout = layout
        self._device = device
        self._trigger = None
        if plan.when.trigger is Trigger.OVERFLOW:
            read = None if device is None else reader(device)
            self._trigger = OverflowTrigger(process.overflow_limit(plan), read)
        self._watch = process.flight(plan).graph_watch((graph,))
        self._wrote_constants = False
        self.mark(frozenset())

    def mark(self, marked: frozenset[str]) -> None:
        """Select anew: the full names of the operators that ``set_dump`` marked have changed."""
        self._selection = select(self.graph, self._plan, marked)
        self.capture = Capture(
            self.graph,
            self._plan,
            self._selection,
            self._sink,
            CLOCK,
            device=self._device,
            trigger=self._trigger,
            watch=self._watch,
        )

    def write_graph_files(self) -> None:
        """Write what exists from compilation on: .ir, .pb, execution order."""
        graph, number = self.graph, self._graph_id
        names = [ORDER_HEADER, *(node.operator.full_name for node in graph.operators)]
        view = None if self._device is None else self._device.view()
        self._replace(self._layout.graph_ir(number), ir_text.text(graph, number, view).encode())
        self._replace(self._layout.graph_pb(number), ir_proto.encode(graph, number))
        self._replace(self._layout.execution_order(number), "".join(f"{n}\n" for n in names).encode())

    def begin(self, iteration: int) -> None:
        """Direct the files of its operators into an iteration's directory."""
        self.capture.begin(self._layout.iteration(self._graph_id, iteration), iteration)

    def note(self, iteration: int) -> None:
        """Add an iteration to the csv file of those in which the graph ran."""
        self._sink.append(self._layout.iterations_run(self._graph_id), f"{iteration}\n".encode())

    def write_parameters(self, inputs: Mapping[str, Any]) -> None:
        """Write weights and graph inputs as they are at the end of an iteration."""
        for name in self._selection.parameters:
            array = inputs.get(name, self.graph.weights.get(name))
            if isinstance(array, np.ndarray):  # sequences and optionals have no file
                self.capture.write_parameter(name, array)

    def write_constants(self) -> None:
        """Write the constants, once for the graph: they do not change."""
        if self._wrote_constants:
            return
        self._wrote_constants = True  # also where one cannot be written: it would fail in each iteration
        directory = self._layout.constants(self._graph_id)
        for number in self._selection.constants:
            array = self.graph.weights[self.graph.constants[number]]
            self.capture.write_constant(number, array, directory)

    def _replace(self, path: str, data: bytes) -> None:
        self._sink.replace(Artifact(*os.path.split(path), (data,)))
