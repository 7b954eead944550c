"""Watch rules on a finished dump: its tensors in the order of iterations and ranks, and their hits."""

from __future__ import annotations

import functools
import itertools
import logging
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.analysis.overflow import Task, overflowed_tasks
from msdump.encode import operator_csv
from msdump.errors import DumpReadError, FormatError
from msdump.executors import ExecutorChoice, directory_size, map_items
from msdump.plan import OperatorStatistic
from msdump.read import (
    Cell,
    Dump,
    GraphOperator,
    Iteration,
    MeasuredRecord,
    OperatorGraph,
    OperatorRecord,
    Record,
    Row,
    SourceKind,
    ValueForm,
)
from msdump.record import IO
from msdump.statistics import StatisticNeed, is_measurable, measure
from msdump.store import OperatorName, PathKind
from msdump.watch import (
    ALONE,
    GRADIENTS,
    PARAMETER,
    Hit,
    Known,
    Past,
    RuleWatch,
    Seen,
    Sighting,
    Undecided,
    WatchedTensor,
    WatchRule,
    digest,
    disagreeing,
    exactly,
    need_of,
    state_of,
    subject,
)

_log = logging.getLogger("msdump.analysis")

_FIELDS: Final[Mapping[str, str]] = {
    "Max Value": "high",
    "Min Value": "low",
    "Avg Value": "mean",
    "L2Norm Value": "norm",
    "Count": "count",
    "Negative Zero Count": "negative",
    "Positive Zero Count": "positive",
    "Zero Count": "zero",
    "NaN Count": "nan",
    "Negative Inf Count": "negative_inf",
    "Positive Inf Count": "positive_inf",
    operator_csv.TITLES[OperatorStatistic.NAN]: "nan",
    operator_csv.TITLES[OperatorStatistic.L2NORM]: "norm",
}
"""Field of ``Known`` by the title of a column: those of ``statistic.csv``, and acl's where they differ."""

_FLOATING: Final = ("float", "bfloat")
_CALLED_ALONE: Final = "operators called alone"
_DIGESTS: Final = ("SHA1", "MD5", "Hash")


See = Callable[[StatisticNeed], Seen]
"""Returns the statistics and elements of a tensor; raises DumpReadError and FormatError."""


@dataclass(frozen=True, slots=True)
class WatchedFile:
    """A tensor of a finished dump, or the row of its statistics.

    Attributes:
        subject: The tensor as rules select it.
        sighting: Moment and place of its writing.
        place: Network and graph, which separate equal names.
        path: Its file, or the directory of the table.
        source: Source line of its operator, "" where unknown.
    """

    subject: WatchedTensor
    sighting: Sighting
    place: str
    path: str
    source: str


@dataclass(frozen=True)
class DumpedFolder:
    """An iteration of a graph.

    Attributes:
        iteration: Its directory.
        number: Number of the iteration, or of the step where steps are counted.
        rank: Number of the rank, or of the device.
        place: Network and graph, or model.
        graph: Its operators, None where the dump has no graph file.
        weights: Names of its weights, None where unknown.
        is_compiled: Whether file names count only the inputs that are there, as for compiled graphs.
    """

    iteration: Iteration
    number: int
    rank: int
    place: str
    graph: OperatorGraph | None
    weights: frozenset[str] | None = None
    is_compiled: bool = False

    @property
    def size(self) -> int:
        """Size of the files of the iteration in bytes."""
        return directory_size(self.iteration.path)

    @cached_property
    def overflows(self) -> Counter[Task]:
        """Number of overflow records by task and stream.

        Raises:
            DumpReadError: A record cannot be read.
        """
        return overflowed_tasks(self.iteration.overflows)

    @cached_property
    def shown_side(self) -> IO:
        """The side that stands for an operator: outputs, where some were dumped."""
        return IO.OUTPUT if any(each.io is IO.OUTPUT for each in self.iteration.tensors) else IO.INPUT

    @cached_property
    def has_parameters(self) -> bool:
        """Whether weights have files or rows of their own."""
        return any(record.is_parameter for record in self.iteration.tensors)


def folder_groups(dump: Dump) -> Iterator[list[DumpedFolder]]:
    """Yield the directories of each iteration of each rank together, iterations in order."""
    folders = sorted((*_of_ranks(dump), *_of_models(dump)), key=_order)
    for _, same in itertools.groupby(folders, _order):
        yield [*same]


def _order(folder: DumpedFolder) -> tuple[int, int]:
    return folder.number, folder.rank


def _of_ranks(dump: Dump) -> Iterator[DumpedFolder]:
    for rank in dump.ranks.values():
        for network in rank.networks.values():
            for graph in network.graphs.values():
                described = graph.operator_graph
                tells_weights = rank.graph_file(PathKind.IR, graph.number) is not None
                weights = _weights(described) if described is not None and tells_weights else None
                for number, iteration in graph.iterations.items():
                    place = f"{network.name}/{graph.number}"
                    yield DumpedFolder(iteration, number, rank.number, place, described, weights)


def _of_models(dump: Dump) -> Iterator[DumpedFolder]:
    for model in (*dump.models, *dump.captured):
        described = model.operator_graph
        weights = None if described is None else _weights(described)
        for iteration in model.iterations:
            rank = model.device if iteration.key.rank is None else iteration.key.rank
            place = f"{model.name}/{model.model_id}" if model.name else _CALLED_ALONE
            yield DumpedFolder(iteration, iteration.step, rank, place, described, weights, is_compiled=True)


def _weights(graph: OperatorGraph) -> frozenset[str]:
    """Return the names of the weights: floating-point numbers with dimensions, but no optimizer's state."""
    reads = ((each.op_type, [source.name for source in each.inputs]) for each in graph.operators.values())
    state = state_of(reads)
    return frozenset(
        name
        for name, form in graph.weights.items()
        if form.dtype.lower().startswith(_FLOATING) and form.shape and name not in state
    )


def watched_files(folders: Iterable[DumpedFolder]) -> list[tuple[WatchedFile, See]]:
    """Return the tensors in the directories of one iteration of one rank by time, files before rows.

    Raises:
        DumpReadError: A directory or a table in it cannot be read.
    """
    found: list[tuple[WatchedFile, See]] = []
    for folder in folders:
        found += [_of_record(folder, record) for record in folder.iteration.tensors]
        for operator, rows in folder.iteration.operator_statistics.items():
            found += [_of_row(folder, operator, row) for row in rows]
    return sorted(found, key=lambda pair: pair[0].sighting.time)


def _of_record(folder: DumpedFolder, record: Record) -> tuple[WatchedFile, See]:
    node = None if folder.graph is None else folder.graph.find(record.full_name or record.op_name)
    name = record.full_name or (record.op_name if node is None else node.full_name)
    tensor = WatchedFile(
        _subject(folder, node, record.op_type, name, io=record.io, slot=record.slot),
        Sighting(folder.number, folder.rank, record.pass_number, record.timestamp),
        folder.place,
        record.path,
        "" if node is None else node.source_line,
    )
    return tensor, lambda need: replace(seen(record, need), overflows=lambda: _overflows(folder, record))


def _of_row(folder: DumpedFolder, operator: OperatorName, row: Row) -> tuple[WatchedFile, See]:
    node = None if folder.graph is None else folder.graph.find(operator.op_name)
    name = operator.op_name if node is None else node.full_name
    text = str(row.get("Input/Output", "")).lower()
    io, slot = IO.INPUT if text.startswith("in") else IO.OUTPUT, row.get("Index")
    tensor = WatchedFile(
        _subject(folder, node, operator.op_type, name, io=io, slot=slot if isinstance(slot, int) else 0),
        Sighting(folder.number, folder.rank, 0, operator.timestamp),
        folder.place,
        folder.iteration.path,
        "" if node is None else node.source_line,
    )
    return tensor, lambda _: Seen(str(row.get("Data Type", "")).lower(), known_of(row))


def _overflows(folder: DumpedFolder, record: Record) -> int | None:
    if not folder.iteration.overflows:
        return None
    is_shown = record.io is folder.shown_side
    return folder.overflows[record.name.task_id, record.name.stream_id] if is_shown else 0


def _subject(
    folder: DumpedFolder, node: GraphOperator | None, op_type: str, name: str, *, io: IO, slot: int
) -> WatchedTensor:
    weights = folder.weights
    is_weight = False
    if op_type == PARAMETER:
        is_weight = weights is None or name in weights
    elif weights is not None and node is not None and io is IO.INPUT and not folder.has_parameters:
        absent = SourceKind.ABSENT if folder.is_compiled else None
        sources = [source.name for source in node.inputs if source.kind is not absent]
        is_weight = slot < len(sources) and sources[slot] in weights
    is_loss = io is IO.OUTPUT and is_loss_output(folder.graph, node, slot)
    return subject(op_type, name, io, slot, is_weight=is_weight, is_loss=is_loss)


def is_loss_output(graph: OperatorGraph | None, node: GraphOperator | None, slot: int) -> bool:
    """Return whether an output is a training loss: one float that a graph with gradients returns."""
    if graph is None or node is None or not graph.is_output(node.full_name):
        return False
    form = node.outputs[slot] if slot < len(node.outputs) else ValueForm()
    is_number = form.dtype.lower().startswith(_FLOATING) and form.shape in {(), (1,)}
    return is_number and any(each.startswith(GRADIENTS) for each in graph.operators)


def seen(record: Record, need: StatisticNeed) -> Seen:
    """Return the needed statistics of a tensor and its elements; only a row of statistics may be there.

    Raises:
        DumpReadError: Its file cannot be read.
        FormatError: Its layout or its type is not known.
    """
    if isinstance(record, MeasuredRecord):
        return Seen(record.dtype, known_of(record.row))
    array = elements(record)
    dtype = dtypes.from_numpy(array.dtype)
    if not array.size or not is_measurable(dtype):
        return Seen(dtype.name, Known(array.size))
    known = Known.of(measure(array, dtype, need), need)
    return Seen(dtype.name, known, functools.partial(elements, record))


def elements(record: Record) -> np.ndarray:
    """Return the elements of a file in their own type, in the host's layout.

    Raises:
        DumpReadError: The file cannot be read.
        FormatError: Its layout or its type is not known.
    """
    return record.host if isinstance(record, OperatorRecord) else record.raw


def known_of(row: Row) -> Known:
    """Return the statistics of a row; missing ones stay unknown."""
    values: dict[str, float | int] = {}
    for title, cell in row.items():
        name = _FIELDS.get(title)
        if name is not None and isinstance(cell, (int, float)):
            values[name] = cell
    if "count" not in values and (count := _count(row.get("Shape"))) is not None:
        values["count"] = count
    digest = next((str(row[title]) for title in _DIGESTS if row.get(title)), "")
    return Known(**values, digest=digest)  # type: ignore[arg-type]


def _count(shape: Cell) -> int | None:
    """Return the number of elements of a shape, ``(2,3)`` or ``2x3``; None for other texts."""
    if not isinstance(shape, str):
        return None
    sizes = shape.strip("()[] ").replace("x", ",").split(",")
    digits = [size.strip() for size in sizes if size.strip()]
    return math.prod(map(int, digits)) if all(each.isdigit() for each in digits) else None


@dataclass(frozen=True, slots=True)
class DumpedHit:
    """A limit that a tensor of a finished dump has passed.

    Attributes:
        hit: The hit.
        source: Source line of the operator, "" where unknown.
        path: File of the tensor, or directory of the table with its statistics.
    """

    hit: Hit
    source: str
    path: str


@dataclass(slots=True)
class CheckedRank:
    """Findings of the rules in one iteration of one rank.

    Attributes:
        iteration: Number of the iteration.
        rank: Number of the rank.
        hits: The hits.
        undecided: Checks that could not be made.
        unreadable: Files that could not be read, and why.
        looked_at: Number of checked tensors by rule.
        shared: Tensors that ranks should share, by place and name: a hash, the tensor and the rules.
    """

    iteration: int
    rank: int
    hits: list[DumpedHit] = field(default_factory=list)
    undecided: list[Undecided] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    looked_at: Counter[str] = field(default_factory=Counter)
    shared: dict[Hashable, tuple[str, WatchedFile, Sequence[WatchRule]]] = field(default_factory=dict)


def check(rules: tuple[WatchRule, ...], groups: Sequence[Sequence[DumpedFolder]]) -> list[CheckedRank]:
    """Return the findings of the rules in the iterations of one rank.

    Args:
        rules: The rules.
        groups: The directories of each iteration, in order.

    Raises:
        ConfigValueError: Matching the regular expression of a rule takes too long.
    """
    watch = RuleWatch(rules)
    rules_for = functools.cache(watch.rules_for)
    checked = []
    for folders in groups:
        rank = CheckedRank(folders[0].number, folders[0].rank)
        checked.append(rank)
        try:
            tensors = watched_files(folders)
        except DumpReadError as error:
            rank.unreadable.append(str(error))
            continue
        for tensor, see in tensors:
            iteration = tensor.sighting.iteration
            chosen = [each for each in rules_for(tensor.subject) if iteration in each.target.iterations]
            rank.looked_at.update(each.name for each in chosen)
            try:
                _check_tensor(watch, rank, tensor, see, chosen)
            except (DumpReadError, FormatError) as error:
                rank.unreadable.append(str(error))
    return checked


def _check_tensor(
    watch: RuleWatch, rank: CheckedRank, tensor: WatchedFile, see: See, rules: Sequence[WatchRule]
) -> None:
    subject = tensor.subject
    of_ranks = [rule for rule in rules if rule.compares_ranks]
    others = [rule for rule in rules if not rule.compares_ranks]
    if of_ranks:
        key = (tensor.place, subject.name, subject.io, subject.slot, tensor.sighting.pass_number)
        found = see(StatisticNeed())
        get = found.elements
        same = (found.known.digest or repr(found.known)) if get is None else digest(get()).hex()
        rank.shared[key] = same, tensor, of_ranks
    if not others:
        return
    for finding in watch.check(others, subject, tensor.sighting, see(need_of(others)), tensor.place):
        if isinstance(finding, Undecided):
            rank.undecided.append(finding)
        else:
            rank.hits.append(DumpedHit(finding, tensor.source, tensor.path))


@dataclass(frozen=True, slots=True)
class UndecidedRule:
    """A rule that could not be checked on some tensors, for one reason.

    Attributes:
        rule: Name of the rule.
        reason: Cause, a sentence.
        count: Number of tensors over all iterations.
        first: The first of them.
    """

    rule: str
    reason: str
    count: int
    first: WatchedTensor


@dataclass(slots=True)
class WatchReport:
    """Findings of rules in a dump.

    Attributes:
        rules: The rules.
        hits: The hits, in the order of iterations, ranks and time.
        undecided: The rules that could not be checked, and why.
        unreadable: Files that could not be read, and why.
        looked_at: Number of checked tensors by rule.
    """

    rules: tuple[WatchRule, ...]
    hits: list[DumpedHit] = field(default_factory=list)
    undecided: list[UndecidedRule] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    looked_at: Counter[str] = field(default_factory=Counter)

    @property
    def unused(self) -> list[str]:
        """Names of the rules without a checked tensor."""
        return [rule.name for rule in self.rules if not self.looked_at[rule.name]]

    @property
    def has_checked(self) -> bool:
        """Whether a rule could be checked on a tensor."""
        undecided: Counter[str] = Counter()
        for each in self.undecided:
            undecided[each.rule] += each.count
        return any(count > undecided[name] for name, count in self.looked_at.items())


def watch(
    dump: Dump,
    rules: Sequence[WatchRule],
    *,
    executor: ExecutorChoice = ExecutorChoice(),  # noqa: B008 - frozen
    progress: Callable[[int], object] = lambda _: None,
) -> WatchReport:
    """Return the findings of the rules in a dump.

    Args:
        dump: The dump.
        rules: The rules.
        executor: Runs the checks.
        progress: Called with the number of bytes that were checked.

    Raises:
        ConfigValueError: Matching the regular expression of a rule takes too long.
    """
    groups = [*folder_groups(dump)]
    pasts = [limit.quantity.past for rule in rules for limit in rule.limits]
    if any(rule.is_first_only for rule in rules) or any(past is not Past.NOTHING for past in pasts):
        by_rank: dict[int, list[list[DumpedFolder]]] = {}
        for folders in groups:
            by_rank.setdefault(folders[0].rank, []).append(folders)
        parts = [*by_rank.values()]  # one check walks through all iterations of a rank
    else:
        parts = [[folders] for folders in groups]
    checked = map_items(
        partial(check, tuple(rules)),
        parts,
        size=lambda groups: sum(folder.size for folders in groups for folder in folders),
        executor=executor,
        name=lambda groups: groups[0][0].iteration.path,
        paths=(dump.path,),
        progress=progress,
    )
    each = sorted(itertools.chain.from_iterable(checked), key=lambda rank: (rank.iteration, rank.rank))
    return _report(tuple(rules), each)


def _report(rules: tuple[WatchRule, ...], ranks: Sequence[CheckedRank]) -> WatchReport:
    """Merge the findings of all ranks in the order of iterations, then ranks, and compare the ranks."""
    report = WatchReport(rules)
    undecided: dict[tuple[str, str], list[WatchedTensor]] = {}
    for _, of_iteration in itertools.groupby(ranks, lambda rank: rank.iteration):
        shared: dict[Hashable, dict[int, tuple[str, WatchedFile, Sequence[WatchRule]]]] = {}
        for rank in of_iteration:
            report.hits += rank.hits
            report.unreadable += rank.unreadable
            report.looked_at += rank.looked_at
            for each in rank.undecided:
                undecided.setdefault((each.rule.name, each.reason), []).append(each.subject)
            for key, held in rank.shared.items():
                shared.setdefault(key, {})[rank.rank] = held
        apart: list[DumpedHit] = []
        for by_rank in shared.values():
            notes = disagreeing({number: same for number, (same, *_) in by_rank.items()})
            for number, note in notes.items():
                _, tensor, of_ranks = by_rank[number]
                subject, moment, count = tensor.subject, tensor.sighting, exactly(len(notes))
                hits = [Hit(rule, rule.limits[0], subject, moment, count, note) for rule in of_ranks]
                apart += [DumpedHit(hit, tensor.source, tensor.path) for hit in hits]
            if len(by_rank) == 1:
                ((_, tensor, of_ranks),) = by_rank.values()
                for rule in of_ranks:
                    undecided.setdefault((rule.name, ALONE), []).append(tensor.subject)
        report.hits += sorted(apart, key=lambda each: (each.hit.moment.rank, each.hit.moment.time))
    report.undecided += [
        UndecidedRule(rule, reason, len(tensors), tensors[0]) for (rule, reason), tensors in undecided.items()
    ]
    return report
