"""Explains why each input and output of an operator has files in a dump, or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final

from msdump.capture.refusals import GraphRefusals, refusals
from msdump.execute.compilation import emulated
from msdump.graph.graph import Graph
from msdump.plan import DumpPlan, Tree, Trigger
from msdump.reasons import Reason
from msdump.record import IO
from msdump.selector import DumpMode
from msdump.store import names
from msdump.store.read.reader import Dump
from msdump.tools.explain import dumped, rehearsal, subjects
from msdump.tools.explain.account import Explanation, Situation, SlotAccount
from msdump.tools.explain.dumped import DumpedIteration, DumpedTensor
from msdump.tools.explain.missing import Missing
from msdump.tools.explain.subjects import Subject

_COUNTED: Final = frozenset({None, Reason.NO_ELEMENTS, Reason.NO_FAILURE})
"""Reasons (None: no reason) of tensors that a compiled graph numbers: those that reach its files."""

Held = Sequence[tuple[DumpedIteration | None, Sequence[DumpedTensor]]]
"""The tensors of one operator in each moment; None stands for those that it left as it failed."""


class Explainer:
    """Explains the operators of one dump."""

    def __init__(self, dump: Dump, situation: Situation, iteration: int | None = None) -> None:
        """Explain the operators of a dump.

        Args:
            dump: The dump.
            situation: The model and the configuration, as far as they are given.
            iteration: Number of the only iteration that counts, None: all.
        """
        self._dump = dump
        self._situation = situation
        self._plan = situation.plan
        self._iteration = iteration
        moments = dumped.moments(dump)
        self._moments = [each for each in moments if iteration is None or each.number == iteration]
        model = situation.model
        self._tables = () if model is None else _tables(model, self._plan, moments)
        self._missing = Missing(dump, situation, self._tables, moments)

    def find(self, text: str) -> Subject | tuple[str, ...]:
        """Return the operator that a text names, or the full names that it may mean.

        Raises:
            DumpReadError: A file of the dump cannot be read.
        """
        model = self._situation.model
        # The model first: it knows types, places and reasons that the names of files do not hold.
        from_model = [] if model is None else list(subjects.of_model(model, self._tables))
        covered = {name for subject in from_model for name in subject.op_names}
        from_dump_alone = [each for each in subjects.of_dump(self._dump) if covered.isdisjoint(each.op_names)]
        return subjects.find(text, (*from_model, *from_dump_alone), subjects.mapped(self._dump))

    def explain(self, subject: Subject) -> Explanation:
        """Return the files of an operator, and the reasons why there are no more.

        Raises:
            DumpReadError: A file of the dump cannot be read.
        """
        names_in_files = subject.op_names
        held: Held = [(moment, list(moment.tensors(names_in_files))) for moment in self._moments]
        failed = list(dumped.failures(self._dump, names_in_files))
        if failed:  # they stand beside the iterations
            held = [*held, (None, failed)]
        constants = dumped.constants(self._dump, names_in_files) if subject.is_parameter else ()
        return Explanation(subject, tuple(self._slots(subject, held)), tuple(constants))

    def _slots(self, subject: Subject, held: Held) -> Iterator[SlotAccount]:
        # Compiled graphs number the tensors of their files without gaps, so absent and left out ones shift
        # the numbers of those behind them.
        is_numbered_anew = subject.node is not None and self._plan.files.tree is not Tree.RANKS
        counts: Counter[IO] = Counter()
        for slot in self._known_slots(subject, [tensor for _, tensors in held for tensor in tensors]):
            number = slot.slot
            if is_numbered_anew:
                is_counted = bool(slot.value) and slot.reason in _COUNTED
                number = counts[slot.io] if is_counted else None
                counts[slot.io] += is_counted
            yield self._account(subject, slot, number, held)

    def _known_slots(self, subject: Subject, tensors: Collection[DumpedTensor]) -> Iterator[SlotAccount]:
        """Yield the inputs and outputs of an operator, with the reasons that hold before anything runs."""
        if subject.table is not None and subject.position is not None:
            yield from rehearsal.slots(subject.table, subject.position)
        elif subject.is_parameter:
            yield SlotAccount(IO.OUTPUT, 0, subject.operator.full_name, reason=subject.reason)
        else:
            reason = subject.reason or self._by_name(subject)
            what = self._plan.what
            for io, is_kept in ((IO.INPUT, what.keeps_inputs), (IO.OUTPUT, what.keeps_outputs)):
                side = reason or (None if is_kept else Reason.SIDE_NOT_ASKED)
                for slot in _listed_slots(subject, io, tensors):
                    yield replace(slot, reason=side or slot.reason)

    def _by_name(self, subject: Subject) -> Reason | None:
        """Return the reason why the configuration leaves an operator out by its name, None for no reason."""
        if not self._situation.is_configured:
            return None
        if not self._plan.is_enabled:
            return Reason.OTHER_DEVICE
        if self._plan.when.trigger is Trigger.EXCEPTION:
            return Reason.NO_FAILURE
        if self._plan.compiled.models is not None:  # acl.json selects by model and order, not by name alone
            return None
        return self._plan.what.selector.refusal(subject.operator.full_name)

    def _account(self, subject: Subject, slot: SlotAccount, number: int | None, held: Held) -> SlotAccount:
        """Return an input or output with its tensors in all moments, and the reasons where it has none.

        Args:
            subject: Its operator.
            slot: The input or output, with the reason that holds before anything runs.
            number: Its number in the dump, None where it has none there.
            held: The tensors of the operator in each moment.
        """
        tensors: list[DumpedTensor] = []
        missing: dict[Reason, tuple[int | None, ...]] = {}
        for moment, of_operator in held:
            slot_tensors = [
                tensor for tensor in of_operator if tensor.io is slot.io and tensor.slot == number
            ]
            tensors += slot_tensors
            if moment is not None and not slot_tensors and slot.reason is None:
                moment_reason = self._missing.reason(subject, slot, moment)
                if moment_reason is not None:
                    missing[moment_reason] = (*missing.get(moment_reason, ()), moment.number)
        reason = self._common_reason(subject, slot, tensors)
        return replace(slot, tensors=tuple(tensors), reason=reason, missing=missing)

    def _common_reason(
        self, subject: Subject, slot: SlotAccount, tensors: Sequence[DumpedTensor]
    ) -> Reason | None:
        """Return the reason why a slot has no file at all, None where it has some or reasons differ."""
        if tensors:
            return Reason.STATISTICS_ONLY if all(tensor.is_measured for tensor in tensors) else None
        if slot.reason is not None or self._moments:
            return slot.reason
        return self._missing.everywhere(subject, self._iteration)


def _listed_slots(subject: Subject, io: IO, tensors: Collection[DumpedTensor]) -> Iterator[SlotAccount]:
    """Yield the inputs or outputs of an operator that graph files list, else those that have files."""
    listing = subject.listing
    if listing is None or listing.tensors is None:
        numbers = sorted({tensor.slot for tensor in tensors if tensor.io is io})
        yield from (SlotAccount(io, number) for number in numbers or (None,))
        return
    listed = listing.tensors.inputs if io is IO.INPUT else listing.tensors.outputs
    for slot, tensor in enumerate(listed):
        value = f"{tensor.dtype} {tensor.shape}"
        yield SlotAccount(io, slot, value, reason=rehearsal.listed_reason(tensor))


def _tables(model: Graph, plan: DumpPlan, moments: Sequence[DumpedIteration]) -> tuple[GraphRefusals, ...]:
    """Return what a plan leaves out of each graph of a model.

    Under ``dump_mode`` 2 operators that have files were marked: ``set_dump`` leaves no other trace.
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
