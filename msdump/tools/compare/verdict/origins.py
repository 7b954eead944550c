"""The operator that wrote an input which differs although no output before it does."""

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
        name: Name of the operator.
        slot: Number of the output.
        folder: The golden directory.
        place: Place of its counterpart in the golden directory.
    """

    name: str
    slot: int
    folder: Folder
    place: Place


def writer(read: tuple[Folder, Place], outputs: Iterable[Output]) -> tuple[str, int] | None:
    """Return the name of the operator that wrote an input, and the number of its output.

    Dumps do not tell which output an input reads. So it is looked for by its golden elements.

    Args:
        read: The golden directory, and the place of the input's counterpart in it.
        outputs: The outputs that were written before, the newest first.

    Returns:
        None where no output has just these elements, or where all elements are alike.
    """
    operand = _golden_operand(*read)
    if operand is None or not _is_told_apart(operand):
        return None
    writers = (output for output in outputs if _holds(output, operand))
    return next(((output.name, output.slot) for output in writers), None)


def _golden_operand(golden: Folder, place: Place) -> DumpedOperand | None:
    file, io, slot = place
    return next(
        (each for each in operands.read(golden, (file,)) if (each.io, each.index) == (io, slot)), None
    )


def _is_told_apart(operand: DumpedOperand) -> bool:
    """Return whether an operand's elements identify it: those of many tensors are all zeros or ones."""
    elements = operand.array.reshape(-1)
    return elements.size > 1 and bool(np.any(elements != elements[0]))


def _holds(output: Output, operand: DumpedOperand) -> bool:
    golden_output = _golden_operand(output.folder, output.place)
    return (
        golden_output is not None
        and _form(golden_output) == _form(operand)
        and np.array_equal(golden_output.array, operand.array)
    )


# Compared before the elements, most of which then need not be read.
def _form(operand: DumpedOperand) -> tuple[tuple[int, ...], str, str]:
    return operand.shape, operand.dtype, operand.format
