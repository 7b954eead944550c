"""Device memory while a network runs: every tensor gets an address when its operator has run.

Only addresses and sizes are kept, no contents. A value is in memory in the form in which its operator makes
it. If operators read it in another format or element type, memory also has a converted copy, from the first
of these readers to the last. In a compiled graph an operator that moves nothing, such as a change of shape,
gives its input's memory another name; space is reused after the last use.

    >>> memory = DeviceMemory()
    >>> first, second = memory.allocate("x", 100), memory.allocate("y", 600)
    >>> first.address - BASE, first.size, second.address - BASE, second.size
    (0, 512, 512, 1024)
    >>> memory.release("x")
    >>> memory.allocate("z", 4).address == first.address
    True
    >>> memory.in_use, memory.peak, memory.total
    (1536, 1536, 2048)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.device import formats
from msdump.device.blocks import Cell, Dims, blocks, product
from msdump.device.placement import NodePlacement, Placement, Slots
from msdump.device.tasks import moves_nothing
from msdump.dtypes import DType
from msdump.errors import DeviceMemoryError, FormatError
from msdump.graph import Graph, Node, reads
from msdump.record import DEFAULT_FORMAT, IO

BASE: Final = 0x12C0_C000_0000
"""Where the memory begins; any aligned number that looks like a device address would do."""

ALIGNMENT: Final = 512
"""Bytes; every address and every reserved size is a multiple of it."""

_UNLIMITED: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of device memory."""

    address: int
    size: int

    @property
    def end(self) -> int:
        """Address behind its last byte."""
        return self.address + self.size


class DeviceMemory:
    """Gives out memory by best fit, the lowest address among equals; so equal runs give equal addresses.

    Attributes:
        limit: Bytes of the device, None: as many as needed.
        in_use: Bytes reserved now.
        peak: Most bytes that were reserved at one time.
        total: Bytes of all reservations so far, whether released or not.
        extent: Bytes from the beginning to the highest address ever used: the peak plus
            the cost of fragmentation.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.in_use = self.peak = self.total = self.extent = 0
        self._blocks: dict[Hashable, Block] = {}
        # address and size, by address, never adjacent; the last one reaches to the end of the device
        self._holes = [(BASE, _UNLIMITED if limit is None else limit)]

    @property
    def blocks(self) -> Mapping[Hashable, Block]:
        """Reserved blocks by key."""
        return self._blocks

    def allocate(self, key: Hashable, nbytes: int, title: str = "") -> Block:
        """Reserve memory under a key; an empty tensor still gets an address of its own.

        Raises:
            DeviceMemoryError: The tensor does not fit.
            ValueError: The key already has memory.
        """
        if key in self._blocks:
            raise ValueError(f"{key!r} already has device memory; release it first")
        # an empty tensor takes a unit, so that its address is its own
        size = max(1, -(-nbytes // ALIGNMENT)) * ALIGNMENT
        used = BASE + self.extent  # memory that was in use before comes first, also in the last hole
        fitting = [
            (min(hole, used - address) if address + size <= used else _UNLIMITED, address)
            for address, hole in self._holes
            if hole >= size
        ]
        if not fitting:
            raise DeviceMemoryError(
                f"tensor {title or repr(key)} of {nbytes} bytes does not fit the device: {self.in_use} of"
                f" {self.limit} bytes are in use by {len(self._blocks)} tensors, the largest free block has"
                f" {max((hole for _, hole in self._holes), default=0)} bytes; raise max_device_memory"
            )
        # min takes the smallest hole and of equals the lowest, in every run
        _, address = min(fitting)
        index = bisect_left(self._holes, (address, 0))
        hole = self._holes[index][1]
        self._holes[index : index + 1] = [(address + size, hole - size)] if hole > size else []
        block = self._blocks[key] = Block(address, size)
        self.in_use += size
        self.total += size
        self.peak = max(self.peak, self.in_use)
        self.extent = max(self.extent, block.end - BASE)
        return block

    def release(self, key: Hashable) -> None:
        """Release the memory of a tensor."""
        block = self._blocks.pop(key)
        self.in_use -= block.size
        index = bisect_left(self._holes, (block.address, 0))
        first, last, address, end = index, index, block.address, block.end
        if index and sum(self._holes[index - 1]) == address:
            first, address = index - 1, self._holes[index - 1][0]
        if index < len(self._holes) and self._holes[index][0] == end:
            last, end = index + 1, sum(self._holes[index])
        self._holes[first:last] = [(address, end - address)]


def dead_values(graph: Graph) -> tuple[tuple[str, ...], ...]:
    """Return, for each operator, the values that no later operator reads: last read or made by this operator.

    Weights and graph outputs are never among them.
    """
    seen = {value.name for value in graph.outputs} | set(graph.weights)
    dead = []
    for node in reversed(graph.nodes):  # backwards, the first node that names a value is its last reader
        names = dict.fromkeys((*reads(node), *filter(None, node.outputs)))
        dead.append(tuple(name for name in names if name not in seen))
        seen.update(names)
    return tuple(reversed(dead))


@dataclass(frozen=True, slots=True)
class Form:
    """A value with one of the formats and element types in which device memory holds it."""

    value: str
    format: str = DEFAULT_FORMAT
    dtype: DType | None = None  # element type; None: the type of the host array
    groups: int = 1
    cell: Cell | None = None

    def nbytes(self, host_shape: Dims, host_dtype: np.dtype) -> int:
        """Return the bytes of a tensor in this form: device shape times size of the device type."""
        dtype = self.dtype or dtypes.from_numpy(host_dtype)
        try:
            shape = formats.shape(self.format, host_shape, dtype, self.groups, cell=self.cell)
        except FormatError:  # a dynamic shape that turns out not to fit the format
            shape = host_shape
        return blocks(product(shape), dtype.per_byte) * dtype.numpy.itemsize

    def __str__(self) -> str:
        """Return the name in messages."""
        return repr(self.value) if self.format == DEFAULT_FORMAT else f"{self.value!r} in {self.format}"


Forms = tuple[Form | None, ...]
"""One entry for each input or output, None for an absent one."""


@dataclass(frozen=True, slots=True)
class Step:
    """Changes of device memory by one operator."""

    reads: Forms
    makes: Forms  # form of each declared output, None for an unused one
    copies: tuple[Form, ...]
    # converted copies of graph outputs of this operator, in the form in which the host gets them
    results: tuple[Form, ...]
    # owner of the memory, by form that shares it: the output of an operator that moves nothing, and the new
    # values of inputs that an operator writes in place
    views: Mapping[Form, Form]
    # forms that no later operator reads, unread results of this operator included
    dead: tuple[Form, ...] = ()


@dataclass(frozen=True, slots=True)
class Residence:
    """Contents of device memory while a graph runs."""

    first: tuple[Form, ...]  # weights, then graph inputs: in memory before the first operator runs
    steps: tuple[Step, ...]  # changes by each operator
    stays: frozenset[Form] = frozenset()  # forms that are not released after their last reader


def residence(
    graph: Graph, placement: Placement, kept: Iterable[str] = (), *, prepares: bool = False
) -> Residence:
    """Return the contents of device memory while a graph runs; weights, outputs and ``kept`` values stay.

    With ``prepares`` (O2, acl) weights lie in memory in the form of their readers, and a change of shape
    moves nothing.
    """
    first = tuple(_first(graph, placement, prepares=prepares))
    return _Walk(graph, first, shares=prepares).run(placement.nodes, kept)


def _first(graph: Graph, placement: Placement, *, prepares: bool) -> Iterator[Form]:
    """Yield weights (with ``prepares`` in every form that operators read), and inputs as on the host."""
    forms: dict[str, dict[Form, None]] = {}
    if prepares:  # a weight's TransData ran at compilation: memory holds the forms that are read
        for node, placed in zip(graph.nodes, placement.nodes, strict=True):
            for form in filter(None, _forms(node.inputs, placed.inputs)):
                forms.setdefault(form.value, {})[form] = None
    for name in graph.weights:
        yield from forms.get(name) or (_host(graph, name),)
    for value in graph.inputs:
        if value.name not in graph.weights:
            yield _host(graph, value.name)


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
        staying = frozenset(self._owner(self._produced[name]) for name in stays)
        kept = {form for form in self._first if form.value in self._graph.weights}
        kept.update(staying, [self._result(name) for name in self._outputs])
        # backwards, the first use found is the last use; a use of a view is a use of its owner
        seen, ended = {self._owner(form) for form in kept}, []
        for node, step in zip(reversed(self._graph.nodes), reversed(steps), strict=True):
            used = dict.fromkeys([self._owner(form) for form in self._used(node, step)])
            ended.append(replace(step, dead=tuple(form for form in used if form not in seen)))
            seen.update(used)
        return Residence(self._first, tuple(reversed(ended)), staying)

    def _step(self, node: Node, placed: NodePlacement) -> Step:
        read_forms = _forms(node.inputs, placed.inputs)
        copies = tuple(form for form in dict.fromkeys(filter(None, read_forms)) if form not in self._resident)
        written = _forms(node.outputs, placed.outputs)
        makes = written[: node.update.declared]
        self._produced |= {form.value: form for form in written if form}
        graph_outputs = (form.value for form in makes if form and form.value in self._outputs)
        results = tuple(form for form in [self._result(name) for name in graph_outputs] if form not in makes)
        self._resident.update(copies, results, filter(None, makes))
        views = dict(self._views(node, read_forms, written))
        self._owners |= views
        return Step(read_forms, makes, copies, results, views)

    def _views(self, node: Node, read_forms: Forms, written: Forms) -> Iterator[tuple[Form, Form]]:
        """Yield (output, form that owns the memory) for outputs that share the memory of an input."""
        pairs = [(slot, output) for slot, output in node.update.new_values.items() if output < len(written)]
        # a graph output has memory of its own: the host reads it after the run, the input may be gone by then
        if self._shares and moves_nothing(node) and node.outputs[0] not in self._outputs:
            pairs.append((0, 0))
        for slot, output in pairs:
            source, view = read_forms[slot], written[output]
            # another format or type would need bytes of its own
            if source is not None and view is not None and replace(source, value=view.value) == view:
                yield view, self._owner(source)

    def _owner(self, form: Form) -> Form:
        return self._owners.get(form, form)

    def _used(self, node: Node, step: Step) -> Iterator[Form]:
        yield from filter(None, step.reads)
        # a converted copy is made from the form that the producer wrote, so that form is used as well
        copied = {form.value for form in step.copies}
        inside = (name for name in reads(node) if name not in node.inputs)  # read by subgraphs
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


class MemoryUse:
    """The device memory of a run of one graph: the address of each tensor, and the peak.

    Sizes follow from the first run with inputs of these shapes; until it ends, the operators that have not
    run are missing. The format's padding counts, and a float32 tensor that the device holds as float16
    has half the bytes.

    A branch or loop body runs several times (passes), in the memory of the graph around it. Results of a
    pass are kept until the next pass has ended, since the next iteration of a loop reads them. When control
    flow ends, they are released, except ``Residence.stays``; weights of the body are never released.
    """

    def __init__(self, contents: Residence, memory: DeviceMemory, index: int = 0) -> None:
        self._contents = contents
        self._memory = memory
        self._index = index
        self._pass = 0
        self._placed: dict[int, set[Form]] = {0: set()}  # forms with memory, by pass
        self._host_types: dict[str, tuple[Dims, np.dtype]] = {}
        self._blocks: dict[Form, Block] = {}
        self._bodies: dict[int, MemoryUse] = {}  # bodies directly inside the graph, by index

    @classmethod
    def begin(cls, contents: Residence, limit: int | None, arrays: Mapping[str, object]) -> MemoryUse:
        """Return the memory of a main graph with its weights and inputs.

        Raises:
            DeviceMemoryError: A tensor does not fit; it is named.
        """
        use = cls(contents, DeviceMemory(limit))
        use._place_first(arrays)
        return use

    @property
    def peak(self) -> int:
        """Most bytes in use at one time."""
        return self._memory.peak

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Block of each value in the form in which its operator made it, by the value's name."""
        outputs = (form for step in self._contents.steps for form in step.makes if form)
        forms = {form.value: form for form in (*self._contents.first, *outputs)}
        return {name: self._blocks[form] for name, form in forms.items() if form in self._blocks}

    def block(self, position: int, io: IO, slot: int) -> Block | None:
        """Return the block of an operator's input or output by its position in execution order.

        Returns:
            Address and reserved bytes; None for an absent value, one that is no tensor, and one
            that the first run has not reached yet.
        """
        step = self._contents.steps[position]
        form = (step.reads if io is IO.INPUT else step.makes)[slot]
        return None if form is None else self._blocks.get(form)

    def inside(self, index: int) -> MemoryUse | None:
        """Return the memory of the branch or loop body of an index, None before it runs for the first time.

        Values that control flow itself hands to a body have no block there.
        """
        inner = (body.inside(index) for body in self._bodies.values())
        return self._bodies.get(index) or next(filter(None, inner), None)

    def ran(self, position: int, outputs: Sequence[np.ndarray | None]) -> None:
        """Place converted inputs and outputs, release dead values; DeviceMemoryError as in ``begin``."""
        # an operator of the graph around has run, so control flow has ended
        for body in self._bodies.values():
            body.end()
        step = self._contents.steps[position]
        pairs = zip(step.makes, outputs, strict=True)
        self._note_types((form.value, array) for form, array in pairs if form)
        self._place(step.copies)
        # views have no memory of their own
        self._place(form for form in step.makes if form and form not in step.views)
        for view, owner in step.views.items():
            # such an output has no array in ``outputs``: its type is that of the input written in place
            if owner.value in self._host_types:
                self._host_types.setdefault(view.value, self._host_types[owner.value])
            if owner in self._blocks:
                self._blocks[view] = self._blocks[owner]
        self._place(step.results)
        for form in step.dead:
            self._release(self._pass, form)

    def enter(self, body: Graph, contents: Residence) -> MemoryUse:
        """Return the memory of a branch or loop body that is about to run once."""
        use = self._bodies.get(body.index)
        if use is None:
            use = self._bodies[body.index] = MemoryUse(contents, self._memory, body.index)
            use._share(self, body.outer)
            own = {name: array for name, array in body.weights.items() if name not in body.outer}
            use._place_first(own)
        use._drop(use._pass - 1)
        use._pass += 1
        use._placed[use._pass] = set()
        return use

    def _share(self, outer: MemoryUse, names: Container[str]) -> None:
        """Take over blocks of the graph around a body for outer values that the body reads in the same form.

        Values that the body reads in another form get blocks of their own.
        """
        self._host_types |= {name: kind for name, kind in outer._host_types.items() if name in names}
        shared = {form for form in self._contents.first if form.value in names}
        self._blocks |= {form: outer._blocks[form] for form in shared & outer._blocks.keys()}

    def _note_types(self, arrays: Iterable[tuple[str, object]]) -> None:
        self._host_types |= {
            name: (array.shape, array.dtype) for name, array in arrays if isinstance(array, np.ndarray)
        }

    def _place_first(self, arrays: Mapping[str, object]) -> None:
        placed = [form for form in self._contents.first if form.value in arrays]
        self._note_types((form.value, arrays[form.value]) for form in placed)
        self._place(placed)

    def _place(self, forms: Iterable[Form]) -> None:
        for form in forms:
            self._placed[self._pass].add(form)
            host_type = self._host_types.get(form.value)
            if host_type is not None:
                # two passes lie in memory at once, and two bodies may have values of the same name
                key = self._index, self._pass, form
                self._blocks[form] = self._memory.allocate(key, form.nbytes(*host_type), str(form))

    def _release(self, number: int, form: Form) -> None:
        # sequences, optionals, and values of a branch that did not run have no memory
        key = self._index, number, form
        if key in self._memory.blocks:
            self._memory.release(key)

    def end(self) -> None:
        """Release the tensors of the last two passes: control flow has ended."""
        self._drop(self._pass - 1)
        self._placed[self._pass] = self._drop(self._pass, self._contents.stays)

    def _drop(self, number: int, kept: frozenset[Form] = frozenset()) -> set[Form]:
        """Release the forms of a pass that are not kept; return the others. Pass 0 has the body's weights."""
        placed = self._placed.pop(number, set()) if number > 0 else set()
        for form in placed - kept:
            self._release(number, form)
        return placed & kept
