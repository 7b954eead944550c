"""The arrays of two dumped tensors in one layout and type."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence

import numpy as np

from msdump.device import formats
from msdump.errors import FormatError, ToolError
from msdump.read import OperatorRecord, Record
from msdump.return_codes import ReturnCode


def in_one_type(dumped: Record, golden: Record) -> tuple[Record, Record]:
    """Return two operands; one without element type is read in the other one's type.

    vendor: CANN has no element type number for uint4; its files say DT_UNDEFINED then.
    """
    if dumped.is_typed == golden.is_typed:
        return dumped, golden
    if isinstance(dumped, OperatorRecord) and golden.is_typed:
        return dumped.read_as(golden.dtype), golden
    if isinstance(golden, OperatorRecord):
        return dumped, golden.read_as(dumped.dtype)
    return dumped, golden


def host_arrays(
    dumped: Record, golden: Record, *, may_be_reshaped: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return the arrays of two dumped tensors in the host's layout.

    Where neither has a host shape and both have the same format and device shape, the arrays come
    back as the device holds them.

    Args:
        dumped: The tensor.
        golden: Its counterpart.
        may_be_reshaped: Whether one side's compiler removed operators between the two values, perhaps a
            reshape: then equal sizes suffice.

    Raises:
        ToolError: Their shapes differ, or a format has no conversion.
        DumpReadError: A file is corrupt.
        FormatError: Elements of a type cannot be read.
    """
    if not (dumped.is_converted or golden.is_converted):
        straight = dumped.elements, golden.elements
        is_fitting = straight[0].shape == straight[1].shape
        is_fitting |= may_be_reshaped and straight[0].size == straight[1].size
        return straight if is_fitting else _checked(dumped, golden, *straight)
    # A dump file may lack the host shape; the counterpart's serves both.
    shape = dumped.host_shape or golden.host_shape or _plain_shape(dumped) or _plain_shape(golden)
    layouts = [(operand.format, operand.shape, operand.host_shape) for operand in (dumped, golden)]
    is_same = layouts[0] == layouts[1]
    if is_same and not shape:
        return dumped.elements, golden.elements
    try:
        arrays = dumped.on_host(shape), golden.on_host(shape)
    except FormatError as error:
        if is_same:  # no conversion, but both sides have the same layout: compare as they are
            return dumped.elements, golden.elements
        raise ToolError(ReturnCode.FORMAT, str(error)) from error
    if may_be_reshaped and arrays[0].size == arrays[1].size:
        return arrays
    return _checked(dumped, golden, *arrays)


def in_golden_layout(dumped: Record, golden: Record) -> tuple[np.ndarray, np.ndarray]:
    """Return a tensor's array in the layout of a golden one of unknown layout, and the golden array.

    Raises:
        ToolError: The shapes do not fit, or the format has no conversion.
        DumpReadError: A file is corrupt.
        FormatError: Elements of a type cannot be read.
    """
    golden_array = golden.elements
    try:
        array = dumped.on_host(golden_array.shape)
    except FormatError as error:
        raise ToolError(ReturnCode.FORMAT, str(error)) from error
    layouts = formats.LAYOUTS.get(array.ndim, ())
    host = (
        dumped.format if dumped.format in layouts else layouts[0] if layouts and dumped.is_converted else ""
    )
    turned = (array.transpose([host.index(axis) for axis in each]) for each in layouts if host)
    array = next((each for each in (array, *turned) if each.shape == golden_array.shape), array)
    if array.size == golden_array.size:  # a reshape may have been optimised away
        return np.ascontiguousarray(array), golden_array
    return _checked(dumped, golden, array, golden_array)


def is_regrouped(shape: Sequence[int], other: Sequence[int]) -> bool:
    """Return whether one of two shapes joins neighbouring axes of the other, or leaves out axes of length 1.

    >>> is_regrouped((24, 32), (2, 12, 32)), is_regrouped((2, 4, 8), (2, 8, 4)), is_regrouped((1, 5), (5,))
    (True, False, True)
    """
    borders = [{*itertools.accumulate(each, operator.mul, initial=1)} for each in (shape, other)]
    is_nested = borders[0] <= borders[1] or borders[0] >= borders[1]
    return is_nested and math.prod(shape) == math.prod(other)


def _plain_shape(operand: Record) -> tuple[int, ...]:
    return () if operand.is_converted else operand.shape


def is_transposed(dumped: Record, golden: Record) -> bool:
    """Return whether two tensors have the same shape except for the order of the last two axes."""
    if dumped.is_converted or golden.is_converted or len(dumped.shape) <= 1:
        return False
    *batch, rows, columns = dumped.shape
    return rows != columns and golden.shape == (*batch, columns, rows)


def is_square(dumped: Record) -> bool:
    """Return whether the last two axes are equal, so that the shape does not show a transposition."""
    return not dumped.is_converted and len(dumped.shape) > 1 and len({*dumped.shape[-2:]}) == 1


def _checked(
    dumped: Record, golden: Record, dumped_array: np.ndarray, golden_array: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return two arrays; ToolError unless one shape joins or splits axes of the other, as exporters do."""
    if is_regrouped(dumped_array.shape, golden_array.shape):
        return dumped_array, golden_array
    raise ToolError(
        ReturnCode.SHAPE,
        f"shape {dumped_array.shape} of {dumped.format or 'dumped'} does not fit {golden_array.shape} of"
        f" {golden.format or 'golden'}; was the same input, batch and model dumped?",
    )
