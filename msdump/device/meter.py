"""Device memory while a network runs: every tensor gets an address when it is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.device import formats
from msdump.device.blocks import Dims, blocks, product
from msdump.device.memory import Block, DeviceMemory
from msdump.device.residence import Form, Residence
from msdump.dtypes import DType
from msdump.errors import FormatError
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
            block at a given time is what was written there last.
    """

    def __init__(self, memory: DeviceMemory, lives: Residence) -> None:
        """Begin with nothing written."""
        self._memory = memory
        self._lives = lives
        self._blocks: dict[Form, Block] = {}
        self.written: list[Written] = []

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

    def note(self, form: Form, block: Block, position: int) -> None:
        """Take a tensor that has just been put into memory."""
        self._blocks[form] = block
        self.written.append(Written(form, block, position))


class MemoryMeter:
    """Follows one run: weights and inputs first, results as they are made, until nobody reads them.

    Attributes:
        use: What was needed so far.
    """

    def __init__(self, lives: Residence, limit: int | None, given: Mapping[str, object]) -> None:
        """Place the weights and inputs.

        Args:
            lives: What lies in memory when.
            limit: Bytes of the device, None: as many as needed.
            given: Weights and graph inputs; what is no array gets no memory.

        Raises:
            DeviceMemoryError: They do not fit.
        """
        self._memory = DeviceMemory(limit)
        self._lives = lives
        self._kinds: dict[str, tuple[Dims, np.dtype]] = {}
        self.use = MemoryUse(self._memory, lives)
        self._learn((form.value, given.get(form.value)) for form in lives.first)
        self._place(lives.first, BEFORE)

    def ran(self, position: int, outputs: Sequence[np.ndarray | None]) -> None:
        """Place what an operator read converted and what it made; release what nobody reads any more.

        Raises:
            DeviceMemoryError: A tensor does not fit; it is named.
        """
        step = self._lives.steps[position]
        pairs = zip(step.makes, outputs, strict=True)
        self._learn((form.value, array) for form, array in pairs if form)
        self._place(step.copies, position)
        self._place(filter(None, step.makes), position)
        self._place(step.results, position)
        for form in step.dead:
            if form in self._memory.blocks:
                self._memory.release(form)

    def _learn(self, arrays: Iterable[tuple[str, object]]) -> None:
        self._kinds |= {name: (a.shape, a.dtype) for name, a in arrays if isinstance(a, np.ndarray)}

    def _place(self, forms: Iterable[Form], position: int) -> None:
        for form in forms:
            kind = self._kinds.get(form.value)
            if kind is not None:
                nbytes = device_bytes(form, kind[0], form.dtype or dtypes.from_numpy(kind[1]))
                block = self._memory.allocate(form, nbytes, _title(form))
                self.use.note(form, block, position)


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
