"""The composition root: a model and a plan become a network that runs and dumps."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

from msdump.capture.claims import claim
from msdump.capture.compiled.single_dump import SingleOperator
from msdump.capture.dumps import DumpWriter, dump_of
from msdump.capture.faulty_run import FaultyMemory
from msdump.capture.graphs.ge_files import graph_files
from msdump.capture.graphs.ge_model import HostView
from msdump.capture.process import PROCESS, Process
from msdump.capture.run_memory import RunMemory
from msdump.capture.selection import inside
from msdump.capture.suggestions import operators, similar_names, similar_scopes
from msdump.counters import ModelIdentity, Run, RunCounter
from msdump.device.ascend import Ascend
from msdump.device.meter import MemoryUse
from msdump.errors import ReentryError
from msdump.execute import feeds, values
from msdump.execute.compilation import Note, emulated
from msdump.execute.program import Program
from msdump.execute.runtime import gpu_runtime
from msdump.graph.bodies import unseen
from msdump.graph.graph import IN_MEMORY, Graph, Node
from msdump.graph.kernel.stomp import stomped_bytes
from msdump.observer import Observer
from msdump.plan import Context, DeviceTarget, DumpPlan, JitLevel, Scene
from msdump.selector import DumpMode
from msdump.store.write import exits
from msdump.store.write.probe import probe
from msdump.store.write.sinks import Summary
from msdump.targets import Operator, Scope

_log = logging.getLogger("msdump.session")


class Network:
    """A model that runs operator by operator, and dumps where a plan says so.

    Any thread may call it. Calls of one network run one after the other, each is one iteration and
    whole; calls of several networks run at the same time.

    Attributes:
        graph: The model.
        plan: The dump plan; None for a run without dump.
    """

    def __init__(
        self,
        graph: Graph,
        plan: DumpPlan | None = None,
        process: Process = PROCESS,
        context: Context | None = None,
        *,
        model: ModelIdentity | SingleOperator | None = None,
    ) -> None:
        """Compile a network; a plan's path is proved writable and its graph files are written.

        Args:
            graph: The model.
            plan: What is dumped; its context holds.
            process: What all networks share.
            context: Where the network runs without a plan.
            model: What a compiled model is called, or the operator that is called alone; None: after
                its file, with the process's next number.

        Raises:
            DumpWriteError: The dump path cannot be created or written.
        """
        context = plan.context if plan is not None else context or Context()
        self._device = emulated(graph, plan, context, note=_graph_files(plan, context, process))
        self.graph = graph if self._device is None else self._device.graph
        self._is_compiled = context.jit_level is JitLevel.O2
        # A graph that only passes its inputs on has no kernels: nothing at all is written.
        self.plan = plan if plan is not None and plan.is_enabled and graph.nodes else None
        self._process = process
        model = model or ModelIdentity(file_stem(graph))
        self._runs = _run_counter(plan, process, model)
        self._lock = threading.RLock()  # held by the run that goes on
        exits.hold_runs(self._lock)
        self._is_running = False
        self._marked: set[str] = set()
        self._changes: deque[tuple[tuple[str, ...], bool]] = deque()  # marks that the next run takes
        self._memory = (
            None if self._device is None else RunMemory(self._device, self.plan, context.memory_limit)
        )
        if self.plan is not None or self._device is not None:
            _tell_unseen(graph)
        self._program = _program(self.graph, self._device, context)
        self._faults = self._faulty_memory()
        self._dump = self._compile_dump(model)

    def _faulty_memory(self) -> FaultyMemory | None:
        """Return the memory that faulty kernels write to, None where every kernel is sound."""
        nodes = (node for inner in self.graph.walk() for node in inner.nodes)
        if self._device is None or not any(map(stomped_bytes, nodes)):
            return None
        return FaultyMemory(self._device, self._uses)

    def _compile_dump(self, model: ModelIdentity | SingleOperator) -> DumpWriter | None:
        if self.plan is None:
            return None
        probe(self.plan.files.path)
        claim(self.plan, self._process)
        dump = dump_of(self.graph, self.plan, self._process, self._device, memory=self._uses, model=model)
        dump.write_graph_files()
        return dump

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Run once; return the output, or a tuple where the graph has several.

        Args:
            inputs: Graph inputs in order: arrays, lists of arrays (sequences), None (optionals).
            named: Graph inputs by name.

        Raises:
            InputError: An input is missing, unknown, or of the wrong type or shape.
            ExecutionError: An operator failed; the files of those before it are complete.
            UnsupportedOpError: An operator that nothing can run.
            DumpWriteError: A file could not be written.
        """
        outputs = self._execute(feeds.bind(self.graph, inputs, named))
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def run(self, inputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Run once with inputs by name, which need be no Python identifiers; return outputs by name.

        Raises:
            MsdumpError: As for a call.
        """
        outputs = self._execute(feeds.bind(self.graph, (), inputs or {}))
        return dict(zip((value.name for value in self.graph.outputs), outputs, strict=True))

    def _execute(self, inputs: Mapping[str, Any]) -> list[Any]:
        with self._lock:
            if self._is_running:
                raise ReentryError(
                    f"{self.graph.source}: the network is called from within its own run; call it when the "
                    "run has ended, or load the model once more"
                )
            try:
                self._is_running = True
                self._take_marks()
                return self._step(inputs)
            finally:
                self._is_running = False

    def _step(self, inputs: Mapping[str, Any]) -> list[Any]:
        run = self._runs.next
        try:
            return self._dumped_run(inputs, run)
        finally:  # a step that fails is a step; a graph without operators has none
            if self.graph.nodes:
                self._runs.ended(run)

    def _dumped_run(self, inputs: Mapping[str, Any], run: Run) -> list[Any]:
        dump = self._dump
        if dump is None:
            return self._run(inputs, None)
        if not self._process.dumps(dump.plan, run.iteration):
            dump.pass_by(run)
            return self._run(inputs, None)
        try:
            outputs = self._run(inputs, dump.begin(run, inputs))
        except BaseException:
            dump.broken_off()  # what was captured stays, and no file may read inputs that change later
            raise
        dump.end()
        return outputs

    def _run(self, inputs: Mapping[str, Any], capture: Observer | None) -> list[Any]:
        fed = {
            name: values.from_python(item, self.graph.type_of(name).dtype) for name, item in inputs.items()
        }
        if self._memory is None:
            return self._program.run(fed, capture)
        if self._faults is not None and not _is_watched(self.plan):
            capture = self._faults.begin(capture)
        outputs = self._program.run(fed, self._memory.begin(inputs, capture))
        self._memory.end(inputs)
        return outputs

    @property
    def has_run(self) -> bool:
        """Whether any of its operators has run, or tried to."""
        return self._program.has_run

    @property
    def device(self) -> Ascend | None:
        """The emulated device; None on CPU and GPU."""
        return self._device

    @property
    def device_memory(self) -> MemoryUse | None:
        """What the run that goes on, or else the last one, needs of the emulated device; None elsewhere.

        It tells addresses from the moment at which an operator's tensors are captured:
        ``network.device_memory.block(position, io, slot)``.
        """
        return self._uses()

    def _uses(self) -> MemoryUse | None:
        return None if self._memory is None else self._memory.now

    @property
    def iteration(self) -> int:
        """Number of the next run in the dump (``msdump.counters``)."""
        return self._runs.next.iteration

    @property
    def runs(self) -> int:
        """How often it has run, runs that failed included."""
        return self._runs.count

    @property
    def summary(self) -> Summary | None:
        """What the process's dump wrote, skipped and lost so far; None without a dump."""
        return None if self._dump is None else self._dump.sink.summary

    @property
    def operators(self) -> tuple[Operator, ...]:
        """The operators in execution order; those of branches and loops follow the main graph's."""
        return tuple(Operator(self, node) for node in operators(self.graph))

    def operator(self, name: str) -> Operator:
        """Return an operator by its full name or its ONNX node name.

        In a graph that is compiled as a whole (O2) a fused operator also has the names of its originals.

        Raises:
            KeyError: No such operator.
        """
        node = self._find(name)
        if node is None:
            raise KeyError(self._why_missing(name))
        return Operator(self, node)

    def _find(self, name: str) -> Node | None:
        for node in operators(self.graph):
            if _is_called(node, name) or (self._is_compiled and _has_part(node, name)):
                return node
        return None

    def _why_missing(self, name: str) -> str:
        """Say why no operator answers to a name."""
        nodes = operators(self.graph)
        for node in nodes:
            if _has_part(node, name):
                return inside(name, node.operator.full_name)
        control = (node for inner in self.graph.walk() for node in inner.nodes if node.bodies)
        if any(_is_called(node, name) for node in control):
            return f"{name} is control flow: the operators inside it can be dumped, not itself"
        return f"no operator {name!r} in {self.graph.source}{similar_names(name, nodes)}"

    def scope(self, name: str) -> Scope:
        """Return a scope by its name, ``Default/conv1-Conv2d``, or its module path, ``conv1``.

        Raises:
            KeyError: No operator lies in such a scope.
        """
        found = self._below(name)
        if not found:
            hint = similar_scopes(name, operators(self.graph))
            raise KeyError(f"no scope {name!r} in {self.graph.source}{hint}")
        return Scope(self, name, found)

    def _below(self, name: str) -> tuple[str, ...]:
        """Return the full names of a scope's operators, none where there is no such scope."""
        return tuple(node.operator.full_name for node in operators(self.graph) if self._lies_in(node, name))

    def _lies_in(self, node: Node, name: str) -> bool:
        """Tell whether a scope holds an operator; one that O2 has fused, where it holds a part of it."""
        parts = node.members if self._is_compiled else (node,)
        return any(_lies_in(part.scope, name) for part in parts)

    def set_dump(self, *, enabled: bool) -> None:
        """Mark every operator for ``dump_mode`` 2, or take the marks away."""
        self.mark(tuple(node.operator.full_name for node in operators(self.graph)), enabled=enabled)

    def mark(self, full_names: tuple[str, ...], *, enabled: bool) -> None:
        """Mark operators for ``dump_mode`` 2 by their full names, or take their marks away.

        A run that goes on ends as it began; the next one takes the change.
        """
        self._changes.append((full_names, enabled))

    def _take_marks(self) -> None:
        """Select anew where marks have changed since the last run."""
        if not self._changes:
            return
        while self._changes:
            full_names, enabled = self._changes.popleft()
            change = self._marked.update if enabled else self._marked.difference_update
            change(full_names)
        if self._dump is not None:
            self._dump.mark(frozenset(self._marked))

    def take_names(self) -> None:
        """Mark what ``set_dump`` has named in the process so far."""
        for name, enabled in self._process.marks.items():
            self.mark_named(name, enabled=enabled)

    def mark_named(self, name: str, *, enabled: bool) -> None:
        """Mark an operator or a scope where the network has one of the name."""
        node = self._find(name)
        found = self._below(name) if node is None else (node.operator.full_name,)
        if found:
            self.mark(found, enabled=enabled)
            self._process.found.add(name)
        elif self.plan is not None and self.plan.what.selector.mode is DumpMode.MARKED:
            nodes = operators(self.graph)
            self._process.similar[name] = similar_names(name, nodes) or similar_scopes(name, nodes)

    def __repr__(self) -> str:
        """Name the model and count its operators."""
        return f"<Network {self.graph.source} of {len(self.operators)} operators>"


def _graph_files(plan: DumpPlan | None, context: Context, process: Process) -> Note | None:
    """Return what writes the stages of a compilation, None where nobody wants to see them."""
    if context.device_target is not DeviceTarget.ASCEND or context.jit_level is not JitLevel.O2:
        return None
    is_dumped = plan is not None and plan.is_enabled and plan.compiled.shows_graph
    files = graph_files(context.device_id, process.counters, is_dumped=is_dumped, write=process.stream(plan))
    if files is None:
        return None
    return lambda stage, made: files.write(stage, HostView(made) if isinstance(made, Graph) else made)


def _run_counter(
    plan: DumpPlan | None, process: Process, model: ModelIdentity | SingleOperator
) -> RunCounter:
    """Return what counts the runs: the model's own counter, else MindSpore's rule."""
    if isinstance(model, ModelIdentity) and model.runs is not None:
        return model.runs
    if plan is None:
        return process.counters.runs("", 0)
    return process.counters.runs(plan.source, plan.when.initial_iteration)


def _tell_unseen(graph: Graph) -> None:
    for node, reason in unseen(graph):
        name = node.operator.full_name
        _log.warning(
            "%s: %s runs as one operator (%s): those inside it are neither dumped nor rounded",
            graph.source,
            name,
            reason,
        )


def _is_watched(plan: DumpPlan | None) -> TypeGuard[DumpPlan]:
    return plan is not None and plan.compiled.scene is Scene.WATCHER


def file_stem(graph: Graph) -> str:
    """Return the name of a model's file without suffix, "" for a model from memory."""
    return "" if graph.source == IN_MEMORY else Path(graph.source).stem


def _program(graph: Graph, device: Ascend | None, context: Context) -> Program:
    if device is not None:
        return Program(graph, device.roundings)
    return Program(graph, on=gpu_runtime() if context.device_target is DeviceTarget.GPU else None)


def _lies_in(scope: str, name: str) -> bool:
    """Tell whether a scope is, or lies below, the named scope or module path."""
    if f"{scope}/".startswith(f"{name}/"):
        return True
    modules = [component.rpartition("-")[0] or component for component in scope.split("/")[1:]]
    return f"{'.'.join(modules)}.".startswith(f"{name}.")


def _is_called(node: Node, name: str) -> bool:
    return name in {node.operator.full_name, node.name}


def _has_part(node: Node, name: str) -> bool:
    """Tell whether an operator of the name is fused in another one."""
    return any(_is_called(part, name) for part in node.parts)
