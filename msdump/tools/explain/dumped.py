"""Finds the files and rows of statistics of an operator in a dump, by the operator's name in files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from msdump.record import IO
from msdump.store import names
from msdump.store.layouts import STATISTICS, PathKind
from msdump.store.operator_names import OperatorFileKind
from msdump.store.read import graph_texts
from msdump.store.read.cells import Row
from msdump.store.read.graph_texts import ListedOperator
from msdump.store.read.operator_files import OperatorFile
from msdump.store.read.ranks import Rank
from msdump.store.read.reader import Dump
from msdump.store.read.tensor_directories import Iteration

_IO_TITLES: Final = ("IO", "Input/Output")
_SLOT_TITLES: Final = ("Slot", "Index")


@dataclass(frozen=True, slots=True)
class DumpedTensor:
    """A tensor of an operator in a dump: a file, part of a file, or a row of statistics.

    Attributes:
        io: Input or output.
        slot: Its number in the dump; compiled graphs do not number absent and left out tensors.
        path: The file.
        is_measured: Whether the file holds only statistics of the tensor.
    """

    io: IO
    slot: int
    path: str
    is_measured: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """What graph files of a dump tell of an operator.

    Attributes:
        graph: Number of its graph.
        is_inner: Whether the graph is a branch or a loop body.
        tensors: Its inputs and outputs, None where no .ir file lists them.
    """

    graph: int
    is_inner: bool
    tensors: ListedOperator | None


@dataclass(frozen=True)
class DumpedIteration:
    """A dumped iteration of a network, or one execution of a compiled model.

    Attributes:
        number: Number of the iteration, None for operators that were called alone.
        directories: Its directories: one for each graph of a network.
    """

    number: int | None
    directories: tuple[Iteration, ...]

    @cached_property
    def op_names(self) -> frozenset[str]:
        """Names of its operators as files spell them; DumpReadError where a file cannot be read."""
        return frozenset(name for each in self.directories for name in _op_names(each))

    def tensors(self, op_names: Collection[str]) -> Iterator[DumpedTensor]:
        """Yield the tensors of an operator, in the order of time.

        Args:
            op_names: The operator's name in the spellings that files may have.

        Raises:
            DumpReadError: A file cannot be read.
        """
        for each in self.directories:
            yield from _tensors(each, op_names)


def moments(dump: Dump) -> tuple[DumpedIteration, ...]:
    """Return every dumped iteration of a dump, by rank, network and number, or by model and time."""
    by_place: dict[tuple[object, ...], list[Iteration]] = {}
    for iteration in dump.all_iterations:
        key = iteration.key
        # A network has a directory for each graph of an iteration, a compiled model one in all.
        place = (key.path,) if key.time is not None else (key.rank, key.net, key.iteration)
        by_place.setdefault(place, []).append(iteration)
    return tuple(DumpedIteration(_number(group[0]), tuple(group)) for group in by_place.values())


def _number(iteration: Iteration) -> int | None:
    key = iteration.key
    return key.iteration if key.step is None else key.step


def constants(dump: Dump, op_names: Collection[str]) -> Iterator[DumpedTensor]:
    """Yield the files of a constant, which stand beside the iterations."""
    for folder in dump.constants:
        yield from _tensors(folder, op_names)


def failures(dump: Dump, op_names: Collection[str]) -> Iterator[DumpedTensor]:
    """Yield the tensors that an operator left as it failed; DumpReadError where a file cannot be read."""
    for file in dump.failures:
        # vendor: names of brief exception dumps hold no operator, only the header does.
        if file.name.op_name in op_names or names.sanitize(file.header.op_name) in op_names:
            yield from _of_file(file)


def listed_operators(rank: Rank) -> Iterator[tuple[str, Listing]]:
    """Yield the full names of the operators that a rank's graph files list; may DumpReadError."""
    for graph in rank.compiled_graphs:
        path = rank.graph_file(PathKind.IR, graph)
        operators = {} if path is None else graph_texts.read_operators(path)
        order = rank.execution_order(graph)
        for name in operators if order is None else order:
            yield name, Listing(graph, graph in rank.called_graphs, operators.get(name))


def _op_names(iteration: Iteration) -> Iterator[str]:
    yield from (record.op_name for record in iteration.tensor_files)
    yield from (file.name.op_name for file in iteration.files)
    yield from (str(row.get("Op Name")) for row in iteration.rows)
    yield from (name.op_name for name in iteration.operator_statistics)


def _tensors(iteration: Iteration, op_names: Collection[str]) -> Iterator[DumpedTensor]:
    records = [record for record in iteration.tensor_files if record.op_name in op_names]
    for record in sorted(records, key=lambda record: (record.timestamp, record.slot)):
        yield DumpedTensor(record.io, record.slot, record.path)
    for file in iteration.files:
        if file.name.op_name in op_names:
            yield from _of_file(file)
    path = f"{iteration.path}/{STATISTICS}"
    yield from _measured([row for row in iteration.rows if row.get("Op Name") in op_names], path)
    for name, rows in iteration.operator_statistics.items():
        if name.op_name in op_names:
            yield from _measured(rows, f"{iteration.path}/{name.file_name(OperatorFileKind.STATISTICS)}")


def _of_file(file: OperatorFile) -> Iterator[DumpedTensor]:
    return (DumpedTensor(record.io, record.slot, file.path) for record in file.records)


def _measured(rows: Sequence[Row], path: str) -> Iterator[DumpedTensor]:
    for row in rows:
        io = next((row[title] for title in _IO_TITLES if title in row), "")
        slot = next((row[title] for title in _SLOT_TITLES if title in row), None)
        if isinstance(slot, int):
            side = IO.INPUT if str(io).lower() == IO.INPUT else IO.OUTPUT
            yield DumpedTensor(side, slot, path, is_measured=True)
