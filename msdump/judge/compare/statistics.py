"""The comparison of two dumps by their statistics: rows of tables, or of tensors that are measured."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.capture import Statistics
from msdump.encode import statistic_csv
from msdump.errors import DumpReadError, FormatError
from msdump.judge import SAME, TensorError
from msdump.judge.compare.comparison import DumpComparison, pair_with_tree
from msdump.judge.compare.executions import OperatorExecution, match_executions
from msdump.judge.compare.folders import ComparedFolder
from msdump.judge.pair import (
    INPUTS,
    Executions,
    GraphSide,
    Identities,
    TensorContent,
    identities_of,
    of_statistics,
    pair_folders,
)
from msdump.judge.verdict import Limits, Report, TensorEvidence, TensorVerdict, joined
from msdump.plan import DeviceTarget, Naming, StatisticSpec
from msdump.read import (
    Cell,
    Folder,
    FolderKind,
    Iteration,
    MeasuredRecord,
    OperatorGraph,
    Record,
    SourceKind,
    TensorlessFile,
    by_operator,
    is_process,
    of_rows,
    open_iteration,
    read_cell,
    read_shape,
    read_tree,
    with_passes,
)
from msdump.record import IO, OperatorRef, TensorRecord
from msdump.statistics import BY_CATEGORY, STATISTICS, Nature
from msdump.store import STATISTICS as TABLE
from msdump.store import STYLES, sanitize


def categories(folder: Folder) -> tuple[str, ...]:
    """Return the statistics of a directory's rows, in the order of their definitions."""
    present = {
        category for row in folder.tensors if isinstance(row, MeasuredRecord) for category in row.cells
    }
    return tuple(each.category for each in STATISTICS if each.category in present)


def read_rows(path: str, execution: int | None = None) -> Folder:
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
        return Folder(path, FolderKind.TENSORS, {}, is_measured=True)
    number = iteration.last_whole if execution is None else execution
    rows = of_rows(iteration.execution(number).statistics, iteration)
    return _folder(iteration, [*rows, *iteration.measured_operators], number)


def _folder(iteration: Iteration, records: list[Record], number: int) -> Folder:
    kind = FolderKind.COMPILED if iteration.key.model is not None else FolderKind.TENSORS
    operators = by_operator(with_passes(records))
    return Folder(iteration.path, kind, operators, number, len(iteration.all_executions), is_measured=True)


_STYLE: Final = STYLES[Naming.V2_5, DeviceTarget.ASCEND]  # any style: rows have the names of files

Place = tuple[str, IO, int, int]


def _placed(folder: Folder) -> dict[Place, MeasuredRecord]:
    """Return rows by operator, input or output, its number, and the operator's pass."""
    rows = (each for each in folder.tensors if isinstance(each, MeasuredRecord))
    return {(each.op_name, each.io, each.slot, each.pass_number): each for each in rows}


def measure_tensors(
    path: str, execution: int | None, spec: StatisticSpec, like: Folder | None = None
) -> Folder:
    """Return the statistics of the tensors in a directory, in one execution (None: the last whole one).

    A tensor with a row in ``like`` in the shape on the device, as acl measures tensors, is measured in that
    shape. A file that cannot be read is a ``TensorlessFile``; a tensor without statistics is left out: no
    elements, text, complex numbers.

    Raises:
        DumpReadError: The directory cannot be read, or there was no such execution.
    """
    iteration = open_iteration(path)
    if iteration is None:
        return Folder(path, FolderKind.TENSORS, {}, is_measured=True)
    number = iteration.last_whole if execution is None else execution
    statistics, known = Statistics(spec, _STYLE), {} if like is None else _placed(like)
    measured: list[Record] = []
    for each in with_passes(iteration.execution(number).records):
        row = known.get((sanitize(each.op_name), each.io, each.slot, each.pass_number))
        try:
            cells = _measured(statistics, spec, each, None if row is None else row.shape)
        except (DumpReadError, FormatError) as error:
            measured.append(TensorlessFile(each.name, each.path, iteration, str(error)))
            continue
        if cells is not None:
            measured.append(MeasuredRecord(each.name, each.path, iteration, cells))
    return _folder(iteration, measured, number)


def _measured(
    statistics: Statistics, spec: StatisticSpec, record: Record, shape: tuple[int, ...] | None
) -> dict[str, Cell] | None:
    """Return the row of a tensor, in the device's layout if ``shape`` is its shape, else in the host's."""
    array = record.array if shape is not None and shape == record.shape else record.host
    dtype = saved = dtypes.from_numpy(array.dtype)
    with suppress(FormatError):  # a type that this package lacks, in a dump of MindSpore's own
        dtype = dtypes.from_name(record.dtype)
    # .npy files hold bfloat16 as float32, and types below a byte in bytes
    if dtype is not saved and dtype.saved == array.dtype:
        array = array.astype(dtype.numpy)
    else:
        dtype = saved
    operator = OperatorRef(record.op_type, record.op_name)
    tensor = TensorRecord(operator, record.io, record.slot, dtype, array, record.timestamp)
    numbers = statistics.measure(tensor)
    if numbers is None:
        return None
    row: dict[str, Cell] = {"Data Type": dtype.name, "Shape": f"({','.join(map(str, array.shape))})"}
    for category, number in zip(spec.categories, numbers, strict=True):
        title = BY_CATEGORY[category].title
        row[title] = read_cell(title, statistic_csv.text(number))
    return row


def _identities(
    dumped: tuple[Folder, OperatorGraph | None], golden: tuple[Folder, OperatorGraph | None]
) -> Identities:
    """Return the identities of rows: by the graphs of both sides, or else by names."""
    shared = tuple(each for each in categories(dumped[0]) if each in categories(golden[0]))
    (mine, own), (theirs, other) = dumped, golden
    if own is None or other is None:
        return Identities()
    return identities_of(_graph_side(own, mine, shared), _graph_side(other, theirs, shared))


def _graph_side(graph: OperatorGraph, folder: Folder, shared: tuple[str, ...]) -> GraphSide:
    """Return a graph with the contents of tensors for its alignment, as far as statistics show them."""
    rows = _placed(folder)
    readers = {
        source.name: (sanitize(operator.full_name), IO.INPUT, slot, 0)
        for operator in graph.operators.values()
        for slot, source in enumerate(operator.inputs)
        if source.kind is SourceKind.WEIGHT
    }

    def digest(row: MeasuredRecord) -> Hashable | None:
        cells = tuple(row.cells.get(category) for category in shared)
        is_distinctive = math.prod(row.shape) > 1 and any(cell is not None for cell in cells)
        return (row.shape, cells) if is_distinctive else None

    def digest_of(name: str) -> Hashable | None:
        """Return the statistics of a weight that both sides have, in place of a digest of its elements."""
        row = rows.get((sanitize(name), IO.OUTPUT, 0, 0)) or rows.get(readers.get(name, ("", IO.INPUT, 0, 0)))
        return None if row is None else digest(row)

    def content_of(name: str, slot: int) -> TensorContent | None:
        row = rows.get((sanitize(name), IO.OUTPUT, slot, 0))
        return None if row is None else of_statistics(row.cells, row.shape, digest(row))

    return GraphSide(graph, digest_of, content_of)


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
    dumped: MeasuredRecord,
    golden: MeasuredRecord,
    limits: Mapping[str, float],
    *,
    may_be_reshaped: bool = False,
) -> TensorEvidence:
    """Compare the rows of a tensor and its counterpart: the evidence has the error that two files would have.

    The distance is the largest relative difference of a statistic: extremes and means are relative to the
    largest of them on the golden side, a norm is relative to the golden norm. Numbers with the same six
    digits do not differ. Counts of NaN and infinities must be the same; digests and counts of signs only
    show whether tensors are the same, as elements near zero may change their sign.

    The user's ``limits`` are relative differences by category: for counts a share of the elements; for
    digests any limit demands equality. Other categories: by element type. With ``may_be_reshaped`` shapes may
    differ by a reshape: one side's compiler removed operators that pass the tensor on.
    """
    evidence = replace(lone_row(dumped), golden_dtype=golden.dtype, note="")
    forms = [read_shape(each.row.get("Shape")) for each in (dumped, golden)]
    shapes = [form if form is None or not may_be_reshaped else (math.prod(form),) for form in forms]
    if None not in shapes and shapes[0] != shapes[1]:
        note = f"shape {forms[0]} against {forms[1]}"
        return replace(evidence, verdict=TensorVerdict.SHAPE, note=note)
    # the statistics that both rows have; two configurations may choose different ones
    shared: dict[str, Pair] = {}
    for category, cell in dumped.cells.items():
        is_known = golden.cells.get(category) is not None
        if is_known and not any(_has_overflowed(category, each.cells) for each in (dumped, golden)):
            shared[category] = (cell, golden.cells[category])
    if not shared:
        return replace(evidence, note="no statistic in common")
    if all(_is_same(*pair) for pair in shared.values()) and dumped.dtype == golden.dtype:
        return replace(evidence, error=SAME)
    different = {category: pair for category, pair in shared.items() if _shows_difference(category, shared)}
    count = max(1, math.prod(dumped.shape))
    for category in filter(limits.__contains__, shared):
        # the limit of a count is a share of the elements
        is_count = BY_CATEGORY[category].nature in {Nature.COUNT, Nature.SIGN_COUNT}
        share = _distance(*shared[category]) / count if is_count else _difference(category, shared)
        if share > limits[category]:
            note = f"{_in_words(category, shared)}, limit {limits[category]:g}"
            error = _error(different, shared)
            return replace(evidence, verdict=TensorVerdict.DIFFERS, error=error, note=note)
    judged = {category: pair for category, pair in different.items() if category not in limits}
    # A weight counts as rounded, not as wrong, if rounding or printing alone explains the changed digits.
    has_evidence = evidence.dtype != evidence.golden_dtype or not judged.keys().isdisjoint(_EXTREMES)
    is_rounded = not judged or (
        has_evidence and any(_is_rounded_to(each, judged, shared) for each in _HALVES)
    )
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


def _has_overflowed(category: str, cells: Mapping[str, Cell]) -> bool:
    """Return whether a sum overflowed though all elements are finite, as may sums of float16 on a device."""
    extremes = (cells.get("max"), cells.get("min"))
    return category in SUMS and not _is_finite(cells[category]) and all(map(_is_finite, extremes))


def _shows_difference(category: str, shared: Mapping[str, Pair]) -> bool:
    """Return whether a statistic shows a difference beyond that of rounding and printing."""
    nature = BY_CATEGORY[category].nature
    if nature is Nature.DIGEST:  # without a distance: used only if no number is there
        return not any(BY_CATEGORY[other].nature in _NUMBERS for other in shared)
    return nature is not Nature.SIGN_COUNT and _difference(category, shared) > PRINTED


def lone_row(row: Record, note: str = "golden lacks this row") -> TensorEvidence:
    """Return a row without counterpart as evidence."""
    return TensorEvidence(row.io, row.slot, row.shape, row.dtype, note=note, is_weight=row.op_type in INPUTS)


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


def read_pair(dumped: str, golden: str, executions: Executions) -> tuple[Folder, Folder]:
    """Return the rows of two directories; without rows, tensors are measured as for the other side's rows."""
    mine, theirs = read_rows(dumped, executions[0]), read_rows(golden, executions[1])
    if mine.operators and not theirs.operators:
        return mine, measured_like(mine, golden, executions[1])
    if theirs.operators and not mine.operators:
        return measured_like(theirs, dumped, executions[0]), theirs
    return mine, theirs


def measured_like(side: Folder, path: str, execution: int | None) -> Folder:
    """Return the statistics of tensors, computed as the rows of the other side seem to have been.

    No file of a dump records whether a device computed the rows (``stat_calc_mode``), with other rounding
    than on the host: each way is tried, and the one with the most equal sums is taken.
    """
    known = categories(side)
    hosted = measure_tensors(path, execution, StatisticSpec(known), side)
    sums = StatisticSpec(tuple(category for category in SUMS if category in known))
    fits = [_same(side, hosted, sums)]
    if fits[0] == sum(len(row.cells.keys() & {*sums.categories}) for row in _placed(side).values()):
        return hosted
    for is_high in (True, False):
        spec = replace(sums, on_device=True, high_precision=is_high)
        fits.append(_same(side, measure_tensors(path, execution, spec, side), sums))
    if max(fits) == fits[0]:
        return hosted
    spec = StatisticSpec(known, on_device=True, high_precision=fits[1] == max(fits))
    return measure_tensors(path, execution, spec, side)


def _same(side: Folder, other: Folder, sums: StatisticSpec) -> int:
    rows, others = _placed(side), _placed(other)
    both = ((rows[place].cells, others[place].cells) for place in rows.keys() & others.keys())
    pairs = ((mine.get(each), theirs.get(each)) for mine, theirs in both for each in sums.categories)
    return sum(mine is not None and mine == theirs for mine, theirs in pairs)


def compare_statistics(
    dumped: str,
    golden: str,
    limits: Limits,
    executions: Executions,
    visit: Callable[[str, Folder], object] = lambda _path, _side: None,
) -> tuple[Report, Sequence[str]]:
    """Compare two dumps by their statistics; return the verdicts, and the directories without a counterpart.

    ``visit`` is called with the path and the rows of each directory that is compared.

    Raises:
        ToolError: A dump cannot be used.
        DumpReadError: A table of statistics cannot be read.
    """
    folders = pair_folders(dumped, golden, executions, is_measured=True)
    comparison = DumpComparison(dumped, golden, limits)
    for pair in folders.pairs:
        is_tree, execution = is_process(pair.golden), folders.executions[0]
        if not is_tree:
            rows, golden_rows = read_pair(pair.dumped, pair.golden, folders.executions)
        else:  # without rows, tensors are measured as the tree's
            golden_rows = read_tree(pair.golden, is_measured=True)
            is_other_tree = is_process(pair.dumped)
            rows = (
                read_tree(pair.dumped, is_measured=True)
                if is_other_tree
                else read_rows(pair.dumped, execution)
            )
            if not rows.operators:
                spec = StatisticSpec(categories(golden_rows))
                rows = measure_tensors(pair.dumped, execution, spec)
        visit(pair.dumped, rows)
        visit(pair.golden, golden_rows)
        mine, theirs = comparison.mine.of(pair.dumped), comparison.theirs.of(pair.golden)
        if is_tree:
            identities, golden_rows = pair_with_tree(rows, mine, golden_rows)
        else:
            identities = _identities((rows, mine.graph), (golden_rows, theirs.graph))
        comparison.list_facts(mine.graph, theirs.graph, identities)
        matched = match_executions(rows, golden_rows, identities)
        folder = ComparedFolder(pair.label, rows, golden_rows, matched, mine, theirs)
        comparison.add_measured(
            folder, [_tensors(folder, each, limits) for each in folder.matched.executions]
        )
    return comparison.report(), folders.alone


def _tensors(
    folder: ComparedFolder, execution: OperatorExecution, limits: Limits
) -> tuple[TensorEvidence, ...]:
    """Return the rows of an execution beside their counterparts."""
    compared, weights = [], folder.weights(execution)
    for row in execution.tensors:
        golden = execution.counterparts.get((row.io, row.slot))
        if not isinstance(row, MeasuredRecord):
            fault = row.fault if isinstance(row, TensorlessFile) else ""
            compared.append(TensorEvidence(row.io, row.slot, verdict=TensorVerdict.UNREADABLE, note=fault))
        elif not isinstance(golden, MeasuredRecord):
            compared.append(lone_row(row))
        else:
            is_other = (golden.op_name, golden.io) != (row.op_name, row.io)
            may_be_reshaped = is_other and folder.dumped.kind.is_compiled != folder.golden.kind.is_compiled
            known = row_evidence(row, golden, limits.statistics, may_be_reshaped=may_be_reshaped)
            is_weight = known.is_weight or (row.io is IO.INPUT and row.slot in weights)
            # only weights are exempt as rounded: results of operators are judged by limits
            is_rounded = known.is_rounded and is_weight
            note = joined(execution.note, known.note)
            compared.append(replace(known, is_weight=is_weight, is_rounded=is_rounded, note=note))
    if folder.matched.by_graphs.partners is None:
        present = {(each.io, each.slot) for each in execution.tensors}
        number = execution.number or 0
        compared += (
            lone_row(each, "mine lacks this row")
            for each in folder.golden.operators.get(execution.name, ())
            if each.pass_number == number and (each.io, each.slot) not in present
        )
    return tuple(sorted(compared, key=lambda each: (each.io, each.slot)))


# Limits for a row against its own tensor: counts and digests have to be equal.
_EXACT: Final = {
    each.category: 0.0
    for each in STATISTICS
    if each.nature in {Nature.COUNT, Nature.SIGN_COUNT, Nature.DIGEST}
}


def contradictions(path: str, execution: int | None) -> Iterator[str]:
    """Yield a message for each row of a directory that contradicts the tensor in its file.

    Tensors without a row, and tensors of which only the first elements were saved, are left out.

    Raises:
        DumpReadError: A table cannot be read, or there was no such execution.
    """
    side = read_rows(path, execution)
    if not side.operators:
        return
    measured = _placed(measured_like(side, path, execution))
    for place, row in _placed(side).items():
        if place not in measured:
            continue
        evidence = row_evidence(row, measured[place], _EXACT)
        if evidence.verdict is TensorVerdict.DIFFERS or (evidence.error is not None and evidence.note):
            name, io, slot, _ = place
            yield f"{name} {io} {slot}: {evidence.note.partition(', limit')[0]}"
