"""The step that keeps only the first elements of a tensor (``sample_mode`` 1)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from msdump.dtypes import DType
from msdump.record import TensorRecord

if TYPE_CHECKING:
    from msdump.capture.steps.step import Step

_log = logging.getLogger("msdump.capture")


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

    Args:
        count: Number of elements to keep, at least 1.
    """
    warned: set[str] = set()  # names of types

    def step(record: TensorRecord) -> TensorRecord:
        length = _whole_bytes(count, record.dtype)
        if record.array.size <= length:
            return record
        if length != count and record.dtype.name not in warned:
            warned.add(record.dtype.name)
            _log.warning(
                "sample_num %d: %d elements of %s share a byte; %d are kept",
                *(count, record.dtype.per_byte, record.dtype.name, length),
            )
        # vendor: the first elements, though MindSpore calls the mode "head and tail". A view: large tensors
        # are sampled so that they need not be copied.
        return record._replace(array=record.array.reshape(-1)[:length])

    return step


def _whole_bytes(count: int, dtype: DType) -> int:
    """Return the next count of elements that fills whole bytes."""
    return count + -count % dtype.per_byte
