"""An output of a dumped operator beside the one that came out when the operator ran again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.record import IO
from msdump.tools.judge import errors
from msdump.tools.judge.errors import TensorError
from msdump.tools.judge.evidence import OwnError
from msdump.tools.rerun import elements
from msdump.tools.rerun.allowance import Residue
from msdump.tools.rerun.arithmetic import Arithmetic

_FEW: Final = 4.0
"""Units of the last place by which kernels of one arithmetic may differ, at the tensor's own scale."""


@dataclass(frozen=True, slots=True)
class RerunOutput:
    """An output of the examined side beside that of the operator that ran again.

    Attributes:
        slot: Number of the output.
        dumped: The elements of the examined side, in the model's type.
        dtype: Their type on the device.
        io: Whether it is shown as an output or as the input that the operator writes.
        place: Number of the output or input in the dump.
    """

    slot: int
    dumped: np.ndarray
    dtype: dtypes.DType
    io: IO
    place: int

    def near(self, error: TensorError, arithmetic: Arithmetic | None) -> OwnError:
        """Return an error that is explained where it is a few units of the last place."""
        return OwnError(self.place, error, 0.0, is_near(error), str(arithmetic), io=self.io)

    def judged(self, explanation: Residue, arithmetic: str) -> OwnError:
        """Return an error with what rounding explains of it."""
        error, allowed, is_explained = explanation.error, explanation.allowed, explanation.is_explained
        return OwnError(
            *(self.place, error, allowed, is_explained, arithmetic, explanation.note, self.io),
            finite=explanation.finite,
        )

    def error(self, again: np.ndarray) -> TensorError:
        """Return how far it is from what came out again, held in the type of its file."""
        held = elements.in_type(again, self.dtype)
        dumped = elements.in_type(self.dumped, self.dtype)
        if held.dtype != dumped.dtype:
            held, dumped = again, self.dumped
        return errors.measure(dumped, held, self.dtype.name)


def is_near(error: TensorError) -> bool:
    """Tell whether an output differs by no more than a few units of the last place."""
    if error.is_same:
        return True
    return not error.misplaced and not error.changed and error.ulps <= _FEW
