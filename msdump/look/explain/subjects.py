"""Operators, weights, graph inputs and constants by all of their names, with files and rows in a dump."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from msdump.capture import GraphRefusals
from msdump.errors import DumpReadError
from msdump.graph import ROOT, Graph, Node
from msdump.read import (
    Dump,
    Iteration,
    ListedForms,
    MeasuredRecord,
    OperatorFile,
    Record,
    describe_miss,
    find_operators,
    of_rows,
)
from msdump.reasons import Reason
from msdump.record import OperatorRef
from msdump.store import names, operator_names


@dataclass(frozen=True, slots=True)
class Listing:
    """An operator's entry in graph files of a dump."""

    graph: int
    is_inner: bool  # whether the graph is a branch or a loop body
    tensors: ListedForms | None  # its inputs and outputs, None where no .ir file lists them


@dataclass(frozen=True)
class DumpedIteration:
    """A dumped iteration of a network, or one execution of a compiled model."""

    number: int | None  # number of the iteration, None for operators that were called alone
    directories: tuple[Iteration, ...]

    @cached_property
    def op_names(self) -> frozenset[str]:
        """Names of its operators as files spell them."""
        found: set[str] = set()
        for each in self.directories:
            found |= {record.op_name for record in each.tensor_files}
            found |= {file.name.op_name for file in each.files}
            found |= {str(row.get("Op Name")) for row in each.rows}
            found |= {name.op_name for name in each.operator_statistics}
        return frozenset(found)

    def tensors(self, op_names: Collection[str]) -> Iterator[Record]:
        """Yield the tensors of an operator, in the order of time, by the spellings of its name in files."""
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
    keys = ((group[0].key, group) for group in by_place.values())
    return tuple(
        DumpedIteration(key.iteration if key.step is None else key.step, tuple(group)) for key, group in keys
    )


def constants(dump: Dump, op_names: Collection[str]) -> Iterator[Record]:
    """Yield the files of a constant, which lie outside of the iterations' directories."""
    for folder in dump.constants:
        yield from _tensors(folder, op_names)


def failures(dump: Dump, op_names: Collection[str]) -> Iterator[Record]:
    """Yield the tensors of an operator in exception dumps, written when it failed."""
    for file in dump.failures:
        # vendor: names of brief exception dumps hold no operator, only the header does.
        if file.name.op_name in op_names or names.sanitize(file.header.op_name) in op_names:
            yield from file.records


def _tensors(iteration: Iteration, op_names: Collection[str]) -> Iterator[Record]:
    """Yield the files of an operator's tensors, then the rows of statistics."""
    records = [record for record in iteration.tensor_files if record.op_name in op_names]
    yield from sorted(records, key=lambda record: (record.timestamp, record.slot))
    for file in iteration.files:
        if file.name.op_name in op_names:
            yield from file.records
    measured = (*of_rows(iteration.rows, iteration), *iteration.measured_operators)
    yield from (record for record in measured if record.op_name in op_names)


def file_of(record: Record) -> str:
    """Return the path of a tensor's file, or of the table that has its statistics alone."""
    if not isinstance(record, MeasuredRecord):
        return record.path
    tables = record.directory.statistic_files.items()
    return next(path for name, path in tables if name is None or name.op_name == record.op_name)


@dataclass(frozen=True, slots=True)
class Subject:
    """An operator of a model or a dump, or a weight, graph input or constant."""

    operator: OperatorRef  # its type, "" where it is not known, and its full name
    node_name: str = ""  # name of its ONNX node, "" without a model
    # operators and tensors that the configuration leaves out of its graph, None without a model
    table: GraphRefusals | None = None
    # its place among the nodes of that graph, None for a subject that is no operator there
    position: int | None = None
    reason: Reason | None = None  # reason why it has no files at all, where that does not depend on its place
    listing: Listing | None = None  # its entry in graph files of the dump, which stand in for the model

    @property
    def node(self) -> Node | None:
        """The node that the device runs: the operator, or the fused one with it; None for other subjects."""
        if self.table is None or self.position is None:
            return None
        return self.table.graph.nodes[self.position]

    @property
    def is_parameter(self) -> bool:
        """Whether it is a weight, a graph input or a constant."""
        return self.operator.op_type == names.PARAMETER

    @property
    def op_names(self) -> frozenset[str]:
        """Spellings that files may have of the name of the operator that is dumped."""
        # Classic names hold only the last component of the full name.
        full_name = self.operator.full_name if self.node is None else self.node.operator.full_name
        if self.is_parameter:
            return frozenset({names.sanitize(full_name.removeprefix(f"{ROOT}/"))})
        return frozenset({names.sanitize(full_name), names.sanitize(full_name.rpartition("/")[2] or "/")})

    @property
    def known_as(self) -> frozenset[str]:
        """Names that mean this subject only: its full name and that of its ONNX node."""
        return frozenset(filter(None, (self.operator.full_name, self.node_name)))


def of_model(model: Graph, tables: Sequence[GraphRefusals]) -> Iterator[Subject]:
    """Yield the subjects of a model: operators that run, parts of fused ones, and folded ones."""
    originals = {node.name: node.operator for graph in model.walk() for node in graph.nodes}
    present: set[str] = set()
    for table in tables:
        for position, node in enumerate(table.graph.nodes):
            operator = node.operator
            yield Subject(operator, node.name, table, position)
            if node.name in originals and originals[node.name] != operator:  # renamed
                yield Subject(originals[node.name], node.name, table, position)
            present |= {part.name for part in node.members}
            for part in node.parts:
                yield Subject(
                    originals.get(part.name, part.operator), part.name, table, position, Reason.FUSED
                )
        for name, reason in table.parameters():
            yield Subject(OperatorRef(names.PARAMETER, name), "", table, None, reason)
    for name, operator in originals.items():
        if name not in present:
            yield Subject(operator, name, reason=Reason.FOLDED)


def of_dump(dump: Dump) -> Iterator[Subject]:
    """Yield the subjects that a dump names, each once: from lists of execution, then from files."""
    seen: set[str] = set()
    for subject in _named(dump):
        if names.sanitize(subject.operator.full_name) not in seen:
            yield subject
        seen |= subject.op_names


def _named(dump: Dump) -> Iterator[Subject]:
    types = {record.op_name: record.op_type for each in dump.all_iterations for record in each.tensor_files}
    for rank in dump.ranks.values():
        for graph in rank.compiled_graphs:
            operators = rank.listed_operators(graph)
            order = rank.order_unless_damaged(graph)
            for full_name in operators if order is None else order:
                short = names.sanitize(full_name.rpartition("/")[2])
                op_type = types.get(names.sanitize(full_name)) or types.get(short, "")
                listing = Listing(graph, graph in rank.called_graphs, operators.get(full_name))
                yield Subject(OperatorRef(op_type, full_name), listing=listing)
    for op_name, op_type in types.items():
        yield Subject(OperatorRef(op_type, op_name))
    for folder in dump.constants:
        yield from (Subject(OperatorRef(names.PARAMETER, record.op_name)) for record in folder.tensor_files)
    first: dict[str, OperatorFile] = {}
    for file in (*(file for each in dump.all_iterations for file in each.files), *dump.failures):
        first.setdefault(file.name.op_name, file)
    for op_name, file in first.items():
        full_name = ""
        with contextlib.suppress(DumpReadError):  # the other files are read
            full_name = file.header.op_name
        yield Subject(OperatorRef(file.name.op_type, full_name or op_name))
    for iteration in dump.all_iterations:
        for row in iteration.rows:
            yield Subject(OperatorRef(str(row.get("Op Type")), str(row.get("Op Name"))))
        for name in iteration.operator_statistics:
            yield Subject(OperatorRef(name.op_type, name.op_name))


def find(text: str, subjects: Iterable[Subject], stand_ins: Mapping[str, str]) -> Subject | str:
    """Return the subject that a text names, or an error message if the text names none or several.

    Args:
        text: A full name, the name of an ONNX node, the name of a file or the operator's part of it, or the
            end or a part of a full name that no other operator has.
        subjects: All subjects; of several with one name the first counts.
        stand_ins: The operator's part of the original name, by the name of a file that ``mapping.csv`` lists.
    """
    file = Path(text).name
    parsed_names = (
        names.parse(file),
        *(operator_names.parse(file, kind) for kind in operator_names.OperatorFileKind),
        operator_names.parse_exception(file),
    )
    in_file = next((parsed.op_name for parsed in parsed_names if parsed is not None), None)
    name_asked = stand_ins.get(file) or in_file or text.strip()
    by_full_name: dict[str, Subject] = {}
    for subject in subjects:
        by_full_name.setdefault(subject.operator.full_name, subject)
    exact = [subject for subject in by_full_name.values() if name_asked in subject.known_as]
    if exact:
        return exact[0]
    known = {name: (*subject.known_as, *subject.op_names) for name, subject in by_full_name.items()}
    found = find_operators(name_asked, known)
    # Several subjects with the same files count as one match, such as a kernel under both of its names.
    if len({by_full_name[name].op_names for name in found}) == 1:
        return by_full_name[found[0]]
    return describe_miss(text, known, found)


def mapped(dump: Dump) -> dict[str, str]:
    """Return the operator's part of the original name of every file that has a stand-in, by the stand-in."""
    folders = (*dump.all_iterations, *dump.constants)
    files = (file for folder in folders for file in folder.named_files)
    return {base: name.op_name for name, path in files if (base := Path(path).name) != str(name)}
