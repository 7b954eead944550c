"""What watches the runs of a configuration that has rules or a history."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterable

from msdump.capture.flight.elements import KeptElements
from msdump.capture.flight.flight import Flight
from msdump.capture.flight.graph_watch import GraphWatch
from msdump.capture.flight.history import HistorySink
from msdump.capture.flight.hits import HitLog, stop_error
from msdump.capture.flight.note import HistoryNote
from msdump.capture.flight.shared import RankComparison
from msdump.communication.world import current
from msdump.errors import DumpWriteError, RankError
from msdump.graph.graph import Graph
from msdump.iterations import IterationSet
from msdump.plan import DumpPlan, OnHit
from msdump.store.write import exits
from msdump.store.write.sinks import Sink

_log = logging.getLogger("msdump.capture")


class WatchedFlight(Flight):
    """The rules and the history of a configuration; any thread may use it.

    Attributes:
        sink: Where the files of its networks go.
        networks: Gives each of its networks a number, from 0.
    """

    def __init__(self, plan: DumpPlan, sink: Sink) -> None:
        """Watch nothing yet.

        Args:
            plan: The plan of the first network.
            sink: Takes what is written.
        """
        super().__init__(sink)
        watch = plan.watch
        self._plan = watch
        self._inner = sink
        self._history: HistorySink | None = None
        self._note: HistoryNote | None = None
        compares_ranks = any(rule.compares_ranks for rule in watch.rules)
        self._ranks = RankComparison() if compares_ranks else None
        if watch.history:
            self.sink = self._history = HistorySink(sink, watch.history, watch.history_bytes)
            limits = (watch.history, watch.history_bytes)
            rank = current().identity.rank
            self._note = HistoryNote(plan.files.path, rank, self._history, limits)
        self._hits = HitLog(plan, self._history, self._note)
        self._kept = KeptElements(watch.history_bytes)
        if watch.history:
            exits.register(self)

    @property
    def written(self) -> IterationSet:
        """Iterations that are on disk whole, of those that are dumped: what is kept or dropped is not."""
        if self._history is not None:
            return self._history.account.written
        return self._hits.iterations if self._plan.writes_hits_alone else IterationSet()

    def graph_watch(self, graphs: Iterable[Graph]) -> GraphWatch | None:
        """Return what checks the rules on some graphs, None without rules."""
        if not self._plan.rules:
            return None
        return GraphWatch(graphs, self._plan, self._hits, self._kept, self._ranks)

    def begin(self, iteration: int) -> None:
        """Begin a step of this thread."""
        if self._history is not None:
            self._history.begin(iteration)
            exits.activate(self)
        if self._ranks is not None:
            self._ranks.begin()

    def compare_ranks(self, network: int, iteration: int) -> None:
        """Check the rules that compare what ranks hold at the end of a step of this thread.

        A hit is told on the rank that holds something else than most; the kept steps are written on all.

        Args:
            network: Number of the network.
            iteration: Number of the iteration.

        Raises:
            WatchHitError: This rank holds something else than most, and a hit is to end the run.
            RankError: Others cannot be asked, and a hit is to end the run.
            DumpWriteError: The steps that a hit releases could not be written.
        """
        if self._ranks is None:
            return
        try:
            findings, elsewhere = self._ranks.findings(network, iteration)
        except RankError as error:
            if self._plan.on_hit is OnHit.STOP:
                raise
            _log.warning("watch rules compare ranks no more: %s", error)
            return
        hit = self._hits.take(findings)
        if hit is not None and self._plan.on_hit is OnHit.STOP:
            raise stop_error(hit)
        if hit is None and elsewhere and self._plan.on_hit is not OnHit.LOG:
            self._release(elsewhere, iteration)

    def end(self) -> None:
        """End the step of this thread."""
        if self._history is not None:
            self._history.end()

    def broken_off(self, iteration: int, error: BaseException) -> None:
        """Write the kept steps and what the one that failed has dumped; what goes wrong is only logged."""
        if self._ranks is not None:  # the others would wait for what it holds
            current().fail(f"{type(error).__name__}: {error}")
        if self._history is None:
            return
        with contextlib.suppress(DumpWriteError):
            self._release(f"{type(error).__name__}: {error}", iteration)
        self._history.end()

    def _release(self, reason: str, iteration: int | None, *, of_all_threads: bool = False) -> None:
        if self._history is None or self._note is None:
            return
        written = self._history.release(of_all_threads=of_all_threads)
        if written:
            self._note.released(reason, iteration, written)
        self._inner.flush()

    def complete(self) -> None:
        """Write the kept steps of all threads: the process is told to end."""
        with contextlib.suppress(DumpWriteError):
            self._release("SIGTERM", None, of_all_threads=True)

    def forget(self) -> None:
        """Drop what is kept in a forked child: the parent has it."""
        if self._history is not None:
            self._history.forget()

    def close(self) -> None:
        """Drop the history, or write it where an exception ends the program, and close the sink.

        Raises:
            DumpWriteError: A file could not be written and the plan wants to know.
        """
        self._hits.close()
        if self._history is None or self._note is None:
            self._inner.close()
            return
        try:
            error = getattr(sys, "last_value", None)  # set where the interpreter ends with a traceback
            if error is not None:
                self._release(f"{type(error).__name__}: {error}", None)
            self._history.drop()
            self._note.write(self._inner)
        finally:
            exits.deactivate(self)
            self._history.close()
