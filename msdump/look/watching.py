"""Watch rules on a finished dump: its tensors in the order of iterations and ranks, and their hits."""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from operator import itemgetter
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.errors import DumpReadError, FormatError
from msdump.executors import ExecutorChoice, directory_size, map_items
from msdump.graph import LOSS_CELL
from msdump.look.overflow import Task, overflowed_tasks
from msdump.read import (
    Dump,
    GraphOperator,
    Iteration,
    MeasuredRecord,
    OperatorGraph,
    OperatorRecord,
    Record,
    SourceKind,
    ValueForm,
)
from msdump.record import IO
from msdump.store import PathKind
from msdump.watch import (
    GRADIENTS,
    OVERFLOW_COUNT,
    Finding,
    Hit,
    Past,
    RuleWatch,
    SharedTensor,
    Sighting,
    Undecided,
    WatchedTensor,
    WatchRule,
    compare_ranks,
    measured_row,
    need_of,
    state_of,
    subject,
)

_FLOATING: Final = ("float", "bfloat")
_CALLED_ALONE: Final = "operators called alone"


@dataclass(frozen=True)
class DumpedFolder:
    """An iteration of a graph."""

    iteration: Iteration
    number: int  # number of the iteration, or of the step where steps are counted
    rank: int  # number of the rank, or of the device
    place: str  # network and graph, or model
    graph: OperatorGraph | None  # its operators, None where the dump has no graph file
    weights: frozenset[str] | None = None  # names of its weights, None where unknown
    # whether file names count only the inputs that are there, as for compiled graphs
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
    folders: list[DumpedFolder] = []
    for rank in dump.ranks.values():
        for network in rank.networks.values():
            for graph in network.graphs.values():
                described = graph.operator_graph
                lists_weights = rank.graph_file(PathKind.IR, graph.number) is not None
                weights = _weights(described) if described is not None and lists_weights else None
                place = f"{network.name}/{graph.number}"
                folders += (
                    DumpedFolder(iteration, number, rank.number, place, described, weights)
                    for number, iteration in graph.iterations.items()
                )
    for model in (*dump.models, *dump.captured):
        described = model.operator_graph
        weights = None if described is None else _weights(described)
        place = f"{model.name}/{model.model_id}" if model.name else _CALLED_ALONE
        for each in model.iterations:
            number = model.device if each.key.rank is None else each.key.rank
            folders.append(DumpedFolder(each, each.step, number, place, described, weights, is_compiled=True))
    for _, same in itertools.groupby(sorted(folders, key=_order), _order):
        yield [*same]


def _order(folder: DumpedFolder) -> tuple[int, int]:
    return folder.number, folder.rank


def _weights(graph: OperatorGraph) -> frozenset[str]:
    """Return the names of the weights: floating-point numbers with dimensions, but no optimizer's state."""
    reads = ((each.op_type, [source.name for source in each.inputs]) for each in graph.operators.values())
    state = state_of(reads)
    return frozenset(
        name
        for name, form in graph.weights.items()
        if form.dtype.lower().startswith(_FLOATING) and form.shape and name not in state
    )


def _described(folder: DumpedFolder, record: Record) -> tuple[WatchedTensor, Sighting]:
    """Return a tensor with its full name and roles from the folder's graph, and the time of writing."""
    name = record.full_name or record.op_name
    node = None if folder.graph is None else folder.graph.find(name)
    name = name if node is None else node.full_name
    is_weight = False
    if record.is_parameter:
        is_weight = folder.weights is None or name in folder.weights
    elif folder.weights is not None and node and record.io is IO.INPUT and not folder.has_parameters:
        absent = SourceKind.ABSENT if folder.is_compiled else None
        sources = [source.name for source in node.inputs if source.kind is not absent]
        is_weight = record.slot < len(sources) and sources[record.slot] in folder.weights
    is_loss = record.io is IO.OUTPUT and is_loss_output(folder.graph, node, record.slot)
    source = "" if node is None else node.source_line
    moment = record.pass_number, record.timestamp, folder.place, record.path
    return (
        subject(record.op_type, name, record.io, record.slot, is_weight=is_weight, is_loss=is_loss),
        Sighting(folder.number, folder.rank, *moment, source),
    )


def is_loss_output(graph: OperatorGraph | None, node: GraphOperator | None, slot: int) -> bool:
    """Return whether a graph with gradients returns an output, one float or from the cell of the loss."""
    if graph is None or node is None or not graph.is_output(node.full_name):
        return False
    form = node.outputs[slot] if slot < len(node.outputs) else ValueForm()
    is_number = form.shape in {(), (1,)} or LOSS_CELL in node.full_name
    is_loss = is_number and form.dtype.lower().startswith(_FLOATING)
    return is_loss and any(each.startswith(GRADIENTS) for each in graph.operators)


def elements(record: Record) -> np.ndarray:
    """Return a file's elements in their own type and the host's layout, or raise as the reader does."""
    return record.host if isinstance(record, OperatorRecord) else record.raw


def _row(folder: DumpedFolder, record: Record, rules: Sequence[WatchRule]) -> dict[str, float]:
    """Return the statistics of a tensor that rules need: saved ones of a row, else measured ones."""
    if isinstance(record, MeasuredRecord):
        saved = record.stats.saved
        row = {name: float(cell) for name, cell in saved.items() if isinstance(cell, int | float)}
        if record.row.get("Shape") is not None:
            row.setdefault("count", math.prod(record.shape))
    else:
        array = elements(record)
        row = measured_row(array, dtypes.from_numpy(array.dtype), need_of(rules))
    if folder.iteration.overflows and any(rule.reads_overflows for rule in rules):
        is_shown = record.io is folder.shown_side
        task = record.name.task_id, record.name.stream_id
        row[OVERFLOW_COUNT] = folder.overflows[task] if is_shown else 0
    return row


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


@dataclass(frozen=True, slots=True)
class CheckedRule:
    """A rule, and the number of tensors that it was checked on.

    Attributes:
        rule: Its name.
        condition: Its condition.
        tensors: Number of tensors that it looked at.
    """

    rule: str
    condition: str
    tensors: int


@dataclass(slots=True)
class WatchReport:
    """Findings of rules in a dump.

    Attributes:
        findings: The hits and undecided rules, in the order of iterations, ranks and time.
        unreadable: Files that could not be read, and why.
        looked_at: Number of checked tensors by rule.
        shared: Tensors of one iteration of a rank that ranks should share, by place and name.
        top: Largest number of hits in ``shown``, None for all.
    """

    rules: tuple[WatchRule, ...]
    findings: list[Finding] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    looked_at: Counter[str] = field(default_factory=Counter)
    shared: dict[Hashable, SharedTensor] = field(default_factory=dict)
    top: int | None = None

    @property
    def checked(self) -> list[CheckedRule]:
        """The rules."""
        return [CheckedRule(each.name, each.condition, self.looked_at[each.name]) for each in self.rules]

    @property
    def count(self) -> int:
        """Number of all hits."""
        return len(self.hits)

    @property
    def shown(self) -> list[Hit]:
        """The hits, in the order of iterations, ranks and time; the first ones with --top."""
        return self.hits[: self.top]

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
        """Whether any rule could be checked on any tensor."""
        undecided = Counter(each.rule.name for each in self.findings if isinstance(each, Undecided))
        return any(count > undecided[name] for name, count in self.looked_at.items())


def _check(rules: tuple[WatchRule, ...], groups: Sequence[Sequence[DumpedFolder]]) -> list[WatchReport]:
    """Return the findings of the rules in the iterations of one rank, each of them in some directories."""
    watch = RuleWatch(rules)
    rules_for = functools.cache(watch.rules_for)
    reports = []
    for folders in groups:
        report = WatchReport(rules)
        reports.append(report)
        try:  # by time, files before rows
            files = [
                (folder, record, *_described(folder, record))
                for folder in folders
                for record in (*folder.iteration.tensors, *folder.iteration.measured_operators)
            ]
        except DumpReadError as error:
            report.unreadable.append(str(error))
            continue
        for folder, record, tensor, moment in sorted(files, key=lambda file: file[3].time):
            chosen = [each for each in rules_for(tensor) if moment.iteration in each.target.iterations]
            report.looked_at.update(each.name for each in chosen)
            of_ranks = [rule for rule in chosen if rule.compares_ranks]
            others = [rule for rule in chosen if not rule.compares_ranks]
            try:
                row = _row(folder, record, chosen) if chosen else {}
                if of_ranks:
                    key = (moment.place, tensor.name, tensor.io, tensor.slot, moment.pass_number)
                    report.shared[key] = SharedTensor(tensor, moment, of_ranks, repr(row))
                if others:
                    has_elements = not isinstance(record, MeasuredRecord)
                    load = partial(elements, record) if has_elements else None  # read again by each use
                    report.findings += watch.check(others, tensor, moment, row, load)
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
    """Return the findings of the rules in a dump; ``progress`` is called with the bytes that were checked.

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
    numbers = (_order(folders[0]) for part in parts for folders in part)  # of iteration and rank
    in_order = sorted(zip(numbers, itertools.chain.from_iterable(checked), strict=True), key=itemgetter(0))
    for _, of_iteration in itertools.groupby(in_order, lambda part: part[0][0]):
        shared: dict[Hashable, dict[int, SharedTensor]] = {}
        for (_, rank), part in of_iteration:
            report.findings += part.findings
            report.unreadable += part.unreadable
            report.looked_at += part.looked_at
            for key, tensor in part.shared.items():
                shared.setdefault(key, {})[rank] = tensor
        findings = [
            finding
            for tensors in shared.values()
            for finding in compare_ranks({rank: each.row for rank, each in tensors.items()}, tensors)[0]
        ]
        hits = [each for each in findings if isinstance(each, Hit)]
        hits.sort(key=lambda hit: (hit.moment.rank, hit.moment.time))
        report.findings += [*hits, *(each for each in findings if isinstance(each, Undecided))]
    return report
