"""Explains why each input and output of an operator has files in a dump, or none.

An operator, weight, graph input or constant is found by all of its names, in the model and in the dump.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np

from msdump import dtypes
from msdump.capture import GraphRefusals, dropping, refusals, refuse_by_name, walk
from msdump.dtypes import STRING
from msdump.errors import DumpReadError
from msdump.execute import emulated
from msdump.graph import ROOT, Graph, Node
from msdump.look import unfilled
from msdump.plan import DumpPlan, Tree, Trigger
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
from msdump.record import IO, OperatorRef, TensorRecord
from msdump.selector import DumpMode
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
        """Yield an operator's tensors, by its names in files: files by time, then rows of statistics."""
        for each in self.directories:
            records = [record for record in each.tensor_files if record.op_name in op_names]
            yield from sorted(records, key=lambda record: (record.timestamp, record.slot))
            for file in each.files:
                if file.name.op_name in op_names:
                    yield from file.records
            measured = (*of_rows(each.rows, each), *each.measured_operators)
            yield from (record for record in measured if record.op_name in op_names)


def _moments(dump: Dump) -> tuple[DumpedIteration, ...]:
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
    # index of its node in the graph of `table`, None for a weight, input or constant
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


def _of_model(model: Graph, tables: Sequence[GraphRefusals]) -> Iterator[Subject]:
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


def _of_dump(dump: Dump) -> Iterator[Subject]:
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


@dataclass(frozen=True, slots=True)
class SlotAccount:
    """The files of an input or output, and the reasons why there are no more."""

    io: IO
    slot: int | None  # its index; None stands for all inputs or outputs, where their number is not known
    value: str = ""  # name of the value in the model, "" without a model
    tensors: tuple[Record, ...] = ()  # its tensors in the dump, in the order of time
    # reason why it has no file in any iteration; None where reasons differ or are not known
    reason: Reason | None = None
    # numbers of the iterations that lack it, by reason
    missing: Mapping[Reason, tuple[int | None, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The files of an operator in a dump, and the reasons why there are no more."""

    subject: Subject
    # accounts of its inputs, then of its outputs; of a fused operator the fused kernel's
    slots: tuple[SlotAccount, ...]
    constants: tuple[Record, ...] = ()  # files of a constant, which stand beside the iterations


_COUNTED: Final = frozenset({None, Reason.NO_ELEMENTS, Reason.NO_FAILURE})
"""Reasons (None: no reason) with which a tensor still has a number in the files of a compiled graph."""

Held = Sequence[tuple[DumpedIteration | None, Sequence[Record]]]
"""The tensors of one operator by dumped iteration; under None the ones in exception dumps."""


class Explainer:
    """Explains the operators of one dump."""

    def __init__(
        self, dump: Dump, model: Graph | None, plan: DumpPlan, iteration: int | None, *, is_configured: bool
    ) -> None:
        """Explain a dump in one iteration or in all; without a configuration the plan dumps everything."""
        self.dump, self.model, self.plan, self.is_configured = dump, model, plan, is_configured
        self._iteration = iteration
        self._constants = DumpedIteration(None, tuple(dump.constants))  # files outside of iterations
        self._all_moments = _moments(dump)
        self._moments = [each for each in self._all_moments if iteration is None or each.number == iteration]
        self._tables = () if model is None else _tables(model, plan, self._all_moments)

    def find(self, text: str) -> Subject | str:
        """Return the operator that a text names, or an error message if the text names none or several.

        Args:
            text: A full name, the name of an ONNX node, the name of a file or the operator's part of it, or
                the end or a part of a full name that no other operator has.
        """
        # The model first: it has types, places and reasons that the names of files lack.
        from_model = [] if self.model is None else list(_of_model(self.model, self._tables))
        covered = {name for subject in from_model for name in subject.op_names}
        from_dump_alone = [each for each in _of_dump(self.dump) if covered.isdisjoint(each.op_names)]
        file = Path(text).name
        # of the original names of files that mapping.csv lists, the operator's part
        folders = (*self.dump.all_iterations, *self.dump.constants)
        files = (each for folder in folders for each in folder.named_files)
        mapped = {base: name.op_name for name, path in files if (base := Path(path).name) != str(name)}
        parsed_names = (
            names.parse(file),
            *(operator_names.parse(file, kind) for kind in operator_names.OperatorFileKind),
            operator_names.parse_exception(file),
        )
        in_file = next((parsed.op_name for parsed in parsed_names if parsed is not None), None)
        name_asked = mapped.get(file) or in_file or text.strip()
        by_full_name: dict[str, Subject] = {}
        for subject in (*from_model, *from_dump_alone):
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

    def explain(self, subject: Subject) -> Explanation:
        """Return the files of an operator, and the reasons why there are no more."""
        names_in_files = subject.op_names
        held: Held = [(moment, list(moment.tensors(names_in_files))) for moment in self._moments]
        failed = [
            record
            for file in self.dump.failures
            # vendor: names of brief exception dumps hold no operator, only the header does.
            if file.name.op_name in names_in_files or names.sanitize(file.header.op_name) in names_in_files
            for record in file.records
        ]
        if failed:  # files of failures lie outside of the iterations' directories
            held = [*held, (None, failed)]
        constants = self._constants.tensors(names_in_files) if subject.is_parameter else ()
        # Files of compiled graphs number an operator's tensors without gaps: an absent or left out tensor
        # shifts the numbers of the later ones.
        is_numbered_anew = subject.node is not None and self.plan.files.tree is not Tree.RANKS
        counts: Counter[IO] = Counter()
        slots = []
        for slot in self._known_slots(subject, [tensor for _, tensors in held for tensor in tensors]):
            number = slot.slot
            if is_numbered_anew:
                is_counted = bool(slot.value) and slot.reason in _COUNTED
                number = counts[slot.io] if is_counted else None
                counts[slot.io] += is_counted
            tensors: list[Record] = []
            missing: dict[Reason, tuple[int | None, ...]] = {}
            for moment, of_operator in held:
                here = [each for each in of_operator if each.io is slot.io and each.slot == number]
                tensors += here
                reason = (
                    None if here or moment is None or slot.reason else self._reason_at(subject, slot, moment)
                )
                if moment is not None and reason is not None:
                    missing[reason] = (*missing.get(reason, ()), moment.number)
            common = slot.reason
            if tensors:  # reasons differ, or there is none
                is_measured = all(isinstance(each, MeasuredRecord) for each in tensors)
                common = Reason.STATISTICS_ONLY if is_measured else None
            elif common is None and not self._moments and self.is_configured:
                when = self.plan.when
                if self._iteration is not None:
                    common = (
                        self._watched if self._iteration in when.iterations else Reason.ITERATION_NOT_ASKED
                    )
                elif when.trigger is Trigger.OVERFLOW and not subject.is_parameter:
                    common = Reason.NO_OVERFLOW
                else:
                    common = self._watched or Reason.ITERATION_NOT_ASKED
            slots.append(replace(slot, tensors=tuple(tensors), reason=common, missing=missing))
        return Explanation(subject, tuple(slots), tuple(constants))

    def _known_slots(self, subject: Subject, tensors: Collection[Record]) -> Iterator[SlotAccount]:
        """Yield the inputs and outputs of an operator, with the reasons that hold before a run."""
        table, position = subject.table, subject.position
        if table is not None and position is not None:
            node, steps = table.graph.nodes[position], dropping(table.plan)
            for io, slot in (place for place, _ in table.slots(position)):
                name = (node.inputs if io is IO.INPUT else node.outputs)[slot]
                reason = table.refusal(position, io, slot)
                array = None if reason is not None else unfilled(table.graph, name)
                if isinstance(array, np.ndarray):
                    dtype = dtypes.from_numpy(array.dtype)
                    outcome = walk(TensorRecord(node.operator, io, slot, dtype, array, 0), steps)
                    reason = outcome if isinstance(outcome, Reason) else None
                yield SlotAccount(io, slot, name, reason=reason)
        elif subject.is_parameter:
            yield SlotAccount(IO.OUTPUT, 0, subject.operator.full_name, reason=subject.reason)
        else:
            # acl.json selects by model and order, too
            is_known = self.is_configured and self.plan.compiled.models is None
            for io in IO:
                side = refuse_by_name(self.plan, subject.operator.full_name, io) if is_known else None
                for each in _listed_slots(subject, io, tensors):
                    yield replace(each, reason=subject.reason or side or each.reason)

    def _reason_at(self, subject: Subject, slot: SlotAccount, moment: DumpedIteration) -> Reason | None:
        """Return why a dumped iteration lacks the file of an input or output; None for an unknown reason."""
        table, listing = subject.table, subject.listing
        # the iteration may be that of another network dumped into the same tree
        if self._tables and moment.op_names and self._model_names.isdisjoint(moment.op_names):
            return None
        if subject.is_parameter and any(True for _ in self._constants.tensors(subject.op_names)):
            return Reason.ALREADY_WRITTEN
        reason = None
        if not self.is_configured:
            pass
        elif self.plan.when.trigger is Trigger.OVERFLOW and not subject.is_parameter:
            # under this trigger only overflowing operators have files, so operators with files are counted
            limit = self.plan.when.overflow_limit
            is_reached = 0 < limit <= sum(len(each.op_names) for each in self._all_moments)
            reason = Reason.OVERFLOW_LIMIT if is_reached else Reason.NO_OVERFLOW
        elif self._watched is not None:
            reason = self._watched
        elif table is None:
            # a branch or loop body that did not run has no directory
            graphs = {each.key.graph for each in moment.directories}
            if listing is not None and listing.is_inner and listing.graph not in graphs:
                reason = Reason.BRANCH_NOT_RUN
        # a branch or loop body without any file in the iteration did not run
        elif table.graph.index and _names(table).isdisjoint(moment.op_names):
            reason = Reason.BRANCH_NOT_RUN
        else:  # the limit or a failed write: if there is room for the file, it was not the limit
            most, array = self.plan.files.max_bytes, unfilled(table.graph, slot.value)
            is_full = most > 0 and not (isinstance(array, np.ndarray) and self._used + array.nbytes <= most)
            reason = Reason.OVER_LIMIT if is_full else Reason.WRITE_ERROR
        return reason

    @property
    def _watched(self) -> Reason | None:
        """The reason why watch rules left no files; None if the configuration saves files without a hit."""
        watch = self.plan.watch
        if watch.history:
            return Reason.NOT_RELEASED
        return Reason.NO_HIT if watch.writes_hits_alone else None

    @cached_property
    def _model_names(self) -> frozenset[str]:
        return frozenset().union(*map(_names, self._tables))

    @cached_property
    def _used(self) -> int:
        folders = (*self.dump.all_iterations, *self.dump.constants)
        paths = {path for folder in folders for _, path in folder.named_files}
        return sum(Path(path).stat().st_size for path in paths)


def _names(table: GraphRefusals) -> frozenset[str]:
    """Return the names of a graph's operators as files spell them."""
    return frozenset().union(*(Subject(node.operator).op_names for node in table.graph.nodes))


def _listed_slots(subject: Subject, io: IO, tensors: Collection[Record]) -> Iterator[SlotAccount]:
    """Yield the inputs or outputs of an operator that graph files list, else the ones with files."""
    listing = subject.listing
    if listing is None or listing.tensors is None:
        numbers = sorted({tensor.slot for tensor in tensors if tensor.io is io})
        yield from (SlotAccount(io, number) for number in numbers or (None,))
        return
    for slot, tensor in enumerate(listing.tensors[io is IO.OUTPUT]):
        value = f"{tensor.dtype} {tensor.shape}"
        # the .ir file lists type and shape: tensors of texts, and ones without elements, have no .npy file
        reason = Reason.NO_ELEMENTS if 0 in (tensor.shape or ()) else None
        reason = Reason.TEXT if tensor.dtype == STRING.title else reason
        yield SlotAccount(io, slot, value, reason=reason)


def _tables(model: Graph, plan: DumpPlan, moments: Sequence[DumpedIteration]) -> tuple[GraphRefusals, ...]:
    """Return the refusals of a plan for each graph of a model.

    Under ``dump_mode`` 2 operators with files count as marked: calls of ``set_dump`` are not recorded.
    """
    device = emulated(model, plan, plan.context)
    marked: frozenset[str] = frozenset()
    if plan.what.selector.mode is DumpMode.MARKED:
        op_names = frozenset[str]().union(*(moment.op_names for moment in moments))
        graphs = (model if device is None else device.graph).walk()
        full_names = (
            part.operator.full_name
            for graph in graphs
            for node in graph.nodes
            for part in (node, *node.parts)
        )
        marked = frozenset(name for name in full_names if names.sanitize(name) in op_names)
    return refusals(model, device, plan, marked, model.file_stem)
