"""The composition root: a model and a plan become a network that runs and dumps."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from msdump.capture import (
    PROCESS,
    Model,
    Process,
    Recorder,
    graph_files,
    inside,
    operators,
    similar_names,
    similar_scopes,
)
from msdump.counters import ModelIdentity
from msdump.device import Ascend, MemoryUse, float_status_of
from msdump.errors import ReentryError, keeping_stops, plural
from msdump.execute import (
    NONE_REPLACED,
    Program,
    Replaceable,
    Replaced,
    Runs,
    TrainingState,
    as_the_model_says,
    collectives_of,
    emulated,
    gpu_runtime,
    is_finite,
    losses,
    values,
)
from msdump.graph import Graph, Node, mixed_types, opaque_control_flow
from msdump.plan import Context, DeviceTarget, DumpPlan, JitLevel, Optimization
from msdump.record import lies_below
from msdump.selector import DumpMode, IterationSet
from msdump.store.write import Summary, exits
from msdump.threads import new_lock

_log = logging.getLogger("msdump.session")


@dataclass(slots=True)
class ModelState:
    """The state that the networks of one model share: inference and the training step."""

    variables: TrainingState  # the initializers that training writes
    # held by the run that goes on. Reentrant: a call from within a run raises, and does not hang
    lock: threading.RLock = field(default_factory=new_lock)
    runner: int | None = None  # the thread of the current run
    has_warned: bool = False  # whether a loss that is not finite was reported


class Network:
    """A model that runs operator by operator, and dumps by its plan.

    All methods are thread-safe. Calls of one network run one after the other, and each is one iteration.
    Calls of different networks run in parallel.

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
        model: Model | None = None,
        state: ModelState | None = None,
    ) -> None:
        """Compile a network, check that the dump path is writable, and write the graph files.

        Args:
            graph: The model.
            plan: The dump plan, None: no dump. Its context replaces ``context``.
            process: The state that all networks share.
            context: Device and settings of a network without a plan.
            model: Name of a compiled model, or the operator that is called alone; None: after
                its file, with the process's next number.
            state: State of the model's first network, to be shared; None: a new state.

        Raises:
            DumpWriteError: The dump path cannot be created or written.
        """
        context = plan.context if plan is not None else context or Context()
        model = model or ModelIdentity(graph.file_stem)
        self._device = emulated(graph, plan, context, note=graph_files.stages(plan, context, process))
        self.graph = graph if self._device is None else self._device.graph
        # A graph that only passes its inputs on has no kernels: nothing at all is written of it.
        self.plan = plan if plan is not None and plan.is_enabled and graph.nodes else None
        self._process = process
        self._names = Names(self.graph, is_compiled=context.jit_level is JitLevel.O2)
        # networks of one configuration share the iteration number
        first = ("", 0) if plan is None else (plan.source, plan.when.initial_iteration)
        self._runs = model.runs or process.counters.runs(*first)
        self._shared = state or ModelState(TrainingState(graph))
        self._variables = self._shared.variables
        self._given = plan, context
        self._trainer: Network | None = None
        exits.hold_runs(self._shared.lock)  # a process that ends waits for the run to end
        if self.plan is not None or self._device is not None:
            for node, reason in opaque_control_flow(graph):
                _log.warning(
                    "%s: %s runs as one operator (%s): the operators inside are neither dumped nor rounded",
                    graph.source,
                    node.operator.full_name,
                    reason,
                )
        if state is None and (mixed := [*mixed_types(graph)]):
            more = f" (so {plural(len(mixed) - 1, 'more operator')}: msdump check --model lists them)"
            _log.warning("%s: %s%s", graph.source, mixed[0], more if mixed[1:] else "")
        self._collectives = collectives_of(graph, plan, context)
        device, status = self._device, float_status_of(self.graph, context)
        self._program = Program(
            self.graph,
            as_the_model_says if device is None else device.roundings,
            on=gpu_runtime() if context.device_target is DeviceTarget.GPU else None,
            collectives=self._collectives,
            float_status=None if device is None else status,
            optimization=Optimization.NONE if plan is None else plan.optimization,
        )
        self._program_runs = Runs(self._program, self._variables)
        self._recorder = Recorder(
            self.graph,
            self.plan,
            process,
            self._runs,
            device=self._device,
            context=context,
            model=model,
            variables=self._variables.arrays,
            # other ranks would have to take part in it
        )

    @keeping_stops()
    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Run once; return the output, or a tuple if the graph has several outputs.

        Args:
            inputs: Graph inputs in order: arrays, lists of arrays (sequences), None (optionals).
            named: Graph inputs by name.

        Raises:
            InputError: An input is missing, unknown, or of the wrong type or shape.
            ExecutionError: An operator failed; the files of the operators before it are complete.
            UnsupportedOpError: An operator has no kernel.
            DumpWriteError: A file could not be written.
        """
        results = self._execute(values.bind_inputs(self.graph, inputs, named))
        outputs = [results[name] for name in self.graph.returns or results]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    @keeping_stops()
    def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        replace: Mapping[str, Any] | Mapping[Operator, Any] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """Run once with inputs by name (any string); return outputs by name.

        Args:
            inputs: Graph inputs by name.
            replace: Arrays in the place of operators' outputs: the operator runs, its output takes the array,
                and the network runs on. Operators by name (full, last component, ONNX node) or as
                ``network.operator(...)``; ``"NAME:1"`` is output 1. The dump shows the arrays.

        Raises:
            InputError: No operator has the name, or the array does not have the type or shape of the output.
            MsdumpError: As for a call.
        """
        replaced = NONE_REPLACED
        if replace:
            by_name = {key if isinstance(key, str) else key.full_name: item for key, item in replace.items()}
            replaced = Replaceable(self.graph, self._device).checked(by_name)
        return self._execute(values.bind_inputs(self.graph, (), inputs or {}), replaced)

    @keeping_stops()
    def train_step(self, /, *inputs: Any, **named: Any) -> Any:
        """Run one step of training: forward, backward, and the update of the variables.

        A step is an iteration like any run. A step that fails does not change the variables. The first loss
        that is not finite logs a warning with the operator that made the first NaN or infinity.

        Args:
            inputs: Inputs of the training step in order, as for a call.
            named: Inputs by name.

        Returns:
            The outputs that are not bound to variables, such as the loss; one value or a tuple.

        Raises:
            NotAvailableError: The model has no training step.
            UnsupportedOpError: The training step cannot run.
            MsdumpError: As for a call.
        """
        network = self.training
        results = network._execute(values.bind_inputs(network.graph, inputs, named), trains=True)  # noqa: SLF001
        return next(iter(results.values())) if len(results) == 1 else tuple(results.values())

    @property
    def training(self) -> Network:
        """The network of the training step, with its own operators, graph id and memory.

        If the graph of the model is the whole step, this network is returned. Otherwise the network is made
        at first use and shares the variables.

        Raises:
            NotAvailableError: The model has no training step.
            UnsupportedOpError: The training step cannot run.
        """
        step = self.graph.training_step()
        with self._shared.lock:
            self._variables.begin()
            if step is self.graph:
                return self
            if self._trainer is None:
                plan, context = self._given
                self._trainer = Network(step, plan, self._process, context, state=self._shared)
                self._trainer.take_names()
            return self._trainer

    @property
    def shared(self) -> ModelState:
        """The state shared with other networks that read the same variables."""
        return self._shared

    def state(self) -> dict[str, np.ndarray]:
        """Return copies of the variables by name: the initializers that training changes."""
        with self._shared.lock:
            if self.graph.training is not None:
                self._variables.begin()
            return self._variables.copies()

    def forget_sessions(self) -> None:
        """Free each onnxruntime session after its run; later runs create it again."""
        self._program_runs.forget_sessions()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Set the variables to copies of arrays, such as the result of ``state``.

        Raises:
            InputError: A variable is missing or unknown, or an array has another type or shape.
        """
        with self._shared.lock:
            self._refuse_reentry()
            self._variables.load(state)

    def _execute(
        self, inputs: Mapping[str, Any], replaced: Replaced = NONE_REPLACED, *, trains: bool = False
    ) -> dict[str, Any]:
        """Run once, or one step of training; return outputs by name, of a run in the declared types."""
        graph, shared = self.graph, self._shared
        updates = trains or graph.is_stateful
        with shared.lock:
            self._refuse_reentry()
            try:
                shared.runner = threading.get_ident()
                if updates:
                    outputs = self._trained(inputs, replaced)
                else:
                    infer = partial(self._program_runs.infer, inputs, replaced=replaced)
                    outputs = self._recorder.record(inputs, infer)
            except BaseException as error:
                # the files are complete; other ranks may wait in a collective for this one
                if self._collectives is not None:
                    self._collectives.failed(f"{type(error).__name__}: {error}")
                raise
            finally:
                shared.runner = None
        shown = graph.results if updates else graph.outputs
        results = dict(zip((value.name for value in shown), outputs, strict=True))
        for name in () if trains else results.keys() & graph.declared.keys():
            results[name] = results[name].astype(graph.declared[name].numpy)
        return results

    def _refuse_reentry(self) -> None:
        runner = self._shared.runner
        if runner is None:
            return
        # only a thread that holds the lock gets here while a run goes on: in an observer, ...
        why = "the network is called during its own run; call it after the run"
        if runner != threading.get_ident():  # ... or in a forked child, where no other thread can hold it
            why = "the process was forked while another thread ran the network; fork between its runs"
        raise ReentryError(f"{self.graph.source}: {why}, or load the model once more")

    def _trained(self, inputs: Mapping[str, Any], replaced: Replaced) -> list[Any]:
        """Run a step; the variables hold its results, or their earlier values where it fails."""
        before, iteration = self._variables.values, self.iteration
        try:
            train = partial(self._program_runs.train, inputs, replaced=replaced)
            outputs = self._recorder.record(inputs, train)
        except BaseException:
            self._variables.values = before
            raise
        if not self._shared.has_warned and not all(is_finite(loss) for loss in losses(self.graph, outputs)):
            self._shared.has_warned = True
            reason = "the operator is unknown, since a step with other ranks is not repeated"
            if self._collectives is None:
                reason = self._program_runs.fault(inputs, before, replaced)
            _log.warning("%s: iteration %d: the loss is not finite: %s", self.graph.source, iteration, reason)
        return outputs

    @property
    def has_run(self) -> bool:
        """Whether any operator of the network has run, or has failed."""
        return self._program.has_run

    @property
    def context(self) -> Context:
        """The device and the level that the network runs on."""
        return self._given[1]

    @property
    def device(self) -> Ascend | None:
        """The emulated device; None on CPU and GPU."""
        return self._device

    @property
    def device_memory(self) -> MemoryUse | None:
        """Memory of the emulated device in the current run, else in the last one; None on CPU and GPU.

        A run with a dump or a limit (``max_device_memory``) has addresses from the capture of its tensors
        on: ``network.device_memory.block(position, io, slot)``. Any other run has none.
        """
        return self._recorder.memory_use

    @property
    def iteration(self) -> int:
        """Number of the next run in the dump (``msdump.counters``)."""
        return self._runs.next.iteration

    @property
    def runs(self) -> int:
        """Number of runs of the network so far, failed ones included."""
        return self._runs.count

    @property
    def summary(self) -> Summary | None:
        """Files that the dump of the process has written, skipped and lost; None without a dump."""
        return self._recorder.summary

    @property
    def written_iterations(self) -> IterationSet:
        """Dumped iterations of the configuration that are on disk.

        Not among them: iterations that watch rules or the history hold back, or that lost all their files.
        """
        return self._recorder.written

    @property
    def operators(self) -> tuple[Operator, ...]:
        """The operators in execution order; operators of branches and loops follow the main graph's."""
        return tuple(Operator(self, node) for node in self._names.nodes)

    def operator(self, name: str) -> Operator:
        """Return an operator by its full name or its ONNX node name.

        In a compiled graph (O2) a fused operator also has the names of its parts.

        Raises:
            KeyError: No such operator.
        """
        return Operator(self, self._names.operator(name))

    def scope(self, name: str) -> Scope:
        """Return a scope by its name, ``Default/conv1-Conv2d``, or its module path, ``conv1``.

        Raises:
            KeyError: No operator is in such a scope.
        """
        return Scope(self, name, self._names.scope(name))

    def set_dump(self, *, enabled: bool) -> None:
        """Mark every operator for ``dump_mode`` 2, or remove the marks; ``training`` has its own marks."""
        self.mark(tuple(node.operator.full_name for node in self._names.nodes), enabled=enabled)

    def mark(self, full_names: tuple[str, ...], *, enabled: bool) -> None:
        """Mark operators for ``dump_mode`` 2 by their full names, or remove their marks.

        The change has effect from the next run on.
        """
        self._recorder.marks.change(full_names, enabled=enabled)

    def take_names(self) -> None:
        """Apply the earlier calls of ``set_dump`` by name to this network."""
        for name, enabled in self._process.named_marks.all():
            self.mark_named(name, enabled=enabled)

    def mark_named(self, name: str, *, enabled: bool) -> None:
        """Mark the operator or scope with a name, if the network or its training step has one."""
        if self._trainer is not None:
            self._trainer.mark_named(name, enabled=enabled)
        full_names = self._names.meant_by(name)
        if full_names:
            self.mark(full_names, enabled=enabled)
            self._process.named_marks.meet(name)
        # without dump_mode 2 marks decide nothing: no warning of a name that is nowhere
        elif self.plan is not None and self.plan.what.selector.mode is DumpMode.MARKED:
            self._process.named_marks.miss(name, self._names.hint(name))

    def __repr__(self) -> str:
        """Name the model and count its operators."""
        return f"<Network {self.graph.source} of {len(self.operators)} operators>"


class Operator:
    """One operator of a network, as a target of ``set_dump``."""

    def __init__(self, network: Network, node: Node) -> None:
        self._network = network
        self.full_name = node.operator.full_name
        self.op_type = node.operator.op_type
        self.onnx_name = node.name

    def set_dump(self, *, enabled: bool) -> None:
        """Mark the operator for ``dump_mode`` 2, or remove the mark."""
        self._network.mark((self.full_name,), enabled=enabled)

    def __repr__(self) -> str:
        """Name the operator."""
        return f"<Operator {self.full_name} ({self.onnx_name})>"


class Scope:
    """A scope of a network with everything below it, as a target of ``set_dump``."""

    def __init__(self, network: Network, name: str, operators: tuple[str, ...]) -> None:
        self._network = network
        self.name = name
        self.operators = operators

    def set_dump(self, *, enabled: bool) -> None:
        """Mark all operators of the scope for ``dump_mode`` 2, or remove the marks."""
        self._network.mark(self.operators, enabled=enabled)

    def __repr__(self) -> str:
        """Name the scope and count its operators."""
        return f"<Scope {self.name} of {len(self.operators)} operators>"


class Names:
    """The names to which the operators and scopes of a network answer."""

    def __init__(self, graph: Graph, *, is_compiled: bool) -> None:
        """Take the names of a graph's operators and scopes, of one that is compiled as a whole (O2) or not.

        There a fused operator answers to the names of its originals, too. Under O1 they cannot be dumped, and
        so are not found.
        """
        # the operators in execution order; operators of branches and loops follow the main graph's
        self.nodes = operators(graph)
        self._graph = graph
        self._is_compiled = is_compiled

    def operator(self, name: str) -> Node:
        """Return the operator of a full name or an ONNX node name.

        Raises:
            KeyError: No operator answers to it; says why.
        """
        node = self._find(name)
        if node is not None:
            return node
        for node in self.nodes:
            if _has_part(node, name):
                raise KeyError(inside(name, node.operator.full_name))
        control = (node for inner in self._graph.walk() for node in inner.nodes if node.bodies)
        if any(_is_called(node, name) for node in control):
            raise KeyError(f"{name} is control flow and cannot be dumped; select operators inside")
        raise KeyError(f"no operator {name!r} in {self._graph.source}{similar_names(name, self.nodes)}")

    def scope(self, name: str) -> tuple[str, ...]:
        """Return the full names of the operators in a scope, ``Default/conv1-Conv2d``, or module, ``conv1``.

        Raises:
            KeyError: No operator lies in it.
        """
        full_names = self._below(name)
        if not full_names:
            raise KeyError(f"no scope {name!r} in {self._graph.source}{similar_scopes(name, self.nodes)}")
        return full_names

    def meant_by(self, name: str) -> tuple[str, ...]:
        """Return the full names of the operator, or else of the scope, of a name; empty without either."""
        node = self._find(name)
        return self._below(name) if node is None else (node.operator.full_name,)

    def hint(self, name: str) -> str:
        """Return which operator or scope may have been meant by a name, "" where nothing is close."""
        return similar_names(name, self.nodes) or similar_scopes(name, self.nodes)

    def _find(self, name: str) -> Node | None:
        """Return the first operator that answers to a name, None without one."""
        for node in self.nodes:
            if _is_called(node, name) or (self._is_compiled and _has_part(node, name)):
                return node
        return None

    def _below(self, scope: str) -> tuple[str, ...]:
        """Return the full names of operators in a scope; one fused by O2 is where its originals are."""
        return tuple(
            node.operator.full_name
            for node in self.nodes
            if any(lies_below(part.scope, scope) for part in (node.members if self._is_compiled else (node,)))
        )


def _is_called(node: Node, name: str) -> bool:
    return name in {node.operator.full_name, node.name}


def _has_part(node: Node, name: str) -> bool:
    return any(_is_called(part, name) for part in node.parts)
