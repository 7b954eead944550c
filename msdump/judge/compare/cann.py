"""CANN's comparison tool msaccucmp: its tables, every element of a tensor (``-op``), its advice."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.encode import npy
from msdump.errors import DumpReadError, FormatError, ToolError
from msdump.executors import map_items
from msdump.judge import (
    ALL,
    EVERY,
    NAN,
    Choice,
    DumpedOperand,
    Score,
    host_arrays,
    host_layout,
    in_golden_layout,
)
from msdump.judge.compare.pairs import Item, Pair, Sides
from msdump.read import FolderKind, load_file
from msdump.record import IO
from msdump.return_codes import ReturnCode
from msdump.store import SUFFIX, sanitize

# vendor: file_compare leaves two of the ten out.
OF_FILES: Final = tuple(
    name for name in ALL if name not in {"KullbackLeiblerDivergence", "StandardDeviation"}
)
"""Algorithms of the vendor's ``file_compare``, in the order of its report."""

# vendor: -overflow_detection counts the largest finite float16 as an overflow, for a device that saturates.
_MAGNITUDE: Final = np.uint16(0x7FFF)  # the bits of a float16 without its sign
_LIMIT: Final = np.uint16(0x7BFF)  # the bits of 65504, the largest number
_INFINITY: Final = np.uint16(0x7C00)


@dataclass(frozen=True, slots=True)
class Options:
    """How tensors are compared.

    Attributes:
        choice: The algorithms.
        limit: Number of elements to compare, from the first one on; 0: all.
        finds_overflow: Whether each float16 tensor is searched for overflows (``-overflow_detection``).
        groups: Numbers of the operators that are compared, None: all.
    """

    choice: Choice = EVERY
    limit: int = 0
    finds_overflow: bool = False
    groups: frozenset[int] | None = None


def rows(
    sides: Sides, options: Options, progress: Callable[[int], object] = lambda _: None
) -> Iterator[list[Pair]]:
    """Yield the rows of each operator, in the order of the operators' numbers.

    ``progress`` is called with the bytes of each operator that was compared.
    """
    # By operator, not by tensor: an operator's file is mapped and its header parsed once.
    items = sides.groups(options.groups)
    average = sides.bytes() // max(1, len(items))
    yield from map_items(
        partial(_rows, sides, options), items, size=lambda _: average, name=sides.called, progress=progress
    )


def _rows(sides: Sides, options: Options, item: Item) -> list[Pair]:
    # rows go to another process, which needs no tensors
    rows = (_row(sides, options, pair) for pair in sides.pairs(item))
    return [replace(row, dumped_tensor=None, golden_tensor=None) for row in rows]


def _row(sides: Sides, options: Options, pair: Pair) -> Pair:
    dumped, golden = pair.dumped_tensor, pair.golden_tensor
    row = _described(options, pair)
    if dumped is None or golden is None or pair.fault:
        return row
    try:
        with _tool_errors():
            dumped_array, golden_array = _arrays(sides, pair, dumped, golden)
            if sides.rules is None and dumped_array.dtype == golden_array.dtype == np.bool_:
                # vendor: between two dumps truth values are numbers, beside golden tensors they are not.
                dumped_array, golden_array = dumped_array.view(np.uint8), golden_array.view(np.uint8)
            scores = options.choice.scores(
                dumped_array, golden_array, limit=options.limit, paths=(dumped.path, golden.path)
            )
    except ToolError as error:
        return replace(row, fault=str(error), code=ReturnCode(error.code))
    # vendor: types and shapes are the compared arrays' with a graph file, else the dump files'.
    types = (
        (dumped.dtype, golden.dtype) if sides.rules is None else (_saved(dumped_array), _saved(golden_array))
    )
    return replace(
        row,
        scores=tuple(score.text for score in scores),
        notes=",".join(score.note for score in scores if score.note),
        shape=_shape(dumped.shape if sides.rules is None else dumped_array.shape),
        dumped_dtype=types[0],
        golden_dtype=types[1],
        golden_address=_address(golden),
    )


def _arrays(
    sides: Sides, pair: Pair, dumped: DumpedOperand, golden: DumpedOperand
) -> tuple[np.ndarray, np.ndarray]:
    if sides.rules is None:
        return host_arrays(dumped, golden)
    return in_golden_layout(dumped, golden, pair.layout)


@contextmanager
def _tool_errors(files: str = "") -> Iterator[None]:
    """Raise DumpReadError and FormatError as ToolError, with the tool's codes."""
    try:
        yield
    except DumpReadError as error:
        raise ToolError(ReturnCode.DUMP_DATA, str(error)) from error
    except FormatError as error:
        raise ToolError(ReturnCode.DATA_TYPE, f"{files}{error}") from error


def _described(options: Options, pair: Pair) -> Pair:
    """Return a row with shape, address and overflow of the examined tensor, without scores."""
    row, dumped = replace(pair, scores=(NAN,) * len(options.choice.names)), pair.dumped_tensor
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
    except (DumpReadError, FormatError, ValueError):  # another column has the reason
        return NAN
    # Compared as bits: magnitudes of floats order as integers do, and all above infinity are NaN.
    return "YES" if np.any((magnitudes >= _LIMIT) & (magnitudes <= _INFINITY)) else "NO"


def _saved(array: np.ndarray) -> str:
    return str(dtypes.from_numpy(array.dtype).saved)


def _address(operand: DumpedOperand) -> str:
    return str(operand.address) if operand.address else NAN


def _shape(shape: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, shape))}]"


def code_of(rows: Sequence[Pair]) -> ReturnCode:
    """Return the code of the first fault, DONE where there is none; NO_DUMP_FILE if nothing was compared."""
    if all(row.fault for row in rows):
        return ReturnCode.NO_DUMP_FILE
    return next((row.code for row in rows if row.code), ReturnCode.DONE)


# vendor: two columns are named DataType and two Address; only their positions distinguish them.
_COLUMNS: Final = (
    ("Index", "index", ""),
    ("OpSequence", "sequence", "sequence"),
    ("OpType", "op_type", ""),
    ("NPUDump", "dumped", ""),
    ("DataType", "dumped_dtype", ""),
    ("Address", "dumped_address", "dumped address"),
    ("GroundTruth", "golden", ""),
    ("DataType", "golden_dtype", ""),
    ("Address", "golden_address", "golden address"),
    ("TensorIndex", "tensor", ""),
    ("Shape", "shape", ""),
    ("OverFlow", "overflow", "overflow"),
)
"""Title of each column, the attribute of a row, and on what the column depends."""

_MAPPING: Final = ("OpType", "NPUDump", "GroundTruth", "TensorIndex", "NPUDumpPath", "GroundTruthPath")


def result(rows: Iterable[Pair], options: Options, sides: Sides) -> Iterator[Sequence[str]]:
    """Yield the lines of ``result_{time}.csv``, the table of a comparison."""
    # vendor: a side of .npy files has no address column; dump files without an address have "NaN" in it.
    shown = {
        "": True,
        "dumped address": sides.dumped.kind is FolderKind.DUMPS,
        "golden address": sides.golden.kind is FolderKind.DUMPS,
        "overflow": options.finds_overflow,
        "sequence": options.groups is not None,
    }
    titles, cells = zip(*((title, cell) for title, cell, name in _COLUMNS if shown[name]), strict=True)
    yield [*titles, *options.choice.names, "CompareFailReason"]
    for row in rows:
        yield [*(str(getattr(row, cell)) for cell in cells), *row.scores, row.fault or row.notes]


def mapping(pairs: Iterable[Pair], *, has_sequence: bool) -> Iterator[Sequence[str]]:
    """Yield the lines of ``mapping_{time}.csv`` (``-map``): the files of each tensor and its counterpart."""
    yield ["Index", *["OpSequence"][:has_sequence], *_MAPPING]
    for pair in pairs:
        paths = (NAN if each is None else each.path for each in (pair.dumped_tensor, pair.golden_tensor))
        sequence = [str(pair.sequence)][:has_sequence]
        yield [str(pair.index), *sequence, pair.op_type, pair.dumped, pair.golden, pair.tensor, *paths]


def compare_files(dumped: str, golden: str, choice: Choice = EVERY, *, limit: int = 0) -> tuple[Score, ...]:
    """Return the scores of algorithms for the tensors in two .npy files, of ``limit`` elements or all (0).

    Raises:
        ToolError: A file is missing, is no .npy file or holds text, or the shapes differ.
    """
    dumped_array, golden_array = read_file(dumped), read_file(golden)
    # vendor: shapes of single files have to be the same; the comparison of directories is less strict.
    if dumped_array.shape != golden_array.shape:
        raise ToolError(
            ReturnCode.SHAPE,
            f"{dumped}: shape {dumped_array.shape} differs from {golden_array.shape} of {golden}",
        )
    with _tool_errors(f"{dumped}, {golden}: "):
        return choice.scores(dumped_array, golden_array, limit=limit, paths=(dumped, golden))


def read_file(path: str) -> np.ndarray:
    """Return the tensor of a .npy file.

    Raises:
        ToolError: It is missing, has another name, or is no .npy file.
    """
    if not path.endswith(SUFFIX):
        raise ToolError(ReturnCode.FILE_TYPE, f"{path}: only .npy files can be compared")
    if not os.path.exists(path):
        raise ToolError(ReturnCode.PATH, f"{path}: no such file")
    with _tool_errors():
        return npy.decode(load_file(path), path)


def report_of_files(scores: Sequence[Score], names: Sequence[str]) -> str:
    """Return the text of a report: a line ``Name: value`` for each algorithm.

    >>> print(report_of_files([Score("0.500000")], ["MaxAbsoluteError"]), end="")
    MaxAbsoluteError: 0.500000
    """
    return "".join(f"{name}: {score.text}\n" for name, score in zip(names, scores, strict=True))


MOST_SHOWN: Final = 10000
"""Largest number of elements that differ most (``-n``)."""

LINES: Final = (10000, 1000000)
"""Smallest and largest number of lines of a file (``-ml``)."""

_AXES: Final = 4  # shorter shapes are filled up with ones


@dataclass(frozen=True, slots=True)
class ElementPairs:
    """A tensor and its counterpart, element by element.

    Attributes:
        pair: Names of the two tensors.
        dumped: The tensor in the host's layout.
        axes: Names of the axes, separated by spaces: "N C H W"; "ID" where there is no axis.
        columns: Elements of both, then absolute and relative errors, as vectors. A relative error is NaN
            where golden is zero; all errors of truth values are NaN.
    """

    pair: Pair
    dumped: np.ndarray
    axes: str
    columns: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, sides: Sides, operator: str, io: IO, index: int) -> ElementPairs:
        """Return a tensor of an operator and its counterpart.

        Raises:
            ToolError: There is no such operator or tensor, it has no counterpart, or both cannot be compared.
        """
        pair = _pair(sides, operator, io, index)
        if pair.dumped_tensor is None or pair.golden_tensor is None or pair.fault:
            raise ToolError(pair.code or ReturnCode.NO_DUMP_FILE, pair.fault)
        with _tool_errors():
            dumped, golden = _arrays(sides, pair, pair.dumped_tensor, pair.golden_tensor)
        vectors = dumped.reshape(-1), golden.reshape(-1)
        if dumped.dtype == golden.dtype == np.bool_:
            absolute = relative = np.full(dumped.size, np.nan, np.float32)
        else:
            x, y = (side.astype(np.float32) for side in vectors)
            with np.errstate(all="ignore"):  # division by a golden zero gives NaN or infinity
                absolute = np.abs(x - y)
                relative = absolute / np.abs(y)
            relative[~np.isfinite(relative)] = np.nan
        layout = pair.layout or host_layout(pair.dumped_tensor, dumped.ndim)
        return cls(pair, dumped, _axes(layout, dumped.shape), (*vectors, absolute, relative))

    def most_different(self, count: int) -> Iterator[Iterator[str]]:
        """Yield tables of the largest absolute and relative errors; of equal errors the later comes first."""
        for errors in self.columns[2:]:
            places = np.argsort(np.nan_to_num(errors, posinf=0), kind="stable")
            yield self.table(places[::-1][:count])

    def table(self, places: Sequence[int] | np.ndarray) -> Iterator[str]:
        """Yield the title and a line for each element at some places."""
        yield f"Index,{self.axes},NPUDump,GroundTruth,AbsoluteError,RelativeError\n"
        shape = (*self.dumped.shape, *(1,) * (_AXES - self.dumped.ndim))
        flat = np.fromiter(places, np.int64, len(places))
        coordinates = np.stack(np.unravel_index(flat, shape), axis=-1).tolist()
        columns = ([_text(value) for value in column[flat].tolist()] for column in self.columns)
        for place, axes, texts in zip(flat.tolist(), coordinates, zip(*columns, strict=True), strict=True):
            yield f"{place},{' '.join(map(str, axes))},{','.join(texts)}\n"

    def summary(self) -> str:
        """Return the text of ``{prefix}_summary.txt``: names, axes, smallest and largest errors."""
        lines = [
            f"TotalCount:{self.dumped.size}",
            f"NPUDump:{self.pair.dumped.replace(',', ' ')}",
            f"GroundTruth:{self.pair.golden.replace(',', ' ')}",
            f"Format:{self.axes}",
        ]
        are_truths = all(side.dtype == np.bool_ for side in self.columns[:2])
        for name, errors in zip(("Absolute", "Relative"), self.columns[2:], strict=True):
            for extreme, reduce in (("Min", np.min), ("Max", np.max)):
                has_errors = errors.size and not are_truths
                value = f"{reduce(np.nan_to_num(errors, posinf=0)):.6f}" if has_errors else "-"
                lines.append(f"{extreme}{name}Error:{value}")
        return "".join(f"{line}\n" for line in lines)

    def files(self, prefix: str, most: int, lines: int) -> Iterator[tuple[str, Iterable[bytes]]]:
        """Yield the name and contents of each file: tables of ``most`` elements, summary, tensor, lists.

        ``lines`` is the largest number of elements of a list, 0 for no lists; a list is named by the number
        of its first element.
        """
        for name, table in zip(("absolute", "relative"), self.most_different(most), strict=True):
            yield f"{prefix}_{name}_error_topn.csv", [*map(str.encode, table)]
        yield f"{prefix}_summary.txt", [self.summary().encode()]
        yield f"{prefix}.npy", map(bytes, npy.encode(np.ascontiguousarray(self.dumped)))
        for start in range(0, max(self.dumped.size, 1), lines) if lines else ():
            places = range(start, min(start + lines, self.dumped.size))
            yield f"{prefix}_{start}.csv", map(str.encode, self.table(places))


def _pair(sides: Sides, operator: str, io: IO, index: int) -> Pair:
    # Users copy names from files, where / has become _, as well as from the network.
    spelled = {operator, sanitize(operator)}
    candidates = [
        pair
        for item in sides.groups()
        if not spelled.isdisjoint(each.name for each in item)
        for pair in sides.pairs(item)
    ]
    if not candidates:
        code = ReturnCode.NO_DUMP_FILE if sides.rules is None else ReturnCode.PARAMETER
        raise ToolError(code, f"-op {operator!r}: no such operator")
    tensor_name = f"{operator if sides.rules else sanitize(operator)}:{io}:{index}"
    for pair in candidates:
        if pair.tensor == tensor_name:
            return pair
    # An operator without a file is one pair for all of its tensors.
    without_file = next((pair for pair in candidates if pair.fault and pair.dumped_tensor is None), None)
    if without_file is not None:
        raise ToolError(without_file.code, without_file.fault)
    others = ", ".join(pair.tensor for pair in candidates)
    raise ToolError(ReturnCode.INDEX, f"no tensor {tensor_name}; there are {others}")


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


def _text(value: float | bool) -> str:  # noqa: FBT001 - an element of a tensor
    # vendor: a tab before the comma keeps spreadsheets from reading the number in their own way.
    if isinstance(value, bool):
        return f"{value}\t"
    return "-" if value != value else f"{value:.6f}\t"  # noqa: PLR0124 - only NaN differs from itself


SUMMARY: Final = "advisor_summary.txt"
"""Name of the file of the advice."""

_SIMILARITY: Final = "CosineSimilarity"
_ENOUGH: Final = 0.99  # vendor: a smaller cosine similarity counts as different
_ADVICE: Final = {
    "FP16 Overflow": "A float16 tensor overflows. Mend that first, then compare again.",
    "Input Inconsistent": "The two networks did not get the same input. Compare the data and how it is"
    " prepared.",
    True: "Some tensors differ, yet the last one agrees. That may come from optimisations and can be"
    " ignored.",
    False: "Some tensors differ, and so does the last one. Look at the first; quantisation may be why.",
}
"""Texts of the advice: of a check, or of differences by whether the network's output agrees."""


def advise(rows: Sequence[Pair], names: Sequence[str], inputs: Sequence[str]) -> tuple[str, ...]:
    """Return the lines of the advice on where to look first; the advice is "NA" if no check finds a cause.

    Args:
        rows: The result, in the order of the file.
        names: Algorithms, in the order of the scores.
        inputs: Names of the graph's inputs, empty if unknown.
    """
    # vendor: the tool reads its own table, so a similarity that six decimals round up counts as enough.
    texts = [dict(zip(names, row.scores, strict=True)).get(_SIMILARITY, NAN) for row in rows]
    known = [(row, float(text)) for row, text in zip(rows, texts, strict=True) if text.lower() != "nan"]
    below = [row for row, similarity in known if similarity < _ENOUGH]
    # From cause to effect: an overflow or another input explains whatever differs behind it.
    causes = {
        "FP16 Overflow": [row for row in rows if row.overflow == "YES"],
        "Input Inconsistent": [row for row in below if row.dumped in inputs],
    }
    kind, places, text = "Global Consistency", below, "NA"
    if cause := next((each for each, found in causes.items() if found), ""):
        kind, places, text = cause, causes[cause], _ADVICE[cause]
    elif not known:
        kind = "NA"
    elif below:
        # The last row that has a similarity is the network's output, or nearest to it.
        text = _ADVICE[known[-1][1] >= _ENOUGH]
    else:
        failed = sum(bool(row.fault) for row in rows)
        others = f" that could be compared agree; {failed} could not" if failed else " agree"
        text = f"All tensors{others}. If the network is still wrong, look at the processing of its outputs."
    index = str(places[0].index) if places else "NA"
    return f"Detection Type: {kind}", f"Operator Index: {index}", f"Expert Advice: {text}"
