"""Every element of one tensor beside its counterpart, and those that differ most (``-op``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump.encode import npy
from msdump.errors import DumpReadError, FormatError, ToolError
from msdump.record import IO
from msdump.tools.compare.pairing import counterparts, dump_folder
from msdump.tools.compare.pairing.operands import host_layout
from msdump.tools.compare.pairing.pairs import Pair
from msdump.tools.compare.pairing.sides import Sides
from msdump.tools.return_codes import ReturnCode

MOST_SHOWN: Final = 10000
"""Largest number of elements that differ most (``-n``)."""

LINES: Final = (10000, 1000000)
"""Smallest and largest number of lines of a file (``-ml``)."""

_AXES: Final = 4  # shorter shapes are filled up with ones
_NONE: Final = "-"


@dataclass(frozen=True, slots=True)
class ElementPairs:
    """A tensor and its counterpart, element by element.

    Attributes:
        pair: What they are.
        mine: The tensor on the host.
        golden: Its counterpart, of the same shape.
        axes: Names of the axes.
    """

    pair: Pair
    mine: np.ndarray
    golden: np.ndarray
    axes: str

    @property
    def are_truths(self) -> bool:
        """Whether both hold truth values, which have no errors."""
        return self.mine.dtype == self.golden.dtype == np.bool_

    def errors(self) -> tuple[np.ndarray, np.ndarray]:
        """Return absolute and relative errors as vectors; NaN where golden is zero or there are none."""
        if self.are_truths:
            nothing = np.full(self.mine.size, np.nan, np.float32)
            return nothing, nothing
        mine, golden = (side.reshape(-1).astype(np.float32) for side in (self.mine, self.golden))
        with np.errstate(all="ignore"):
            absolute = np.abs(mine - golden)
            relative = absolute / np.abs(golden)
        relative[~np.isfinite(relative)] = np.nan
        return absolute, relative


def elements(sides: Sides, operator: str, io: IO, index: int) -> ElementPairs:
    """Return a tensor of an operator and its counterpart.

    Args:
        sides: The two directories.
        operator: Name of the operator.
        io: Input or output.
        index: Which one.

    Raises:
        ToolError: There is no such operator or tensor, it has no counterpart, or both cannot be compared.
    """
    pair = _pair(sides, operator, io, index)
    if pair.mine_tensor is None or pair.golden_tensor is None or pair.fault:
        raise ToolError(pair.code or ReturnCode.NO_DUMP_FILE, pair.fault)
    try:
        if sides.rules is None:
            mine, golden = counterparts.alike(pair.mine_tensor, pair.golden_tensor)
        else:
            mine, golden = counterparts.in_golden_layout(pair.mine_tensor, pair.golden_tensor, pair.layout)
    except DumpReadError as error:
        raise ToolError(ReturnCode.DUMP_DATA, str(error)) from error
    except FormatError as error:
        raise ToolError(ReturnCode.DATA_TYPE, str(error)) from error
    layout = pair.layout or host_layout(pair.mine_tensor, mine.ndim)
    return ElementPairs(pair, mine, golden.reshape(mine.shape), _axes(layout, mine.shape))


def _pair(sides: Sides, operator: str, io: IO, index: int) -> Pair:
    found = [pair for item in sides.groups() if _holds(item, operator) for pair in sides.pairs(item)]
    if not found:
        code = ReturnCode.NO_DUMP_FILE if sides.rules is None else ReturnCode.PARAMETER
        raise ToolError(code, f"-op {operator!r}: no such operator")
    wanted = f"{operator if sides.rules else dump_folder.key(operator)}:{io}:{index}"
    for pair in found:
        if pair.tensor == wanted:
            return pair
    whole = next((pair for pair in found if pair.fault and pair.mine_tensor is None), None)
    if whole is not None:
        raise ToolError(whole.code, whole.fault)
    there = ", ".join(pair.tensor for pair in found)
    raise ToolError(ReturnCode.INDEX, f"no tensor {wanted}; there are {there}")


def _holds(item: Sequence[object], operator: str) -> bool:
    """Tell whether an item of ``Sides.groups`` is about an operator."""
    names = [getattr(each, "name", each) for each in item]
    return operator in names or dump_folder.key(operator) in names


def _axes(layout: str, shape: tuple[int, ...]) -> str:
    if not shape:
        return "ID"
    if len(layout) == len(shape):
        return " ".join(layout)
    return "N C D H W" if len(shape) > _AXES else "N C H W"


def prefix(operator: str, io: IO, index: int) -> str:
    """Return what the names of a tensor's files start with."""
    return f"{operator.replace('/', '_')}_{io}_{index}"


def tables(found: ElementPairs, lines: int) -> Iterator[tuple[int, Iterator[str]]]:
    """Yield the number of the first element and the text of each file of elements.

    Args:
        found: The tensor.
        lines: Most lines of a file.
    """
    errors = found.errors()
    for start in range(0, max(found.mine.size, 1), lines):
        yield start, _table(found, errors, range(start, min(start + lines, found.mine.size)))


def most_different(found: ElementPairs, count: int) -> tuple[Iterator[str], Iterator[str]]:
    """Return the tables of the largest absolute and the largest relative errors, largest first."""
    errors = found.errors()
    absolute, relative = (_largest(error, count) for error in errors)
    return _table(found, errors, absolute), _table(found, errors, relative)


def _largest(errors: np.ndarray, count: int) -> list[int]:
    """Return where the largest numbers stand; of equal ones the later comes first, NaN counts as 0."""
    known = np.nan_to_num(errors, posinf=0)
    count = min(count, len(known))
    if count < len(known):
        places = np.argpartition(known, len(known) - count)[len(known) - count :]
    else:
        places = np.arange(len(known))
    return sorted(map(int, places), key=lambda place: (known[place], place), reverse=True)


def _table(
    found: ElementPairs, errors: tuple[np.ndarray, np.ndarray], places: Sequence[int]
) -> Iterator[str]:
    yield f"Index,{found.axes},NPUDump,GroundTruth,AbsoluteError,RelativeError\n"
    shape = (*found.mine.shape, *(1,) * (_AXES - found.mine.ndim))
    at = np.fromiter(places, np.int64, len(places))
    where = zip(*(axis.tolist() for axis in np.unravel_index(at, shape)), strict=True)
    columns = [side.reshape(-1)[at].tolist() for side in (found.mine, found.golden, *errors)]
    texts = [[_text(value) for value in column] for column in columns]
    for place, axes, row in zip(at.tolist(), where, zip(*texts, strict=True), strict=True):
        yield f"{place},{' '.join(map(str, axes))},{','.join(row)}\n"


def _text(value: float | bool) -> str:  # noqa: FBT001 - an element of a tensor
    # vendor: a tab before the comma keeps spreadsheets from reading the number in their own way.
    if isinstance(value, bool):
        return f"{value}\t"
    return _NONE if value != value else f"{value:.6f}\t"  # noqa: PLR0124 - only NaN differs from itself


def summary(found: ElementPairs) -> str:
    """Return the text of the summary: names, axes, smallest and largest errors."""
    lines = [
        f"TotalCount:{found.mine.size}",
        f"NPUDump:{found.pair.mine.replace(',', ' ')}",
        f"GroundTruth:{found.pair.golden.replace(',', ' ')}",
        f"Format:{found.axes}",
    ]
    for name, errors in zip(("Absolute", "Relative"), found.errors(), strict=True):
        known = np.nan_to_num(errors, posinf=0) if errors.size and not found.are_truths else None
        for extreme, of in (("Min", np.min), ("Max", np.max)):
            lines.append(f"{extreme}{name}Error:{_NONE if known is None else f'{of(known):.6f}'}")
    return "".join(f"{line}\n" for line in lines)


def tensor_file(found: ElementPairs) -> tuple[bytes, ...]:
    """Return the contents of the .npy file of the tensor on the host."""
    return tuple(map(bytes, npy.encode(np.ascontiguousarray(found.mine))))
