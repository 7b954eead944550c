"""Two tensors in the same layout, so that they can be compared element by element."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from msdump.errors import FormatError, ToolError
from msdump.record import IO
from msdump.store import names
from msdump.tools.compare.pairing.operands import DumpedOperand, host_layout, in_layout
from msdump.tools.convert.format import LAYOUTS
from msdump.tools.matching.sides import canonical_type
from msdump.tools.return_codes import ReturnCode

_OF_MATRICES: Final = frozenset({"MatMul", "Dense", "Gemm"})


def typed(dumped: DumpedOperand, golden: DumpedOperand) -> tuple[DumpedOperand, DumpedOperand]:
    """Return two operands, one whose file does not tell its element type with that of the other one.

    vendor: CANN's numbers of element types have none for uint4; its files say DT_UNDEFINED then.
    """
    if dumped.is_typed == golden.is_typed:
        return dumped, golden
    if golden.is_typed:
        return dumped.read_as(golden.dtype), golden
    return dumped, golden.read_as(dumped.dtype)


def alike(
    dumped: DumpedOperand, golden: DumpedOperand, *, is_handed_on: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return the arrays of two dumped tensors in the host's layout.

    Where neither tells its host shape and both have the same format and device shape, the arrays come
    back as the device holds them.

    Args:
        dumped: The tensor.
        golden: Its counterpart.
        is_handed_on: Whether one is what the other becomes in a graph that only the other side's compiler
            has simplified, so that a reshape may lie between them.

    Raises:
        ToolError: Their shapes differ, or a format has no conversion.
        DumpReadError: A file is corrupt.
        FormatError: Elements of a type cannot be read.
    """
    if not (dumped.is_converted or golden.is_converted):
        arrays = dumped.array, golden.array
        if is_handed_on and arrays[0].size == arrays[1].size:
            return arrays
        return _checked(dumped, golden, *arrays)
    # A dump file may lack the host shape; the counterpart's serves both.
    shape = dumped.host_shape or golden.host_shape or _plain_shape(dumped) or _plain_shape(golden)
    layouts = [(operand.format, operand.shape, operand.host_shape) for operand in (dumped, golden)]
    is_same = layouts[0] == layouts[1]
    if not shape and is_same:
        return dumped.array, golden.array
    try:
        arrays = dumped.on_host(shape), golden.on_host(shape)
        if is_handed_on and arrays[0].size == arrays[1].size:
            return arrays
        return _checked(dumped, golden, *arrays)
    except FormatError as error:
        if is_same:  # a format without a conversion, but the same on both sides: element by element it is
            return dumped.array, golden.array
        raise ToolError(ReturnCode.FORMAT, str(error)) from error


def in_golden_layout(
    dumped: DumpedOperand, golden: DumpedOperand, layout: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the array of a dumped tensor in the layout of a golden one, and the golden array.

    Args:
        dumped: The tensor.
        golden: Its counterpart, which has no device format.
        layout: Order of the counterpart's axes, "" where it is not told.

    Raises:
        ToolError: The shapes do not fit, or the format has no conversion.
        DumpReadError: A file is corrupt.
        FormatError: Elements of a type cannot be read.
    """
    if golden.is_converted:
        return alike(dumped, golden)
    golden_array = golden.array
    try:
        dumped_array = (
            dumped.array
            if not dumped.is_converted
            else dumped.on_host(_host_shape(golden_array.shape, layout))
        )
    except FormatError as error:
        raise ToolError(ReturnCode.FORMAT, str(error)) from error
    candidates = list(_candidates(dumped_array, dumped, layout))
    fitting = [candidate for candidate in candidates if candidate.shape == golden_array.shape]
    chosen = np.ascontiguousarray((fitting or candidates)[0])
    if chosen.size == golden_array.size:  # a reshape may have been optimised away
        return chosen, golden_array
    return _checked(dumped, golden, chosen, golden_array)


def _candidates(dumped_array: np.ndarray, dumped: DumpedOperand, layout: str) -> Iterator[np.ndarray]:
    """Yield an array in the layout that a graph file gives, as it is, and in all layouts of its rank."""
    host = host_layout(dumped, dumped_array.ndim)
    yield in_layout(dumped_array, host, layout)
    yield dumped_array
    for host_order in LAYOUTS.get(dumped_array.ndim, ()):
        yield in_layout(dumped_array, host, host_order)


def _host_shape(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """Return a shape of some layout in the order of the host's axes, NCHW or NCDHW.

    >>> _host_shape((1, 28, 20, 3), "NHWC")
    (1, 3, 28, 20)
    """
    if layout not in LAYOUTS.get(len(shape), ()):
        return shape
    return tuple(shape[layout.index(axis)] for axis in LAYOUTS[len(shape)][0])


def _plain_shape(operand: DumpedOperand) -> tuple[int, ...]:
    return () if operand.is_converted else operand.shape


def may_be_transposed(op_type: str, io: IO) -> bool:
    """Tell whether one network may hold a tensor transposed beside another one's that computes the same.

    MindSpore's dense layers read their weights transposed, as an argument of the operator says; the operators
    of other exporters have no such argument.
    """
    return op_type == names.PARAMETER or (io is IO.INPUT and canonical_type(op_type) in _OF_MATRICES)


def is_transposed(dumped: DumpedOperand, golden: DumpedOperand) -> bool:
    """Tell whether two tensors have the same shape but for the order of the last two axes."""
    if dumped.is_converted or golden.is_converted or len(dumped.shape) <= 1:
        return False
    *batch, rows, columns = dumped.shape
    return rows != columns and golden.shape == (*batch, columns, rows)


def is_square(dumped: DumpedOperand) -> bool:
    """Tell whether a tensor has as many columns as rows, so that its shape does not tell what it is."""
    return not dumped.is_converted and len(dumped.shape) > 1 and len({*dumped.shape[-2:]}) == 1


def transposed(array: np.ndarray) -> np.ndarray:
    """Return an array with its last two axes in the other order."""
    return np.ascontiguousarray(array.swapaxes(-1, -2))


def _checked(
    dumped: DumpedOperand, golden: DumpedOperand, dumped_array: np.ndarray, golden_array: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return two arrays; ToolError where their shapes differ in more than axes of length 1."""
    # Reshapes that add or drop such axes are optimised away when a graph is compiled.
    sizes = [[size for size in array.shape if size != 1] for array in (dumped_array, golden_array)]
    if sizes[0] == sizes[1]:
        return dumped_array, golden_array
    raise ToolError(
        ReturnCode.SHAPE,
        f"shape {dumped_array.shape} of {dumped.format or 'dumped'} does not fit {golden_array.shape} of"
        f" {golden.format or 'golden'}; was the same input, batch and model dumped?",
    )
