"""Where an input comes from that differs though nothing before it does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from msdump.errors import DumpReadError, FormatError
from msdump.record import IO
from msdump.tools import operands
from msdump.tools.dump_folder import Folder
from msdump.tools.matching import Execution, Place
from msdump.tools.operands import Operand


def writer(
    golden: Folder, executions: Sequence[Execution], position: int, slot: int
) -> tuple[int, int] | None:
    """Return the place of the operator that wrote an input, and which output it is, as golden elements tell.

    Args:
        golden: The directory of the golden tensors.
        executions: What ``matching.match`` gave, all of it.
        position: Place of the operator that reads.
        slot: Number of its input.

    Returns:
        None where no compared output before it holds just these elements, or where they are all alike.
    """
    place = executions[position].counterparts.get((IO.INPUT, slot))
    wanted = None if place is None else _read(golden, place)
    if wanted is None or not _is_told_apart(wanted):
        return None
    for earlier in reversed(range(position)):
        for (io, number), other in executions[earlier].counterparts.items():
            if io is IO.OUTPUT and other[1] is IO.OUTPUT and _holds(golden, other, wanted):
                return earlier, number
    return None


def _read(golden: Folder, place: Place) -> Operand | None:
    file, io, slot = place
    return next(
        (each for each in operands.read(golden, (file,)) if (each.io, each.index) == (io, slot)), None
    )


def _is_told_apart(operand: Operand) -> bool:
    """Return whether an operand has elements that tell it from others."""
    elements = operand.array.reshape(-1)
    return elements.size > 1 and bool(np.any(elements != elements[0]))


def _holds(golden: Folder, place: Place, wanted: Operand) -> bool:
    """Return whether a tensor has the same elements; not if its file cannot be read."""
    try:
        found = _read(golden, place)
        if found is None or _form(found) != _form(wanted):
            return False
        return np.array_equal(found.array, wanted.array)
    except (DumpReadError, FormatError):
        return False


def _form(operand: Operand) -> tuple[tuple[int, ...], str, str]:
    return operand.shape, operand.dtype, operand.format
