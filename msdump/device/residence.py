"""Which forms of a graph's values lie in device memory, and from when until when.

A value lies in memory as its operator makes it. Where an operator reads it in another
format or element type, a converted copy lies beside it, from its first reader to its last.
In a compiled graph an operator that moves nothing, such as a change of shape, gives its
input's memory another name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from msdump.device.memory import lifetimes
from msdump.device.placement import NodePlacement, Placement, Slots
from msdump.device.recurrent import Cell
from msdump.device.tasks import moves_nothing
from msdump.dtypes import DType
from msdump.graph.graph import Graph, Node
from msdump.graph.order import reads
from msdump.record import DEFAULT_FORMAT


@dataclass(frozen=True, slots=True)
class Form:
    """A value in one of the ways in which it lies in device memory.

    Attributes:
        value: Its name.
        format: Name of the format.
        dtype: Element type; None: that of the value itself.
        groups: Groups that a FRACTAL_Z weight is laid out for.
        cell: Sizes of the recurrent operator that a weight or bias is laid out for.
    """

    value: str
    format: str = DEFAULT_FORMAT
    dtype: DType | None = None
    groups: int = 1
    cell: Cell | None = None


Forms = tuple[Form | None, ...]
"""One entry for each input or output, None for an absent one."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one operator does to device memory.

    Attributes:
        reads: Form of each input.
        makes: Form of each output that the operator declares.
        copies: Inputs that are converted first.
        results: Graph outputs among its outputs that are converted for the host.
        dead: Forms that nobody reads afterwards, its own unread results included.
        views: Forms that share the memory of another one, and that one: the output of an operator that
            moves nothing, and the new values of inputs that an operator writes in place.
    """

    reads: Forms
    makes: Forms
    copies: tuple[Form, ...]
    results: tuple[Form, ...]
    dead: tuple[Form, ...]
    views: tuple[tuple[Form, Form], ...] = ()


@dataclass(frozen=True, slots=True)
class Residence:
    """What lies in device memory while a graph runs.

    Attributes:
        first: Weights, then graph inputs: they are there before the first operator runs.
        steps: One for each operator.
        stays: Forms that were asked to stay, whoever reads them.
    """

    first: tuple[Form, ...]
    steps: tuple[Step, ...]
    stays: frozenset[Form] = frozenset()


def residence(
    graph: Graph, placement: Placement, kept: Iterable[str] = (), *, prepares: bool = False
) -> Residence:
    """Return what lies in device memory while a graph runs; weights and graph outputs stay.

    Args:
        graph: The graph.
        placement: Formats and device types of its inputs and outputs.
        kept: Names of values that stay as well.
        prepares: Weights lie there as they are read, and a change of shape moves nothing, because
            the graph was compiled (O2, acl).
    """
    first = tuple(_prepared(graph, placement) if prepares else _hosted(graph))
    return _Walk(graph, first, shares=prepares).run(placement.nodes, kept)


def _hosted(graph: Graph) -> Iterator[Form]:
    return (_host(graph, name) for name in lifetimes(graph).first)


def _prepared(graph: Graph, placement: Placement) -> Iterator[Form]:
    """Yield the weights in every form in which they are read, the inputs as on the host."""
    forms: dict[str, dict[Form, None]] = {}
    for node, placed in zip(graph.nodes, placement.nodes, strict=True):
        for form in filter(None, _forms(node.inputs, placed.inputs)):
            forms.setdefault(form.value, {})[form] = None
    for name in lifetimes(graph).first:
        # a weight's TransData ran when the graph was compiled: only what is read lies there
        yield from forms[name] if name in graph.weights and name in forms else (_host(graph, name),)


class _Walk:
    """Finds the forms of one graph in execution order, then their last readers from the end."""

    def __init__(self, graph: Graph, first: tuple[Form, ...], *, shares: bool) -> None:
        self._graph = graph
        self._shares = shares
        self._owners: dict[Form, Form] = {}  # view -> the form whose memory it shares
        self._first = first
        self._produced: dict[str, Form] = {form.value: form for form in first}
        self._resident: set[Form] = set(first)
        self._outputs = frozenset(value.name for value in graph.outputs)

    def run(self, placed: Sequence[NodePlacement], stays: Iterable[str]) -> Residence:
        steps = [self._step(node, place) for node, place in zip(self._graph.nodes, placed, strict=True)]
        kept = {form for form in self._first if form.value in self._graph.weights}
        staying = frozenset(self._owner(self._produced[name]) for name in stays)
        kept |= staying
        kept |= set(map(self._result, self._outputs))
        return Residence(self._first, tuple(self._with_last_readers(steps, kept)), staying)

    def _step(self, node: Node, placed: NodePlacement) -> Step:
        read_forms = _forms(node.inputs, placed.inputs)
        copies = tuple(form for form in dict.fromkeys(filter(None, read_forms)) if form not in self._resident)
        written = _forms(node.outputs, placed.outputs)
        makes = written[: node.update.declared]
        self._produced |= {form.value: form for form in written if form}
        graph_outputs = (form.value for form in makes if form and form.value in self._outputs)
        results = tuple(form for form in map(self._result, graph_outputs) if form not in makes)
        self._resident.update(copies, results, filter(None, makes))
        views = tuple(self._views(node, read_forms, written))
        return Step(read_forms, makes, copies, results, (), views)

    def _views(self, node: Node, read_forms: Forms, written: Forms) -> Iterator[tuple[Form, Form]]:
        """Yield the outputs that have the memory of an input, and the form that owns it."""
        pairs = [(slot, output) for slot, output in node.update.new_values.items() if output < len(written)]
        # a graph output has its own: the host reads it after the run, when its input may be gone
        if self._shares and moves_nothing(node) and node.outputs[0] not in self._outputs:
            pairs.append((0, 0))
        for slot, output in pairs:
            source, view = read_forms[slot], written[output]
            # another format or type would need bytes of its own
            if source is not None and view is not None and replace(source, value=view.value) == view:
                self._owners[view] = self._owner(source)
                yield view, self._owners[view]

    def _owner(self, form: Form) -> Form:
        return self._owners.get(form, form)

    def _with_last_readers(self, steps: Sequence[Step], kept: set[Form]) -> Iterable[Step]:
        # backwards, the first use is the last one; a use of a view is one of its owner's memory
        seen, ended = set(map(self._owner, kept)), []
        for node, step in zip(reversed(self._graph.nodes), reversed(steps), strict=True):
            used = dict.fromkeys(map(self._owner, self._used(node, step)))
            dead = tuple(form for form in used if form not in seen)
            seen.update(used)
            ended.append(replace(step, dead=dead))
        return reversed(ended)

    def _used(self, node: Node, step: Step) -> Iterator[Form]:
        """Yield every form that an operator reads, converts or makes."""
        yield from filter(None, step.reads)
        # a copy is made of the form that the operator's producer wrote, which must still be there
        copied = {form.value for form in step.copies}
        inside = (name for name in reads(node) if name not in node.inputs)  # what its subgraphs read
        yield from (self._produced[name] for name in (*copied, *inside) if name in self._produced)
        yield from filter(None, step.makes)
        yield from step.results

    def _result(self, name: str) -> Form:
        """Return the form in which the host gets a graph output: host layout, the device's element type."""
        form = self._produced.get(name)
        return Form(name, dtype=form.dtype) if form else _host(self._graph, name)


def _host(graph: Graph, name: str) -> Form:
    return Form(name, dtype=graph.type_of(name).dtype)


def _forms(names: Sequence[str], tensors: Slots) -> Forms:
    return tuple(
        Form(name, tensor.format, tensor.dtype, tensor.groups, tensor.cell) if tensor is not None else None
        for name, tensor in zip(names, tensors, strict=True)
    )
