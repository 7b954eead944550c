"""A tensor in device memory as CANN's dump files hold it: its fields in the header, and its bytes."""

from __future__ import annotations

from typing import Final

import numpy as np

from msdump import dtypes
from msdump.capture.steps.device import host_format
from msdump.encode import dump_enums, packing
from msdump.encode.dump_data import OriginalOp, TensorInfo
from msdump.encode.elements import element_bytes
from msdump.record import IO, Buffer, DevicePart, TensorRecord

_REGISTERED: Final = 2  # dtype.isbuiltin of a type that another package gave numpy


def info(record: TensorRecord) -> TensorInfo:
    """Return the header's fields for a tensor that is shown as it lies in device memory."""
    part, dtype, array, host = record.device, record.dtype, record.array, record.on_host
    groups = part.groups if part is not None and part.format == record.format else 1
    return TensorInfo(
        dump_enums.UNDEFINED if dtype.dump is None else dtype.dump,
        dump_enums.FORMATS[record.format],
        array.shape,
        host.shape,
        -(-array.size // dtype.per_byte) * array.itemsize,  # two int4 share a byte, the last may be alone
        sub_format=groups if groups > 1 else 0,  # vendor: tools take it for groups from 2 on
        address=0 if part is None else part.address,
        original_op=_original(record, host, part) if record.io is IO.OUTPUT else None,
    )


def contents(record: TensorRecord) -> Buffer:
    """Return the bytes of a tensor that is shown as it lies in device memory, packed where its type is.

    The array's own memory where nothing is packed, so that large tensors are not copied.
    """
    array = record.array
    return element_bytes(_plain(packing.pack(array, record.dtype) if record.dtype.per_byte > 1 else array))


def _original(record: TensorRecord, host: np.ndarray, part: DevicePart | None) -> OriginalOp:
    """Return the operator of the model, before compilation, whose output a tensor is."""
    dtype = dtypes.from_numpy(host.dtype)
    return OriginalOp(
        "" if part is None else part.origin,
        record.slot if part is None else part.slot,
        dump_enums.UNDEFINED if dtype.dump is None else dtype.dump,
        dump_enums.FORMATS[host_format(host.shape)],
    )


def _plain(array: np.ndarray) -> np.ndarray:
    """Return an array of a type that hands out a buffer, as ml_dtypes' types do not; its bytes stay."""
    is_foreign = array.dtype.isbuiltin == _REGISTERED
    return array.view(f"u{array.dtype.itemsize}") if is_foreign else array
