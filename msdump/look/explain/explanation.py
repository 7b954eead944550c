"""Explains why each input and output of an operator has files in a dump, or none."""

from __future__ import annotations

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
from msdump.execute import emulated
from msdump.graph import Graph
from msdump.look import UnfilledTensors
from msdump.look.explain import subjects
from msdump.look.explain.subjects import DumpedIteration, Subject
from msdump.plan import DumpPlan, Tree, Trigger
from msdump.read import Dump, MeasuredRecord, Record
from msdump.reasons import Reason
from msdump.record import IO, TensorRecord
from msdump.selector import DumpMode
from msdump.store import names


@dataclass(frozen=True, slots=True)
class Situation:
    """The model and the configuration that are given beside the dump.

    Attributes:
        model: The model, None where it is not given.
        plan: The plan of the configuration; without one, a plan that dumps everything.
        is_configured: Whether there is a configuration.
    """

    model: Graph | None
    plan: DumpPlan
    is_configured: bool


@dataclass(frozen=True, slots=True)
class SlotAccount:
    """The files of an input or output, and the reasons why there are no more.

    Attributes:
        io: Input or output.
        slot: Its index; None stands for all inputs or outputs, where their number is not known.
        value: Name of the value in the model, "" without a model.
        tensors: Its tensors in the dump, in the order of time.
        reason: Reason why it has no file in any iteration; None where reasons differ or are not known.
        missing: Numbers of the iterations that lack it, by reason.
    """

    io: IO
    slot: int | None
    value: str = ""
    tensors: tuple[Record, ...] = ()
    reason: Reason | None = None
    missing: Mapping[Reason, tuple[int | None, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The files of an operator in a dump, and the reasons why there are no more.

    Attributes:
        subject: The operator, weight, graph input or constant.
        slots: Accounts of its inputs, then of its outputs; of a fused operator the fused kernel's.
        constants: Files of a constant, which stand beside the iterations.
    """

    subject: Subject
    slots: tuple[SlotAccount, ...]
    constants: tuple[Record, ...] = ()


def _slots_of(table: GraphRefusals, position: int) -> Iterator[SlotAccount]:
    """Yield the inputs and outputs of the operator at a position, with the reasons that hold before a run."""
    node = table.graph.nodes[position]
    drop_steps = dropping(table.plan)
    for io, slot in (place for place, _ in table.slots(position)):
        name = (node.inputs if io == "input" else node.outputs)[slot]
        reason = table.refusal(position, io, slot)
        array = None if reason is not None else _unfilled(table, name)
        if array is not None:
            record = TensorRecord(node.operator, io, slot, dtypes.from_numpy(array.dtype), array, 0)
            outcome = walk(record, drop_steps)
            reason = outcome if isinstance(outcome, Reason) else None
        yield SlotAccount(io, slot, name, reason=reason)


def _unfilled(table: GraphRefusals, name: str) -> np.ndarray | None:
    """Return a tensor of the type and shape of a value, None where the model does not declare them."""
    return UnfilledTensors(table.graph, table.graph).of([name], [])[0]


def _has_no_directory(subject: Subject, moment: DumpedIteration) -> bool:
    """Return whether the operator's branch or loop body has no directory in a dumped iteration."""
    listing = subject.listing
    if listing is None or not listing.is_inner:
        return False
    return all(each.key.graph != listing.graph for each in moment.directories)


def _names(table: GraphRefusals) -> frozenset[str]:
    """Return the names of a graph's operators as files spell them."""
    nodes = table.graph.nodes
    return frozenset().union(*(Subject(node.operator).op_names for node in nodes))


_COUNTED: Final = frozenset({None, Reason.NO_ELEMENTS, Reason.NO_FAILURE})
"""Reasons (None: no reason) with which a tensor still has a number in the files of a compiled graph."""

Held = Sequence[tuple[DumpedIteration | None, Sequence[Record]]]
"""The tensors of one operator by dumped iteration; under None the ones in exception dumps."""


class Explainer:
    """Explains the operators of one dump."""

    def __init__(self, dump: Dump, situation: Situation, iteration: int | None) -> None:
        """Explain the operators of a dump, in one iteration or in all (None)."""
        self._dump = dump
        self._situation = situation
        self._plan = situation.plan
        self._iteration = iteration
        self._all_moments = subjects.moments(dump)
        self._moments = [each for each in self._all_moments if iteration is None or each.number == iteration]
        model = situation.model
        self._tables = () if model is None else _tables(model, self._plan, self._all_moments)

    def find(self, text: str) -> Subject | str:
        """Return the operator that a text names, or an error message if the text names none or several."""
        model = self._situation.model
        # The model first: it has types, places and reasons that the names of files lack.
        from_model = [] if model is None else list(subjects.of_model(model, self._tables))
        covered = {name for subject in from_model for name in subject.op_names}
        from_dump_alone = [each for each in subjects.of_dump(self._dump) if covered.isdisjoint(each.op_names)]
        return subjects.find(text, (*from_model, *from_dump_alone), subjects.mapped(self._dump))

    def explain(self, subject: Subject) -> Explanation:
        """Return the files of an operator, and the reasons why there are no more."""
        names_in_files = subject.op_names
        held: Held = [(moment, list(moment.tensors(names_in_files))) for moment in self._moments]
        failed = list(subjects.failures(self._dump, names_in_files))
        if failed:  # files of failures lie outside of the iterations' directories
            held = [*held, (None, failed)]
        constants = subjects.constants(self._dump, names_in_files) if subject.is_parameter else ()
        return Explanation(subject, tuple(self._slots(subject, held)), tuple(constants))

    def _slots(self, subject: Subject, held: Held) -> Iterator[SlotAccount]:
        # Files of compiled graphs number an operator's tensors without gaps: an absent or left out tensor
        # shifts the numbers of the later ones.
        is_numbered_anew = subject.node is not None and self._plan.files.tree is not Tree.RANKS
        counts: Counter[IO] = Counter()
        for slot in self._known_slots(subject, [tensor for _, tensors in held for tensor in tensors]):
            number = slot.slot
            if is_numbered_anew:
                is_counted = bool(slot.value) and slot.reason in _COUNTED
                number = counts[slot.io] if is_counted else None
                counts[slot.io] += is_counted
            yield self._account(subject, slot, number, held)

    def _known_slots(self, subject: Subject, tensors: Collection[Record]) -> Iterator[SlotAccount]:
        """Yield the inputs and outputs of an operator, with the reasons that hold before a run."""
        if subject.table is not None and subject.position is not None:
            yield from _slots_of(subject.table, subject.position)
        elif subject.is_parameter:
            yield SlotAccount(IO.OUTPUT, 0, subject.operator.full_name, reason=subject.reason)
        else:
            name, is_configured = subject.operator.full_name, self._situation.is_configured
            for io in IO:
                # acl.json selects by model and order, too
                is_known = is_configured and self._plan.compiled.models is None
                side = subject.reason or (refuse_by_name(self._plan, name, io) if is_known else None)
                for slot in _listed_slots(subject, io, tensors):
                    yield replace(slot, reason=side or slot.reason)

    def _account(self, subject: Subject, slot: SlotAccount, number: int | None, held: Held) -> SlotAccount:
        """Return an input or output with its tensors of all iterations, and the reasons where it has none.

        ``number`` is the slot's number in the dump, None if the dump never has a file of it.
        """
        tensors: list[Record] = []
        missing: dict[Reason, tuple[int | None, ...]] = {}
        for moment, of_operator in held:
            slot_tensors = [
                tensor for tensor in of_operator if tensor.io is slot.io and tensor.slot == number
            ]
            tensors += slot_tensors
            if moment is not None and not slot_tensors and slot.reason is None:
                moment_reason = self._reason_at(subject, slot, moment)
                if moment_reason is not None:
                    missing[moment_reason] = (*missing.get(moment_reason, ()), moment.number)
        reason = self._common_reason(subject, slot, tensors)
        return replace(slot, tensors=tuple(tensors), reason=reason, missing=missing)

    def _common_reason(self, subject: Subject, slot: SlotAccount, tensors: Sequence[Record]) -> Reason | None:
        """Return the reason why a slot has no file at all, None where it has some or reasons differ."""
        if tensors:
            return (
                Reason.STATISTICS_ONLY if all(isinstance(each, MeasuredRecord) for each in tensors) else None
            )
        if slot.reason is not None or self._moments:
            return slot.reason
        return self._reason_everywhere(subject)

    def _reason_everywhere(self, subject: Subject) -> Reason | None:
        """Return why no dumped iteration can have the files; None for an unknown reason."""
        if not self._situation.is_configured:
            return None
        if self._iteration is not None:
            is_asked = self._iteration in self._plan.when.iterations
            return self._watched if is_asked else Reason.ITERATION_NOT_ASKED
        if self._plan.when.trigger is Trigger.OVERFLOW and not subject.is_parameter:
            return Reason.NO_OVERFLOW
        return self._watched or Reason.ITERATION_NOT_ASKED

    def _reason_at(self, subject: Subject, slot: SlotAccount, moment: DumpedIteration) -> Reason | None:
        """Return why a dumped iteration lacks the file of an input or output; None for an unknown reason."""
        # the iteration may be that of another network dumped into the same tree
        if self._tables and moment.op_names and self._model_names.isdisjoint(moment.op_names):
            return None
        if subject.is_parameter and any(True for _ in subjects.constants(self._dump, subject.op_names)):
            return Reason.ALREADY_WRITTEN
        return self._configured(subject, slot, moment) if self._situation.is_configured else None

    def _configured(self, subject: Subject, slot: SlotAccount, moment: DumpedIteration) -> Reason | None:
        if self._plan.when.trigger is Trigger.OVERFLOW and not subject.is_parameter:
            return Reason.OVERFLOW_LIMIT if self._is_limit_reached else Reason.NO_OVERFLOW
        if self._watched is not None:
            return self._watched
        if subject.table is None:
            return Reason.BRANCH_NOT_RUN if _has_no_directory(subject, moment) else None
        # A branch or loop body without any file in the iteration did not run.
        if subject.table.graph.index and _names(subject.table).isdisjoint(moment.op_names):
            return Reason.BRANCH_NOT_RUN
        # The limit or a failed write: if there is room for the file, it was not the limit.
        return Reason.OVER_LIMIT if self._is_full(subject.table, slot) else Reason.WRITE_ERROR

    @property
    def _watched(self) -> Reason | None:
        """The reason why watch rules left no files; None if the configuration saves files without a hit."""
        watch = self._plan.watch
        if watch.history:
            return Reason.NOT_RELEASED
        return Reason.NO_HIT if watch.writes_hits_alone else None

    @cached_property
    def _model_names(self) -> frozenset[str]:
        return frozenset().union(*map(_names, self._tables))

    @cached_property
    def _is_limit_reached(self) -> bool:
        # Under this trigger only overflowing operators have files, so operators with files are counted.
        limit = self._plan.when.overflow_limit
        return 0 < limit <= sum(len(moment.op_names) for moment in self._all_moments)

    def _is_full(self, table: GraphRefusals, slot: SlotAccount) -> bool:
        """Return whether the files of the dump leave no room below ``max_bytes`` for one more."""
        max_bytes = self._plan.files.max_bytes
        array = _unfilled(table, slot.value)
        return max_bytes > 0 and (array is None or self._used + array.nbytes > max_bytes)

    @cached_property
    def _used(self) -> int:
        folders = (*self._dump.all_iterations, *self._dump.constants)
        paths = {path for folder in folders for _, path in folder.named_files}
        return sum(Path(path).stat().st_size for path in paths)


def _listed_slots(subject: Subject, io: IO, tensors: Collection[Record]) -> Iterator[SlotAccount]:
    """Yield the inputs or outputs of an operator that graph files list, else the ones with files."""
    listing = subject.listing
    if listing is None or listing.tensors is None:
        numbers = sorted({tensor.slot for tensor in tensors if tensor.io is io})
        yield from (SlotAccount(io, number) for number in numbers or (None,))
        return
    for slot, tensor in enumerate(listing.tensors[io is IO.OUTPUT]):
        value = f"{tensor.dtype} {tensor.shape}"
        # the .ir file lists type and shape: no .npy file holds texts, or no elements
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
