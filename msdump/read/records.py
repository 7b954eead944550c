"""Dumped tensors and their operators: fields of a name, a row or a file of CANN; elements on access."""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from msdump import dtypes
from msdump.device import formats
from msdump.encode import DataSpan, DumpData, TensorInfo, dump_data, dump_message, elements, npy, op_debug
from msdump.errors import DAMAGED, DumpReadError, FormatError
from msdump.read import files
from msdump.read.operator_graph import (
    UNKNOWN_FORM,
    GraphOperator,
    OperatorGraph,
    SourceKind,
    ValueForm,
    ValueSource,
)
from msdump.read.statistic_table import Cell, Measurements, Row, read_dtype, read_shape
from msdump.record import DEFAULT_FORMAT, IO
from msdump.statistics import BY_CATEGORY
from msdump.store import (
    OVERFLOW_JSON,
    PARAMETER,
    STATISTICS,
    Key,
    OperatorName,
    TensorName,
    is_collective,
    names,
)

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Directory(ABC):
    """A directory of tensors: an iteration, or the constants of a graph."""

    key: Key  # the fields of the path: rank, network and graph, or step, time, device and model; the number
    path: str
    # gives the full scoped name of a tensor's operator where it is known; a compiled graph has no list of its
    # operators beside its tensors
    _full_name: Callable[[TensorName], str | None] = field(default=lambda _: None, repr=False, compare=False)
    _graph: Callable[[], OperatorGraph | None] = field(default=lambda: None, repr=False, compare=False)

    @property
    def number(self) -> int:
        """Number of the iteration."""
        return self.key.iteration or 0

    @property
    def rank(self) -> int:
        """Number of the rank, or of the device in trees of compiled graphs."""
        key = self.key
        return next((number for number in (key.rank, key.device) if number is not None), 0)

    @property
    @abstractmethod
    def tensors(self) -> Sequence[Record]:
        """The tensors of one execution, also tensors with only a row in ``statistic.csv``, by timestamp."""

    @property
    @abstractmethod
    def rows(self) -> Sequence[Row]:
        """The rows of ``statistic.csv`` of all executions."""

    @property
    @abstractmethod
    def files(self) -> Sequence[OperatorFile]:
        """Operators with one file for all tensors, by timestamp."""

    @property
    @abstractmethod
    def statistic_files(self) -> Mapping[OperatorName | None, str]:
        """Paths of ``statistic.csv`` (key None) and of acl's csv files by operator."""

    @property
    def operator_graph(self) -> OperatorGraph | None:
        """The operators of the graph, None without a graph file in the dump."""
        return self._graph()

    def tensors_of(self, full_name: str) -> Sequence[Record]:
        """Return the tensors of an operator or parameter; ``classic`` names have only the last component."""
        by_name = self._tensors_by_name
        names_in_files = map(names.sanitize, (full_name, full_name.rpartition("/")[2]))
        return next((by_name[name] for name in names_in_files if name in by_name), ())

    @cached_property
    def _tensors_by_name(self) -> Mapping[str, list[Record]]:
        tensors: dict[str, list[Record]] = {}
        for record in self.tensors:
            tensors.setdefault(record.op_name, []).append(record)
        return tensors

    def full_name(self, name: TensorName) -> str | None:
        """Return the full scoped name of a tensor's operator, None if the dump does not have the name."""
        return self._full_name(name)

    def row_of(self, record: Record) -> Row | None:
        """Return the row of ``statistic.csv`` of a tensor, None without a row."""
        rows = self._rows_by_tensor.get((record.op_type, record.op_name, record.io, record.slot), ())
        # writers other than msdump may measure a tensor at another moment than they save it
        same = (row for row in rows if row.get("Timestamp") == record.timestamp or len(rows) == 1)
        return next(same, None)

    @cached_property
    def _rows_by_tensor(self) -> Mapping[tuple[Cell, ...], list[Row]]:
        rows: dict[tuple[Cell, ...], list[Row]] = {}
        for row in self.rows:
            rows.setdefault(identity(row), []).append(row)
        return rows


_PARAMETERS: Final = frozenset({SourceKind.WEIGHT, SourceKind.INPUT})


@dataclass(frozen=True, slots=True)
class DumpedOperator:
    """An operator, a weight or a graph input, in one run of its graph."""

    full_name: str  # full scoped name; the plain name of a weight or a graph input
    op_type: str  # operator type; "Parameter" for a weight or a graph input
    # the operator in the graph file, None for a parameter
    node: GraphOperator | None = field(repr=False, compare=False)
    execution: int = field(repr=False)  # number of the execution of the network
    pass_number: int  # number of the run within the execution, from 0: the pass of a loop
    _directory: Directory = field(repr=False, compare=False)

    @property
    def source(self) -> str:
        """The line of the program that made the operator, ``net.py:12: x = self.fc(x)``, "" if unknown."""
        return "" if self.node is None else self.node.source_line

    @property
    def records(self) -> tuple[Record, ...]:
        """The dumped tensors, inputs first; for a parameter without files, the inputs of its readers."""
        tensors = self._directory.tensors_of(self.full_name)
        own = tuple(sorted(filter(self._is_of_run, tensors), key=lambda each: (each.io, each.slot)))
        return own if own or self.node is not None else tuple(self._read_by_others())

    def _is_of_run(self, record: Record) -> bool:
        if record.execution != self.execution or (self.node is None) is not record.is_parameter:
            return False
        return record.is_parameter or record.pass_number == self.pass_number

    def _read_by_others(self) -> Iterator[Record]:
        for reader in self.used_by:
            sources = () if reader.node is None else reader.node.inputs
            slots = {number for number, source in enumerate(sources) if source.name == self.full_name}
            yield from (record for record in reader.inputs if record.slot in slots)

    @property
    def inputs(self) -> tuple[Record, ...]:
        """The dumped inputs."""
        return tuple(record for record in self.records if record.io is IO.INPUT)

    @property
    def outputs(self) -> tuple[Record, ...]:
        """The dumped outputs."""
        return tuple(record for record in self.records if record.io is IO.OUTPUT)

    @property
    def inputs_from(self) -> tuple[DumpedOperator, ...]:
        """The sources of the inputs in order: operators, weights and graph inputs, without constants."""
        sources = () if self.node is None else self.node.inputs
        return tuple(dict.fromkeys(each for source in sources for each in self.producers_of(source)))

    @property
    def used_by(self) -> tuple[DumpedOperator, ...]:
        """The operators that read an output, in graph order."""
        return self.readers(None)

    def producers_of(self, source: ValueSource) -> Iterator[DumpedOperator]:
        """Yield the source of an input, nothing for a constant and for an absent input."""
        graph = self._directory.operator_graph
        if source.kind in _PARAMETERS:
            yield self._beside(source.name, names.PARAMETER, None)
        elif source.kind is SourceKind.OPERATOR and graph is not None and source.name in graph.operators:
            node = graph.operators[source.name]
            yield self._beside(node.full_name, node.op_type, node)

    def readers(self, slot: int | None) -> tuple[DumpedOperator, ...]:
        """Return the operators that read one of its outputs, None: any."""
        graph = self._directory.operator_graph
        if graph is None:
            return ()
        name = self.full_name
        nodes = graph.readers_of(name) if self.node is None else graph.used_by(name, slot)
        return tuple(self._beside(node.full_name, node.op_type, node) for node in nodes)

    def _beside(self, full_name: str, op_type: str, node: GraphOperator | None) -> DumpedOperator:
        return DumpedOperator(full_name, op_type, node, self.execution, self.pass_number, self._directory)

    def __str__(self) -> str:
        """Return ``Conv2D Default/conv1-Conv2d/Conv2D-op0``."""
        return f"{self.op_type} {self.full_name}"


_AS_ON_HOST: Final = frozenset({DEFAULT_FORMAT, "", "ND", "RESERVED", "NC", "CN", "MD"}) | {
    layout for layouts in formats.LAYOUTS.values() for layout in layouts
}


class CutFileError(FormatError):
    """A file that MindSpore never writes whole.

    vendor: if a kernel computes in a wider type than its graph declares, MindSpore 2.10 names the file by the
    declared type, and writes as many bytes as that type has.
    """


@dataclass(frozen=True, slots=True)
class Record:
    """A dumped tensor: a .npy file, a part of an operator's file, or a row of statistics.

    Reading is lazy, without a cache: each access to ``shape``, ``dtype`` or ``array`` reads or maps the file,
    unless the tensor was ``loaded``.

    Attributes:
        name: The fields of the file name, or of the original name if the file has a short one.
        path: The file; "" for a tensor with only a row of ``statistic.csv``.
        execution: Number of the execution of the network, from 0, as a directory may hold several.
        pass_number: Number of the operator's run within the execution, from 0: the pass of a loop, or the
            call of a single operator. Operators that share a name (``classic`` names have no scope) are
            counted together in the order of their times.
        held: Element type and shape in which the device held it, where a graph has them.
        groups: Number of groups that the device laid out a weight by, where a graph or the file has it.
    """

    name: TensorName
    path: str
    directory: Directory = field(repr=False, compare=False)
    execution: int = field(default=0, kw_only=True)
    pass_number: int = field(default=0, kw_only=True)
    held: ValueForm = field(default=UNKNOWN_FORM, kw_only=True, repr=False, compare=False)
    groups: int = field(default=1, kw_only=True, repr=False, compare=False)
    _known: np.ndarray | npy.Header | None = field(default=None, kw_only=True, repr=False, compare=False)

    @property
    def op_type(self) -> str:
        """Operator type, ``Parameter`` for weights, graph inputs and constants."""
        return self.name.op_type

    @property
    def op_name(self) -> str:
        """Operator name in files."""
        return self.name.op_name

    @property
    def full_name(self) -> str | None:
        """Full scoped name of the operator, or plain name of the parameter; None if the dump has neither."""
        return self.directory.full_name(self.name)

    @property
    def scope(self) -> str:
        """Scope of the operator, ``Default/conv1-Conv2d``; "" if unknown."""
        return (self.full_name or "").rpartition("/")[0]

    @property
    def operator(self) -> DumpedOperator:
        """The operator that read or wrote the tensor, or the parameter, with neighbours in the graph."""
        graph = self.directory.operator_graph
        node = None if graph is None or self.is_parameter else graph.find(self.full_name or self.op_name)
        full_name = self.full_name or (self.op_name if node is None else node.full_name)
        place = self.execution, self.pass_number, self.directory
        return DumpedOperator(full_name, self.op_type, node, *place)

    @property
    def source(self) -> str:
        """The line of the program that made the operator, ``net.py:12: x = self.fc(x)``, "" if unknown.

        ``operator.node.source`` has all lines, from the outermost call to the innermost one.
        """
        return self.operator.source

    @property
    def inputs_from(self) -> tuple[DumpedOperator, ...]:
        """The source of an input; for an output, the sources of the operator's inputs.

        Sources are operators, weights and graph inputs, with or without dumped tensors; empty without a
        graph file in the dump.
        """
        operator = self.operator
        if self.io is IO.OUTPUT or operator.node is None:
            return operator.inputs_from
        return tuple(
            each
            for source in operator.node.inputs[self.slot : self.slot + 1]
            for each in operator.producers_of(source)
        )

    @property
    def used_by(self) -> tuple[DumpedOperator, ...]:
        """The operators that read an output; for an input, the operator of the input."""
        operator = self.operator
        if self.is_parameter or self.io is IO.OUTPUT:
            return operator.readers(self.slot)
        return (operator,)

    @property
    def rank(self) -> int:
        """Number of the rank, or of the device in trees of compiled graphs."""
        return self.directory.rank

    @property
    def iteration(self) -> int:
        """Number of the iteration, as in ``dump_step`` and ``iteration`` of a configuration."""
        return self.directory.key.iteration or 0

    @property
    def io(self) -> IO:
        """Input or output."""
        return self.name.io

    @property
    def slot(self) -> int:
        """Index among the operator's inputs or outputs."""
        return self.name.slot

    @property
    def format(self) -> str:
        """Memory format."""
        return self.name.format

    @property
    def timestamp(self) -> int:
        """Microseconds since the epoch; increases in execution order."""
        return self.name.timestamp

    @property
    def is_parameter(self) -> bool:
        """Whether the tensor is a weight, a graph input or a constant."""
        return self.name.op_type == PARAMETER

    @property
    def dtype(self) -> str:
        """MindSpore's lower-case name of the original element type, ``bfloat16``.

        The type is a field of the file name, or else the type in the file. A bfloat16 tensor without this
        field is ``float32``, its type in the file.

        Raises:
            DumpReadError: The file cannot be read.
        """
        if self.name.dtype is None:
            return dtypes.from_numpy(self._head.dtype).name
        try:
            return dtypes.from_name(self.name.dtype).name
        except FormatError:  # a type that msdump lacks, in a dump of MindSpore's own
            return self.name.dtype.lower()

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions in elements.

        vendor: MindSpore 2.10 gives the file of a view, and of its readers, the shape of the view's input.

        Raises:
            DumpReadError: The file is missing or torn, or its header is corrupt.
        """
        shape, held = self._head.shape, self.held.shape
        fits = held is not None and min(held, default=0) >= 0 and math.prod(held) == math.prod(shape)
        return held if held is not None and fits else shape

    @property
    def _head(self) -> np.ndarray | npy.Header:
        """Element type and shape in the file."""
        return files.read_npy_header(self.path) if self._known is None else self._known

    @property
    def host_shape(self) -> tuple[int, ...]:
        """Dimensions on the host, empty where the file does not have them."""
        return ()

    @property
    def is_converted(self) -> bool:
        """Whether the device's memory format differs from the host's, so that elements lie elsewhere."""
        return self.format not in _AS_ON_HOST

    @property
    def is_typed(self) -> bool:
        """Whether the element type is known; if not, elements are single bytes."""
        return True

    def opened(self) -> Record:
        """Return the tensor with its type and shape in memory.

        Raises:
            DumpReadError: The file is missing or torn, or its header is corrupt.
        """
        return replace(self, _known=self._head)

    def loaded(self) -> Record:
        """Return the tensor with its file read or mapped, which is not opened again.

        Raises:
            DumpReadError: The file is missing, truncated or corrupt.
        """
        return replace(self, _known=self.raw)

    @property
    def array(self) -> np.ndarray:
        """The elements; large files are mapped, read-only; raw bfloat16 is widened to float32.

        Raises:
            DumpReadError: The file is missing, truncated or corrupt.
            CutFileError: The file holds only the first bytes of each element.
        """
        raw, held = self.raw, self.held.dtype and dtypes.from_name(self.held.dtype).numpy
        if held and held.kind == raw.dtype.kind == "f" and held.itemsize > raw.dtype.itemsize:
            raise CutFileError(
                f"{self.path}: the device held {self.held.dtype} by the graph, but the file is named"
                f" {self.dtype} and holds only the first part of the bytes"
            )
        array = dtypes.widen(raw, dtypes.BFLOAT16) if raw.dtype == dtypes.BFLOAT16.numpy else raw
        return array if self.held.shape is None else array.reshape(self.shape)

    @property
    def host(self) -> np.ndarray:
        """The elements of the .npy file: in the host's layout, unless ``format`` is a device format."""
        return self.array

    @property
    def raw(self) -> np.ndarray:
        """The elements as stored, raw bfloat16 in ml_dtypes' type; DumpReadError as in ``array``."""
        if self._known is not None and not isinstance(self._known, npy.Header):
            return self._known
        return npy.decode_raw(files.load_file(self.path), self.path)

    @property
    def elements(self) -> np.ndarray:
        """The elements as the device holds them, of a .npy file as ``array``; errors as there.

        Raises:
            FormatError: The type of an operator's file cannot be read.
        """
        return self.array

    def on_host(self, shape: Sequence[int] = (), groups: int = 1) -> np.ndarray:
        """Return ``elements`` in the host's layout.

        Args:
            shape: The host shape, for a file without it.
            groups: Groups of the convolution that reads a weight, for a file without them.

        Raises:
            DumpReadError: The file is missing, truncated or corrupt.
            FormatError: The format has no conversion, or the elements do not fit the shape.
        """
        array, host_shape = self.elements, self.host_shape or tuple(shape)
        if array.shape == host_shape or not self.is_converted:
            return array
        # vendor: a header's sub-format, the number of groups, is 0 or 1 for an ungrouped weight.
        groups = max(self.groups, groups if self.format == formats.FRACTAL_Z else 1, 1)
        return formats.decode(self.format, array, host_shape, groups)

    @property
    def stats(self) -> Measurements:
        """Statistics of all elements: saved ones from ``statistic.csv``, others from the elements.

        Raises:
            DumpReadError: A file cannot be read.
        """
        return Measurements(self.directory.row_of(self), lambda: self.raw if self.path else None)

    def __str__(self) -> str:
        """Return ``Conv2D Default_conv1_Conv2D-op0 output 0``."""
        return f"{self.op_type} {self.full_name or self.op_name} {self.io} {self.slot}"


_log = logging.getLogger("msdump.store")

_IDENTITY: Final = ("Op Type", "Op Name", "IO", "Slot")


@dataclass(frozen=True, slots=True)
class MeasuredRecord(Record):
    """A tensor with only a row of ``statistic.csv``."""

    row: Row

    @property
    def dtype(self) -> str:
        """MindSpore's lower-case name of the element type in the row."""
        return read_dtype(self.row.get("Data Type"))

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions in elements, from the row."""
        return read_shape(self.row.get("Shape")) or ()

    @property
    def raw(self) -> np.ndarray:
        """No elements: DumpReadError."""
        raise DumpReadError(
            f"{self.path}/{STATISTICS}",
            f"{self}: only its statistics were saved (saved_data), not its elements",
        )

    @property
    def stats(self) -> Measurements:
        """The saved statistics."""
        return Measurements(self.row, lambda: None)

    @property
    def cells(self) -> Mapping[str, Cell]:
        """The saved statistics by category, without absent ones."""
        return {category: cell for category, cell in self.stats.saved.items() if cell is not None}


def identity(row: Row) -> tuple[Cell, ...]:
    """Return type and name of the operator, input or output, and slot of a row's tensor."""
    return tuple(row.get(title) for title in _IDENTITY)


def check_whole(records: Iterable[Record], measured: AbstractSet[tuple[Cell, ...]], path: str) -> None:
    """Log how many tensors of a directory lost their file or their row in ``statistic.csv``.

    ``records`` with files and ``measured``, the ``identity`` of each row, are of all executions.
    """
    for loss in losses(records, measured):
        _log.log(DAMAGED, "%s: %s", path, loss)


def losses(records: Iterable[Record], measured: AbstractSet[tuple[Cell, ...]]) -> Iterator[str]:
    """Yield how many tensors lost their file, and how many their row, as sentences.

    Where no tensor has both, only files or only statistics were saved, and nothing is missing.
    """
    filed = {(record.op_type, record.op_name, str(record.io), record.slot): record for record in records}
    if not filed.keys() & measured:  # nothing was saved in both ways
        return
    if gone := len(measured - filed.keys()):
        yield f"{gone:,} of {len(measured):,} tensors with a row in {STATISTICS} have no file"
    unmeasured = [record for tensor, record in filed.items() if tensor not in measured]
    if gone := sum(not _has_no_row(record) for record in unmeasured):
        yield f"{gone:,} of {len(filed):,} tensors have no row in {STATISTICS}"


def _has_no_row(record: Record) -> bool:
    """Return whether a tensor is of a type of which no statistics are saved: complex numbers."""
    try:
        return record.dtype.startswith("complex")
    except DumpReadError:
        return False


_TITLES: Final = {
    "Input/Output": "IO",
    "Index": "Slot",
    "Nan Count": "NaN Count",
    "l2norm": BY_CATEGORY["l2norm"].title,
}
"""Titles of ``statistic.csv``, by the titles in csv files of operators (acl)."""


def as_tensor_row(operator: OperatorName, row: Row) -> Row:
    """Convert a row of an operator's csv file (acl) into a row as in ``statistic.csv``."""
    named: Row = {_TITLES.get(title, title): cell for title, cell in row.items()}
    own: Row = {"Op Type": operator.op_type, "Op Name": operator.op_name, "Timestamp": operator.timestamp}
    return named | own | {"IO": str(named.get("IO")).lower()}


def of_rows(
    rows: Sequence[Row], directory: Directory, records: Sequence[Record] = ()
) -> Iterator[MeasuredRecord]:
    """Yield a record for each row of an execution, except for tensors that ``records`` contain."""
    filed = {(record.op_type, record.op_name, record.io, record.slot) for record in records}
    passes: Counter[tuple[Cell, ...]] = Counter()
    execution = records[0].execution if records else 0
    for row in rows:
        tensor = identity(row)
        if tensor not in filed:
            yield MeasuredRecord(
                TensorName(
                    op_type=str(row.get("Op Type")),
                    op_name=str(row.get("Op Name")),
                    timestamp=_number(row.get("Timestamp")),
                    io=IO.INPUT if str(row.get("IO")).lower() == IO.INPUT else IO.OUTPUT,
                    slot=_number(row.get("Slot")),
                    dtype=str(row.get("Data Type")),
                    task_id=_number(row.get("Task ID")),
                    stream_id=_number(row.get("Stream ID")),
                ),
                directory.path,
                directory,
                execution=execution,
                pass_number=passes[tensor],
                row=row,
            )
            passes[tensor] += 1


def _number(cell: Cell) -> int:
    return cell if isinstance(cell, int) else 0


def side_of(name: OperatorName, path: str) -> IO | None:
    """Return whether the file of a collective holds inputs or outputs.

    None for a file of another operator, and for one that holds both or cannot be read.
    """
    if not is_collective(name.op_type):
        return None
    try:
        blocks = dump_data.blocks(*dump_data.read_header(files.load_file(path), path))
        sides = {IO(block.section) for block in blocks if isinstance(block.info, TensorInfo)}
    except DumpReadError:
        return None
    return sides.pop() if len(sides) == 1 else None


@dataclass(frozen=True)
class OperatorFile:
    """The file of an operator, or of an overflow."""

    name: OperatorName  # the fields of its name; of the original name where the file has a stand-in
    path: str
    directory: Directory = field(repr=False, compare=False)
    # which run of the operator within the execution, from 0: the pass of a loop, or the call of an operator
    # that is called alone
    pass_number: int = 0

    @property
    def side(self) -> IO | None:
        """Whether it holds inputs or outputs of a collective, as ``side_of``."""
        return side_of(self.name, self.path)

    @cached_property
    def header(self) -> DumpData:
        """The DumpData header that stands before the tensors' bytes.

        Raises:
            DumpReadError: The file is missing, truncated or corrupt.
        """
        return dump_data.read_header(files.load_file(self.path), self.path)[0]

    @cached_property
    def records(self) -> tuple[OperatorRecord, ...]:
        """Its inputs, then its outputs; DumpReadError as in ``header``."""
        data, offset = dump_data.read_header(files.load_file(self.path), self.path)
        return tuple(
            self._record(block, block.info, data)
            for block in dump_data.blocks(data, offset)
            if isinstance(block.info, TensorInfo)
        )

    def _record(self, block: DataSpan, info: TensorInfo, data: DumpData) -> OperatorRecord:
        name = TensorName(
            self.name.op_type,
            self.name.op_name,
            self.name.timestamp,
            IO(block.section),
            block.index,
            dump_message.format_name(info.format),
            _dtype_name(info),
            self.name.task_id,
            self.name.stream_id,
        )
        return OperatorRecord(
            name,
            self.path,
            self.directory,
            info,
            block.offset,
            header_name=data.op_name,
            pass_number=self.pass_number,
            groups=info.sub_format,
        )

    @property
    def tensors(self) -> tuple[Record, ...]:
        """``records``, or the file as a record without elements where it has none or cannot be read."""
        try:
            records, fault = self.records, ""
        except DumpReadError as error:
            records, fault = (), str(error)
        name, io = self.name, self.side or IO.OUTPUT
        tensor = TensorName(
            name.op_type, name.op_name, name.timestamp, io, 0, "", "", name.task_id, name.stream_id
        )
        nothing = TensorlessFile(tensor, self.path, self.directory, fault, pass_number=self.pass_number)
        return records or (nothing,)


def read_overflow(path: str) -> dict[str, Any]:
    """Return the record of an operator that overflowed: ``magic``, ``version``, ``acc_list``, or units.

    The file is CANN's, or its JSON form, which dumps of .npy files hold.

    Raises:
        DumpReadError: The file cannot be read, or holds no record.
    """
    if path.endswith(OVERFLOW_JSON):
        record = files.read_json(path)
        if not isinstance(record, dict):
            raise DumpReadError(path, f"not an overflow record: {type(record).__name__}, must be an object")
        return record
    view = files.load_file(path)
    for block in dump_data.blocks(*dump_data.read_header(view, path)):
        if block.section == IO.OUTPUT:
            return op_debug.decode(view[block.offset : block.end], path, block.offset).as_dict()
    raise DumpReadError(path, "not an overflow record: the file has no output")


@dataclass(frozen=True, slots=True)
class TensorlessFile(Record):
    """An operator's dump file without tensors."""

    fault: str  # why it cannot be read, "" for a file that has none

    @property
    def raw(self) -> np.ndarray:
        """No elements: DumpReadError."""
        raise DumpReadError(self.path, self.fault or "the file has no tensors")


@dataclass(frozen=True, slots=True)
class OperatorRecord(Record):
    """A tensor in an operator's dump file; its bytes are laid out as in device memory."""

    info: TensorInfo  # its message in the header: element type, format, shapes, size
    offset: int
    header_name: str = ""  # full name of its operator in the header, "" if the header has none

    @property
    def full_name(self) -> str | None:
        """Full name of the operator in the file's header, None if the header has none."""
        return self.header_name or None

    @property
    def dtype(self) -> str:
        """MindSpore's lower-case name of the device's element type, ``float16``."""
        return self.name.dtype or ""

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions on the device, in elements."""
        return self.info.shape

    @property
    def original_shape(self) -> tuple[int, ...]:
        """Dimensions on the host, in elements."""
        return self.info.original_shape

    @property
    def host_shape(self) -> tuple[int, ...]:
        """Dimensions on the host, empty where the file does not have them."""
        # an empty original shape means a scalar, or that the file lacks the shape
        is_scalar = not self.info.original_shape and math.prod(self.info.shape) == 1
        return self.info.shape if is_scalar else self.info.original_shape

    @property
    def is_typed(self) -> bool:
        """Whether the file has the element type."""
        return self._known is not None or self.info.data_type != dump_message.UNDEFINED

    def opened(self) -> Record:
        """Return the tensor itself: its header is in memory."""
        return self

    loaded = opened

    def read_as(self, dtype: str) -> Record:
        """Return the tensor with its bytes read as a type, or as a packed type (int4) that is saved as it.

        Returns the tensor itself if the number of bytes does not fit.

        Raises:
            DumpReadError: The file is missing, truncated or corrupt.
        """
        data, count = self.raw.view("u1"), math.prod(self.shape)
        named = dtypes.from_name(dtype)
        packed = (each for each in dtypes.DTYPES if each.per_byte > 1 and each.saved == named.saved)
        for kind in (named, *packed):
            if data.nbytes == -(-count // kind.per_byte) * kind.numpy.itemsize:
                if kind.per_byte > 1:
                    array = elements.unpack(data, kind, self.shape)
                else:
                    array = data.view(kind.numpy).reshape(self.shape)
                return replace(self, name=replace(self.name, dtype=kind.name), _known=array)
        return self

    @property
    def data(self) -> memoryview:
        """The bytes of the tensor; DumpReadError where the file cannot be read."""
        return files.load_file(self.path)[self.offset : self.offset + self.info.size]

    @property
    def array(self) -> np.ndarray:
        """The elements as they lie on the device; types that numpy lacks are widened.

        Raises:
            DumpReadError: The file is missing, or too short for the shape.
            FormatError: An element type that cannot be read.
        """
        return dtypes.widen(self.raw, dump_data.dtype_of(self.info))

    @property
    def raw(self) -> np.ndarray:
        """The elements as they lie on the device, bfloat16 and others in ml_dtypes' types; as ``array``."""
        if self._known is not None and not isinstance(self._known, npy.Header):
            return self._known
        return dump_data.tensor(self.info, self.data, self.path, self.offset)

    @property
    def elements(self) -> np.ndarray:
        """The elements as they lie on the device, as ``raw``."""
        return self.raw

    @property
    def host(self) -> np.ndarray:
        """The elements in the host's layout; DumpReadError and FormatError as for ``array``.

        Raises:
            FormatError: A format of unknown layout, or a shape that it cannot hold.
        """
        raw, info = self.raw, self.info
        if info.original_shape and info.shape != info.original_shape:
            raw = formats.decode(self.format, raw, info.original_shape, max(1, info.sub_format))
        return dtypes.widen(raw, dump_data.dtype_of(info))


def _dtype_name(info: TensorInfo) -> str:
    try:
        return dump_data.dtype_of(info).name
    except FormatError:
        return dump_message.data_type_name(info.data_type).removeprefix("DT_").lower()
