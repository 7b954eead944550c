"""Two tensors in the same layout, so that they can be compared element by element."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from msdump.errors import FormatError, ToolError
from msdump.tools.compare.pairing.operands import DumpedOperand, host_layout, in_layout
from msdump.tools.convert.format import LAYOUTS
from msdump.tools.return_codes import ReturnCode


def alike(dumped: DumpedOperand, golden: DumpedOperand) -> tuple[np.ndarray, np.ndarray]:
    """Return two dumped tensors in the host's layout, or as they are where only that can be.

    Raises:
        ToolError: Their shapes differ, or a format has no conversion.
        DumpReadError: A file is corrupt.
        FormatError: Elements of a type cannot be read.
    """
    if not (dumped.is_converted or golden.is_converted):
        return _checked(dumped, golden, dumped.array, golden.array)
    shape = dumped.host_shape or golden.host_shape or _plain_shape(dumped) or _plain_shape(golden)
    is_same = (dumped.format, dumped.shape, dumped.host_shape) == (
        golden.format,
        golden.shape,
        golden.host_shape,
    )
    if not shape and is_same:
        return dumped.array, golden.array
    try:
        return _checked(dumped, golden, dumped.on_host(shape), golden.on_host(shape))
    except FormatError as error:
        if is_same:
            return dumped.array, golden.array
        raise ToolError(ReturnCode.FORMAT, str(error)) from error


def in_golden_layout(
    dumped: DumpedOperand, golden: DumpedOperand, layout: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return a dumped tensor in the layout of a golden one, and that one.

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
    theirs = golden.array
    try:
        ours = dumped.array if not dumped.is_converted else dumped.on_host(_host_shape(theirs.shape, layout))
    except FormatError as error:
        raise ToolError(ReturnCode.FORMAT, str(error)) from error
    candidates = list(_candidates(ours, dumped, layout))
    fitting = [candidate for candidate in candidates if candidate.shape == theirs.shape]
    chosen = np.ascontiguousarray((fitting or candidates)[0])
    if chosen.size == theirs.size:  # a reshape may have been optimised away
        return chosen, theirs
    return _checked(dumped, golden, chosen, theirs)


def _candidates(ours: np.ndarray, dumped: DumpedOperand, layout: str) -> Iterator[np.ndarray]:
    """Yield an array in the layout that is told, then in others that it could have been saved in."""
    here = host_layout(dumped, ours.ndim)
    yield in_layout(ours, here, layout)
    yield ours
    for other in LAYOUTS.get(ours.ndim, ()):
        yield in_layout(ours, here, other)


def _host_shape(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """Return the shape of an array in the order of the host's axes."""
    if layout not in LAYOUTS.get(len(shape), ()):
        return shape
    return tuple(shape[layout.index(axis)] for axis in LAYOUTS[len(shape)][0])


def _plain_shape(operand: DumpedOperand) -> tuple[int, ...]:
    return () if operand.is_converted else operand.shape


def _checked(
    dumped: DumpedOperand, golden: DumpedOperand, ours: np.ndarray, theirs: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Refuse arrays whose shapes differ in more than axes of length 1."""
    sizes = [[size for size in array.shape if size != 1] for array in (ours, theirs)]
    if sizes[0] == sizes[1]:
        return ours, theirs
    raise ToolError(
        ReturnCode.SHAPE,
        f"shape {ours.shape} of {dumped.format or 'dumped'} does not fit {theirs.shape} of"
        f" {golden.format or 'golden'}; was the same input, batch and model dumped?",
    )
