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
from msdump.encode import operator_csv
from msdump.errors import DumpReadError, FormatError
from msdump.executors import ExecutorChoice, directory_size, map_items
from msdump.graph import LOSS_CELL
from msdump.look.overflow import Task, overflowed_tasks
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
from msdump.statistics import NOTHING, STATISTICS, Nature, StatisticNeed
from msdump.store import PathKind
from msdump.watch import (
    GRADIENTS,
    PARAMETER,
    Finding,
    Hit,
    Past,
    RuleWatch,
    Seen,
    SharedTensor,
    Sighting,
    Undecided,
    WatchedTensor,
    WatchRule,
    compare_ranks,
    digest,
    need_of,
    state_of,
    subject,
)

_log = logging.getLogger("msdump.look")

_CATEGORIES: Final[Mapping[str, str]] = {
    **{each.title: each.category for each in STATISTICS if each.nature is not Nature.DIGEST},
    operator_csv.TITLES[OperatorStatistic.NAN]: "nan count",
    operator_csv.TITLES[OperatorStatistic.L2NORM]: "l2norm",
}
"""Statistic by column title: the titles of ``statistic.csv``, and acl's where they differ."""

_FLOATING: Final = ("float", "bfloat")
_CALLED_ALONE: Final = "operators called alone"
_DIGESTS: Final = ("SHA1", "MD5", "Hash")


See = Callable[[StatisticNeed], Seen]
"""Returns the statistics and elements of a tensor; raises DumpReadError and FormatError."""

WatchedFile = tuple[WatchedTensor, Sighting, See]
"""A tensor of a finished dump, or the row of its statistics."""


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
        """The side shown for operators: outputs, or inputs if no output of the iteration was dumped."""
        return IO.OUTPUT if any(each.io is IO.OUTPUT for each in self.iteration.tensors) else IO.INPUT

    @cached_property
    def has_parameters(self) -> bool:
        """Whether weights have files or rows of their own, not only as operators' inputs."""
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


def _watched_files(folders: Iterable[DumpedFolder]) -> list[WatchedFile]:
    """Return the tensors in the directories of one iteration of one rank by time, files before rows.

    Raises:
        DumpReadError: A directory or a table in it cannot be read.
    """
    found: list[WatchedFile] = []
    for folder in folders:
        for record in folder.iteration.tensors:
            name = record.full_name or record.op_name
            tensor = WatchedTensor(record.op_type, name, record.io, record.slot)
            moment = record.pass_number, record.timestamp, folder.place, record.path
            found.append((*_described(folder, tensor, moment), partial(_see, folder, record)))
        for operator, rows in folder.iteration.operator_statistics.items():
            for row in rows:
                side = IO.INPUT if str(row.get("Input/Output", "")).lower().startswith("in") else IO.OUTPUT
                slot = row.get("Index")
                index = slot if isinstance(slot, int) else 0
                tensor = WatchedTensor(operator.op_type, operator.op_name, side, index)
                moment = 0, operator.timestamp, folder.place, folder.iteration.path
                see = partial(_see_row, str(row.get("Data Type", "")).lower(), row)
                found.append((*_described(folder, tensor, moment), see))
    return sorted(found, key=lambda file: file[1].time)


def _described(
    folder: DumpedFolder, tensor: WatchedTensor, moment: tuple[int, int, str, str]
) -> tuple[WatchedTensor, Sighting]:
    """Return a tensor with its full name and roles from the folder's graph, and the time of writing."""
    node = None if folder.graph is None else folder.graph.find(tensor.name)
    name = tensor.name if node is None else node.full_name
    is_weight = False
    if tensor.op_type == PARAMETER:
        is_weight = folder.weights is None or name in folder.weights
    elif folder.weights is not None and node and tensor.io is IO.INPUT and not folder.has_parameters:
        absent = SourceKind.ABSENT if folder.is_compiled else None
        sources = [source.name for source in node.inputs if source.kind is not absent]
        is_weight = tensor.slot < len(sources) and sources[tensor.slot] in folder.weights
    is_loss = tensor.io is IO.OUTPUT and is_loss_output(folder.graph, node, tensor.slot)
    source = "" if node is None else node.source_line
    return (
        subject(tensor.op_type, name, tensor.io, tensor.slot, is_weight=is_weight, is_loss=is_loss),
        Sighting(folder.number, folder.rank, *moment, source),
    )


def _overflows(folder: DumpedFolder, record: Record) -> int | None:
    if not folder.iteration.overflows:
        return None
    is_shown = record.io is folder.shown_side
    return folder.overflows[record.name.task_id, record.name.stream_id] if is_shown else 0


def is_loss_output(graph: OperatorGraph | None, node: GraphOperator | None, slot: int) -> bool:
    """Return whether a graph with gradients returns an output, one float or from the cell of the loss."""
    if graph is None or node is None or not graph.is_output(node.full_name):
        return False
    form = node.outputs[slot] if slot < len(node.outputs) else ValueForm()
    is_number = form.shape in {(), (1,)} or LOSS_CELL in node.full_name
    is_loss = is_number and form.dtype.lower().startswith(_FLOATING)
    return is_loss and any(each.startswith(GRADIENTS) for each in graph.operators)


def _see(folder: DumpedFolder, record: Record, need: StatisticNeed) -> Seen:
    """Return the needed statistics and the elements of a tensor; of a row of statistics, only its cells."""
    if isinstance(record, MeasuredRecord):
        seen = _see_row(record.dtype, record.row)
    else:
        array = elements(record)
        seen = Seen.of(array, dtypes.from_numpy(array.dtype), need)
        if seen.elements is not None:  # not kept in memory for a later rule, but read again
            seen = replace(seen, elements=partial(elements, record))
    return replace(seen, overflows=lambda: _overflows(folder, record))


def elements(record: Record) -> np.ndarray:
    """Return the elements of a file in their own type, in the host's layout.

    Raises:
        DumpReadError: The file cannot be read.
        FormatError: Its layout or its type is not known.
    """
    return record.host if isinstance(record, OperatorRecord) else record.raw


def _see_row(dtype: str, row: Row, _need: StatisticNeed = NOTHING) -> Seen:
    """Return the statistics of a row; statistics without a cell are unknown."""
    values: dict[str, float] = {
        _CATEGORIES[title]: cell
        for title, cell in row.items()
        if title in _CATEGORIES and isinstance(cell, (int, float))
    }
    if "count" not in values and (count := _count(row.get("Shape"))) is not None:
        values["count"] = count
    return Seen(dtype, values, next((str(row[title]) for title in _DIGESTS if row.get(title)), ""))


def _count(shape: Cell) -> int | None:
    """Return the number of elements of a shape, ``(2,3)`` or ``2x3``; None for other texts."""
    if not isinstance(shape, str):
        return None
    sizes = shape.strip("()[] ").replace("x", ",").split(",")
    digits = [size.strip() for size in sizes if size.strip()]
    return math.prod(map(int, digits)) if all(each.isdigit() for each in digits) else None


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
        findings: The hits and undecided rules, in the order of iterations, ranks and time.
        unreadable: Files that could not be read, and why.
        looked_at: Number of checked tensors by rule.
    """

    rules: tuple[WatchRule, ...]
    findings: list[Finding] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    looked_at: Counter[str] = field(default_factory=Counter)

    @property
    def hits(self) -> list[Hit]:
        """The hits, in the order of iterations, ranks and time."""
        return [each for each in self.findings if isinstance(each, Hit)]

    @property
    def undecided(self) -> list[UndecidedRule]:
        """The rules that could not be checked, and why."""
        tensors: dict[tuple[str, str], list[WatchedTensor]] = {}
        for each in self.findings:
            if isinstance(each, Undecided):
                tensors.setdefault((each.rule.name, each.reason), []).append(each.subject)
        return [UndecidedRule(*key, len(found), found[0]) for key, found in tensors.items()]

    @property
    def unused(self) -> list[str]:
        """Names of the rules without a checked tensor."""
        return [rule.name for rule in self.rules if not self.looked_at[rule.name]]

    @property
    def has_checked(self) -> bool:
        """Whether a rule could be checked on a tensor."""
        undecided = Counter(each.rule.name for each in self.findings if isinstance(each, Undecided))
        return any(count > undecided[name] for name, count in self.looked_at.items())


@dataclass(slots=True)
class _RankReport(WatchReport):
    """Findings of the rules in one iteration of one rank.

    Attributes:
        number: Numbers of the iteration and of the rank.
        shared: Tensors that must be equal on all ranks, by place and name.
    """

    number: tuple[int, int] = (0, 0)
    shared: dict[Hashable, SharedTensor] = field(default_factory=dict)

    def check(self, watch: RuleWatch, file: WatchedFile, rules: Sequence[WatchRule]) -> None:
        """Check some rules on a tensor.

        Raises:
            DumpReadError: Its file cannot be read.
            FormatError: Its layout or its type is not known.
        """
        tensor, moment, see = file
        of_ranks = [rule for rule in rules if rule.compares_ranks]
        others = [rule for rule in rules if not rule.compares_ranks]
        if of_ranks:
            seen = see(NOTHING)
            rows = (seen.digest or repr(seen.values)).encode()
            key = (moment.place, tensor.name, tensor.io, tensor.slot, moment.pass_number)
            same = rows if seen.elements is None else digest(seen.elements())
            self.shared[key] = SharedTensor(tensor, moment, of_ranks, same)
        if others:
            self.findings += watch.check(others, tensor, moment, see(need_of(others)))


def _check(rules: tuple[WatchRule, ...], groups: Sequence[Sequence[DumpedFolder]]) -> list[_RankReport]:
    """Return the findings of the rules in the iterations of one rank, each of them in some directories.

    Raises:
        ConfigValueError: Matching the regular expression of a rule takes too long.
    """
    watch = RuleWatch(rules)
    rules_for = functools.cache(watch.rules_for)
    reports = []
    for folders in groups:
        report = _RankReport(rules, number=_order(folders[0]))
        reports.append(report)
        try:
            files = _watched_files(folders)
        except DumpReadError as error:
            report.unreadable.append(str(error))
            continue
        for file in files:
            chosen = [each for each in rules_for(file[0]) if file[1].iteration in each.target.iterations]
            report.looked_at.update(each.name for each in chosen)
            try:
                report.check(watch, file, chosen)
            except (DumpReadError, FormatError) as error:
                report.unreadable.append(str(error))
    return reports


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
        partial(_check, tuple(rules)),
        parts,
        size=lambda groups: sum(folder.size for folders in groups for folder in folders),
        executor=executor,
        name=lambda groups: groups[0][0].iteration.path,
        paths=(dump.path,),
        progress=progress,
    )
    report = WatchReport(tuple(rules))
    in_order = sorted(itertools.chain.from_iterable(checked), key=lambda part: part.number)
    for _, of_iteration in itertools.groupby(in_order, lambda part: part.number[0]):
        shared: dict[Hashable, dict[int, SharedTensor]] = {}
        for part in of_iteration:
            report.findings += part.findings
            report.unreadable += part.unreadable
            report.looked_at += part.looked_at
            for key, tensor in part.shared.items():
                shared.setdefault(key, {})[part.number[1]] = tensor
        report.findings += _compared(shared.values())
    return report


def _compared(shared: Iterable[Mapping[int, SharedTensor]]) -> list[Finding]:
    """Return the findings on tensors of an iteration that ranks should share, hits by rank and time."""
    findings: list[Finding] = []
    for tensors in shared:
        findings += compare_ranks({rank: each.digest for rank, each in tensors.items()}, tensors)[0]
    hits = [each for each in findings if isinstance(each, Hit)]
    undecided = [each for each in findings if not isinstance(each, Hit)]
    return [*sorted(hits, key=lambda hit: (hit.moment.rank, hit.moment.time)), *undecided]
