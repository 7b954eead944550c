"""Inputs and outputs of operators as the emulated device holds them, before anything lays them out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from msdump import dtypes
from msdump.capture.device_steps import held_type
from msdump.device.ascend import Ascend
from msdump.device.memory import Block
from msdump.device.placement import DeviceTensor
from msdump.dtypes import DType
from msdump.graph.graph import ValueType
from msdump.observer import Arrays
from msdump.record import IO


class Addresses(Protocol):
    """Tells where tensors lie in device memory."""

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Where each value lay as it was made, by its name in the graph."""

    def block(self, position: int, io: IO, slot: int) -> Block | None:
        """Return where an operator's input or output lies; None for what has no memory."""

    def inside(self, index: int, /) -> Addresses | None:
        """Return the same of the branch or loop body of an index; None before it runs."""


Memory = Callable[[], Addresses | None]
"""Gives the device memory of the run that goes on, None where there is none."""


def memory_of(device: Ascend, main: Ascend, memory: Memory) -> Memory:
    """Return what gives the addresses of a device's graph.

    Args:
        device: The device with the main graph, or with a branch or loop body of it.
        main: The device with the main graph.
        memory: Gives the addresses of the main graph.
    """

    def inner() -> Addresses | None:
        use = memory()
        return None if use is None else use.inside(device.graph.index)

    return memory if device is main else inner


Lay = Callable[[np.ndarray, DeviceTensor], np.ndarray]
"""Returns an array as it lies in device memory; FormatError where the format cannot hold it."""


@dataclass(frozen=True, slots=True)
class Held:
    """One input or output of an operator at one moment.

    Attributes:
        io: Input or output.
        slot: Index among the operator's inputs or outputs.
        array: Its elements in the device's type and the host's layout; a view that stays valid
            while it is referenced.
        dtype: The device's element type.
        placed: How it lies in device memory, None: as on the host.
        lay: Lays it out so.
        address: Where it lies, 0 where that is not known.
        origin: Full name of the operator that gave an output before the graph was compiled.
        host: The host's element type.
    """

    io: IO
    slot: int
    array: np.ndarray
    dtype: DType
    lay: Lay
    placed: DeviceTensor | None = None
    address: int = 0
    origin: str = ""
    host: DType | None = None


class Holder:
    """Shows the tensors of one graph's operators as the device holds them."""

    def __init__(self, device: Ascend, memory: Memory) -> None:
        """Look at a device.

        Args:
            device: The emulated device.
            memory: Gives the addresses of the run that goes on.
        """
        self._device = device
        self._memory = memory
        self._origins = tuple(node.members[-1].operator.full_name for node in device.graph.nodes)

    def hold(self, position: int, io: IO, arrays: Arrays) -> Iterator[Held]:
        """Yield the inputs or outputs of an operator that are tensors.

        Args:
            position: Place of the operator in the graph's execution order.
            io: What the arrays are.
            arrays: One for each slot, None for what is no tensor.
        """
        use, lay = self._memory(), self._device.laid_out
        origin = self._origins[position] if io is IO.OUTPUT else ""
        for slot, array in enumerate(arrays):
            if array is None:
                continue
            placed, dtype = self._device.tensor(position, io, slot), dtypes.from_numpy(array.dtype)
            block = None if use is None else use.block(position, io, slot)
            wanted = dtype if placed is None else held_type(placed, dtype)
            shown = array if wanted is dtype else self._device.held(array, wanted)
            yield Held(io, slot, shown, wanted, lay, placed, _address(block), origin, dtype)

    def unwritten(self, position: int) -> Iterator[Held]:
        """Yield the outputs of an operator that has made none; memory that nobody wrote reads as zero.

        Those whose type or shape only a run tells are left out.
        """
        graph = self._device.graph
        types = [graph.types.get(name) for name in graph.nodes[position].outputs]
        return self.hold(position, IO.OUTPUT, [None if found is None else _zeros(found) for found in types])

    def given(self, name: str, array: np.ndarray) -> Held:
        """Return a graph input as the output of the ``Data`` operator that stands for it."""
        use, dtype = self._memory(), dtypes.from_numpy(array.dtype)
        block = None if use is None else use.blocks.get(name)
        return Held(IO.OUTPUT, 0, array, dtype, self._device.laid_out, None, _address(block), name, dtype)


def _zeros(found: ValueType) -> np.ndarray | None:
    if found.dtype is None or found.shape is None or found.kind != "tensor":
        return None
    dims = [dim for dim in found.shape if isinstance(dim, int)]
    return None if len(dims) < len(found.shape) else np.zeros(dims, found.dtype.numpy)


def _address(block: Block | None) -> int:
    return 0 if block is None else block.address
