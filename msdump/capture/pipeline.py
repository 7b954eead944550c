"""From a plan to its steps, through which every tensor walks, and the writer at their end.

    OperatorRecords --steps--> TensorRecord --writer--> Artifact

Every kind of dump gets its pipeline here, so that a step added to ``compile_steps`` reaches all of them.
"""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from msdump import dtypes
from msdump.capture import steps
from msdump.capture.statistics import Statistics
from msdump.capture.steps import Memory, OperatorRecords, Step, host_format, sample, walk
from msdump.device import Ascend, Task
from msdump.dtypes import DType, widen
from msdump.encode import (
    DumpData,
    OriginalOp,
    TensorInfo,
    dump_data,
    dump_message,
    element_bytes,
    elements,
    npy,
    operator_csv,
)
from msdump.graph import Graph
from msdump.graph.files import arguments
from msdump.plan import DeviceTarget, DumpPlan, ExceptionDump, FileFormat, OperatorStatistic, Scene, Tree
from msdump.reasons import Reason
from msdump.record import IO, Artifact, Buffer, DevicePart, OperatorRef, TensorRecord
from msdump.statistics import StatisticNeed, Totals, measure
from msdump.store import (
    CLOCK,
    Key,
    NameTensor,
    OperatorFileKind,
    PathKind,
    Style,
    layouts,
    names,
    operator_names,
)
from msdump.store.write import Sink

if TYPE_CHECKING:
    from msdump.capture.statistics import RowSheet
    from msdump.capture.watch import GraphWatch


class ArtifactWriter:
    """Walks the tensors of operators through steps, and writes files and rows of the ones that are kept."""

    steps: tuple[Step, ...] = ()  # the steps of every tensor, in order
    watch: GraphWatch | None = None  # checks rules on tensors before the steps; None: there are no rules
    # the statistics of rows, where only rows are written and one pass finds them; else None
    need: StatisticNeed | None = None
    is_by_operator = True  # whether an operator is one artifact (``write_operator``), not a tensor

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def take(
        self,
        directory: str,
        operator: OperatorRef,
        task: Task,
        records: Sequence[TensorRecord],
        *,
        is_saturated: bool = False,
        hits_none: bool = False,
    ) -> None:
        """Write the files and rows of an operator; ``finish`` follows after the last operator of a batch.

        Each tensor walks through the steps and is written before the next one, so that copies by steps are
        not held for long.

        ``hits_none``: it is certain that no rule hits.
        """
        watch = None if hits_none else self.watch
        if watch is not None and not watch.keeps(records, saturated=is_saturated):
            self._sink.skip(Reason.NO_HIT, len(records))
            records = ()
        together: list[TensorRecord] | None = [] if self.is_by_operator else None
        for record in records:
            kept = record
            for step in self.steps:  # ``walk`` inlined: this loop runs for each dumped tensor
                shown = step(kept)
                if isinstance(shown, Reason):
                    self._sink.skip(shown)
                    break
                kept = shown
            else:
                if together is None:
                    self.write_tensor(directory, task, kept)
                else:
                    together.append(kept)
        if together is not None:
            self.write_operator(directory, operator, task, together)
        if watch is not None:
            watch.stop()  # after the operator's files, which show the hit

    def write_tensor(self, directory: str, task: Task, record: TensorRecord) -> None:
        """Write the file and the row of a tensor into an absolute directory."""
        raise NotImplementedError

    def write_operator(
        self, directory: str, operator: OperatorRef, task: Task, records: Sequence[TensorRecord]
    ) -> None:
        """Write the file of an operator into an absolute directory."""
        raise NotImplementedError

    def finish(self) -> None:
        """Write the rows that the operators of a batch share; also after an error, for earlier operators."""

    def sheet(self, records: Iterable[TensorRecord]) -> RowSheet | None:  # noqa: ARG002
        """Return the part of rows that is the same in all iterations, for tensors of these types and shapes.

        None without such rows, or if a step changes or drops a tensor: steps decide by type, shape, and
        device type and format.
        """
        return None


_FLOAT32: Final = dtypes.from_name("float32")
_MOST_GATHERED: Final = 16 << 20
"""Bytes of tensors that wait to be measured together: they, and what steps made of them, stay in memory."""


class TensorWriter(ArtifactWriter):
    """Writes tensors as .npy files and rows of ``statistic.csv``."""

    is_by_operator = False

    def __init__(
        self,
        sink: Sink,
        name: NameTensor,
        statistics: Statistics | None,
        *,
        keeps_tensors: bool = True,
        measures_saved: bool = False,
    ) -> None:
        """Write into a sink.

        With ``measures_saved`` (Ascend O2) tensors are measured as files hold them: bfloat16 as float32.
        """
        super().__init__(sink)
        self._has_hashes = statistics is not None and statistics.has_hashes
        self._name = name
        self._statistics = statistics
        self._keeps_tensors = keeps_tensors
        self._measures_saved = measures_saved
        self._widens = keeps_tensors or measures_saved
        # rows are gathered only without files and hashes, which are written in their own order
        self._gathers = statistics is not None and not keeps_tensors and not self._has_hashes
        self._gathered: list[tuple[TensorRecord, Task]] = []
        self._gathered_bytes = 0
        self._path = ""  # of the gathered rows
        self.need = statistics.need if statistics and self._gathers and not measures_saved else None

    def write_tensor(self, directory: str, task: Task, record: TensorRecord) -> None:
        """Write the file of a tensor, then its row; rows without files are written in groups."""
        saved = record
        if record.dtype.saved != record.array.dtype and self._widens:
            saved = widened(record)
        # vendor: the file first, then its row
        if self._keeps_tensors:
            name = self._name(record, task.task_id, task.stream_id)
            self._sink.write(Artifact(directory, name, npy.encode(saved.array), saved.array.nbytes))
        if self._statistics is None:
            return
        # hashes and sizes are of bfloat16, although the file holds float32; under O2 of float32
        measured = saved if self._measures_saved else record
        path = f"{directory}/{layouts.STATISTICS}"
        if not self._gathers:
            self._write_row(self._statistics, path, task, measured)
            return
        if path != self._path:
            self.finish()
            self._path = path
        self._gathered.append((measured, task))
        self._gathered_bytes += measured.array.nbytes
        if self._gathered_bytes >= _MOST_GATHERED:
            self.finish()

    def finish(self) -> None:
        """Measure the gathered tensors and write their rows."""
        if self._gathered:
            gathered, self._gathered, self._gathered_bytes = self._gathered, [], 0
            statistics = self._statistics
            assert statistics is not None, "rows are gathered to be measured"
            cells = statistics.measure_all([self._measured(record) for record, _ in gathered])
            rows = [
                (record, measured, task)
                for (record, task), measured in zip(gathered, cells, strict=True)
                if measured is not None
            ]
            if rows:
                self._sink.append(self._path, statistics.rows(rows), statistics.header)

    def sheet(self, records: Iterable[TensorRecord]) -> RowSheet | None:
        """Return the part of rows that is the same in all iterations."""
        tensors = [*records]
        if self._statistics is None or self.need is None:
            return None
        is_as_shown = all(walk(record, self.steps) is record for record in tensors)
        return self._statistics.sheet(tensors) if is_as_shown else None

    def _write_row(self, statistics: Statistics, path: str, task: Task, record: TensorRecord) -> None:
        finish = statistics.begin(self._measured(record))
        if finish is None:
            return

        def make() -> bytes:
            return statistics.rows(((record, finish(), task),))

        if self._has_hashes:
            self._sink.append_later(path, make, statistics.header, record.array.nbytes)
        else:
            self._sink.append(path, make(), statistics.header)

    def _measured(self, record: TensorRecord) -> TensorRecord:
        # vendor: under O2 a bfloat16 tensor is measured, sized and hashed as the float32 that is saved.
        if self._measures_saved and record.dtype is dtypes.BFLOAT16:
            return record._replace(dtype=_FLOAT32)
        return record


def widened(record: TensorRecord) -> TensorRecord:
    """Store types that numpy lacks in the next larger one: bfloat16 as float32, int4 as int8."""
    if record.dtype.saved == record.array.dtype:
        return record
    return record._replace(array=widen(record.array, record.dtype))


_REGISTERED: Final = 2  # dtype.isbuiltin of a type that another package registered


def info(record: TensorRecord) -> TensorInfo:
    """Return the header's fields for a tensor that is shown as it lies in device memory."""
    part, dtype, array, host = record.device, record.dtype, record.array, record.on_host
    groups = part.groups if part is not None and part.format == record.format else 1
    return TensorInfo(
        dump_message.UNDEFINED if dtype.dump is None else dtype.dump,
        dump_message.FORMATS[record.format],
        array.shape,
        host.shape,
        -(-array.size // dtype.per_byte) * array.itemsize,  # two int4 share a byte, the last may be alone
        sub_format=groups if groups > 1 else 0,  # vendor: tools read 2 and more as groups
        address=0 if part is None else part.address,
        original_op=_original(record, host, part) if record.io is IO.OUTPUT else None,
    )


def contents(record: TensorRecord) -> Buffer:
    """Return the bytes of a tensor that is shown as it lies in device memory, packed where its type is.

    The array's own memory where nothing is packed, so that large tensors are not copied.
    """
    array = record.array
    packed = elements.pack(array, record.dtype) if record.dtype.per_byte > 1 else array
    # ml_dtypes' types lack the buffer protocol
    is_foreign = packed.dtype.isbuiltin == _REGISTERED
    return element_bytes(packed.view(f"u{packed.dtype.itemsize}") if is_foreign else packed)


def _original(record: TensorRecord, host: np.ndarray, part: DevicePart | None) -> OriginalOp:
    """Return the operator of the model, before compilation, that gives a tensor."""
    dtype = dtypes.from_numpy(host.dtype)
    return OriginalOp(
        "" if part is None else part.origin,
        record.slot if part is None else part.slot,
        dump_message.UNDEFINED if dtype.dump is None else dtype.dump,
        dump_message.FORMATS[host_format(host.shape)],
    )


class OperatorWriter(ArtifactWriter):
    """Writes an operator's tensors into one of CANN's dump files, as they lie in device memory."""

    def __init__(self, sink: Sink, style: Style) -> None:
        super().__init__(sink)
        self._style = style

    def write_operator(
        self, directory: str, operator: OperatorRef, task: Task, records: Sequence[TensorRecord]
    ) -> None:
        """Write the file of an operator; nothing where it has no tensors."""
        if not records:
            return
        # All tensors of the file were captured at one moment.
        timestamp = records[0].timestamp
        described = [(record, info(record)) for record in records]
        header = dump_data.header(
            DumpData(
                operator.full_name,
                timestamp,
                inputs=tuple(info for record, info in described if record.io is IO.INPUT),
                outputs=tuple(info for record, info in described if record.io is IO.OUTPUT),
            )
        )
        buffers = [contents(record) for record, info in described if info.size]
        size = sum(info.size for _, info in described)
        name = operator_names.of(operator, self._style, task.task_id, task.stream_id, timestamp)
        self._sink.write(Artifact(directory, str(name), (header, *buffers), size))


_NEED: Final = StatisticNeed(extremes=True, counts=True, total=True, squares=True)
_MEASURED: Final = frozenset(
    {
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "bfloat16"),
    }
)
"""Element types that have statistics; the cells of others stay empty, as CANN leaves them."""


class OperatorTableWriter(ArtifactWriter):
    """Writes the csv file of an operator instead of its tensors; padding of the device's format counts."""

    def __init__(self, sink: Sink, style: Style, statistics: Sequence[str]) -> None:
        super().__init__(sink)
        self._style = style
        self._statistics = tuple(statistics)

    def write_operator(
        self, directory: str, operator: OperatorRef, task: Task, records: Sequence[TensorRecord]
    ) -> None:
        """Write the file of an operator; nothing where it has no tensors."""
        if not records:
            return
        lines = [operator_csv.header(self._statistics)]
        counts: Counter[IO] = Counter()
        for record in records:
            is_measured = record.dtype.name in _MEASURED and record.array.size
            cells = _cells(record.array, record.dtype) if is_measured else None
            lines.append(
                operator_csv.row(record.io, counts[record.io], info(record), cells, self._statistics)
            )
            counts[record.io] += 1
        stem = operator_names.of(operator, self._style, task.task_id, task.stream_id, records[0].timestamp)
        self._sink.write(Artifact(directory, stem.file_name(OperatorFileKind.STATISTICS), (b"".join(lines),)))


def _cells(array: np.ndarray, dtype: DType) -> operator_csv.Cells:
    """Return the statistics of a tensor by their names in ``dump_stats``.

    >>> from msdump import dtypes
    >>> cells = _cells(np.array([[3, 4], [0, -np.inf]], np.float32), dtypes.from_name("float32"))
    >>> [cells[name] for name in ("Max", "Min", "Avg", "Negative Inf", "L2norm", operator_csv.COUNT)]
    [4.0, -inf, -inf, 1, inf, 4]
    """
    totals = measure(array, dtype, _NEED)
    high, low = _extremes(array, dtype, totals)
    return {
        operator_csv.COUNT: totals.count,
        OperatorStatistic.MAX: high,
        OperatorStatistic.MIN: low,
        OperatorStatistic.AVG: totals.mean,
        OperatorStatistic.NAN: totals.nan,
        OperatorStatistic.NEGATIVE_INF: totals.negative_inf,
        OperatorStatistic.POSITIVE_INF: totals.positive_inf,
        OperatorStatistic.L2NORM: math.sqrt(totals.squares),
    }


def _extremes(array: np.ndarray, dtype: DType, totals: Totals) -> tuple[float, float]:
    """Return the largest and smallest element, found by comparing one element after the other.

    >>> from msdump import dtypes
    >>> float32, need = dtypes.from_name("float32"), StatisticNeed(extremes=True, counts=True)
    >>> array = np.array([[3, np.nan], [0, 4]], np.float32)
    >>> _extremes(array, float32, measure(array, float32, need))
    (4.0, 0.0)
    >>> _extremes(array[:, ::-1], float32, measure(array, float32, need))  # now NaN comes first
    (nan, nan)
    """
    if not totals.nan:
        return totals.high, totals.low
    # vendor: no comparison with NaN holds, so that a first NaN stays, and a later one is passed over
    values = array.reshape(-1).astype(dtype.saved)
    if np.isnan(values[0]):
        return math.nan, math.nan
    return float(np.fmax.reduce(values)), float(np.fmin.reduce(values))


class FailureWriter(ArtifactWriter):
    """Writes a dump file for each operator that fails.

    The file holds the operator's inputs, and under acl its outputs too. Kernels of the emulated device need
    no workspace, so that there is none to dump.

    ``aic_err_norm_dump`` keeps types, shapes and formats; other scenes only the bytes and their number.
    """

    def __init__(self, sink: Sink, directory: str, scene: Scene, graph: Graph) -> None:
        super().__init__(sink)
        self._directory = directory
        self._is_norm = scene is Scene.NORM_EXCEPTION
        self._graph = graph
        self._nodes = {node.operator.full_name: node for node in graph.nodes}

    def write_operator(
        self,
        directory: str,  # noqa: ARG002 - failures of all models stand in one of their own
        operator: OperatorRef,
        task: Task,
        records: Sequence[TensorRecord],
    ) -> None:
        """Write the tensors of an operator that has just failed, if any; the file is read-only at once."""
        described = [(record, info(record)) for record in records]
        header = dump_data.header(
            DumpData(
                operator.full_name,
                records[0].timestamp if records else CLOCK.now(),
                inputs=tuple(self._info(info) for record, info in described if record.io is IO.INPUT),
                outputs=tuple(self._info(info) for record, info in described if record.io is IO.OUTPUT),
                dfx_message=self._text(operator, task),
            )
        )
        buffers = [contents(record) for record, info in described if info.size]
        self._sink.replace(Artifact(self._directory, self._name(operator, task), (header, *buffers)))

    def _text(self, operator: OperatorRef, task: Task) -> str:
        """Return the header's text for people: which operator failed, where, and with which arguments."""
        where = f"{operator.op_type} {operator.full_name}, task {task.task_id}, stream {task.stream_id}"
        if not self._is_norm:
            return where
        return f"{where}, {arguments.kernel_args_json(self._nodes[operator.full_name], self._graph).decode()}"

    def _name(self, operator: OperatorRef, task: Task) -> str:
        time = CLOCK.milliseconds()
        if self._is_norm:
            return operator_names.norm_exception(operator, task.task_id, time)
        return operator_names.brief_exception(task.task_id, task.stream_id, time)

    def _info(self, info: TensorInfo) -> TensorInfo:
        # vendor: brief files say of a tensor how many bytes it has, and neither type nor shape
        return info if self._is_norm else TensorInfo(dump_message.UNDEFINED, 0, (), (), info.size)


EXCEPTIONS: Final = frozenset(
    {Scene.LITE_EXCEPTION, Scene.BRIEF_EXCEPTION, Scene.NORM_EXCEPTION, Scene.DETAIL_EXCEPTION}
)
"""The scenes in which a failing operator is dumped."""


class ArtifactKind(enum.Enum):
    """Contents of one artifact."""

    TENSOR = enum.auto()
    OPERATOR = enum.auto()
    OPERATOR_TABLE = enum.auto()
    FAILURE = enum.auto()


def artifact_kind(plan: DumpPlan) -> ArtifactKind:
    """Return the contents of one artifact of a plan."""
    if plan.compiled.operator_statistics is not None:
        return ArtifactKind.OPERATOR_TABLE
    is_compiled = plan.files.tree is not Tree.RANKS
    return (
        ArtifactKind.OPERATOR
        if is_compiled and plan.files.file_format is FileFormat.BIN
        else ArtifactKind.TENSOR
    )


def compile_steps(plan: DumpPlan, kind: ArtifactKind) -> tuple[Step, ...]:
    """Return the steps of every tensor on its way into an artifact."""
    return (*compile_drops(kind), *_showing(plan, kind))


def compile_drops(kind: ArtifactKind) -> tuple[Step, ...]:
    """Return the steps that may drop a tensor; ``check`` and ``explain`` show their reasons."""
    # a table has a row even for text, a dump file describes a tensor without elements
    if kind is ArtifactKind.OPERATOR_TABLE:
        return ()
    return (steps.drop_text(drops_empty=kind is ArtifactKind.TENSOR),)


def _showing(plan: DumpPlan, kind: ArtifactKind) -> Iterator[Step]:
    """Yield the steps that convert a tensor into the type and layout of its artifact."""
    if kind is not ArtifactKind.TENSOR:
        yield steps.to_device_memory
    elif plan.files.tree is not Tree.RANKS:
        yield steps.to_device_type
    elif plan.context.device_target is DeviceTarget.ASCEND:
        yield steps.to_device() if plan.what.keeps_device_format else steps.to_host
        if plan.what.sample_count is not None:
            yield sample(plan.what.sample_count)


def shows_outputs_as_run(plan: DumpPlan) -> bool:
    """Return whether artifacts hold outputs as operators wrote them: host layout, all elements."""
    what = plan.what
    return plan.files.tree is Tree.RANKS and not what.keeps_device_format and what.sample_count is None


def pipeline(plan: DumpPlan, sink: Sink, watch: GraphWatch | None = None) -> ArtifactWriter:
    """Return the writer of the tensors of a plan, with its steps, and with rules that are checked before."""
    style = names.STYLES[plan.files.naming, plan.context.device_target]
    kind = artifact_kind(plan)
    writer: ArtifactWriter
    if plan.compiled.operator_statistics is not None:
        writer = OperatorTableWriter(sink, style, plan.compiled.operator_statistics)
    elif kind is ArtifactKind.OPERATOR:
        writer = OperatorWriter(sink, style)
    else:
        writer = TensorWriter(
            sink,
            names.namer(plan.files.naming, plan.context.device_target),
            None if plan.statistics is None else Statistics(plan.statistics, style),
            keeps_tensors=plan.files.keeps_tensors,
            measures_saved=plan.files.tree is not Tree.RANKS,
        )
    writer.steps, writer.watch = compile_steps(plan, kind), watch
    return writer


def failure_pipeline(plan: DumpPlan, graph: Graph, sink: Sink) -> ArtifactWriter | None:
    """Return the writer of an operator that fails, None where no exception dump is on."""
    scene = plan.compiled.scene
    if scene is None and plan.context.exception_dump is ExceptionDump.FULL:
        scene = Scene.NORM_EXCEPTION
    if scene is None or scene not in EXCEPTIONS:
        return None
    place = Key(PathKind.EXCEPTIONS, device=plan.context.device_id)
    directory = place.below(plan.compiled.exception_path or plan.files.path)
    writer = FailureWriter(sink, directory, scene, graph)
    writer.steps = compile_steps(plan, ArtifactKind.FAILURE)
    return writer


def operator_records(plan: DumpPlan, device: Ascend | None, memory: Memory = lambda: None) -> OperatorRecords:
    """Return the maker of records of a graph's operators, numbered as in the artifacts of a plan."""
    counts_present = artifact_kind(plan) is ArtifactKind.TENSOR and plan.files.tree is not Tree.RANKS
    return OperatorRecords(device, memory, counts_present=counts_present)
