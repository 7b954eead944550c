"""The step that shows a tensor as the emulated device holds it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.capture.steps import Step
from msdump.device import precision
from msdump.device.ascend import Ascend
from msdump.device.placement import DeviceTensor
from msdump.device.precision import rounded
from msdump.dtypes import DType
from msdump.errors import FormatError
from msdump.graph.kernel.emulation import FLOAT32, HALVES
from msdump.record import DEFAULT_FORMAT, IO, OperatorRef, TensorRecord

_log = logging.getLogger("msdump.capture")

_ROUNDED: Final = (FLOAT32, *HALVES)

Key = tuple[OperatorRef, IO, int]


def to_host(device: Ascend) -> Step:
    """Show values as the device rounded them, in host shape and type (``trans_flag`` true)."""
    tensors = _tensors(device)

    def step(record: TensorRecord) -> TensorRecord:
        dtype = _device_type(record, tensors)
        if dtype is record.dtype:
            return record
        held = device.held(record.array, dtype)
        return replace(record, array=precision.cast(held, record.dtype))

    return step


def to_device(device: Ascend) -> Step:
    """Show tensors in device type, format and shape (``trans_flag`` false)."""
    tensors = _tensors(device)
    told: set[str] = set()

    def step(record: TensorRecord) -> TensorRecord:
        dtype = _device_type(record, tensors)
        held = device.held(record.array, dtype) if dtype is not record.dtype else record.array
        tensor = tensors.get((record.operator, record.io, record.slot))
        if tensor is None or tensor.format == DEFAULT_FORMAT:
            return replace(record, array=held, dtype=dtype)
        try:
            return replace(record, array=device.laid_out(held, tensor), dtype=dtype, format=tensor.format)
        except FormatError:  # a format of which only the shape is known, or a shape that it cannot hold
            _tell_once(record, tensor, told)
            return replace(record, array=held, dtype=dtype)

    return step


def _tell_once(record: TensorRecord, tensor: DeviceTensor, told: set[str]) -> None:
    name = record.operator.full_name
    if name not in told:
        told.add(name)
        message = "%s: %s.%d is saved as on the host: trans_flag false cannot show it in %s"
        _log.warning(message, name, record.io, record.slot, tensor.format)


def reader(device: Ascend) -> Callable[[OperatorRef, int, np.ndarray], np.ndarray]:
    """Return what gives an input of an operator in the type that the device reads, never saturated."""
    tensors = _tensors(device)

    def read(operator: OperatorRef, slot: int, array: np.ndarray) -> np.ndarray:
        tensor, dtype = tensors.get((operator, IO.INPUT, slot)), dtypes.from_numpy(array.dtype)
        return array if tensor is None else rounded(array, held_type(tensor, dtype))

    return read


def _tensors(device: Ascend) -> Mapping[Key, DeviceTensor]:
    return {
        (node.operator, io, slot): tensor
        for position, node in enumerate(device.graph.nodes)
        for io, names in ((IO.INPUT, node.inputs), (IO.OUTPUT, node.outputs))
        for slot in range(len(names))
        if (tensor := device.tensor(position, io, slot)) is not None
    }


def _device_type(record: TensorRecord, tensors: Mapping[Key, DeviceTensor]) -> DType:
    tensor = tensors.get((record.operator, record.io, record.slot))
    return record.dtype if tensor is None else held_type(tensor, record.dtype)


def held_type(tensor: DeviceTensor, dtype: DType) -> DType:
    """Return the element type in which the device holds a tensor of a host type."""
    if tensor.dtype is None or dtype not in _ROUNDED:
        return dtype
    return tensor.dtype if tensor.dtype in _ROUNDED else dtype
