"""Comparing two directories of dumped operators, as CANN's msaccucmp does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.errors import DumpReadError, FormatError, ToolError
from msdump.tools import parallel
from msdump.tools.compare.pairing import counterparts
from msdump.tools.compare.pairing.operands import DumpedOperand
from msdump.tools.compare.pairing.pairs import Pair
from msdump.tools.compare.pairing.sides import Item, Sides
from msdump.tools.return_codes import ReturnCode
from msdump.tools.scores.algorithms import NAN
from msdump.tools.scores.choice import EVERY, Choice

_MAGNITUDE: Final = np.uint16(0x7FFF)  # the bits of a float16 without its sign
_LIMIT: Final = np.uint16(0x7BFF)  # those of 65504, the largest number
_INFINITY: Final = np.uint16(0x7C00)


@dataclass(frozen=True, slots=True)
class Options:
    """How tensors are compared.

    Attributes:
        choice: The algorithms.
        limit: Only so many elements from the first count, 0: all.
        finds_overflow: float16 tensors that overflow are told.
        groups: Numbers of the operators that are compared, None: all.
    """

    choice: Choice = EVERY
    limit: int = 0
    finds_overflow: bool = False
    groups: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """What the comparison says of a tensor, or of an operator that could not be compared.

    Attributes:
        pair: What was compared, without its tensors.
        scores: Texts of the algorithms.
        reason: Why there are no numbers, and notes.
        shape: Shape that was compared, else that of the tensor.
        mine_dtype: Element type.
        golden_dtype: Element type of the counterpart.
        mine_address: In the device's memory, "NaN" where it is not known.
        golden_address: That of the counterpart.
        overflow: YES, NO, or NaN for a tensor that is not float16.
    """

    pair: Pair
    scores: tuple[str, ...]
    reason: str = ""
    shape: str = NAN
    mine_dtype: str = NAN
    golden_dtype: str = NAN
    mine_address: str = NAN
    golden_address: str = NAN
    overflow: str = NAN


def rows(sides: Sides, options: Options, *, jobs: int = 0) -> Iterator[list[Row]]:
    """Yield the rows of each operator, in the order of the operators' numbers.

    Args:
        sides: What is compared.
        options: How.
        jobs: Number of processes, 0: one for each core.
    """
    work = partial(_rows, sides, options)
    yield from parallel.each(work, sides.groups(options.groups), amount=sides.bytes(), jobs=jobs)


def _rows(sides: Sides, options: Options, item: Item) -> list[Row]:
    return [_row(sides, options, pair) for pair in sides.pairs(item)]


def _row(sides: Sides, options: Options, pair: Pair) -> Row:
    mine, golden = pair.mine_tensor, pair.golden_tensor
    if mine is None or golden is None or pair.fault:
        return _without_numbers(options, pair, pair.fault, pair.code)
    try:
        ours, theirs = _arrays(sides, pair, mine, golden)
        found = options.choice.scores(ours, theirs, limit=options.limit, paths=(mine.path, golden.path))
    except ToolError as error:
        return _without_numbers(options, pair, str(error), ReturnCode(error.code))
    except DumpReadError as error:
        return _without_numbers(options, pair, str(error), ReturnCode.DUMP_DATA)
    except FormatError as error:
        return _without_numbers(options, pair, str(error), ReturnCode.DATA_TYPE)
    row = _described(options, pair, mine)
    types = (mine.dtype, golden.dtype) if sides.rules is None else (_saved(ours), _saved(theirs))
    return replace(
        row,
        scores=tuple(score.text for score in found),
        reason=",".join(score.note for score in found if score.note),
        shape=_shape(mine.shape if sides.rules is None else ours.shape),
        mine_dtype=types[0],
        golden_dtype=types[1],
        golden_address=_address(golden),
    )


def _arrays(
    sides: Sides, pair: Pair, mine: DumpedOperand, golden: DumpedOperand
) -> tuple[np.ndarray, np.ndarray]:
    if sides.rules is None:
        ours, theirs = counterparts.alike(mine, golden)
        if ours.dtype == theirs.dtype == np.bool_:
            # vendor: between two dumps truth values are numbers, beside golden tensors they are not.
            return ours.view(np.uint8), theirs.view(np.uint8)
        return ours, theirs
    return counterparts.in_golden_layout(mine, golden, pair.layout)


def _without_numbers(options: Options, pair: Pair, reason: str, code: ReturnCode) -> Row:
    row = _described(options, replace(pair, fault=reason, code=code), pair.mine_tensor)
    return replace(row, reason=reason)


def _described(options: Options, pair: Pair, mine: DumpedOperand | None) -> Row:
    """Return a row of what is known without comparing."""
    plain = replace(pair, mine_tensor=None, golden_tensor=None)
    row = Row(plain, (NAN,) * len(options.choice.names))
    if mine is None:
        return row
    return replace(
        row,
        shape=_shape(mine.shape),
        mine_address=_address(mine),
        overflow=_overflow(mine) if options.finds_overflow else NAN,
    )


def _overflow(operand: DumpedOperand) -> str:
    if operand.dtype != "float16":
        return NAN
    try:
        magnitudes = np.bitwise_and(operand.array.view(np.uint16), _MAGNITUDE)
    except (DumpReadError, FormatError, ValueError):
        return NAN
    return "YES" if np.any((magnitudes >= _LIMIT) & (magnitudes <= _INFINITY)) else "NO"


def _saved(array: np.ndarray) -> str:
    """Return the type that a tensor has in .npy files."""
    return str(dtypes.from_numpy(array.dtype).saved)


def _address(operand: DumpedOperand) -> str:
    return str(operand.address) if operand.address else NAN


def _shape(shape: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, shape))}]"


def code_of(found: Sequence[Row]) -> ReturnCode:
    """Return what a comparison came to: its first fault; without anything compared, no dump file."""
    if not any(not row.pair.fault for row in found):
        return ReturnCode.NO_DUMP_FILE
    return next((row.pair.code for row in found if row.pair.code), ReturnCode.DONE)
