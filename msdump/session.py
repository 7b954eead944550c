"""The composition root: a model and a plan become a network that runs and dumps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msdump.capture import availability
from msdump.capture.graph_dump import GraphDump
from msdump.capture.process import PROCESS, Process
from msdump.execute import feeds, values
from msdump.execute.program import Program
from msdump.graph.graph import Graph, Node
from msdump.plan import DumpPlan
from msdump.store.probe import probe
from msdump.store.sinks import Summary


class Operator:
    """One operator of a network, as a target of ``set_dump``."""

    def __init__(self, network: Network, node: Node) -> None:
        """Refer to a node of a network."""
        self._network = network
        self.full_name = node.operator.full_name
        self.op_type = node.operator.op_type
        self.onnx_name = node.name

    def set_dump(self, *, enabled: bool) -> None:
        """Mark the operator for ``dump_mode`` 2, or take the mark away."""
        self._network.mark((self.full_name,), enabled=enabled)

    def __repr__(self) -> str:
        """Name the operator."""
        return f"<Operator {self.full_name} ({self.onnx_name})>"


class Scope:
    """A scope of a network with everything below it, as a target of ``set_dump``."""

    def __init__(self, network: Network, name: str, operators: tuple[str, ...]) -> None:
        """Refer to a scope of a network."""
        self._network = network
        self.name = name
        self.operators = operators

    def set_dump(self, *, enabled: bool) -> None:
        """Mark all operators of the scope, or take their marks away."""
        self._network.mark(self.operators, enabled=enabled)

    def __repr__(self) -> str:
        """Name the scope and count its operators."""
        return f"<Scope {self.name} of {len(self.operators)} operators>"


class Network:
    """A model that runs operator by operator, and dumps where a plan says so.

    Attributes:
        graph: The model.
        plan: The dump plan; None for a run without dump.
    """

    def __init__(self, graph: Graph, plan: DumpPlan | None = None, process: Process = PROCESS) -> None:
        """Compile a network; a plan's path is proved writable and its graph files are written.

        Raises:
            NotAvailableError: The plan asks for what this version cannot execute.
            DumpWriteError: The dump path cannot be created or written.
        """
        self.graph = graph
        # A graph that only passes its inputs on has no kernels: nothing at all is written.
        self.plan = plan if plan is not None and plan.is_enabled and graph.nodes else None
        self._process = process
        self._first_iteration = plan.initial_iteration if plan is not None else 0
        self._runs = 0
        self._marked: set[str] = set()
        self._program = Program(graph)
        self._dump = self._compile_dump()
        for name, enabled in process.marks.items():
            self.mark_named(name, enabled=enabled)

    def _compile_dump(self) -> GraphDump | None:
        if self.plan is None:
            return None
        availability.check(self.plan)
        probe(self.plan.path)
        dump = GraphDump(self.graph, self.plan, self._process)
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
        fed = {
            name: values.from_python(item, self.graph.type_of(name).dtype) for name, item in inputs.items()
        }
        iteration = self.iteration
        if self._dump is None:
            outputs = self._program.run(fed)
        elif iteration in self._dump.plan.iterations:
            outputs = self._program.run(fed, self._dump.begin(iteration))
            self._dump.end(iteration, inputs)
        else:
            outputs = self._program.run(fed)
            self._dump.passed(iteration)
        if self.graph.nodes:  # a graph without operators does not count as executed
            self._runs += 1
            self._process.iteration = self._runs + self._first_iteration
        return outputs

    @property
    def iteration(self) -> int:
        """Number of the next run in the dump; all networks of a process share the counter."""
        current = self._process.iteration
        return self._first_iteration if current is None else current

    @property
    def summary(self) -> Summary | None:
        """What the process's dump wrote, skipped and lost so far; None without a dump."""
        return None if self._dump is None else self._dump.sink.summary

    @property
    def operators(self) -> tuple[Operator, ...]:
        """The operators in execution order."""
        return tuple(Operator(self, node) for node in self.graph.nodes)

    def operator(self, name: str) -> Operator:
        """Return an operator by its full name or its ONNX node name.

        Raises:
            KeyError: No such operator.
        """
        for node in self.graph.nodes:
            if name in {node.operator.full_name, node.name}:
                return Operator(self, node)
        raise KeyError(f"no operator {name!r} in {self.graph.source}")

    def scope(self, name: str) -> Scope:
        """Return a scope by its name, ``Default/conv1-Conv2d``, or its module path, ``conv1``.

        Raises:
            KeyError: No operator lies in such a scope.
        """
        found = tuple(node.operator.full_name for node in self.graph.nodes if _lies_in(node.scope, name))
        if not found:
            raise KeyError(f"no scope {name!r} in {self.graph.source}")
        return Scope(self, name, found)

    def set_dump(self, *, enabled: bool) -> None:
        """Mark every operator for ``dump_mode`` 2, or take the marks away."""
        self.mark(tuple(node.operator.full_name for node in self.graph.nodes), enabled=enabled)

    def mark(self, full_names: tuple[str, ...], *, enabled: bool) -> None:
        """Mark operators for ``dump_mode`` 2 by their full names, or take their marks away."""
        change = self._marked.update if enabled else self._marked.difference_update
        change(full_names)
        if self._dump is not None:
            self._dump.mark(frozenset(self._marked))

    def mark_named(self, name: str, *, enabled: bool) -> bool:
        """Mark an operator or a scope where the network has one of the name; tell whether it has."""
        for find in (self.operator, self.scope):
            try:
                find(name).set_dump(enabled=enabled)
            except KeyError:
                continue
            self._process.found.add(name)
            return True
        return False

    def __repr__(self) -> str:
        """Name the model and count its operators."""
        return f"<Network {self.graph.source} of {len(self.graph.nodes)} operators>"


def _lies_in(scope: str, name: str) -> bool:
    """Tell whether a scope is, or lies below, the named scope or module path."""
    if f"{scope}/".startswith(f"{name}/"):
        return True
    modules = [component.rpartition("-")[0] or component for component in scope.split("/")[1:]]
    return f"{'.'.join(modules)}.".startswith(f"{name}.")
