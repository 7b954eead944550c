"""The steps that show a tensor as the emulated device holds it: in its type, and in its memory's layout.

They ask the record's own device part; a tensor that has none is as the host holds it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.capture.steps.step import Step, in_sessions
from msdump.device import precision
from msdump.device.ascend import Ascend
from msdump.device.precision import held_type, rounded
from msdump.dtypes import DType
from msdump.encode import dump_enums
from msdump.errors import FormatError
from msdump.record import DEFAULT_FORMAT, IO, OperatorRef, TensorRecord

_log = logging.getLogger("msdump.capture")

_IMAGE: Final = 4


@in_sessions
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

    A tensor that its format cannot hold is shown as on the host, and its operator named once.
    """
    warned: set[str] = set()

    @in_sessions
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
    """Show tensors in the device's type and the host's layout, whose format has CANN's name."""
    array, dtype = held_elements(record)
    return record.shown(array, dtype, host_format(array.shape))


def to_device_memory(record: TensorRecord) -> TensorRecord:
    """Show tensors as they lie in device memory; formats that CANN has no number for, as on the host."""
    array, dtype = held_elements(record)
    part, format_name = record.device, host_format(array.shape)
    if part is not None and part.format in dump_enums.FORMATS:
        # A shape that only the run told may be one that the format cannot hold.
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
    """Return a function that gives an operator's input in the type that the device reads, never saturated.

    An infinite input stays infinite, so that an overflow can be told from one that was there before.
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
        message = "%s: %s.%d is saved as on the host: trans_flag false cannot show it in %s"
        _log.warning(message, name, record.io, record.slot, format_name)
