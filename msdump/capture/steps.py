"""The steps that every dumped tensor walks through: drops, the device's form, sampling."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, Self

import numpy as np

from msdump import dtypes
from msdump.device import Ascend, Block, DeviceTensor, held_type, precision, rounded
from msdump.dtypes import STRING, DType
from msdump.encode import dump_message
from msdump.errors import FormatError
from msdump.graph import Graph, Node, ValueType
from msdump.observer import Array, Arrays
from msdump.reasons import Reason
from msdump.record import DEFAULT_FORMAT, IO, OperatorRef, TensorRecord

Step = Callable[[TensorRecord], TensorRecord | Reason]


def walk(record: TensorRecord, steps: Sequence[Step]) -> TensorRecord | Reason:
    """Return a record after all steps, or the reason for which one of them dropped it."""
    for step in steps:
        kept = step(record)
        if kept is record:  # most steps change nothing
            continue
        if isinstance(kept, Reason):
            return kept
        record = kept
    return record


class Addresses(Protocol):
    """The addresses of one run's tensors in device memory."""

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Block of each value at the time of its creation, by its name in the graph."""

    def block(self, position: int, io: IO, slot: int) -> Block | None:
        """Return where an operator's input or output lies; None for a value without memory."""

    def inside(self, index: int, /) -> Addresses | None:
        """Return the addresses in the branch or loop body of an index; None before the body runs."""


Memory = Callable[[], Addresses | None]
"""Gives the device memory of the current run, None without one."""


def memory_of(device: Ascend, main: Ascend, memory: Memory) -> Memory:
    """Return a function that gives the addresses of a device's graph."""

    def inside() -> Addresses | None:
        addresses = memory()
        return None if addresses is None else addresses.inside(device.graph.index)

    return memory if device is main else inside


@dataclass(frozen=True, slots=True)
class DeviceSlot:
    """One input or output of an operator of a graph on the emulated device, the same in every run."""

    device: Ascend  # the device with the graph
    placed: DeviceTensor | None  # type and format of the tensor in the operator; None: as on the host
    slot: int  # index among the operator's inputs or outputs
    origin: str  # full name of the operator that had the output before the graph was compiled
    memory: Memory  # gives the addresses of the current run
    # position of the operator and side (input, output); for a graph value its name
    place: tuple[int, IO] | str
    pinned_address: int | None = None  # its address in every run, None: it depends on the run

    @property
    def format(self) -> str:
        """Name of the format in which it lies in device memory."""
        return DEFAULT_FORMAT if self.placed is None else self.placed.format

    @property
    def groups(self) -> int:
        """Groups that the format is laid out for."""
        return 1 if self.placed is None else self.placed.groups

    @property
    def address(self) -> int:
        """Address in device memory, 0 if unknown."""
        if self.pinned_address is not None:
            return self.pinned_address
        addresses, place = self.memory(), self.place
        if addresses is None:
            return 0
        block = addresses.blocks.get(place) if isinstance(place, str) else addresses.block(*place, self.slot)
        return 0 if block is None else block.address

    def element_type(self, host: DType) -> DType:
        """Return the device's element type of a tensor that has this one on the host."""
        placed = self.placed
        return host if placed is None or placed.dtype is host else held_type(placed.dtype, host)

    def held(self, array: np.ndarray, dtype: DType) -> np.ndarray:
        """Return an array in the device's element type."""
        return self.device.held(array, dtype)

    def laid_out(self, array: np.ndarray) -> np.ndarray:
        """Return an array in the device's layout; FormatError if the format cannot hold it."""
        return array if self.placed is None else self.device.laid_out(array, self.placed)

    def pinned(self) -> Self:
        """Return the slot with its present address fixed: a loop's next pass may have another address."""
        return replace(self, pinned_address=self.address)


class OperatorRecords:
    """Makes records of the tensors of one graph's operators; their device parts are shared by all runs."""

    def __init__(
        self, device: Ascend | None, memory: Memory = lambda: None, *, counts_present: bool = False
    ) -> None:
        """Prepare the records of a graph.

        With ``counts_present`` present tensors are numbered, as dump files do, not slots; text is left out.
        """
        self._device = device
        self._memory = memory
        self._counts_present = counts_present
        self._inputs: dict[int, Sequence[DeviceSlot]] = {}
        self._outputs: dict[int, Sequence[DeviceSlot]] = {}

    def of(
        self, operator: OperatorRef, position: int, inputs: Arrays, outputs: Arrays, now: Callable[[], int]
    ) -> list[TensorRecord]:
        """Return the inputs and outputs of an operator that are tensors, as the host holds them."""
        device, records = self._device, []
        for io, arrays, known in ((IO.INPUT, inputs, self._inputs), (IO.OUTPUT, outputs, self._outputs)):
            if not arrays:
                continue
            parts: Sequence[DeviceSlot] = ()
            if device is not None:
                parts = known.get(position) or known.setdefault(position, self._slots(device, position, io))
            present = 0
            for slot, array in enumerate(arrays):
                if array is None:
                    continue
                dtype = dtypes.from_numpy(array.dtype)
                number = present if self._counts_present else slot
                part = None if device is None else parts[slot]
                records.append(TensorRecord(operator, io, number, dtype, array, now(), DEFAULT_FORMAT, part))
                present += dtype is not STRING
        return records

    def at_once(
        self, operator: OperatorRef, position: int, inputs: Arrays, outputs: Arrays, timestamp: int
    ) -> list[TensorRecord]:
        """Return the inputs of an operator, then its outputs, all of one moment; see ``of``."""
        return self.of(operator, position, inputs, outputs, lambda: timestamp)

    def of_graph_input(
        self, operator: OperatorRef, name: str, array: np.ndarray, timestamp: int
    ) -> TensorRecord:
        """Return a graph input as the output of the operator that stands for it."""
        part = None
        if self._device is not None:
            part = DeviceSlot(self._device, None, 0, name, self._memory, name)
        return TensorRecord(
            operator, IO.OUTPUT, 0, dtypes.from_numpy(array.dtype), array, timestamp, device=part
        )

    def has_host_types(self, positions: Iterable[int]) -> bool:
        """Return whether the device holds the outputs of operators in the types that they have on the host.

        Outputs of unknown type are ignored.
        """
        device = self._device
        if device is None:
            return True
        graph = device.graph
        for position in positions:
            for slot, name in enumerate(graph.nodes[position].outputs):
                host = graph.types[name].dtype if name in graph.types else None
                placed = None if host is None else device.tensor(position, IO.OUTPUT, slot)
                if placed is not None and host is not None and held_type(placed.dtype, host) is not host:
                    return False
        return True

    def _slots(self, device: Ascend, position: int, io: IO) -> Sequence[DeviceSlot]:
        node = device.graph.nodes[position]
        values, origin = (
            (node.inputs, "") if io is IO.INPUT else (node.outputs, node.members[-1].operator.full_name)
        )
        return tuple(
            DeviceSlot(device, device.tensor(position, io, slot), slot, origin, self._memory, (position, io))
            for slot in range(len(values))
        )


def unwritten(device: Ascend, position: int) -> list[Array]:
    """Return the outputs of an operator that failed before it wrote them; such memory reads as zero.

    None stands for an output of unknown type or shape.
    """
    graph = device.graph
    types = [graph.types.get(name) for name in graph.nodes[position].declared_outputs]
    return [None if value_type is None else _zeros(value_type) for value_type in types]


def _zeros(value_type: ValueType) -> Array:
    if value_type.dtype is None or value_type.shape is None or value_type.kind != "tensor":
        return None
    dims = [dim for dim in value_type.shape if isinstance(dim, int)]
    return None if len(dims) < len(value_type.shape) else np.zeros(dims, value_type.dtype.numpy)


_log = logging.getLogger("msdump.capture")

_NO_TENSORS: Final = frozenset({"sequence", "map"})


def count_no_tensors(graph: Graph, node: Node, *, inputs: bool, outputs: bool) -> int:
    """Return how many of an operator's values are no tensors, so that no file can hold them."""
    names = node.inputs * inputs + node.declared_outputs * outputs  # a side that does not count adds none
    return sum(is_no_tensor(graph, name) for name in names if name)


def is_no_tensor(graph: Graph, name: str) -> bool:
    """Return whether a value of a graph is a sequence or a map."""
    return graph.type_of(name).kind in _NO_TENSORS


def drop_text(*, drops_empty: bool) -> Step:
    """Return the step that drops string tensors, which no file can hold, with one warning per operator.

    With ``drops_empty`` it drops tensors without elements, too.
    """
    warned: set[str] = set()

    def step(record: TensorRecord) -> TensorRecord | Reason:
        if record.dtype is not STRING:
            return Reason.NO_ELEMENTS if drops_empty and not record.array.size else record
        name = record.operator.full_name
        if name not in warned:
            warned.add(name)
            _log.warning(
                "%s: %s.%d is skipped: the tensor is text, and dumps hold only numbers",
                name,
                record.io,
                record.slot,
            )
        return Reason.TEXT

    return step


def sample(count: int) -> Step:
    """Return the step that keeps the first elements in memory order, as a vector, of tensors that have more.

    Smaller tensors stay whole, with their shape. Of types that share bytes,
    whole bytes are kept: an odd count of int4 becomes the next even one.

    >>> import numpy as np
    >>> from msdump import dtypes
    >>> from msdump.record import IO, OperatorRef
    >>> array = np.array([[1, 2], [3, 4]], np.float32)
    >>> operator = OperatorRef("Add", "Default/Add-op0")
    >>> record = TensorRecord(operator, IO.OUTPUT, 0, dtypes.from_name("float32"), array, 0)
    >>> sample(3)(record).array.tolist(), sample(4)(record).array.tolist()
    ([1.0, 2.0, 3.0], [[1.0, 2.0], [3.0, 4.0]])
    """
    warned: set[str] = set()  # names of types

    def step(record: TensorRecord) -> TensorRecord:
        length = count + -count % record.dtype.per_byte  # of whole bytes
        if record.array.size <= length:
            return record
        if length != count and record.dtype.name not in warned:
            warned.add(record.dtype.name)
            _log.warning(
                "sample_num %d: %d elements of %s share a byte; %d are kept",
                count,
                record.dtype.per_byte,
                record.dtype.name,
                length,
            )
        # vendor: the first elements, though MindSpore calls the mode "head and tail". A view: large tensors
        # are sampled so that they need not be copied.
        return record._replace(array=record.array.reshape(-1)[:length])

    return step


_IMAGE: Final = 4


def to_host(record: TensorRecord) -> TensorRecord:
    """Show values as the device rounded them, in host shape and type (``trans_flag`` true)."""
    part = record.device
    if part is None:
        return record
    dtype = part.element_type(record.dtype)
    if dtype is record.dtype:
        return record
    # vendor: the file has the host's type, but its values have been through the device's and are rounded
    return record._replace(array=precision.cast(part.held(record.array, dtype), record.dtype))


def to_device() -> Step:
    """Return the step that shows tensors in device type, format and shape (``trans_flag`` false).

    A tensor that the format cannot hold is shown as on the host, with one warning per operator.
    """
    warned: set[str] = set()

    def step(record: TensorRecord) -> TensorRecord:
        array, dtype = held_elements(record)
        part = record.device
        if part is None or part.format == DEFAULT_FORMAT:
            return record.shown(array, dtype, record.format)
        try:
            return record.shown(part.laid_out(array), dtype, part.format)
        except FormatError:  # a format of which only the shape is known, or a shape that it cannot hold
            _warn_once(record, part.format, warned)
            return record.shown(array, dtype, record.format)

    return step


def to_device_type(record: TensorRecord) -> TensorRecord:
    """Show tensors in the device's type and the host's layout; the format has CANN's name."""
    array, dtype = held_elements(record)
    return record.shown(array, dtype, host_format(array.shape))


def to_device_memory(record: TensorRecord) -> TensorRecord:
    """Show tensors as they lie in device memory, or in host layout if CANN has no number for the format."""
    array, dtype = held_elements(record)
    part, format_name = record.device, host_format(array.shape)
    if part is not None and part.format in dump_message.FORMATS:
        # A shape that is known only now may be one that the format cannot hold.
        with contextlib.suppress(FormatError):
            array, format_name = part.laid_out(array), part.format
    return record.shown(array, dtype, format_name)


def host_format(shape: Sequence[int]) -> str:
    """Return the format of a tensor that lies in memory as on the host (MindSpore's O2 dump).

    >>> host_format((1, 2, 3, 4)), host_format((3, 4))
    ('NCHW', 'ND')
    """
    return "NCHW" if len(shape) == _IMAGE else "ND"


def reader(device: Ascend) -> Callable[[OperatorRef, int, np.ndarray], np.ndarray]:
    """Return a function that rounds an operator's input to the type the device reads, without saturation.

    An infinite input stays infinite: this separates an operator's own overflow from one in its inputs.
    """
    tensors = {
        (node.operator, slot): tensor
        for position, node in enumerate(device.graph.nodes)
        for slot in range(len(node.inputs))
        if (tensor := device.tensor(position, IO.INPUT, slot)) is not None
    }

    def read(operator: OperatorRef, slot: int, array: np.ndarray) -> np.ndarray:
        tensor = tensors.get((operator, slot))
        if tensor is None:
            return array
        return rounded(array, held_type(tensor.dtype, dtypes.from_numpy(array.dtype)))

    return read


def held_elements(record: TensorRecord) -> tuple[np.ndarray, DType]:
    """Return the elements in the type that the device holds, in the host's layout, and the type."""
    part, dtype = record.device, held_in(record)
    if part is None or dtype is record.dtype:
        return record.array, dtype
    return part.held(record.array, dtype), dtype


def held_in(record: TensorRecord) -> DType:
    """Return the type in which the device holds a tensor."""
    return record.dtype if record.device is None else record.device.element_type(record.dtype)


def _warn_once(record: TensorRecord, format_name: str, warned: set[str]) -> None:
    name = record.operator.full_name
    if name not in warned:
        warned.add(name)
        message = "%s: %s.%d is saved in the host's format: trans_flag false cannot save the tensor in %s"
        _log.warning(message, name, record.io, record.slot, format_name)
