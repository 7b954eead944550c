"""The tensors of a finished dump, in the order of iterations and ranks, as rules look at them."""

from __future__ import annotations

import functools
import itertools
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.errors import DumpReadError
from msdump.plan import OperatorStatistic
from msdump.record import IO
from msdump.statistics.passes import is_measurable, measure
from msdump.statistics.totals import StatisticNeed
from msdump.store.layouts import PathKind
from msdump.store.operator_names import OperatorName
from msdump.store.read.cells import Cell, Row
from msdump.store.read.graphs.operator_graph import GraphOperator, OperatorGraph, SourceKind, ValueForm
from msdump.store.read.measured.records import MeasuredRecord
from msdump.store.read.model_trees import DumpedModel
from msdump.store.read.operator_files import OperatorRecord
from msdump.store.read.ranks import RankGraph
from msdump.store.read.reader import Dump, open_iteration
from msdump.store.read.records import Record
from msdump.store.read.tensor_directories import Iteration
from msdump.tools.mapping.sizes import directory_size
from msdump.tools.overflow.records import Task, overflowed_tasks
from msdump.watch.known import Known
from msdump.watch.quantities import Seen
from msdump.watch.ranks import digest
from msdump.watch.subjects import GRADIENTS, PARAMETER, WatchedTensor, state_of, subject
from msdump.watch.watch import Sighting

_log = logging.getLogger("msdump.tools")

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
    OperatorStatistic.MAX: "high",
    OperatorStatistic.MIN: "low",
    OperatorStatistic.AVG: "mean",
    OperatorStatistic.L2NORM: "norm",
    OperatorStatistic.NAN: "nan",
    OperatorStatistic.NEGATIVE_INF: "negative_inf",
    OperatorStatistic.POSITIVE_INF: "positive_inf",
}
"""Field of ``Known`` by the title of a column, of ``statistic.csv`` and of the csv file of an operator."""

_FLOATING: Final = ("float", "bfloat")
_CALLED_ALONE: Final = "operators called alone"
_DIGESTS: Final = ("SHA1", "MD5", "Hash")


@dataclass(frozen=True, slots=True)
class WatchedFile:
    """A tensor of a finished dump, or the row of its statistics.

    Attributes:
        subject: What rules select it by.
        sighting: When and where it was written.
        place: Tells it from tensors of other networks and graphs with the same name.
        path: Its file, for messages.
        source: The line of the program that made its operator, "" where the dump does not tell.
        see: Returns what it holds, once it is known what has to be found out; may raise DumpReadError and
            FormatError.
    """

    subject: WatchedTensor
    sighting: Sighting
    place: str
    path: str
    source: str
    see: Callable[[StatisticNeed], Seen] = field(repr=False, compare=False)


@dataclass(frozen=True)
class DumpedFolder:
    """An iteration with what the dump tells of its graph.

    Attributes:
        iteration: Its directory.
        number: Its number, that of the step where steps are counted.
        rank: Number of the rank, or of the device.
        place: Network and graph, or model.
        graph: Its operators, None where the dump does not tell them.
        weights: Names of its weights; None where the dump does not tell them.
        is_compiled: Whether files number the inputs that are there, as those of compiled graphs do.
    """

    iteration: Iteration
    number: int
    rank: int
    place: str
    graph: OperatorGraph | None
    weights: frozenset[str] | None = None
    is_compiled: bool = False

    def __reduce__(self) -> tuple[Callable[..., DumpedFolder], tuple[object, ...]]:
        """Travel to another process with the path of the directory, which is opened there."""
        place = self.number, self.rank, self.place, self.graph, self.weights, self.is_compiled
        iteration = self.iteration
        return _reopened, (iteration.path, (iteration.run, iteration.chosen), *place)

    @property
    def size(self) -> int:
        """Bytes of its files."""
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
        """The side on which operators stand for themselves: outputs, where some were dumped."""
        return IO.OUTPUT if any(each.io is IO.OUTPUT for each in self.iteration.tensors) else IO.INPUT

    @cached_property
    def has_parameters(self) -> bool:
        """Whether weights have files or rows of their own."""
        return any(record.is_parameter for record in self.iteration.tensors)


def _reopened(path: str, which: tuple[int, int | None], *place: Any) -> DumpedFolder:
    iteration = open_iteration(path, *which)
    if iteration is None:
        raise DumpReadError(path, "is no directory of tensors any more")
    return DumpedFolder(iteration, *place)


def groups(dump: Dump) -> Iterator[list[DumpedFolder]]:
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
                described = _graph(graph)
                tells_weights = rank.graph_file(PathKind.IR, graph.number) is not None
                weights = _weights(described) if described is not None and tells_weights else None
                for number, iteration in graph.iterations.items():
                    place = f"{network.name}/{graph.number}"
                    yield DumpedFolder(iteration, number, rank.number, place, described, weights)


def _of_models(dump: Dump) -> Iterator[DumpedFolder]:
    for model in (*dump.models, *dump.captured):
        described = _graph(model)
        weights = None if described is None else _weights(described)
        for iteration in model.iterations:
            key = iteration.key
            number = iteration.number if key.step is None else key.step
            rank = model.device if key.rank is None else key.rank
            place = f"{model.name}/{model.model_id}" if model.name else _CALLED_ALONE
            yield DumpedFolder(iteration, number, rank, place, described, weights, is_compiled=True)


def _graph(graph: RankGraph | DumpedModel) -> OperatorGraph | None:
    try:
        return graph.operator_graph
    except DumpReadError as error:  # tensors can be looked at without it
        _log.warning("%s; weights and source lines are not known", error)
        return None


def _weights(graph: OperatorGraph) -> frozenset[str]:
    """Return the names of the weights: floating-point numbers with dimensions, but no optimizer's state."""
    reads = ((each.op_type, [source.name for source in each.inputs]) for each in graph.operators.values())
    state = state_of(reads)
    return frozenset(
        name
        for name, form in graph.weights.items()
        if form.dtype.lower().startswith(_FLOATING) and form.shape and name not in state
    )


def tensors(folders: list[DumpedFolder]) -> Iterator[WatchedFile]:
    """Yield the tensors in the directories of one iteration of one rank by time, files before rows.

    Raises:
        DumpReadError: A directory or a table in it cannot be read.
    """
    found: list[WatchedFile] = []
    for folder in folders:
        found += _tensors(folder)
    yield from sorted(found, key=lambda tensor: tensor.sighting.time)


def _tensors(folder: DumpedFolder) -> Iterator[WatchedFile]:
    for record in folder.iteration.tensors:
        yield _of_record(folder, record)
    for operator, rows in folder.iteration.operator_statistics.items():
        for row in rows:
            yield _of_row(folder, operator, row)


def _of_record(folder: DumpedFolder, record: Record) -> WatchedFile:
    node = None if folder.graph is None else folder.graph.find(record.full_name or record.op_name)
    name = record.full_name or (record.op_name if node is None else node.full_name)
    return WatchedFile(
        _subject(folder, node, record.op_type, name, io=record.io, slot=record.slot),
        Sighting(folder.number, folder.rank, record.pass_number, record.timestamp),
        folder.place,
        record.path,
        "" if node is None else node.source_line,
        lambda need: replace(seen(record, need), overflows=lambda: _overflows(folder, record)),
    )


def _overflows(folder: DumpedFolder, record: Record) -> int | None:
    if not folder.iteration.overflows:
        return None
    is_shown = record.io is folder.shown_side
    return folder.overflows[record.name.task_id, record.name.stream_id] if is_shown else 0


def _of_row(folder: DumpedFolder, operator: OperatorName, row: Row) -> WatchedFile:
    node = None if folder.graph is None else folder.graph.find(operator.op_name)
    name = operator.op_name if node is None else node.full_name
    text = str(row.get("Input/Output", "")).lower()
    io, slot = IO.INPUT if text.startswith("in") else IO.OUTPUT, _whole(row.get("Index"))
    return WatchedFile(
        _subject(folder, node, operator.op_type, name, io=io, slot=slot),
        Sighting(folder.number, folder.rank, 0, operator.timestamp),
        folder.place,
        folder.iteration.path,
        "" if node is None else node.source_line,
        lambda _: Seen(str(row.get("Data Type", "")).lower(), known_of(row)),
    )


def _whole(cell: Cell) -> int:
    return cell if isinstance(cell, int) else 0


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
    """Tell whether an output is what a graph with gradients returns as a single floating-point number."""
    if graph is None or node is None or not graph.is_output(node.full_name):
        return False
    form = node.outputs[slot] if slot < len(node.outputs) else ValueForm()
    is_number = form.dtype.lower().startswith(_FLOATING) and form.shape in {(), (1,)}
    return is_number and any(each.startswith(GRADIENTS) for each in graph.operators)


def seen(record: Record, need: StatisticNeed) -> Seen:
    """Return what a tensor holds, or what its row of statistics tells where that was saved alone.

    Args:
        record: The tensor.
        need: What is to be found out of them.

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
    """Return the statistics of a row; those that are not in it are not known."""
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
    """Return the number of elements of a shape, ``(2,3)`` or ``2x3``; None where it is none."""
    if not isinstance(shape, str):
        return None
    sizes = shape.strip("()[] ").replace("x", ",").split(",")
    digits = [size.strip() for size in sizes if size.strip()]
    return math.prod(map(int, digits)) if all(each.isdigit() for each in digits) else None


def digest_of(tensor: WatchedFile) -> str:
    """Return what two tensors with the same elements have in common, from elements or from statistics.

    Raises:
        DumpReadError: The file cannot be read.
        FormatError: Its layout or its type is not known.
    """
    seen = tensor.see(StatisticNeed())
    if seen.elements is None:
        return seen.known.digest or repr(seen.known)
    return digest(seen.elements()).hex()
