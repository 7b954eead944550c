"""Views of a dump for people: the folder tree as text; extremes, histogram, slice or picture of a tensor."""

from __future__ import annotations

import csv
import logging
import math
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
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
    read_bytes,
)
from msdump.return_codes import ReturnCode
from msdump.store import STATISTICS, OperatorFileKind, names, operator_names

BINS: Final = 12
"""Bins of a histogram."""

_MOST_PLACES: Final = 5  # places listed of NaN, and of each infinity
_BLOCK: Final = 1 << 20  # elements that are inspected at once
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
        value: The element.
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
    """Inspect a tensor block by block; texts and complex numbers have neither extremes nor a histogram."""
    numbers = array.view(np.uint8) if array.dtype == np.bool_ else array
    smallest, largest, strangers = _scan(numbers)
    histogram = None
    if smallest is not None and largest is not None:
        histogram = _histogram(numbers, float(smallest.value), float(largest.value))
    marked = [stranger.places[0] for stranger in strangers.values() if stranger.places]
    center = min(marked) if marked else largest.place if largest is not None else (0,) * array.ndim
    corner = array[center[:-2]]
    begin = tuple(_start(index, size) for index, size in zip(center[-2:], corner.shape, strict=True))
    shown = corner[tuple(np.s_[start : start + _SLICE] for start in begin)]
    return Inspection(smallest, largest, strangers, histogram, shown, center[:-2], begin)


def _blocks(array: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the elements in the order of the host, some at a time, with the number of the first."""
    flat = array.reshape(-1)
    for start in range(0, len(flat), _BLOCK):
        yield start, flat[start : start + _BLOCK]


def _scan(array: np.ndarray) -> tuple[Extreme | None, Extreme | None, dict[str, Strangers]]:
    """Return the extremes of an array of numbers, and its elements that are not finite."""
    smallest: Extreme | None = None
    largest: Extreme | None = None
    strangers = dict.fromkeys(_NONFINITE, Strangers())
    for start, block in _blocks(array) if array.dtype.kind in _REAL_KINDS else ():
        finite = np.isfinite(block)
        numbers = block
        if not finite.all():
            numbers = block[finite]
            for name, is_such in _NONFINITE.items():
                found, before = np.flatnonzero(is_such(block)), strangers[name]
                room = found[: _MOST_PLACES - len(before.places)]
                places = (*before.places, *(_place(start + int(number), array) for number in room))
                strangers[name] = Strangers(before.count + len(found), places)
        if not len(numbers):
            continue
        low, high = numbers.min().item(), numbers.max().item()
        if smallest is None or low < smallest.value:
            smallest = Extreme(low, _place(start + int(np.argmax(block == low)), array))
        if largest is None or high > largest.value:
            largest = Extreme(high, _place(start + int(np.argmax(block == high)), array))
    return smallest, largest, strangers


def _place(number: int, array: np.ndarray) -> Place:
    return tuple(int(index) for index in np.unravel_index(number, array.shape))


def _histogram(array: np.ndarray, low: float, high: float) -> Histogram:
    # not low + step * width: the range of all float64 would overflow
    edges = [low * (1 - step / BINS) + high * (step / BINS) for step in range(BINS)] + [high]
    if not all(
        left < right for left, right in pairwise(edges)
    ):  # equal elements, or too large for more edges
        edges = [low, high]
    counts = np.zeros(len(edges) - 1, np.int64)
    for _, block in _blocks(array):
        numbers = block[np.isfinite(block)]
        if len(counts) == 1:
            counts += len(numbers)
        else:
            counts += np.histogram(numbers.astype(np.float64), edges)[0]
    return Histogram(tuple(edges), tuple(counts.tolist()))


def _start(index: int, size: int) -> int:
    """Return where a slice begins that shows an index of a dimension, of full length where that fits."""
    return max(0, min(index - _SLICE // 2, size - _SLICE))


@dataclass(frozen=True, slots=True)
class InspectedTensor:
    """A tensor that can be inspected.

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


@dataclass(frozen=True, slots=True)
class ShownRun:
    """One run of an operator.

    Attributes:
        subjects: Its tensors, inputs first.
        others: In how many other iterations, ranks, executions and passes of a loop it ran.
    """

    subjects: tuple[InspectedTensor, ...]
    others: int


def of_file(path: str) -> tuple[InspectedTensor, ...]:
    """Return the tensors of a file: a .npy file, or a dump file of CANN.

    Raises:
        DumpReadError: It can be read as neither.
    """
    view, name = load_file(path), os.path.basename(path)  # noqa: PTH119 - a name, whatever stands there
    if bytes(view[: len(npy.MAGIC)]) == npy.MAGIC:
        array = npy.decode_raw(view, path)
        return (_subject(name, path, array, ""),)
    subjects = tuple(_tensors_in(view, name, path))
    if not subjects:
        raise DumpReadError(path, "the dump file holds no tensor")
    return subjects


def _tensors_in(view: memoryview, name: str, path: str) -> Iterator[InspectedTensor]:
    header, offset = dump_data.read_header(view, path)
    for block in dump_data.blocks(header, offset):
        if not isinstance(block.info, TensorInfo):
            continue
        data = view[block.offset : block.offset + block.info.size]
        array = dump_data.tensor(block.info, data, path, block.offset)
        label = f"{header.op_name or name} {block.section} {block.index}"
        layout = dump_message.format_name(block.info.format)
        host, is_host = _in_host_layout(array, block.info, layout)
        text = f"{layout} on the device" if is_host else f"{layout}, as it lies on the device"
        yield _subject(label, path, host, text)


def _in_host_layout(array: np.ndarray, info: TensorInfo, layout: str) -> tuple[np.ndarray, bool]:
    if not info.original_shape or info.shape == info.original_shape:
        return array, True
    try:
        return formats.decode(layout, array, info.original_shape, max(1, info.sub_format)), True
    except FormatError:
        return array, False


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
) -> ShownRun:
    """Return the tensors of the first run of an operator in a dump.

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
    return ShownRun(tuple(_chosen(first, slots)), len(others))


def _chosen(run: list[tuple[Iteration, Record]], slots: tuple[Slot, ...]) -> Iterator[InspectedTensor]:
    there = [(record.io, record.slot) for _, record in run]
    if slots and not {*slots} & {*there}:
        has = ", ".join(f"{io}:{number}" for io, number in sorted({*there}))
        raise ToolError(ReturnCode.PARAMETER, f"no such input or output was dumped; there are {has}")
    for iteration, record in sorted(run, key=lambda each: (each[1].io, each[1].slot)):
        if not slots or (record.io, record.slot) in slots:
            try:
                yield _of_record(iteration, record)
            except DumpReadError as error:
                _log.log(DAMAGED, "%s", error)


def _of_record(iteration: Iteration, record: Record) -> InspectedTensor:
    where = f"rank {iteration.rank}, iteration {iteration.step}"
    has_elements = bool(record.path) and os.path.isfile(record.path)
    if has_elements:
        _ = record.raw  # raises for a torn file
    return InspectedTensor(
        str(record),
        where,
        record.path,
        record.dtype,
        "" if record.format in {"", "DefaultFormat"} else record.format,
        record.stats,
        record.shape,
        (lambda: _elements(record)) if has_elements else None,
    )


def _elements(record: Record) -> np.ndarray:
    """Return a tensor in the host's layout, or in the device's if the format cannot be converted."""
    try:
        return record.host
    except FormatError:
        return record.array


_MOST_TILES: Final = 256  # a picture shows the first matrices of a tensor
_WIDEST: Final = 2048  # most pixels of the picture's width or height
_SMALLEST: Final = 256  # pixels of the longer side; a smaller tensor gets larger pixels
_GAP: Final = 1  # elements between two matrices
_BACKGROUND: Final = (255, 255, 255)
# vivid colours that are not on the ramp, distinguishable from it and each other in all kinds of colour vision
_STRANGERS: Final = {"nan": (255, 0, 128), "inf": (255, 80, 0), "-inf": (0, 200, 255)}
# a ramp from dark to light, even to the eye, also in grey and where red and green look alike
_RAMP: Final = (
    *((68, 1, 84), (72, 40, 120), (62, 74, 137), (49, 104, 142), (38, 130, 142), (31, 158, 137)),
    *((53, 183, 121), (109, 205, 89), (180, 222, 44), (253, 231, 37)),
)


def draw(array: np.ndarray) -> bytes:
    """Return a .png file that shows a tensor.

    The last two dimensions are a matrix, the others number matrices that stand side by side, at most
    256 of them. A vector is folded to a near square. NaN is magenta, inf orange, -inf light blue;
    where several elements share a pixel, one that is not finite has it.

    Args:
        array: At least one element; numbers or truth values.
    """
    pixels = _sheet(_shrunk(_tiles(array)))
    scale = max(1, _SMALLEST // max(pixels.shape[:2]))
    return _png(pixels.repeat(scale, axis=0).repeat(scale, axis=1))


def _png(pixels: np.ndarray) -> bytes:
    """Return a .png file of red, green and blue of pixels: uint8 of the shape height, width, 3."""
    height, width, _ = pixels.shape
    rows = np.concatenate((np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)), axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _tiles(array: np.ndarray) -> np.ndarray:
    """Return the matrices of a tensor, number x rows x columns; a vector is folded to one, nearly square."""
    if array.ndim > 1:
        return array.reshape(-1, *array.shape[-2:])[:_MOST_TILES]
    flat = array.reshape(-1)
    width = math.ceil(math.sqrt(len(flat)))
    return np.pad(flat, (0, -len(flat) % width), mode="edge").reshape(1, -1, width)


def _shrunk(tiles: np.ndarray) -> np.ndarray:
    """Return matrices reduced to one element a pixel: the first that is not finite, else the first."""
    for axis in (1, 2):
        each = -(-tiles.shape[axis] // _WIDEST)
        if each > 1:
            blank = [(0, -size % each if number == axis else 0) for number, size in enumerate(tiles.shape)]
            shape = (*tiles.shape[:axis], -1, each, *tiles.shape[axis + 1 :])
            blocks = np.pad(tiles, blank, mode="edge").reshape(shape)
            chosen = np.expand_dims(np.argmax(~np.isfinite(blocks), axis + 1), axis + 1)
            tiles = np.take_along_axis(blocks, chosen, axis + 1).squeeze(axis + 1)
    return tiles.astype(np.float64)


def _sheet(tiles: np.ndarray) -> np.ndarray:
    """Return the pixels of matrices in a near square."""
    count, height, width = tiles.shape
    columns = max(1, min(count, round(math.sqrt(count * (height + _GAP) / (width + _GAP)))))
    rows = -(-count // columns)
    colours = _coloured(tiles)
    sheet = np.full((rows * (height + _GAP), columns * (width + _GAP), 3), _BACKGROUND, np.uint8)
    for number in range(count):
        top, left = (number // columns) * (height + _GAP), (number % columns) * (width + _GAP)
        sheet[top : top + height, left : left + width] = colours[number]
    return sheet[: rows * (height + _GAP) - _GAP, : columns * (width + _GAP) - _GAP]


def _coloured(tiles: np.ndarray) -> np.ndarray:
    """Return red, green and blue of elements."""
    finite = np.isfinite(tiles)
    known = tiles[finite]
    low, high = (known.min(), known.max()) if len(known) else (0.0, 0.0)
    span = high / 2 - low / 2
    with np.errstate(invalid="ignore"):
        shares = (tiles / 2 - low / 2) / span if span > 0 else np.full(tiles.shape, 0.5)
    shares = np.where(finite, shares, 0) * (len(_RAMP) - 1)
    stops = np.arange(len(_RAMP))
    channels = [np.interp(shares, stops, [colour[channel] for colour in _RAMP]) for channel in range(3)]
    colours = np.stack(channels, axis=-1).round().astype(np.uint8)
    for name, is_such in _NONFINITE.items():
        colours[is_such(tiles)] = _STRANGERS[name]
    return colours


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
        listed = list(folder.iterdir())
    except OSError as error:
        yield f"{indent}({error.strerror or error})"
        return
    entries = sorted(listed, key=lambda entry: (not _is_folder(entry), _order(entry)))
    files = [entry for entry in entries if not _is_folder(entry)]
    for entry in entries[: len(entries) - len(files)]:
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
        array: Its elements.
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

    def lines(self) -> Iterator[str]:
        """Yield type, shape and first elements."""
        yield self.title
        yield f"{self.dtype} {self.shape}: {np.array2string(self.array.ravel()[:SHOWN], precision=5)} ..."


def first_tensor(folder: Path) -> FirstTensor | None:
    """Return the operator output that was dumped first.

    Where no output has a file of its own, it is the first one with tensors of an operator: a dump file
    of CANN (its last tensor, an output if it has any), an input, or a file with a name that was too long.

    Raises:
        DumpReadError: It cannot be read.
    """
    files = [file for _, inside in list_folders(folder) for file in inside]
    outputs = [path for path in files if path.match("*.output.*.npy") and not path.match("Parameter.*")]
    path = min(outputs or (path for path in files if _holds_tensors(path.name)), key=_order, default=None)
    if path is None:
        return None
    if path.suffix == _NPY:
        array = npy.decode(load_file(str(path)), str(path))
        return FirstTensor(str(path), f"numpy.load({path.name!r})", array)
    last = of_file(str(path))[-1]
    return FirstTensor(str(path), last.name, np.empty(0) if last.load is None else last.load())


def _holds_tensors(name: str) -> bool:
    """Return whether a file name is that of an operator's tensors."""
    operator = operator_names.parse(name)
    if operator is not None:
        return not operator.is_op_debug
    tensor_name = names.parse(name)
    if tensor_name is not None:
        return tensor_name.op_type != names.PARAMETER
    return name.endswith(_NPY) and name.removesuffix(_NPY).isdecimal()


@dataclass(frozen=True, slots=True)
class FirstStatistics:
    """The statistics of the first iteration that has some.

    Attributes:
        path: Their file.
        table: The lines of the file.
    """

    path: str
    table: list[str]

    @property
    def titles(self) -> list[str]:
        """Titles of the columns."""
        return next(csv.reader(self.table))

    @property
    def rows(self) -> list[list[str]]:
        """The first rows, cells as they stand in the file."""
        return [*csv.reader(self.table)][1 : SHOWN + 1]

    @property
    def count(self) -> int:
        """Number of all rows."""
        return sum(1 for _ in csv.reader(self.table)) - 1

    def lines(self) -> Iterator[str]:
        """Yield the path, the titles and the first rows."""
        yield self.path
        yield from self.table[: SHOWN + 1]
        if len(self.table) > SHOWN + 1:
            yield f"... and {len(self.table) - SHOWN - 1} more rows"


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
    return FirstStatistics(str(path), read_bytes(str(path)).decode(errors="replace").splitlines())


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
