"""Steps: functions that a tensor's record walks through on its way into a file.

A step takes a record and returns it, another one, or the reason for which it gets no file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msdump.reasons import Reason
from msdump.record import TensorRecord

Step = Callable[[TensorRecord], TensorRecord | Reason]


def walk(record: TensorRecord, steps: Sequence[Step]) -> TensorRecord | Reason:
    """Return a record after all steps, or the reason for which one of them dropped it."""
    for step in steps:
        kept = step(record)
        if kept is record:  # as most steps leave it
            continue
        if isinstance(kept, Reason):
            return kept
        record = kept
    return record
