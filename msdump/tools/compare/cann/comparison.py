"""Comparing two directories of dumped operators, as CANN's msaccucmp does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.errors import DumpReadError, FormatError, ToolError
from msdump.tools.compare.pairing import counterparts
from msdump.tools.compare.pairing.operands import DumpedOperand
from msdump.tools.compare.pairing.pairs import Pair
from msdump.tools.compare.pairing.sides import Item, Sides
from msdump.tools.mapping import mapper
from msdump.tools.return_codes import ReturnCode
from msdump.tools.scores.algorithms import NAN
from msdump.tools.scores.choice import EVERY, Choice

# vendor: -overflow_detection counts the largest finite float16 as an overflow, for a device that saturates.
_MAGNITUDE: Final = np.uint16(0x7FFF)  # the bits of a float16 without its sign
_LIMIT: Final = np.uint16(0x7BFF)  # those of 65504, the largest number
_INFINITY: Final = np.uint16(0x7C00)


@dataclass(frozen=True, slots=True)
class Options:
    """How tensors are compared.

    Attributes:
        choice: The algorithms.
        limit: Only so many elements from the first count, 0: all.
        finds_overflow: Whether each float16 tensor is searched for overflows (``-overflow_detection``).
        groups: Numbers of the operators that are compared, None: all.
    """

    choice: Choice = EVERY
    limit: int = 0
    finds_overflow: bool = False
    groups: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the result: a tensor beside its counterpart, or an operator that could not be compared.

    Attributes:
        pair: Names and numbers of the two, without their tensors, which need not travel between processes.
        scores: Texts of the algorithms.
        reason: Why there are no numbers, and notes.
        shape: Shape that was compared, else that of the tensor.
        dumped_dtype: Element type.
        golden_dtype: Element type of the counterpart.
        dumped_address: Address in the device's memory, "NaN" where it is not known.
        golden_address: Address of the counterpart.
        overflow: YES, NO, or NaN for a tensor that is not float16.
    """

    pair: Pair
    scores: tuple[str, ...]
    reason: str = ""
    shape: str = NAN
    dumped_dtype: str = NAN
    golden_dtype: str = NAN
    dumped_address: str = NAN
    golden_address: str = NAN
    overflow: str = NAN


def rows(
    sides: Sides, options: Options, progress: Callable[[int], object] = lambda _: None
) -> Iterator[list[Row]]:
    """Yield the rows of each operator, in the order of the operators' numbers.

    Args:
        sides: The two directories.
        options: How their tensors are compared.
        progress: Called with the bytes of each operator that was compared.
    """
    # By operator, not by tensor: an operator's file is mapped and its header parsed once.
    items = sides.groups(options.groups)
    average = sides.bytes() // max(1, len(items))
    yield from mapper.each(
        partial(_rows, sides, options), items, size=lambda _: average, name=sides.called, progress=progress
    )


def _rows(sides: Sides, options: Options, item: Item) -> list[Row]:
    return [_row(sides, options, pair) for pair in sides.pairs(item)]


def _row(sides: Sides, options: Options, pair: Pair) -> Row:
    dumped, golden = pair.dumped_tensor, pair.golden_tensor
    if dumped is None or golden is None or pair.fault:
        return _without_numbers(options, pair, pair.fault, pair.code)
    try:
        dumped_array, golden_array = _arrays(sides, pair, dumped, golden)
        scores = options.choice.scores(
            dumped_array, golden_array, limit=options.limit, paths=(dumped.path, golden.path)
        )
    except ToolError as error:
        return _without_numbers(options, pair, str(error), ReturnCode(error.code))
    except DumpReadError as error:
        return _without_numbers(options, pair, str(error), ReturnCode.DUMP_DATA)
    except FormatError as error:
        return _without_numbers(options, pair, str(error), ReturnCode.DATA_TYPE)
    row = _described(options, pair, dumped)
    # vendor: without a graph file types and shapes are those in the dump files, with one those compared.
    types = (
        (dumped.dtype, golden.dtype) if sides.rules is None else (_saved(dumped_array), _saved(golden_array))
    )
    return replace(
        row,
        scores=tuple(score.text for score in scores),
        reason=",".join(score.note for score in scores if score.note),
        shape=_shape(dumped.shape if sides.rules is None else dumped_array.shape),
        dumped_dtype=types[0],
        golden_dtype=types[1],
        golden_address=_address(golden),
    )


def _arrays(
    sides: Sides, pair: Pair, dumped: DumpedOperand, golden: DumpedOperand
) -> tuple[np.ndarray, np.ndarray]:
    """Return the arrays of two tensors, in one layout.

    Raises:
        ToolError: They cannot be brought into one layout.
        DumpReadError: A file cannot be read.
        FormatError: A type or format cannot be decoded.
    """
    if sides.rules is None:
        dumped_array, golden_array = counterparts.alike(dumped, golden)
        if dumped_array.dtype == golden_array.dtype == np.bool_:
            # vendor: between two dumps truth values are numbers, beside golden tensors they are not.
            return dumped_array.view(np.uint8), golden_array.view(np.uint8)
        return dumped_array, golden_array
    return counterparts.in_golden_layout(dumped, golden, pair.layout)


def _without_numbers(options: Options, pair: Pair, reason: str, code: ReturnCode) -> Row:
    row = _described(options, replace(pair, fault=reason, code=code), pair.dumped_tensor)
    return replace(row, reason=reason)


def _described(options: Options, pair: Pair, dumped: DumpedOperand | None) -> Row:
    """Return a row with shape, address and overflow of the examined tensor, without scores."""
    pair_without_tensors = replace(pair, dumped_tensor=None, golden_tensor=None)
    row = Row(pair_without_tensors, (NAN,) * len(options.choice.names))
    if dumped is None:
        return row
    return replace(
        row,
        shape=_shape(dumped.shape),
        dumped_address=_address(dumped),
        overflow=_overflow(dumped) if options.finds_overflow else NAN,
    )


def _overflow(operand: DumpedOperand) -> str:
    """Return whether a float16 tensor has an element that is infinite or of the largest magnitude."""
    if operand.dtype != "float16":
        return NAN
    try:
        magnitudes = np.bitwise_and(operand.array.view(np.uint16), _MAGNITUDE)
    except (DumpReadError, FormatError, ValueError):  # why it cannot be read stands in another column
        return NAN
    # Compared as bits: the magnitudes of floats order as integers do, and those above infinity are NaN.
    return "YES" if np.any((magnitudes >= _LIMIT) & (magnitudes <= _INFINITY)) else "NO"


def _saved(array: np.ndarray) -> str:
    """Return the element type that a tensor has in .npy files."""
    return str(dtypes.from_numpy(array.dtype).saved)


def _address(operand: DumpedOperand) -> str:
    return str(operand.address) if operand.address else NAN


def _shape(shape: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, shape))}]"


def code_of(rows: Sequence[Row]) -> ReturnCode:
    """Return the code of the first fault, DONE where there is none; NO_DUMP_FILE if nothing was compared."""
    if not any(not row.pair.fault for row in rows):
        return ReturnCode.NO_DUMP_FILE
    return next((row.pair.code for row in rows if row.pair.code), ReturnCode.DONE)
