"""The comparison of two dumps by their statistics: rows of tables or of tensors, differences, verdicts."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.capture import Statistics
from msdump.device import INSERTED_PREFIX
from msdump.dtypes import DType
from msdump.encode import statistic_csv
from msdump.errors import DumpReadError, FormatError
from msdump.judge import SAME, TensorError
from msdump.judge.compare.surroundings import FolderSurroundings, SurroundedDump, described
from msdump.judge.pair import (
    INPUTS,
    Executions,
    FolderPair,
    GraphSide,
    IdentifiedTensors,
    Identities,
    MatchedNames,
    TensorContent,
    identities_of,
    pair_folders,
)
from msdump.judge.verdict import (
    Finding,
    Judge,
    Limits,
    OperatorPlace,
    Report,
    TensorEvidence,
    TensorVerdict,
    Uneven,
    joined,
    with_reach,
)
from msdump.plan import DeviceTarget, Naming, StatisticSpec
from msdump.read import (
    FIXED,
    Cell,
    MeasuredRecord,
    OperatorGraph,
    Record,
    SourceKind,
    ValueSource,
    of_rows,
    open_iteration,
    ordinals,
    read_cell,
    read_shape,
)
from msdump.record import IO, OperatorRef, TensorRecord
from msdump.statistics import BY_CATEGORY, STATISTICS, Nature
from msdump.store import STATISTICS as TABLE
from msdump.store import STYLES, sanitize

Place = tuple[str, IO, int, int]
"""The tensor of a row: operator as files spell it, input or output, its number, the operator's pass."""


@dataclass(frozen=True, slots=True)
class StatisticRow:
    """The statistics of a tensor.

    Attributes:
        place: The tensor.
        op_type: Type of its operator.
        time: Microseconds since the epoch, 0 if unknown.
        dtype: Element type, in this package's name where it has one.
        shape: Shape, None if unknown.
        cells: The computed statistics by category.
    """

    place: Place
    op_type: str
    time: int
    dtype: str
    shape: tuple[int, ...] | None
    cells: Mapping[str, Cell]

    @property
    def is_parameter(self) -> bool:
        """Whether it is a weight, a graph input or a constant that was dumped by itself."""
        return self.op_type in INPUTS


@dataclass(frozen=True, slots=True)
class RowSide:
    """The rows of one directory.

    Attributes:
        rows: Rows by the tensor that they measure, in the order of the execution.
        execution: Number of the execution.
        executions: Number of executions with rows or files in the directory.
        is_of_tensors: Whether the rows were measured from tensors, as the directory has no tables.
        is_compiled: Whether the rows are of a graph that was compiled as a whole.
        unreadable: Tensors with a file that cannot be read, and why.
    """

    rows: Mapping[Place, StatisticRow] = field(default_factory=dict)
    execution: int = 0
    executions: int = 1
    is_of_tensors: bool = False
    is_compiled: bool = False
    unreadable: Mapping[Place, str] = field(default_factory=dict)

    @property
    def faults(self) -> Iterator[str]:
        """Messages about files of tensors that cannot be read."""
        return (f"{name} {io} {slot}: {fault}" for (name, io, slot, _), fault in self.unreadable.items())

    @property
    def categories(self) -> tuple[str, ...]:
        """The statistics of its rows, in the order of their definitions."""
        present = {category for row in self.rows.values() for category in row.cells}
        return tuple(each.category for each in STATISTICS if each.category in present)


def read_rows(path: str, execution: int | None = None) -> RowSide:
    """Return the rows of a directory that are of one execution (None: the last whole one).

    Raises:
        DumpReadError: A table cannot be read, or there was no such execution.
    """
    try:
        iteration = open_iteration(path)
    except DumpReadError:
        if os.path.exists(file := f"{path}/{TABLE}"):
            raise DumpReadError(file, "the table has no rows") from None
        raise
    if iteration is None:
        return RowSide()
    number = iteration.timeline.last_whole if execution is None else execution
    records = (*of_rows(iteration.execution(number).statistics, iteration), *iteration.measured_operators)
    rows = [
        replace(_row(record, record.dtype, read_shape(record.row.get("Shape"))), cells=_cells(record))
        for record in records
    ]
    count = max(len(iteration.timeline.spans), 1)
    return RowSide(_placed(rows), number, count, is_compiled=iteration.key.model is not None)


def _cells(record: MeasuredRecord) -> dict[str, Cell]:
    return {category: cell for category, cell in record.stats.saved.items() if cell is not None}


def _placed(rows: Iterable[StatisticRow]) -> dict[Place, StatisticRow]:
    rows = sorted(rows, key=lambda row: row.time)
    tensors = [row.place[:3] for row in rows]
    places = [(*tensor, number) for tensor, number in zip(tensors, ordinals(tensors), strict=True)]
    return {place: replace(row, place=place) for place, row in zip(places, rows, strict=True)}


_STYLE: Final = STYLES[Naming.V2_5, DeviceTarget.ASCEND]  # any style: rows have the names of files


def measure_tensors(
    path: str, execution: int | None, spec: StatisticSpec, like: RowSide = RowSide()
) -> RowSide:
    """Return the statistics of the tensors in a directory, in one execution (None: the last whole one).

    A tensor with a row in ``like`` in the shape on the device, as acl measures tensors, is measured in that
    shape.

    Raises:
        DumpReadError: The directory cannot be read, or there was no such execution.
    """
    iteration = open_iteration(path)
    if iteration is None:
        return RowSide()
    number = iteration.timeline.last_whole if execution is None else execution
    measured: dict[Place, StatisticRow] = {}
    unreadable: dict[Place, str] = {}
    statistics = Statistics(spec, _STYLE)
    records = iteration.execution(number).records
    tensors = [(record.op_name, record.io, record.slot) for record in records]
    for tensor, pass_number, record in zip(tensors, ordinals(tensors), records, strict=True):
        place = (*tensor, pass_number)
        try:
            row = _measured(statistics, spec, record, like.rows[place].shape if place in like.rows else None)
        except (DumpReadError, FormatError) as error:
            row, unreadable[place] = _row(record, "", None), str(error)
        if row is not None:
            measured[place] = replace(row, place=place)
    count = max(len(iteration.timeline.spans), 1)
    is_compiled = iteration.key.model is not None
    return RowSide(measured, number, count, True, is_compiled, unreadable)


def _measured(
    statistics: Statistics, spec: StatisticSpec, record: Record, shape: tuple[int, ...] | None
) -> StatisticRow | None:
    """Return the statistics of a tensor in the given shape, None: the shape on the host.

    The result is None for a tensor without statistics: no elements, text, complex numbers.
    """
    array, dtype = _elements(record, shape)
    operator = OperatorRef(record.op_type, record.op_name)
    tensor = TensorRecord(operator, record.io, record.slot, dtype, array, record.timestamp)
    numbers = statistics.measure(tensor)
    if numbers is None:
        return None
    cells = {
        category: read_cell(BY_CATEGORY[category].title, statistic_csv.text(number))
        for category, number in zip(spec.categories, numbers, strict=True)
    }
    found = {category: cell for category, cell in cells.items() if cell is not None}
    return replace(_row(record, dtype.name, array.shape), cells=found)


def _row(record: Record, dtype: str, shape: tuple[int, ...] | None) -> StatisticRow:
    place = (record.op_name, record.io, record.slot, 0)
    return StatisticRow(place, record.op_type, record.timestamp, dtype, shape, {})


def _elements(record: Record, shape: tuple[int, ...] | None) -> tuple[np.ndarray, DType]:
    """Return a tensor's elements in their original type, in the device's layout if ``shape`` is its shape."""
    is_of_device = shape is not None and shape == record.shape
    array = record.array if is_of_device else record.host
    saved = dtypes.from_numpy(array.dtype)
    try:
        dtype = dtypes.from_name(record.dtype)
    except FormatError:  # a type that this package lacks, in a dump of MindSpore's own
        return array, saved
    # .npy files hold bfloat16 as float32, and types below a byte in bytes
    if dtype is not saved and dtype.saved == array.dtype:
        return array.astype(dtype.numpy), dtype
    return array, saved


def find_counterparts(
    dumped: RowSide, golden: RowSide, mine: OperatorGraph | None, theirs: OperatorGraph | None
) -> tuple[Mapping[Place, StatisticRow], MatchedNames]:
    """Return the golden row of each row, by its place, and the pairs of operators.

    The graphs of both sides determine the pairs; without graphs, operator names do.
    """
    if mine is not None and theirs is not None:
        shared = tuple(each for each in dumped.categories if each in golden.categories)
        sides = _RowContents(mine, dumped, shared), _RowContents(theirs, golden, shared)
        identities = identities_of(*(each.graph_side() for each in sides))
        if identities.matched.partners is not None:
            return _paired(dumped, golden, identities), identities.matched
    return golden.rows, MatchedNames()


def _paired(dumped: RowSide, golden: RowSide, identities: Identities) -> dict[Place, StatisticRow]:
    known: IdentifiedTensors[StatisticRow] = IdentifiedTensors()
    for row in golden.rows.values():
        name, io, slot, _ = row.place
        known.add(identities.golden(sanitize(name), io, slot), io, row)
    asked = (
        (place, known.counterpart(identities.dumped, sanitize(place[0]), place[1], place[2]))
        for place in dumped.rows
    )
    return {place: row for place, row in asked if row is not None}


class _RowContents:
    """Contents of tensors for the alignment of graphs, as far as statistics show them."""

    def __init__(self, graph: OperatorGraph, side: RowSide, shared: tuple[str, ...]) -> None:
        self._graph = graph
        self._shared = shared
        self._rows = {(sanitize(row.place[0]), *row.place[1:]): row for row in side.rows.values()}
        self._readers = {
            source.name: (sanitize(operator.full_name), IO.INPUT, slot, 0)
            for operator in graph.operators.values()
            for slot, source in enumerate(operator.inputs)
            if source.kind is SourceKind.WEIGHT
        }

    def graph_side(self) -> GraphSide:
        return GraphSide(self._graph, self._digest_of, self._content_of)

    def _digest_of(self, name: str) -> Hashable | None:
        """Return the statistics of a weight that both sides have, in place of a digest of its elements."""
        row = self._rows.get((sanitize(name), IO.OUTPUT, 0, 0)) or self._rows.get(
            self._readers.get(name, ("", IO.INPUT, 0, 0))
        )
        return None if row is None else self._digest(row)

    def _digest(self, row: StatisticRow) -> Hashable | None:
        cells = tuple(row.cells.get(category) for category in self._shared)
        is_telling = math.prod(row.shape or ()) > 1 and any(cell is not None for cell in cells)
        return (row.shape, cells) if is_telling else None

    def _content_of(self, name: str, slot: int) -> TensorContent | None:
        row = self._rows.get((sanitize(name), IO.OUTPUT, slot, 0))
        if row is None or row.shape is None:
            return None
        norm, largest, smallest = (_float(row.cells.get(each)) for each in ("l2norm", "max", "min"))
        return TensorContent(self._digest(row), math.prod(row.shape), norm, largest, smallest)


def _float(cell: Cell) -> float:
    return float(cell) if isinstance(cell, int | float) else math.nan


PRINTED: Final = 1e-5
"""Largest relative difference of two numbers of six significant digits that may be the same number."""

_NUMBERS: Final = frozenset({Nature.VALUE, Nature.AMOUNT})
_EXTREMES: Final = ("max", "min")
_HALVES: Final = {"float16": 2**-11, "bfloat16": 2**-8}
"""What devices round weights and inputs to: the largest relative change of a number by it."""
SUMS: Final = ("avg", "l2norm")
"""Statistics that depend on how a device adds."""


Pair = tuple[Cell, Cell]
"""A statistic of the examined side and of golden."""


def row_evidence(
    dumped: StatisticRow,
    golden: StatisticRow,
    limits: Mapping[str, float],
    *,
    is_handed_on: bool = False,
) -> TensorEvidence:
    """Return the rows of a tensor and its counterpart as evidence, with an error as tensors have.

    The distance is the largest relative difference of a statistic: extremes and means are relative to the
    largest of them on the golden side, a norm is relative to the golden norm. Numbers with the same six
    digits do not differ. Counts of NaN and infinities must be the same; digests and counts of signs only
    show whether tensors are the same, as elements near zero may change their sign.

    Args:
        dumped: The row that is examined.
        golden: Its counterpart.
        limits: Largest relative difference by category, as set by the user: for counts a share of the
            elements; for digests any limit demands equality. Other categories: by element type.
        is_handed_on: Whether one side's compiler removed operators that pass the tensor on, so that the
            shapes may differ by a reshape.
    """
    evidence = replace(lone_row(dumped), golden_dtype=golden.dtype, note="")
    shapes = [
        shape if shape is None or not is_handed_on else (math.prod(shape),)
        for shape in (dumped.shape, golden.shape)
    ]
    if None not in shapes and shapes[0] != shapes[1]:
        note = f"shape {dumped.shape} against {golden.shape}"
        return replace(evidence, verdict=TensorVerdict.SHAPE, note=note)
    shared = dict(_shared(dumped, golden))
    if not shared:
        return replace(evidence, note="no statistic in common")
    if all(_is_same(*pair) for pair in shared.values()) and dumped.dtype == golden.dtype:
        return replace(evidence, error=SAME)
    telling = {category: pair for category, pair in shared.items() if _tells(category, shared)}
    count = max(1, math.prod(dumped.shape or ()))
    for category in shared:
        if _share(category, shared, count) > limits.get(category, math.inf):
            note = f"{_in_words(category, shared)}, limit {limits[category]:g}"
            error = _error(telling, shared)
            return replace(evidence, verdict=TensorVerdict.DIFFERS, error=error, note=note)
    judged = {category: pair for category, pair in telling.items() if category not in limits}
    # A weight is not another one if rounding or printing alone explains the changed digits.
    is_told = evidence.dtype != evidence.golden_dtype or not judged.keys().isdisjoint(_EXTREMES)
    is_rounded = not judged or (is_told and any(_is_rounded_to(each, judged, shared) for each in _HALVES))
    worst = max(judged, key=lambda category: _difference(category, shared), default="")
    note = _in_words(worst, shared) if worst else ""
    return replace(evidence, error=_error(judged, shared), note=note, is_rounded=is_rounded)


def _is_rounded_to(dtype: str, judged: Mapping[str, Pair], shared: Mapping[str, Pair]) -> bool:
    """Return whether statistics fit one tensor and the same one rounded to a type.

    Rounding keeps the order of elements: the maximum of the rounded tensor is the rounded maximum.
    """
    extremes = [shared[category] for category in _EXTREMES if category in shared]
    if not judged.keys() <= {*_EXTREMES, *SUMS} or not (extremes and all(map(_is_finite, chain(*extremes)))):
        return False
    near = all(_difference(each, shared) <= _HALVES[dtype] + PRINTED for each in judged)
    turned = [(golden, dumped) for dumped, golden in extremes]
    return near and any(all(_may_become(*pair, dtype) for pair in pairs) for pairs in (extremes, turned))


def _may_become(longer: Cell, rounded: Cell, dtype: str) -> bool:
    """Return whether a printed number, rounded to a shorter type, may be another printed number."""
    number = dtypes.from_name(dtype).numpy.type
    # the digits that were not printed may decide which way it was rounded
    candidates = [float(longer) * (1 + off) for off in (-PRINTED / 2, 0, PRINTED / 2)]  # type: ignore[arg-type]
    with np.errstate(over="ignore"):  # beyond the range of the type: infinite
        narrowed = [float(number(each)) for each in candidates]
    return any(_distance(each, rounded) <= PRINTED * abs(each) for each in narrowed)


def _shared(dumped: StatisticRow, golden: StatisticRow) -> Iterator[tuple[str, Pair]]:
    """Yield the statistics that both rows have; two configurations may choose different ones."""
    for category, cell in dumped.cells.items():
        is_known = golden.cells.get(category) is not None
        if is_known and not (_has_overflowed(category, dumped) or _has_overflowed(category, golden)):
            yield category, (cell, golden.cells[category])


def _has_overflowed(category: str, row: StatisticRow) -> bool:
    """Return whether a sum overflowed though all elements are finite, as may sums of float16 on a device."""
    extremes = (row.cells.get("max"), row.cells.get("min"))
    return category in SUMS and not _is_finite(row.cells[category]) and all(map(_is_finite, extremes))


def _tells(category: str, shared: Mapping[str, Pair]) -> bool:
    """Return whether a statistic shows a difference beyond that of rounding and printing."""
    nature = BY_CATEGORY[category].nature
    if nature is Nature.DIGEST:  # without a distance: used only if no number is there
        return not any(BY_CATEGORY[other].nature in _NUMBERS for other in shared)
    return nature is not Nature.SIGN_COUNT and _difference(category, shared) > PRINTED


def lone_row(row: StatisticRow) -> TensorEvidence:
    """Return a row without counterpart as evidence."""
    _, io, slot, _ = row.place
    return TensorEvidence(
        io,
        slot,
        row.shape or (),
        row.dtype,
        note="golden lacks this row",
        is_weight=row.is_parameter,
    )


_NONFINITE: Final = ("nan count", "negative inf count", "positive inf count")


def _is_same(dumped: Cell, golden: Cell) -> bool:
    is_nan = dumped != dumped and golden != golden  # noqa: PLR0124 - NaN differs from itself
    return dumped == golden or is_nan


def _is_finite(cell: Cell) -> bool:
    return isinstance(cell, int | float) and math.isfinite(cell)


def _difference(category: str, shared: Mapping[str, Pair]) -> float:
    """Return the relative difference of a statistic; infinite where only one side is finite.

    >>> shared = {"max": (4.1, 4.0), "min": (-8.0, -8.0), "nan count": (1, 0)}
    >>> round(_difference("max", shared), 4), _difference("nan count", shared)
    (0.0125, inf)
    """
    dumped, golden = shared[category]
    if _is_same(dumped, golden):
        return 0.0
    nature = BY_CATEGORY[category].nature
    if nature not in _NUMBERS or not (_is_finite(dumped) and _is_finite(golden)):
        return math.inf
    # A norm grows with the number of elements, so it is relative to itself; the other numbers share a scale.
    values = [pair[1] for name, pair in shared.items() if BY_CATEGORY[name].nature is Nature.VALUE]
    scales = [abs(float(cell)) for cell in values if _is_finite(cell)]  # type: ignore[arg-type]
    scale = abs(float(golden)) if nature is Nature.AMOUNT else max(scales)  # type: ignore[arg-type]
    return _distance(dumped, golden) / scale if scale else math.inf


def _distance(dumped: Cell, golden: Cell) -> float:
    return abs(float(dumped) - float(golden))  # type: ignore[arg-type]


def _share(category: str, shared: Mapping[str, Pair], count: int) -> float:
    dumped, golden = shared[category]
    if BY_CATEGORY[category].nature in {Nature.COUNT, Nature.SIGN_COUNT}:
        return _distance(dumped, golden) / count
    return _difference(category, shared)


def _error(judged: Mapping[str, Pair], shared: Mapping[str, Pair]) -> TensorError:
    """Return the error of a tensor, as far as differing statistics show it."""
    surplus = [int(_distance(*judged[category])) for category in _NONFINITE if category in judged]
    values = {name: pair for name, pair in judged.items() if BY_CATEGORY[name].nature in _NUMBERS}
    one_sided = [pair for pair in values.values() if not all(map(_is_finite, pair)) and not _is_same(*pair)]
    misplaced = sum(surplus) or len(one_sided[:1])
    if misplaced:
        counts = [judged[name] for name in _NONFINITE if name in judged]
        more = sum(max(0, int(mine or 0) - int(golden or 0)) for mine, golden in counts)
        is_mine = any(not _is_finite(pair[0]) for pair in one_sided)
        is_infinite = TensorError(False, math.inf, math.nan, math.inf, misplaced, more or int(is_mine))
        return replace(is_infinite, norm=math.inf, scaled=math.inf, ulps=math.nan)
    extremes = {name: pair for name, pair in values.items() if BY_CATEGORY[name].nature is Nature.VALUE}
    return TensorError(
        is_same=False,
        distance=max((_difference(name, shared) for name in judged), default=0.0),
        largest=max((_distance(*pair) for pair in extremes.values()), default=0.0),
        scaled=max((_difference(name, shared) for name in extremes), default=0.0),
        norm=math.nan,  # of the difference; like ``ulps`` not known without elements
        ulps=math.nan,
    )


def _in_words(category: str, shared: Mapping[str, Pair]) -> str:
    dumped, golden = map(statistic_csv.text, shared[category])
    return f"{BY_CATEGORY[category].title} {dumped} against {golden}"


def read_pair(dumped: str, golden: str, executions: Executions) -> tuple[RowSide, RowSide]:
    """Return the rows of two directories; without rows, tensors are measured as for the other side's rows.

    Raises:
        DumpReadError: A table cannot be read, or there was no such execution.
    """
    mine, theirs = read_rows(dumped, executions[0]), read_rows(golden, executions[1])
    if mine.rows and not theirs.rows:
        return mine, measured_like(mine, golden, executions[1])
    if theirs.rows and not mine.rows:
        return measured_like(theirs, dumped, executions[0]), theirs
    return mine, theirs


def measured_like(side: RowSide, path: str, execution: int | None) -> RowSide:
    """Return the statistics of tensors, computed as the rows of the other side seem to have been.

    No file of a dump records whether a device computed the rows (``stat_calc_mode``), with other rounding
    than on the host: each way is tried, and the one with the most equal sums is taken.

    Raises:
        DumpReadError: The directory cannot be read, or there was no such execution.
    """
    hosted = measure_tensors(path, execution, StatisticSpec(side.categories), side)
    sums = StatisticSpec(tuple(category for category in SUMS if category in side.categories))
    fits = [_same(side, hosted, sums)]
    if fits[0] == sum(len(row.cells.keys() & {*sums.categories}) for row in side.rows.values()):
        return hosted
    for is_high in (True, False):
        spec = replace(sums, on_device=True, high_precision=is_high)
        fits.append(_same(side, measure_tensors(path, execution, spec, side), sums))
    if max(fits) == fits[0]:
        return hosted
    spec = StatisticSpec(side.categories, on_device=True, high_precision=fits[1] == max(fits))
    return measure_tensors(path, execution, spec, side)


def _same(side: RowSide, other: RowSide, sums: StatisticSpec) -> int:
    both = (
        (row.cells.get(category), other.rows[place].cells.get(category))
        for place, row in side.rows.items()
        if place in other.rows
        for category in sums.categories
    )
    return sum(mine is not None and mine == theirs for mine, theirs in both)


def _judge_pair(
    folders: FolderPair,
    pair: tuple[RowSide, RowSide],
    sides: tuple[FolderSurroundings, FolderSurroundings],
    limits: Limits,
    report: Report,
) -> None:
    """Add the verdicts on the operators of a pair of directories to a report."""
    (dumped, golden), (mine, theirs) = pair, sides
    judge, (found, matched) = Judge(limits), find_counterparts(dumped, golden, mine.graph, theirs.graph)
    report.add_networks(folders.dumped, folders.golden, matched.networks)
    passages, golden_passages = _by_passage(dumped), _by_passage(golden)
    passes, golden_passes = (Counter(name for name, _ in each) for each in (passages, golden_passages))
    findings = []
    for order, ((name, number), rows) in enumerate(passages.items(), 1):
        reads = mine.reads(name) or theirs.reads(name)
        note = matched.notes.get(sanitize(name), "")
        tensors = [_evidence(row, found.get(at), limits, pair, note) for at, row in rows.items()]
        if matched.partners is None:
            left = golden_passages.get((name, number), {})
            tensors += (
                replace(lone_row(row), note="mine lacks this row")
                for place, row in left.items()
                if place not in rows
            )
        tensors.sort(key=lambda tensor: (tensor.io, tensor.slot))
        place = _place(rows, folders.label, mine, order, passes[name])
        known = tuple(_with_source(tensor, reads) for tensor in tensors)
        evidence = Finding(
            place, tensors=known, replaces=matched.replaced.get(sanitize(name), ""), reads=reads
        )
        findings.append(judge.finding(evidence))
    for finding in findings:
        report.add(with_reach(finding, findings, mine.graph))
    used = {place[0] for place in dumped.rows}
    if matched.partners is not None:
        used = {row.place[0] for row in found.values()}
        # operators that a device inserts for its types and formats have no counterpart
        used |= {name for name, _ in golden_passages if name.startswith(INSERTED_PREFIX)}
    graphs = {"MINE": mine.graph, "GOLDEN": theirs.graph}
    unread = [name for name, graph in graphs.items() if graph is None]
    report.unread_graphs |= dict.fromkeys(unread)
    # names of fused kernels and of single operators differ
    is_told = not unread or dumped.is_compiled is golden.is_compiled
    for (name, _), rows in (
        golden_passages.items() if is_told else ()
    ):  # missing operators, once for each pass
        is_parameter = next(iter(rows.values())).is_parameter
        if name not in used and sanitize(name) not in matched.golden and not is_parameter:
            place = _place(rows, folders.label, theirs, 0, 1)
            (report.unasked if mine.leaves_out(place, name) else report.missing).append(place)
    counts = {sanitize(name): count for name, count in golden_passes.items()}
    for name, count in passes.items():
        other = counts.get(sanitize(matched.partner(name)), count)
        if count != other:
            report.uneven.append(Uneven(name, count, other))


def _with_source(tensor: TensorEvidence, reads: Sequence[ValueSource]) -> TensorEvidence:
    """Return a tensor; an input gets the name of its source, and is a weight if the source is one."""
    source = reads[tensor.slot] if tensor.io is IO.INPUT and tensor.slot < len(reads) else None
    if source is not None and source.kind is not SourceKind.OPERATOR:
        tensor = replace(tensor, name=source.name, is_weight=source.kind in FIXED)
    # only weights are exempt as rounded: results of operators are judged by limits
    return tensor if tensor.is_weight else replace(tensor, is_rounded=False)


def compare_statistics(
    dumped: str,
    golden: str,
    limits: Limits,
    executions: Executions,
    tell: Callable[[str, RowSide], object] = lambda _path, _side: None,
) -> tuple[Report, Sequence[str]]:
    """Compare two dumps by their statistics; return the verdicts, and the directories without a counterpart.

    ``tell`` is called with the path and the rows of each directory that is compared.

    Raises:
        ToolError: A dump cannot be used.
        DumpReadError: A table of statistics cannot be read.
    """
    folders = pair_folders(dumped, golden, executions, is_measured=True)
    report = Report()
    around, golden_around = SurroundedDump(dumped), SurroundedDump(golden)
    for folder in folders.pairs:
        pair = read_pair(folder.dumped, folder.golden, folders.executions)
        tell(folder.dumped, pair[0])
        tell(folder.golden, pair[1])
        report.unreadable += pair[1].faults
        sides = around.of(folder.dumped), golden_around.of(folder.golden)
        _judge_pair(folder, pair, sides, limits, report)
    return report, folders.alone


def _by_passage(side: RowSide) -> dict[tuple[str, int], dict[Place, StatisticRow]]:
    passages: dict[tuple[str, int], dict[Place, StatisticRow]] = {}
    for place, row in side.rows.items():
        passages.setdefault((place[0], place[3]), {})[place] = row
    return passages


def _evidence(
    row: StatisticRow,
    counterpart: StatisticRow | None,
    limits: Limits,
    pair: tuple[RowSide, RowSide],
    note: str,
) -> TensorEvidence:
    dumped, golden = pair
    if row.place in dumped.unreadable:
        return replace(lone_row(row), verdict=TensorVerdict.UNREADABLE, note=dumped.unreadable[row.place])
    if counterpart is None:
        return lone_row(row)
    is_other = row.place[:2] != counterpart.place[:2]
    is_handed_on = is_other and dumped.is_compiled != golden.is_compiled
    evidence = row_evidence(row, counterpart, limits.statistics, is_handed_on=is_handed_on)
    return replace(evidence, note=joined(note, evidence.note))


def _place(
    rows: Mapping[Place, StatisticRow], label: str, around: FolderSurroundings, order: int, passes: int
) -> OperatorPlace:
    row = next(iter(rows.values()))
    name, _, _, number = row.place
    numbered = number if passes > 1 else None
    place = around.place(name, row.op_type, pass_number=numbered, label=label, order=order, time=row.time)
    return described(place, around.operator(name))


# Limits for a row against its own tensor: counts and digests have to be equal.
_EXACT: Final = {
    each.category: 0.0
    for each in STATISTICS
    if each.nature in {Nature.COUNT, Nature.SIGN_COUNT, Nature.DIGEST}
}


def contradictions(path: str, execution: int | None = None) -> Iterator[str]:
    """Yield a message for each row of a directory that contradicts the tensor in its file.

    Tensors without a row, and tensors of which only the first elements were saved, are left out.

    Raises:
        DumpReadError: A table cannot be read, or there was no such execution.
    """
    side = read_rows(path, execution)
    if not side.rows:
        return
    measured = measured_like(side, path, execution)
    for place, row in side.rows.items():
        if place not in measured.rows:
            continue
        evidence = row_evidence(row, measured.rows[place], _EXACT)
        if evidence.verdict is TensorVerdict.DIFFERS or (evidence.error is not None and evidence.note):
            name, io, slot, _ = place
            yield f"{name} {io} {slot}: {evidence.note.partition(', limit')[0]}"
