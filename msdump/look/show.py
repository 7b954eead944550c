"""Views of a dump for people: the folder tree as text; extremes, histogram and slice of a tensor."""

from __future__ import annotations

import csv
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np

from msdump import dtypes, reading
from msdump.device import formats
from msdump.encode import TensorInfo, dump_data, dump_message, npy
from msdump.errors import DAMAGED, DumpReadError, FormatError, ToolError
from msdump.look.trend import Slot
from msdump.read import (
    Dump,
    Iteration,
    Measurements,
    Record,
    add_onnx_names,
    describe_miss,
    find_operators,
    load_file,
    load_tensor,
    read_bytes,
)
from msdump.return_codes import ReturnCode
from msdump.store import STATISTICS, OperatorFileKind, names, operator_names

BINS: Final = 12
"""Bins of a histogram."""

_MOST_PLACES: Final = 5  # places listed of NaN, and of each infinity
_REAL_KINDS: Final = "biuf"
_SLICE: Final = 6  # rows and columns of a slice

_NONFINITE: Final[Mapping[str, Callable[[np.ndarray], np.ndarray]]] = MappingProxyType(
    {"nan": np.isnan, "inf": np.isposinf, "-inf": np.isneginf}
)

Place = tuple[int, ...]
"""Indices of an element, one for each dimension."""


@dataclass(frozen=True, slots=True)
class Extreme:
    """The smallest or the largest finite element.

    Attributes:
        place: Indices of the first such element.
    """

    value: float | int
    place: Place


@dataclass(frozen=True, slots=True)
class Strangers:
    """The elements of a tensor that are NaN, or inf, or -inf.

    Attributes:
        count: How many there are.
        places: The first of them.
    """

    count: int = 0
    places: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class Histogram:
    """Numbers of finite elements in intervals of equal width; a single interval where they are all alike.

    Attributes:
        edges: The bounds of the intervals; the last interval holds its end.
        counts: The elements in each.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Inspection:
    """Facts about the elements of a tensor.

    Attributes:
        smallest: Its smallest finite element; None where it has none.
        largest: Its largest finite element; None where it has none.
        strangers: Its elements that are not finite, by ``nan``, ``inf`` and ``-inf``; all are there.
        histogram: Of the finite elements; None where there are none.
        slice: Some rows and columns of its last two dimensions, around the first element that is not finite,
            else the largest one.
        slice_at: Indices of the slice in the dimensions before the last two.
        slice_from: Where the slice begins in the last two dimensions.
    """

    smallest: Extreme | None
    largest: Extreme | None
    strangers: Mapping[str, Strangers]
    histogram: Histogram | None
    slice: np.ndarray
    slice_at: Place
    slice_from: Place


def inspect(array: np.ndarray) -> Inspection:
    """Inspect a tensor; texts and complex numbers have neither extremes nor a histogram."""
    numbers = array.view(np.uint8) if array.dtype == np.bool_ else array
    flat = numbers.reshape(-1) if numbers.dtype.kind in _REAL_KINDS else np.empty(0)

    def place(number: int) -> Place:
        return tuple(int(index) for index in np.unravel_index(number, array.shape))

    strangers = dict.fromkeys(_NONFINITE, Strangers())
    finite = np.isfinite(flat)
    known = flat if finite.all() else flat[finite]
    if len(known) < len(flat):
        for name, is_such in _NONFINITE.items():
            found = np.flatnonzero(is_such(flat))
            strangers[name] = Strangers(len(found), tuple(map(place, found[:_MOST_PLACES])))
    smallest = largest = histogram = None
    if len(known):
        extremes = known.min(), known.max()
        smallest, largest = (Extreme(each.item(), place(int(np.argmax(flat == each)))) for each in extremes)
        low, high = float(smallest.value), float(largest.value)
        # not low + step * width: the range of all float64 would overflow
        edges = [low * (1 - step / BINS) + high * (step / BINS) for step in range(BINS)] + [high]
        if all(left < right for left, right in pairwise(edges)):
            counts = tuple(np.histogram(known, edges)[0].tolist())
        else:  # equal elements, or too large for more edges
            edges, counts = [low, high], (len(known),)
        histogram = Histogram(tuple(edges), counts)
    marked = [stranger.places[0] for stranger in strangers.values() if stranger.places]
    center = min(marked) if marked else largest.place if largest is not None else (0,) * array.ndim
    corner = array[center[:-2]]
    # at the edges of the tensor the slice moves inwards
    starts = zip(center[-2:], corner.shape, strict=True)
    begin = tuple(max(0, min(index - _SLICE // 2, size - _SLICE)) for index, size in starts)
    shown = corner[tuple(np.s_[start : start + _SLICE] for start in begin)]
    return Inspection(smallest, largest, strangers, histogram, shown.copy(), center[:-2], begin)


@dataclass(frozen=True)
class InspectedTensor:
    """A tensor of a file or of an operator.

    Attributes:
        name: Its operator, type and slot; the name of the file where that is all that is known.
        where: Rank and iteration, "" for a file alone.
        path: Its file; that of the statistics where its elements were not saved.
        dtype: MindSpore's name of its element type.
        format: Its memory format, "" where it is the host's.
        statistics: Statistics of all its elements, saved or measured.
        shape: Its shape, on the device where only that is known.
        load: Returns its elements in the host's layout, types that numpy lacks widened; None where they were
            not saved.
    """

    name: str
    where: str
    path: str
    dtype: str
    format: str
    statistics: Measurements
    shape: tuple[int, ...]
    load: Callable[[], np.ndarray] | None = field(repr=False)

    @property
    def cells(self) -> dict[str, float | bool | str | None]:
        """Statistics by the names of statistic_category."""
        return dict(self.statistics)

    @cached_property
    def inspection(self) -> Inspection | None:
        """Facts about its elements; None where they were not saved."""
        return None if self.load is None else inspect(self.load())

    @property
    def strangers(self) -> Mapping[str, Strangers]:
        """Its elements that are not finite, by "nan", "inf", "-inf"; empty without saved elements."""
        return {} if self.inspection is None else self.inspection.strangers


def of_file(path: str) -> tuple[InspectedTensor, ...]:
    """Return the tensors of a file: a .npy file, or a dump file of CANN.

    Raises:
        DumpReadError: It can be read as neither.
    """
    view, name = load_file(path), os.path.basename(path)  # noqa: PTH119 - a name, whatever stands there
    if bytes(view[: len(npy.MAGIC)]) == npy.MAGIC:
        return (_subject(name, path, npy.decode_raw(view, path), ""),)
    header, offset = dump_data.read_header(view, path)
    subjects = []
    for block in dump_data.blocks(header, offset):
        info = block.info
        if isinstance(info, TensorInfo):
            data = view[block.offset : block.offset + info.size]
            array = dump_data.tensor(info, data, path, block.offset)
            layout = dump_message.format_name(info.format)
            text = f"{layout} on the device"
            if info.original_shape and info.shape != info.original_shape:
                try:
                    array = formats.decode(layout, array, info.original_shape, max(1, info.sub_format))
                except FormatError:
                    text = f"{layout}, as it lies on the device"
            label = f"{header.op_name or name} {block.section} {block.index}"
            subjects.append(_subject(label, path, array, text))
    if not subjects:
        raise DumpReadError(path, "the dump file holds no tensor")
    return tuple(subjects)


def _subject(name: str, path: str, array: np.ndarray, layout: str) -> InspectedTensor:
    try:
        dtype = dtypes.from_numpy(array.dtype)
    except FormatError:  # dates and structured types of other .npy files
        title, widened = str(array.dtype), array
    else:
        title, widened = dtype.name, dtypes.widen(array, dtype)
    statistics = Measurements(None, lambda: array)
    return InspectedTensor(name, "", path, title, layout, statistics, array.shape, lambda: widened)


def of_operator(
    dump: Dump, operator: str, slots: tuple[Slot, ...], iteration: int | None, rank: int | None
) -> tuple[list[InspectedTensor], int]:
    """Return the tensors of the first run of an operator, inputs first, and in how many others it ran.

    Args:
        dump: The dump.
        operator: Name of the operator: full, its last component, as files spell it, its ONNX node, or a
            part; ``*`` and ``?`` stand for other characters.
        slots: Inputs and outputs; empty: all.
        iteration: Number of the iteration; None: the first in which it ran.
        rank: Number of the rank; None: the first on which it ran.

    Raises:
        ToolError: No operator or several operators have the name, or none of these inputs and outputs was
            dumped there.
        DumpReadError: The dump cannot be read.
    """
    runs: dict[str, dict[tuple[object, ...], list[tuple[Iteration, Record]]]] = {}
    known: dict[str, set[str]] = {}
    for each in dump.iterations:
        if (iteration is not None and each.step != iteration) or (rank is not None and each.rank != rank):
            continue
        for record in each.tensors:
            name = record.full_name or record.op_name
            known.setdefault(name, set()).add(record.op_name)
            run = each.path, record.execution, record.pass_number
            runs.setdefault(name, {}).setdefault(run, []).append((each, record))
    for each in dump.iterations[:1]:
        add_onnx_names(known, each.operator_graph)
    found = find_operators(operator, known)
    if len(found) != 1:
        raise ToolError(ReturnCode.PARAMETER, describe_miss(operator, known, found))
    first, *others = runs[found[0]].values()
    there = sorted({(record.io, record.slot) for _, record in first})
    if slots and not {*slots} & {*there}:
        has = ", ".join(f"{io}:{number}" for io, number in there)
        raise ToolError(ReturnCode.PARAMETER, f"no such input or output was dumped; there are {has}")
    subjects = []
    for each, record in sorted(first, key=lambda pair: (pair[1].io, pair[1].slot)):
        if not slots or (record.io, record.slot) in slots:
            try:
                subjects.append(_of_record(each, record))
            except DumpReadError as error:
                _log.log(DAMAGED, "%s", error)
    return subjects, len(others)


def _of_record(iteration: Iteration, record: Record) -> InspectedTensor:
    has_elements = bool(record.path) and os.path.isfile(record.path)
    if has_elements:
        _ = record.raw  # raises for a torn file

    def elements() -> np.ndarray:
        try:
            return record.host
        except FormatError:  # a format that cannot be converted
            return record.array

    return InspectedTensor(
        str(record),
        f"rank {iteration.rank}, iteration {iteration.step}",
        record.path,
        record.dtype,
        "" if record.format in {"", "DefaultFormat"} else record.format,
        record.stats,
        record.shape,
        elements if has_elements else None,
    )


_log = logging.getLogger("msdump.look")

SHOWN: Final = 6  # elements of a tensor, rows of a table and files of one folder
_NPY: Final = ".npy"
_FIELDS: Final = 5  # fields of a name, up to the timestamp
_KIBI: Final = 1024
_INDENT: Final = "    "
_DEEPEST: Final = 64


def tree_lines(folder: Path, indent: str = "") -> Iterator[str]:
    """Yield a line for each entry below a folder, folders first; of many files only the first few.

    A folder that cannot be listed, or that lies deeper than any of a dump, has a line that says so.
    """
    if len(indent) > _DEEPEST * len(_INDENT):
        yield f"{indent}(not shown: {_DEEPEST} folders deep)"
        return
    try:
        entries = sorted(folder.iterdir(), key=_order)
    except OSError as error:
        yield f"{indent}({error.strerror or error})"
        return
    files = [entry for entry in entries if not _is_folder(entry)]
    for entry in filter(_is_folder, entries):
        yield f"{indent}{entry.name}/"
        yield from tree_lines(entry, indent + _INDENT)
    shown = files if len(files) <= SHOWN + 1 else files[:SHOWN]
    yield from (f"{indent}{file.name}  {_size_in_words(file_size(file))}" for file in shown)
    if hidden := files[len(shown) :]:
        yield f"{indent}... and {len(hidden)} more files, {_size_in_words(sum(map(file_size, hidden)))}"


def list_folders(root: Path) -> Iterator[tuple[str, list[Path]]]:
    """Yield each folder with files by its path below a root, "" for the root, and the files in order.

    A folder that cannot be listed is logged.
    """

    def log(error: OSError) -> None:
        _log.log(DAMAGED, "%s: %s", error.filename, error.strerror or error)

    for folder, below, files in reading.walk(str(root), log):
        # Links to folders are shown as files, and not followed.
        links = [name for name in below if not _is_folder(Path(folder, name))]
        if files or links:
            path = os.path.relpath(folder, root)
            yield (
                "" if path == "." else path,
                sorted((Path(folder, name) for name in (*files, *links)), key=_order),
            )


def file_size(path: Path) -> int:
    """Return the size of a file in bytes; a link counts itself, not its target."""
    return path.lstat().st_size


@dataclass(frozen=True, slots=True)
class FirstTensor:
    """The output that was dumped first.

    Attributes:
        path: Its file.
        title: The line that shows how its file is read.
    """

    path: str
    title: str
    array: np.ndarray

    @property
    def dtype(self) -> str:
        """Element type of the file."""
        return str(self.array.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self.array.shape

    @property
    def elements(self) -> list[float | str]:
        """Its first elements, as texts where they are no real numbers."""
        is_real, first = self.array.dtype.kind in _REAL_KINDS, self.array.ravel()[:SHOWN].tolist()
        return [float(each) if is_real else str(each) for each in first]


def first_tensor(folder: Path) -> FirstTensor | None:
    """Return the operator output that was dumped first.

    Where no output has a file of its own, it is the first one with tensors of an operator: a dump file
    of CANN (its last tensor, an output if it has any), an input, or a file with a name that was too long.

    Raises:
        DumpReadError: It cannot be read.
    """

    def holds_tensors(name: str) -> bool:
        if operator := operator_names.parse(name):
            return not operator.is_op_debug
        if tensor := names.parse(name):
            return tensor.op_type != names.PARAMETER
        return name.endswith(_NPY) and name.removesuffix(_NPY).isdecimal()

    files = [file for _, inside in list_folders(folder) for file in inside]
    is_output = re.compile(r"(?!Parameter\.).*\.output\..*\.(?:npy|pt)").fullmatch
    outputs = [path for path in files if is_output(path.name)]
    path = min(outputs or (path for path in files if holds_tensors(path.name)), key=_order, default=None)
    if path is None:
        return None
    if path.suffix == _NPY:
        array = npy.decode(load_file(str(path)), str(path))
        return FirstTensor(str(path), f"numpy.load({path.name!r})", array)
    if path.suffix == ".pt":
        return FirstTensor(str(path), f"torch.load({path.name!r})", load_tensor(str(path)))
    last = of_file(str(path))[-1]
    return FirstTensor(str(path), last.name, np.empty(0) if last.load is None else last.load())


@dataclass(frozen=True, slots=True)
class FirstStatistics:
    """The statistics of the first iteration that has some.

    Attributes:
        path: Their file.
        titles: Titles of the columns.
        rows: The first rows, cells as they stand in the file.
        count: Number of all rows.
        lines: The titles and the first rows as they stand in the file.
    """

    path: str
    titles: list[str]
    rows: list[list[str]]
    count: int
    lines: list[str]


def first_statistics(folder: Path) -> FirstStatistics | None:
    """Return the statistics of the first iteration that has any; of acl's files the first operator's.

    Raises:
        DumpReadError: The file cannot be read.
    """
    files = [file for _, inside in list_folders(folder) for file in inside]
    tables = [path for path in files if path.name == STATISTICS] or [
        path for path in files if operator_names.parse(path.name, OperatorFileKind.STATISTICS) is not None
    ]
    path = min(tables, key=lambda path: (_order(path)[0], path), default=None)
    if path is None:
        return None
    lines = read_bytes(str(path)).decode(errors="replace").splitlines()
    first = lines[: SHOWN + 1]
    titles, *rows = [*csv.reader(first)] or [[]]
    return FirstStatistics(str(path), titles, rows, max(0, len(lines) - 1), first)


def _is_folder(entry: Path) -> bool:
    # A link is shown as a file and not followed: it may lead back up.
    return entry.is_dir() and not entry.is_symlink()


def _order(path: Path) -> tuple[str, str]:
    """Return a sort key: files of tensors and operators by their timestamp, behind all others by name.

    >>> _order(Path("Add.Default_Add-op0.0.0.1700000000000000.output.0.DefaultFormat.npy"))[0]
    '1700000000000000'
    """
    fields = path.name.split(".")
    is_timed = len(fields) >= _FIELDS and fields[_FIELDS - 1].isdecimal()
    return (fields[_FIELDS - 1] if is_timed else "", path.name)


def _size_in_words(count: float) -> str:
    """Return a number of bytes in words.

    >>> _size_in_words(512), _size_in_words(1536), _size_in_words(5 << 30)
    ('512 B', '2 KiB', '5.0 GiB')
    """
    for unit in ("B", "KiB", "MiB"):
        if count < _KIBI:
            return f"{count:.0f} {unit}"
        count /= _KIBI
    return f"{count:.1f} GiB"
