"""Steps: functions that a tensor's record walks through on its way into a file.

A step takes a record and returns it, another one, or the reason for which it gets no file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msdump.reasons import Reason
from msdump.record import TensorRecord
from msdump.threads import Living

Step = Callable[[TensorRecord], TensorRecord | Reason]

_IN_SESSIONS: Final = Living[Step]()


def in_sessions(step: Step) -> Step:
    """Declare of a step that a session which writes a tensor itself does the same (``session_writer``)."""
    _IN_SESSIONS.add(step)
    return step


def are_in_sessions(steps: Iterable[Step]) -> bool:
    """Tell whether a session does all that steps do."""
    return all(step in _IN_SESSIONS for step in steps)


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
