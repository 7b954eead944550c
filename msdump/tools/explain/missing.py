"""Finds the reason why a dumped iteration lacks a file that the configuration asks for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from msdump.capture.refusals import GraphRefusals
from msdump.plan import Trigger
from msdump.reasons import Reason
from msdump.store.read.reader import Dump
from msdump.tools.explain import dumped
from msdump.tools.explain.account import Situation, SlotAccount
from msdump.tools.explain.dumped import DumpedIteration
from msdump.tools.explain.rehearsal import unfilled
from msdump.tools.explain.subjects import Subject


class Missing:
    """Finds reasons for the moments in which an operator left nothing."""

    def __init__(
        self,
        dump: Dump,
        situation: Situation,
        tables: Sequence[GraphRefusals],
        moments: Sequence[DumpedIteration],
    ) -> None:
        """Find reasons in a dump.

        Args:
            dump: The dump.
            situation: The model and the configuration, as far as they are given.
            tables: Operators and tensors that the configuration leaves out of the graphs of the model;
                none without a model.
            moments: The dumped iterations.
        """
        self._dump = dump
        self._situation = situation
        self._plan = situation.plan
        self._tables = tables
        self._moments = moments

    def everywhere(self, subject: Subject, iteration: int | None) -> Reason | None:
        """Return the reason where no iteration was dumped, or not the one that counts; None where unknown."""
        if not self._situation.is_configured:
            return None
        if iteration is not None:
            is_asked = iteration in self._plan.when.iterations
            return self._watched if is_asked else Reason.ITERATION_NOT_ASKED
        if self._plan.when.trigger is Trigger.OVERFLOW and not subject.is_parameter:
            return Reason.NO_OVERFLOW
        return self._watched or Reason.ITERATION_NOT_ASKED

    def reason(self, subject: Subject, slot: SlotAccount, moment: DumpedIteration) -> Reason | None:
        """Return the reason why a moment lacks the file of an input or output, None where it is unknown."""
        if not self._is_of_model(moment):
            return None
        if subject.is_parameter and any(True for _ in dumped.constants(self._dump, subject.op_names)):
            return Reason.ALREADY_WRITTEN
        return self._configured(subject, slot, moment) if self._situation.is_configured else None

    def _configured(self, subject: Subject, slot: SlotAccount, moment: DumpedIteration) -> Reason | None:
        if self._plan.when.trigger is Trigger.OVERFLOW and not subject.is_parameter:
            return Reason.OVERFLOW_LIMIT if self._is_limit_reached else Reason.NO_OVERFLOW
        if self._watched is not None:
            return self._watched
        if subject.table is None:
            return Reason.BRANCH_NOT_RUN if _has_no_directory(subject, moment) else None
        # A graph within a graph that left nothing at all did not run.
        if subject.table.graph.index and _names(subject.table).isdisjoint(moment.op_names):
            return Reason.BRANCH_NOT_RUN
        # The dump itself does not show which: a file that would still have fitted cannot have been refused.
        return Reason.OVER_LIMIT if self._is_full(subject.table, slot) else Reason.WRITE_ERROR

    @property
    def _watched(self) -> Reason | None:
        """The reason for which a run that is watched leaves nothing, None for a run that is not."""
        watch = self._plan.watch
        if watch.history:
            return Reason.NOT_RELEASED
        return Reason.NO_HIT if watch.writes_hits_alone else None

    def _is_of_model(self, moment: DumpedIteration) -> bool:
        """Tell whether a moment may be of the model: other networks may have dumped into the same tree."""
        is_known = not self._model_names.isdisjoint(moment.op_names)
        return is_known or not (self._tables and moment.op_names)

    @cached_property
    def _model_names(self) -> frozenset[str]:
        return frozenset().union(*map(_names, self._tables))

    @cached_property
    def _is_limit_reached(self) -> bool:
        # Only operators that overflow have files under this trigger, so the files count the overflows.
        limit = self._plan.when.overflow_limit
        return 0 < limit <= sum(len(moment.op_names) for moment in self._moments)

    def _is_full(self, table: GraphRefusals, slot: SlotAccount) -> bool:
        """Tell whether the files of the dump leave no room below ``max_bytes`` for one more."""
        max_bytes = self._plan.files.max_bytes
        array = unfilled(table, slot.value)
        return max_bytes > 0 and (array is None or self._used + array.nbytes > max_bytes)

    @cached_property
    def _used(self) -> int:
        folders = (*self._dump.all_iterations, *self._dump.constants)
        paths = {path for folder in folders for _, path in folder.named_files}
        return sum(Path(path).stat().st_size for path in paths)


def _has_no_directory(subject: Subject, moment: DumpedIteration) -> bool:
    """Tell whether the branch or loop body of an operator left nothing at all in a moment."""
    listing = subject.listing
    if listing is None or not listing.is_inner:
        return False
    return all(each.key.graph != listing.graph for each in moment.directories)


def _names(table: GraphRefusals) -> frozenset[str]:
    """Return the names of a graph's operators as files spell them."""
    nodes = table.graph.nodes
    return frozenset().union(*(Subject(node.operator).op_names for node in nodes))
