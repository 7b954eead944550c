"""Where an input comes from that differs though nothing before it does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from msdump.tools.compare.pairing import operands
from msdump.tools.compare.pairing.dump_folder import Folder
from msdump.tools.compare.pairing.operands import DumpedOperand
from msdump.tools.compare.verdict.matching import Place


@dataclass(frozen=True, slots=True)
class Output:
    """An output of an operator that was compared and agrees.

    Attributes:
        name: The operator.
        slot: Number of the output.
        folder: The golden directory.
        place: Its counterpart there.
    """

    name: str
    slot: int
    folder: Folder
    place: Place


def writer(read: tuple[Folder, Place], outputs: Iterable[Output]) -> tuple[str, int] | None:
    """Return the operator and the number of its output that wrote an input, as the golden elements tell.

    Args:
        read: The golden directory, and where the input's counterpart stands in it.
        outputs: What ran before, the newest first.

    Returns:
        None where no output has just these elements, or where they are all alike.
    """
    wanted = _read(*read)
    if wanted is None or not _is_told_apart(wanted):
        return None
    found = (output for output in outputs if _holds(output, wanted))
    return next(((output.name, output.slot) for output in found), None)


def _read(golden: Folder, place: Place) -> DumpedOperand | None:
    file, io, slot = place
    return next(
        (each for each in operands.read(golden, (file,)) if (each.io, each.index) == (io, slot)), None
    )


def _is_told_apart(operand: DumpedOperand) -> bool:
    """Return whether an operand has elements that tell it from others."""
    elements = operand.array.reshape(-1)
    return elements.size > 1 and bool(np.any(elements != elements[0]))


def _holds(output: Output, wanted: DumpedOperand) -> bool:
    found = _read(output.folder, output.place)
    return found is not None and _form(found) == _form(wanted) and np.array_equal(found.array, wanted.array)


def _form(operand: DumpedOperand) -> tuple[tuple[int, ...], str, str]:
    return operand.shape, operand.dtype, operand.format
