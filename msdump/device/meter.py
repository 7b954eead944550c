"""Device memory while a network runs: every tensor gets an address when it is made."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.device import formats
from msdump.device.blocks import Dims, blocks, product
from msdump.device.memory import Block, DeviceMemory
from msdump.device.residence import Form, Forms, Residence
from msdump.dtypes import DType
from msdump.errors import FormatError
from msdump.graph.graph import Graph
from msdump.record import DEFAULT_FORMAT, IO

BEFORE: Final = -1
"""Stands for the time before the first operator."""


@dataclass(frozen=True, slots=True)
class Written:
    """A tensor that was put into device memory.

    Attributes:
        form: The value, its format and element type.
        block: Where it lies.
        position: The operator that made it, or for which it was converted; ``BEFORE`` for
            weights and graph inputs.
    """

    form: Form
    block: Block
    position: int


class MemoryUse:
    """What a run needs of the device's memory; during the first run with such inputs, what it needed so far.

    Sizes are those of device memory: the format's padding counts, and a float32 tensor
    that the device holds as float16 has half the bytes.

    Attributes:
        written: Every tensor in the order in which it came into memory: what lies on a
            block at a given time is what was written there last. Of a branch or loop body: in
            the last time that it ran.
        bodies: The same of the branches and loop bodies of the whole model that ran, by the index of
            their graph. What control flow itself hands to a body has no block there.
    """

    def __init__(
        self, memory: DeviceMemory, lives: Residence, bodies: dict[int, MemoryUse] | None = None
    ) -> None:
        """Begin with nothing written."""
        self._memory = memory
        self._lives = lives
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
        """Where each value lay as it was made, by its name in the graph; copies are left out."""
        made = (form for step in self._lives.steps for form in step.makes if form)
        forms = {form.value: form for form in (*self._lives.first, *made)}
        return {name: self._blocks[form] for name, form in forms.items() if form in self._blocks}

    def block(self, position: int, io: IO, slot: int) -> Block | None:
        """Return where an operator's input or output lies, as the operator itself reads or writes it.

        Args:
            position: Place of the operator in the graph's execution order.
            io: Input or output.
            slot: Index among the operator's inputs or outputs.

        Returns:
            Address and reserved bytes; None for an absent value, one that is no tensor, and one
            that the first run has not reached yet.
        """
        step = self._lives.steps[position]
        form = (step.reads if io is IO.INPUT else step.makes)[slot]
        return None if form is None else self._blocks.get(form)

    def inside(self, index: int) -> MemoryUse | None:
        """Return the same of the branch or loop body of an index, None before it runs for the first time."""
        return self.bodies.get(index)

    def share(self, outer: MemoryUse, names: Container[str]) -> None:
        """Take over where values of the graph around a body lie; converted ones get memory of their own."""
        forms = {form: outer._blocks.get(form) for form in self._lives.first if form.value in names}
        self._blocks |= {form: block for form, block in forms.items() if block is not None}

    def note(self, form: Form, block: Block, position: int) -> None:
        """Take a tensor that has just been put into memory."""
        self._blocks[form] = block
        self.written.append(Written(form, block, position))

    def note_again(self, forms: Forms, owner: Form, position: int) -> None:
        """Take what has just got the memory of another form that is there."""
        block = self._blocks.get(owner)
        if block is not None:
            for form in filter(None, forms):
                self.note(form, block, position)


class Meter:
    """Follows one run of a graph: results are placed as they are made, until nobody reads them.

    Attributes:
        use: What was needed so far.
    """

    def __init__(self, memory: DeviceMemory, lives: Residence, use: MemoryUse) -> None:
        """Begin in a memory, with nothing placed."""
        self._memory = memory
        self._lives = lives
        self._kinds: dict[str, tuple[Dims, np.dtype]] = {}
        self._bodies: dict[int, BodyMeter] = {}
        self.use = use

    def _put(self, given: Mapping[str, object]) -> None:
        self._learn((form.value, given.get(form.value)) for form in self._lives.first)
        self._place((form for form in self._lives.first if form.value in given), BEFORE)

    def ran(self, position: int, outputs: Sequence[np.ndarray | None]) -> None:
        """Place what an operator read converted and what it made; release what nobody reads any more.

        Raises:
            DeviceMemoryError: A tensor does not fit; it is named.
        """
        for body in self._bodies.values():
            body.leave()
        pairs = zip(self._lives.steps[position].makes, outputs, strict=True)
        self._learn((form.value, array) for form, array in pairs if form)
        self._settle(position)

    def _settle(self, position: int) -> None:
        """Place and release, the results of an operator being known."""
        step = self._lives.steps[position]
        self._place(step.copies, position)
        if step.shared is None:
            self._place(filter(None, step.makes), position)
        else:
            self.use.note_again(step.makes, step.shared, position)
        self._place(step.results, position)
        for form in step.dead:
            self._release(form)

    def enter(self, body: Graph, lives: Residence) -> Meter:
        """Return what follows a branch or loop body that is about to run once; it shares this memory.

        Args:
            body: The body.
            lives: What lies in memory when, inside it.
        """
        if body.index not in self._bodies:
            kinds = {name: self._kinds[name] for name in body.outer & self._kinds.keys()}
            self._bodies[body.index] = BodyMeter(body, lives, self._memory, self.use, kinds)
        meter = self._bodies[body.index]
        meter.turn()
        return meter

    def _learn(self, arrays: Iterable[tuple[str, object]]) -> None:
        self._kinds |= {name: (a.shape, a.dtype) for name, a in arrays if isinstance(a, np.ndarray)}

    def _place(self, forms: Iterable[Form], position: int) -> None:
        for form in forms:
            kind = self._kinds.get(form.value)
            if kind is not None:
                nbytes = device_bytes(form, kind[0], form.dtype or dtypes.from_numpy(kind[1]))
                block = self._memory.allocate(self._key(form), nbytes, _title(form))
                self.use.note(form, block, position)

    def _release(self, form: Form) -> None:
        if self._key(form) in self._memory.blocks:
            self._memory.release(self._key(form))

    def _key(self, form: Form) -> Hashable:
        return form


class MemoryMeter(Meter):
    """Follows one run of a model: weights and inputs first, then the results of its operators."""

    def __init__(self, lives: Residence, limit: int | None, given: Mapping[str, object]) -> None:
        """Place the weights and inputs.

        Args:
            lives: What lies in memory when.
            limit: Bytes of the device, None: as many as needed.
            given: Weights and graph inputs; what is no array gets no memory.

        Raises:
            DeviceMemoryError: They do not fit.
        """
        memory = DeviceMemory(limit)
        super().__init__(memory, lives, MemoryUse(memory, lives))
        self._put(given)

    def is_like(self, other: MemoryMeter) -> bool:
        """Tell whether the tensors of two runs have equal shapes: then they lie at the same addresses."""
        return self._kinds == other._kinds

    def agrees(self, position: int, outputs: Sequence[np.ndarray | None]) -> bool:
        """Tell whether an operator's results are tensors with the shapes that they had in this run."""
        return all(
            array is not None and self._kinds.get(form.value) == (array.shape, array.dtype)
            for form, array in zip(self._lives.steps[position].makes, outputs, strict=True)
            if form
        )

    def follow(self, other: MemoryMeter, end: int) -> None:
        """Follow the operators before a position as if they had the results of another run.

        Args:
            other: A run of the same graph without branches and loops.
            end: The position.

        Raises:
            DeviceMemoryError: A tensor does not fit; it is named.
        """
        for position, step in enumerate(self._lives.steps[:end]):
            made = (form.value for form in step.makes if form and form.value in other._kinds)
            self._kinds |= {name: other._kinds[name] for name in made}
            self._settle(position)


class BodyMeter(Meter):
    """Follows a branch or loop body, each time it runs.

    What it gives stays until it has run once more, as the next iteration of a loop reads it, or
    until control flow has ended; what was asked to stay, until the body has run twice more. Its own
    weights stay.
    """

    def __init__(
        self,
        body: Graph,
        lives: Residence,
        memory: DeviceMemory,
        outer: MemoryUse,
        kinds: Mapping[str, tuple[Dims, np.dtype]],
    ) -> None:
        """Place its own weights.

        Args:
            body: The body.
            lives: What lies in memory when, inside it.
            memory: The memory that it shares with the graph around it.
            outer: What that graph needed so far.
            kinds: Shapes and host types of values that it reads from there.

        Raises:
            DeviceMemoryError: A weight does not fit; it is named.
        """
        super().__init__(memory, lives, MemoryUse(memory, lives, outer.bodies))
        self._index = body.index
        self._turn = 0
        self._placed: dict[int, set[Form]] = {0: set()}
        self._kinds |= kinds
        self.use.share(outer, body.outer)
        outer.bodies[body.index] = self.use
        self._put({name: array for name, array in body.weights.items() if name not in body.outer})

    def turn(self) -> None:
        """Begin to follow it once more."""
        self._drop(self._turn - 1)
        self._turn += 1
        self._placed[self._turn] = set()
        self.use.written.clear()

    def leave(self) -> None:
        """Release what the last two turns left."""
        self._drop(self._turn - 1)
        self._placed[self._turn] = self._drop(self._turn, self._lives.stays)

    def _drop(self, turn: int, kept: frozenset[Form] = frozenset()) -> set[Form]:
        """Release what a turn placed; return what was kept."""
        placed = self._placed.pop(turn, set()) if turn > 0 else set()
        for form in placed - kept:
            key = (self._index, turn, form)
            if key in self._memory.blocks:
                self._memory.release(key)
        return placed & kept

    def _place(self, forms: Iterable[Form], position: int) -> None:
        kept = tuple(forms)
        self._placed[self._turn].update(kept)
        super()._place(kept, position)

    def _key(self, form: Form) -> Hashable:
        return self._index, self._turn, form


def device_bytes(form: Form, host_shape: Dims, dtype: DType) -> int:
    """Return the bytes of a tensor in device memory: device shape times device type.

    Args:
        form: How it lies there.
        host_shape: Its dimensions on the host.
        dtype: Its element type on the device.
    """
    try:
        shape = formats.shape(form.format, host_shape, dtype, form.groups, cell=form.cell)
    except FormatError:  # a shape that only the run told, and that the format cannot hold
        shape = host_shape
    return blocks(product(shape), dtype.per_byte) * dtype.numpy.itemsize


def _title(form: Form) -> str:
    return repr(form.value) if form.format == DEFAULT_FORMAT else f"{form.value!r} in {form.format}"
