"""An operator that overflowed, as a device's record and the operator's dump file tell of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump.record import IO
from msdump.tools.overflow.records import OverflowUnit

_BAR: Final = "=" * 49


@dataclass(frozen=True, slots=True)
class TensorSummary:
    """A tensor of an operator that overflowed.

    Attributes:
        file: The file of its elements, in the directory of results.
        io: Input or output.
        slot: Number of the input or output.
        format: Memory format.
        shape: Shape in that format.
        dtype: Element type of the file, "" where it cannot be read.
        extremes: Largest and smallest element and their mean, with NaN and infinities; None without elements.
        fault: Why its elements cannot be read, "" where they can.
    """

    file: str
    io: IO
    slot: int
    format: str
    shape: tuple[int, ...] = ()
    dtype: str = ""
    extremes: tuple[np.generic, np.generic, np.generic] | None = None
    fault: str = ""

    def lines(self) -> Iterator[str]:
        """Yield its lines of the report."""
        yield f" {self.file}"
        if self.fault:
            yield f" -[{self.fault}]"
            return
        head = f"[Format: {self.format}] [Shape: {self.shape}] [Dtype: {self.dtype}]"
        if self.extremes is None:
            yield f" -{head} [no elements]"
        else:
            high, low, mean = self.extremes
            yield f" -{head} [Max: {high!s}] [Min: {low!s}] [Mean: {mean!s}]"


@dataclass(frozen=True, slots=True)
class OperatorOverflow:
    """An overflow, and the operator that it is of.

    Attributes:
        units: The units of the device that report it.
        timestamp: When, in microseconds since the epoch.
        op_type: Type of the operator, "" where it was not dumped.
        name: Its full name, "" the same.
        pass_number: Number of its pass of a loop, None where it ran once or was not dumped.
        tensors: Its tensors, inputs first.
    """

    units: Sequence[OverflowUnit]
    timestamp: int
    op_type: str = ""
    name: str = ""
    pass_number: int | None = None
    tensors: tuple[TensorSummary, ...] = ()

    def text(self, number: int) -> str:
        """Return its block of the report, given its number there, from 1."""
        return "".join(f"{line}\n" for line in (f"{_BAR}[{number}]={_BAR}", *self._lines()))

    def _lines(self) -> Iterator[str]:
        if self.name:
            number = "" if self.pass_number is None else f", pass {self.pass_number}"
            yield f"[{self.op_type}] {self.name}{number}"
        yield from (f" {unit}" for unit in self.units)
        yield f" [timestamp:{self.timestamp}]"
        for tensor in self.tensors:
            yield from tensor.lines()
