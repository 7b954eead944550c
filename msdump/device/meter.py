"""Device memory while a network runs: every tensor gets an address when its operator has run.

Which forms of a graph's values lie in device memory, and from when until when.

A value lies in memory as its operator makes it. Where an operator reads it in another
format or element type, a converted copy lies beside it, from its first reader to its last.
In a compiled graph an operator that moves nothing, such as a change of shape, gives its
input's memory another name.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.device import formats
from msdump.device.blocks import Cell, Dims, blocks, product
from msdump.device.memory import Block, DeviceMemory, lifetimes
from msdump.device.placement import NodePlacement, Placement, Slots
from msdump.device.tasks import moves_nothing
from msdump.dtypes import DType
from msdump.errors import FormatError
from msdump.graph import Graph, Node, reads
from msdump.record import DEFAULT_FORMAT, IO


@dataclass(frozen=True, slots=True)
class Form:
    """A value in one of the ways in which it lies in device memory.

    Attributes:
        dtype: Element type; None: that of the value itself.
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
    """Changes of device memory by one operator.

    Attributes:
        makes: Form of each output that the operator declares.
        results: Graph outputs among its outputs that are converted for the host.
        dead: Forms without readers afterwards, its own unread results included.
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
    """Contents of device memory while a graph runs.

    Attributes:
        first: Weights, then graph inputs: they are there before the first operator runs.
        steps: One for each operator.
        stays: Forms that stay without readers.
    """

    first: tuple[Form, ...]
    steps: tuple[Step, ...]
    stays: frozenset[Form] = frozenset()


def residence(
    graph: Graph, placement: Placement, kept: Iterable[str] = (), *, prepares: bool = False
) -> Residence:
    """Return the contents of device memory while a graph runs; weights and graph outputs stay.

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
        # a weight's TransData ran when the graph was compiled: only forms that are read lie there
        yield from forms[name] if name in graph.weights and name in forms else (_host(graph, name),)


class _Walk:
    """Finds the forms of one graph in execution order, then their last readers from the end."""

    def __init__(self, graph: Graph, first: tuple[Form, ...], *, shares: bool) -> None:
        self._graph = graph
        self._shares = shares
        self._owners: dict[Form, Form] = {}  # view -> the form that owns its memory
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
        """Yield the outputs that share the memory of an input, and the form that owns it."""
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
        yield from filter(None, step.reads)
        # a copy is made of the form that the operator's producer wrote, which must still be there
        copied = {form.value for form in step.copies}
        inside = (name for name in reads(node) if name not in node.inputs)  # read by its subgraphs
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


BEFORE: Final = -1
"""Stands for the time before the first operator."""


@dataclass(frozen=True, slots=True)
class Written:
    """One tensor at the place where it was put in device memory.

    Attributes:
        position: The operator that made it, or for which it was converted; ``BEFORE`` for
            weights and graph inputs.
    """

    form: Form
    block: Block
    position: int


class MemoryUse:
    """The device memory of a run: where each tensor lies, the peak, the total.

    During the first run with inputs of such shapes it covers the part that has run so far. Sizes are
    of device memory: the format's padding counts, and a float32 tensor that the device holds as
    float16 has half the bytes.

    Attributes:
        written: Every tensor in the order in which it came into memory: the last one written to a
            block lies there. Of a branch or loop body: in
            the last time that it ran.
        bodies: The same of the branches and loop bodies of the whole model that ran, by the index of
            their graph. Values that control flow itself hands to a body have no block there.
    """

    def __init__(
        self, memory: DeviceMemory, residence: Residence, bodies: dict[int, MemoryUse] | None = None
    ) -> None:
        """Start without tensors."""
        self._memory = memory
        self._residence = residence
        self._blocks: dict[Form, Block] = {}
        self.written: list[Written] = []
        self.bodies: dict[int, MemoryUse] = {} if bodies is None else bodies

    @property
    def peak(self) -> int:
        """Most bytes in use at one time."""
        return self._memory.peak

    @property
    def total(self) -> int:
        """Bytes of all tensors, as if no memory were used again."""
        return self._memory.total

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Block of each value in the form in which its operator made it, by the value's name."""
        outputs = (form for step in self._residence.steps for form in step.makes if form)
        forms = {form.value: form for form in (*self._residence.first, *outputs)}
        return {name: self._blocks[form] for name, form in forms.items() if form in self._blocks}

    def block(self, position: int, io: IO, slot: int) -> Block | None:
        """Return the block of an operator's input or output by its position in execution order.

        Returns:
            Address and reserved bytes; None for an absent value, one that is no tensor, and one
            that the first run has not reached yet.
        """
        step = self._residence.steps[position]
        form = (step.reads if io is IO.INPUT else step.makes)[slot]
        return None if form is None else self._blocks.get(form)

    def inside(self, index: int) -> MemoryUse | None:
        """Return the use of the branch or loop body of an index, None before it runs for the first time."""
        return self.bodies.get(index)

    def share(self, outer: MemoryUse, names: Container[str]) -> None:
        """Register that a body reads values where they lie for the graph around it.

        Values that the body reads in another form get blocks of their own.
        """
        forms = {form: outer._blocks.get(form) for form in self._residence.first if form.value in names}
        self._blocks |= {form: block for form, block in forms.items() if block is not None}

    def register(self, form: Form, block: Block, position: int) -> None:
        """Register a tensor that was put into a block."""
        self._blocks[form] = block
        self.written.append(Written(form, block, position))

    def register_view(self, view: Form, owner: Form, position: int) -> None:
        """Register a form that shares the block of another one, if that has a block."""
        block = self._blocks.get(owner)
        if block is not None:
            self.register(view, block, position)


class Meter:
    """Gives the tensors of one run of a graph their memory, from when they are made to their last reader.

    Attributes:
        use: The memory that the run needed so far.
    """

    def __init__(self, memory: DeviceMemory, residence: Residence, use: MemoryUse) -> None:
        """Start without tensors."""
        self._memory = memory
        self._residence = residence
        self._host_types: dict[str, tuple[Dims, np.dtype]] = {}
        self._bodies: dict[int, BodyMeter] = {}
        self.use = use

    def _place_first(self, arrays: Mapping[str, object]) -> None:
        self._note_types((form.value, arrays.get(form.value)) for form in self._residence.first)
        self._place((form for form in self._residence.first if form.value in arrays), BEFORE)

    def ran(self, position: int, outputs: Sequence[np.ndarray | None]) -> None:
        """Place an operator's converted inputs and its outputs; release values after their last reader.

        Raises:
            DeviceMemoryError: A tensor does not fit; it is named.
        """
        # an operator of the graph around has run, so control flow has ended
        for body in self._bodies.values():
            body.end()
        pairs = zip(self._residence.steps[position].makes, outputs, strict=True)
        self._note_types((form.value, array) for form, array in pairs if form)
        self._finish_step(position)

    def _finish_step(self, position: int) -> None:
        step = self._residence.steps[position]
        self._place(step.copies, position)
        # views have no memory of their own
        views = dict(step.views)
        self._place((form for form in step.makes if form and form not in views), position)
        for view, owner in views.items():
            # an output that only holds the new value of an input is not shown by the operator
            if owner.value in self._host_types:
                self._host_types.setdefault(view.value, self._host_types[owner.value])
            self.use.register_view(view, owner, position)
        self._place(step.results, position)
        for form in step.dead:
            self._release(form)

    @property
    def has_limit(self) -> bool:
        """Whether results may not fit."""
        return self._memory.limit is not None

    def enter(self, body: Graph, residence: Residence) -> Meter:
        """Return the meter of a branch or loop body that is about to run once, in the same memory."""
        if body.index not in self._bodies:
            host_types = {name: self._host_types[name] for name in body.outer & self._host_types.keys()}
            self._bodies[body.index] = BodyMeter(body, residence, self._memory, self.use, host_types)
        meter = self._bodies[body.index]
        meter.begin_pass()
        return meter

    def _note_types(self, arrays: Iterable[tuple[str, object]]) -> None:
        self._host_types |= {
            name: (array.shape, array.dtype) for name, array in arrays if isinstance(array, np.ndarray)
        }

    def _place(self, forms: Iterable[Form], position: int) -> None:
        for form in forms:
            host_type = self._host_types.get(form.value)
            if host_type is not None:
                nbytes = device_bytes(form, host_type[0], form.dtype or dtypes.from_numpy(host_type[1]))
                block = self._memory.allocate(self._key(form), nbytes, _title(form))
                self.use.register(form, block, position)

    def _release(self, form: Form) -> None:
        # a value that is no tensor, or that a branch did not make, never had memory
        if self._key(form) in self._memory.blocks:
            self._memory.release(self._key(form))

    def _key(self, form: Form) -> Hashable:
        return form


class MemoryMeter(Meter):
    """The meter of a model's main graph: weights and inputs are placed first, then each result."""

    def __init__(self, residence: Residence, limit: int | None, arrays: Mapping[str, object]) -> None:
        """Place the weights and inputs."""
        memory = DeviceMemory(limit)
        super().__init__(memory, residence, MemoryUse(memory, residence))
        self._place_first(arrays)

    def is_like(self, other: MemoryMeter) -> bool:
        """Return whether the tensors of two runs have equal shapes and types, and so the same addresses."""
        return self._host_types == other._host_types

    def agrees(self, position: int, outputs: Sequence[np.ndarray | None]) -> bool:
        """Return whether an operator's results are tensors with the shapes that they had in this run."""
        return all(
            array is not None and self._host_types.get(form.value) == (array.shape, array.dtype)
            for form, array in zip(self._residence.steps[position].makes, outputs, strict=True)
            if form
        )

    def follow(self, other: MemoryMeter, end: int) -> None:
        """Place tensors of the operators before ``end``, with the shapes of another run."""
        for position, step in enumerate(self._residence.steps[:end]):
            names = (form.value for form in step.makes if form and form.value in other._host_types)
            self._host_types |= {name: other._host_types[name] for name in names}
            self._finish_step(position)


class BodyMeter(Meter):
    """The meter of a branch or loop body, for every time that it runs (a pass).

    Results of a pass stay until the next pass has ended, since the next iteration of a loop reads it.
    When control flow ends, they are released, but for values that must stay. The body's own weights are
    never released.
    """

    def __init__(
        self,
        body: Graph,
        residence: Residence,
        memory: DeviceMemory,
        outer: MemoryUse,
        host_types: Mapping[str, tuple[Dims, np.dtype]],
    ) -> None:
        """Place its own weights."""
        super().__init__(memory, residence, MemoryUse(memory, residence, outer.bodies))
        self._index = body.index
        self._pass = 0
        self._placed: dict[int, set[Form]] = {0: set()}
        self._host_types |= host_types
        self.use.share(outer, body.outer)
        outer.bodies[body.index] = self.use
        self._place_first({name: array for name, array in body.weights.items() if name not in body.outer})

    def begin_pass(self) -> None:
        """Start a pass; release the tensors of the pass before the last one."""
        self._drop(self._pass - 1)
        self._pass += 1
        self._placed[self._pass] = set()
        # only the last pass is listed: a loop may have thousands
        self.use.written.clear()

    def end(self) -> None:
        """Release the tensors of the last two passes: control flow has ended."""
        self._drop(self._pass - 1)
        self._placed[self._pass] = self._drop(self._pass, self._residence.stays)

    def _drop(self, number: int, kept: frozenset[Form] = frozenset()) -> set[Form]:
        """Release the forms of a pass that are not kept; return the others."""
        placed = self._placed.pop(number, set()) if number > 0 else set()
        for form in placed - kept:
            key = (self._index, number, form)
            if key in self._memory.blocks:
                self._memory.release(key)
        return placed & kept

    def _place(self, forms: Iterable[Form], position: int) -> None:
        placed = tuple(forms)
        self._placed[self._pass].update(placed)
        super()._place(placed, position)

    def _key(self, form: Form) -> Hashable:
        # two passes lie in memory at once, and two bodies may have values of the same name
        return self._index, self._pass, form


def device_bytes(form: Form, host_shape: Dims, dtype: DType) -> int:
    """Return the bytes of a tensor in device memory: device shape times size of the device type."""
    try:
        shape = formats.shape(form.format, host_shape, dtype, form.groups, cell=form.cell)
    except FormatError:  # a shape, known only in the run, that the format cannot hold
        shape = host_shape
    return blocks(product(shape), dtype.per_byte) * dtype.numpy.itemsize


def _title(form: Form) -> str:
    return repr(form.value) if form.format == DEFAULT_FORMAT else f"{form.value!r} in {form.format}"
