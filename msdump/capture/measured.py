"""Operators that a session has measured, and what a capture keeps of them from step to step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msdump.observer import Arrays, RanNode
from msdump.reasons import Reason
from msdump.record import OperatorRef

if TYPE_CHECKING:
    from msdump.capture.statistics.sheets import RowSheet

RanOnDevice = tuple[int, Arrays, Arrays, bool]
"""Of an operator that has run its place in the execution order, inputs, outputs, and the overflow status."""


@dataclass(slots=True, eq=False)
class MeasuredTogether:
    """Operators that a session has measured, as they are in each step in which it is shown the same object.

    Attributes:
        ran: The operators as they were shown.
        shown: The same without what is not kept of their tensors.
        operators: The same by their names.
        places: Which of the tensors that are there are kept, None: all.
        skipped: How many tensors get no row, by the reason.
        sheet: Their rows but for timestamps and statistics, None where none was made.
    """

    ran: Sequence[RanNode]
    shown: Sequence[RanOnDevice]
    operators: Sequence[tuple[OperatorRef, Arrays, Arrays]]
    places: Sequence[int] | None
    skipped: Mapping[Reason, int]
    sheet: RowSheet | None = None
