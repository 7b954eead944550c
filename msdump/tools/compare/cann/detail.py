"""Every element of one tensor beside its counterpart, and those that differ most (msaccucmp's ``-op``)."""

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
        pair: Names of the two tensors.
        dumped: The tensor in the host's layout.
        golden: Its counterpart, of the same shape.
        axes: Names of the axes, separated by spaces: "N C H W"; "ID" where there is no axis.
    """

    pair: Pair
    dumped: np.ndarray
    golden: np.ndarray
    axes: str

    @property
    def are_truths(self) -> bool:
        """Whether both hold truth values, which have no errors."""
        return self.dumped.dtype == self.golden.dtype == np.bool_

    def errors(self) -> tuple[np.ndarray, np.ndarray]:
        """Return absolute and relative errors as float32 vectors.

        A relative error is NaN where golden is zero; both are NaN for truth values.
        """
        if self.are_truths:
            no_errors = np.full(self.dumped.size, np.nan, np.float32)
            return no_errors, no_errors
        dumped, golden = (side.reshape(-1).astype(np.float32) for side in (self.dumped, self.golden))
        with np.errstate(all="ignore"):  # a golden zero gives NaN or infinity, both of which become NaN
            absolute = np.abs(dumped - golden)
            relative = absolute / np.abs(golden)
        relative[~np.isfinite(relative)] = np.nan
        return absolute, relative


def elements(sides: Sides, operator: str, io: IO, index: int) -> ElementPairs:
    """Return a tensor of an operator and its counterpart.

    Args:
        sides: The two directories.
        operator: Name of the operator.
        io: Input or output.
        index: Number of the input or output.

    Raises:
        ToolError: There is no such operator or tensor, it has no counterpart, or both cannot be compared.
    """
    pair = _pair(sides, operator, io, index)
    if pair.dumped_tensor is None or pair.golden_tensor is None or pair.fault:
        raise ToolError(pair.code or ReturnCode.NO_DUMP_FILE, pair.fault)
    try:
        if sides.rules is None:
            dumped, golden = counterparts.alike(pair.dumped_tensor, pair.golden_tensor)
        else:
            dumped, golden = counterparts.in_golden_layout(
                pair.dumped_tensor, pair.golden_tensor, pair.layout
            )
    except DumpReadError as error:
        raise ToolError(ReturnCode.DUMP_DATA, str(error)) from error
    except FormatError as error:
        raise ToolError(ReturnCode.DATA_TYPE, str(error)) from error
    layout = pair.layout or host_layout(pair.dumped_tensor, dumped.ndim)
    return ElementPairs(pair, dumped, golden.reshape(dumped.shape), _axes(layout, dumped.shape))


def _pair(sides: Sides, operator: str, io: IO, index: int) -> Pair:
    """Return the pair of a tensor; ToolError where the operator or the tensor is not there."""
    candidates = [pair for item in sides.groups() if _holds(item, operator) for pair in sides.pairs(item)]
    if not candidates:
        code = ReturnCode.NO_DUMP_FILE if sides.rules is None else ReturnCode.PARAMETER
        raise ToolError(code, f"-op {operator!r}: no such operator")
    tensor_name = f"{operator if sides.rules else dump_folder.key(operator)}:{io}:{index}"
    for pair in candidates:
        if pair.tensor == tensor_name:
            return pair
    # An operator without a file is one pair for all of its tensors.
    without_file = next((pair for pair in candidates if pair.fault and pair.dumped_tensor is None), None)
    if without_file is not None:
        raise ToolError(without_file.code, without_file.fault)
    others = ", ".join(pair.tensor for pair in candidates)
    raise ToolError(ReturnCode.INDEX, f"no tensor {tensor_name}; there are {others}")


def _holds(item: Sequence[object], operator: str) -> bool:
    """Tell whether an item of ``Sides.groups`` contains an operator."""
    # Users copy names from files, where / has become _, as well as from the network.
    names = [getattr(each, "name", each) for each in item]
    return operator in names or dump_folder.key(operator) in names


def _axes(layout: str, shape: tuple[int, ...]) -> str:
    """Return the names of the axes, as the head of a table has them.

    >>> _axes("NHWC", (1, 2, 2, 3)), _axes("ND", (2, 2, 3)), _axes("", ())
    ('N H W C', 'N C H W', 'ID')
    """
    if not shape:
        return "ID"
    if len(layout) == len(shape):
        return " ".join(layout)
    return "N C D H W" if len(shape) > _AXES else "N C H W"


def prefix(operator: str, io: IO, index: int) -> str:
    """Return the start of the names of a tensor's files.

    >>> prefix("Default/fc-Dense/MatMul-op0", IO.OUTPUT, 0)
    'Default_fc-Dense_MatMul-op0_output_0'
    """
    return f"{operator.replace('/', '_')}_{io}_{index}"


def tables(pairs: ElementPairs, lines: int) -> Iterator[tuple[int, Iterator[str]]]:
    """Yield the files of all elements: the number of each file's first element, and its lines.

    Args:
        pairs: The tensor and its counterpart.
        lines: Largest number of elements in a file (``-ml``).
    """
    errors = pairs.errors()
    for start in range(0, max(pairs.dumped.size, 1), lines):
        yield start, _table(pairs, errors, range(start, min(start + lines, pairs.dumped.size)))


def most_different(pairs: ElementPairs, count: int) -> tuple[Iterator[str], Iterator[str]]:
    """Return the lines of two tables: the largest absolute and the largest relative errors, largest first."""
    errors = pairs.errors()
    absolute, relative = (_largest(error, count) for error in errors)
    return _table(pairs, errors, absolute), _table(pairs, errors, relative)


def _largest(errors: np.ndarray, count: int) -> list[int]:
    """Return the indices of the largest errors, largest first; of equal ones the later comes first.

    >>> _largest(np.array([1, np.nan, 3, 1], np.float32), 3)
    [2, 3, 0]
    """
    magnitudes = np.nan_to_num(errors, posinf=0)
    count = min(count, len(magnitudes))
    if count < len(magnitudes):  # most elements are not shown, so they need not be sorted
        places = np.argpartition(magnitudes, len(magnitudes) - count)[len(magnitudes) - count :]
    else:
        places = np.arange(len(magnitudes))
    return sorted(map(int, places), key=lambda place: (magnitudes[place], place), reverse=True)


def _table(
    pairs: ElementPairs, errors: tuple[np.ndarray, np.ndarray], places: Sequence[int]
) -> Iterator[str]:
    # The coordinates of an element have at least four axes, whatever the tensor's: ones fill them up.
    yield f"Index,{pairs.axes},NPUDump,GroundTruth,AbsoluteError,RelativeError\n"
    shape = (*pairs.dumped.shape, *(1,) * (_AXES - pairs.dumped.ndim))
    flat_indices = np.fromiter(places, np.int64, len(places))
    coordinates = zip(*(axis.tolist() for axis in np.unravel_index(flat_indices, shape)), strict=True)
    columns = [side.reshape(-1)[flat_indices].tolist() for side in (pairs.dumped, pairs.golden, *errors)]
    texts = [[_text(value) for value in column] for column in columns]
    for place, axes, row in zip(flat_indices.tolist(), coordinates, zip(*texts, strict=True), strict=True):
        yield f"{place},{' '.join(map(str, axes))},{','.join(row)}\n"


def _text(value: float | bool) -> str:  # noqa: FBT001 - an element of a tensor
    # vendor: a tab before the comma keeps spreadsheets from reading the number in their own way.
    if isinstance(value, bool):
        return f"{value}\t"
    return _NONE if value != value else f"{value:.6f}\t"  # noqa: PLR0124 - only NaN differs from itself


def summary(pairs: ElementPairs) -> str:
    """Return the text of ``{prefix}_summary.txt``: names, axes, smallest and largest errors."""
    lines = [
        f"TotalCount:{pairs.dumped.size}",
        f"NPUDump:{pairs.pair.dumped.replace(',', ' ')}",
        f"GroundTruth:{pairs.pair.golden.replace(',', ' ')}",
        f"Format:{pairs.axes}",
    ]
    for name, errors in zip(("Absolute", "Relative"), pairs.errors(), strict=True):
        magnitudes = np.nan_to_num(errors, posinf=0) if errors.size and not pairs.are_truths else None
        for extreme, reduce in (("Min", np.min), ("Max", np.max)):
            value = _NONE if magnitudes is None else f"{reduce(magnitudes):.6f}"
            lines.append(f"{extreme}{name}Error:{value}")
    return "".join(f"{line}\n" for line in lines)


def tensor_file(pairs: ElementPairs) -> tuple[bytes, ...]:
    """Return the parts of ``{prefix}.npy``, the tensor that is examined in the host's layout."""
    return tuple(map(bytes, npy.encode(np.ascontiguousarray(pairs.dumped))))
