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
    """Keep the first elements in memory order, as a vector, of tensors that have more.

    Smaller tensors stay whole, with their shape. Of types that share bytes,
    whole bytes are kept: an odd count of int4 becomes the next even one.

    Args:
        count: Number of elements to keep, at least 1.
    """
    rounded: set[str] = set()

    def step(record: TensorRecord) -> TensorRecord:
        kept = _whole_bytes(count, record.dtype)
        if record.array.size <= kept:
            return record
        if kept != count and record.dtype.name not in rounded:
            rounded.add(record.dtype.name)
            _log.warning(
                "sample_num %d: %d elements of %s share a byte; %d are kept",
                *(count, record.dtype.per_byte, record.dtype.name, kept),
            )
        return record._replace(array=record.array.reshape(-1)[:kept])

    return step


def _whole_bytes(count: int, dtype: DType) -> int:
    return count + -count % dtype.per_byte
