"""The state that all networks of a process share: counters, marks by name, sinks."""

from __future__ import annotations

import atexit
import contextlib
import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from msdump.capture.flight.flight import Flight
from msdump.capture.marks import NamedMarks
from msdump.capture.statistics.hashing import WAITING_BYTES, HashingSink
from msdump.capture.suggestions import suggest_for
from msdump.capture.traced_files import TracedFiles
from msdump.capture.triggers import OverflowLimit
from msdump.counters import Counters
from msdump.errors import DumpWriteError
from msdump.graph.graph import Node
from msdump.plan import DumpPlan, FileFormat
from msdump.selector import DumpMode
from msdump.store.clock import CLOCK
from msdump.store.write.files import DUMP_MODE, FILE_MODE, DiskFiles, Files
from msdump.store.write.sinks import Budget, Sink, SyncSink
from msdump.store.write.streams import WriteStream, write_stream
from msdump.threads import new_lock
from msdump.tracing import recording

_log = logging.getLogger("msdump.capture")

_MOST_NAMES: Final = 20  # a longer list of unused kernels is cut in the log


@dataclass(slots=True)
class _Output:
    """The sink of one configuration, with what the process keeps of its dump.

    Attributes:
        plan: The plan of the first network.
        flight: What watches the runs.
        sink: Takes the files of all networks.
        used: The ``kernels`` items for which something was dumped.
        hints: What may have been meant by items that select nothing.
        is_described: ``.dump_metadata`` is written.
        overflows: Counts the overflowing operators of all networks.
        configured: When the first network was compiled, ``YYYYMMDDHHMMSS``.
    """

    plan: DumpPlan
    flight: Flight
    sink: Sink
    overflows: OverflowLimit
    configured: str
    used: set[str] = field(default_factory=set)
    hints: dict[str, str] = field(default_factory=dict)
    is_described: bool = False

    def unused(self) -> list[str]:
        """Return the ``kernels`` items for which nothing was dumped, each with what may have been meant."""
        items = [
            pattern.item for pattern in self.plan.what.selector.patterns if pattern.item not in self.used
        ]
        items = [f"{item} ({self.hints[item]})" if item in self.hints else item for item in items]
        more = len(items) - _MOST_NAMES
        return items if more <= 0 else [*items[:_MOST_NAMES], f"... and {more} more"]


class Process:
    """The state that dumps of several networks have in common; any thread may use it.

    Attributes:
        counters: Its numbers.
        is_dumping: What ``dump_start`` and ``dump_stop`` said last, None: the plan's iterations hold.
        named_marks: The names that ``set_dump`` was given.
    """

    def __init__(self, counters: Counters | None = None) -> None:
        """Start as a fresh process does.

        Args:
            counters: Its numbers, None: all from their beginnings.
        """
        self.counters = counters or Counters()
        self.is_dumping: bool | None = None
        self.named_marks = NamedMarks()
        self._lock = new_lock()
        self._places: set[Hashable] = set()
        self._outputs: dict[str, _Output] = {}

    def beside(self) -> Process:
        """Return the shared state of networks that acl or torchair configures, beside those of this process.

        They have sinks of their own; files that show graphs are numbered across both.
        """
        return Process(self.counters.beside())

    def dumps(self, plan: DumpPlan, iteration: int) -> bool:
        """Tell whether an iteration is dumped: as ``dump_start`` and ``dump_stop`` say, else the plan."""
        return iteration in plan.when.iterations if self.is_dumping is None else self.is_dumping

    def settle(self, place: Hashable, settle: Callable[[], None]) -> None:
        """Call a function the first time that this process dumps into a place; other threads wait for it.

        Args:
            place: Tells the place from others.
            settle: Deals with what earlier programs left there. Where it raises, the next network that
                dumps there calls it again.
        """
        with self._lock:
            if place not in self._places:
                settle()
                self._places.add(place)

    def overflow_limit(self, plan: DumpPlan) -> OverflowLimit:
        """Return the count of overflowing operators that all networks of a configuration share."""
        return self._output(plan).overflows

    def sink(self, plan: DumpPlan) -> Sink:
        """Return the sink of a configuration; all networks share it and its byte limit."""
        return self._output(plan).sink

    def flight(self, plan: DumpPlan) -> Flight:
        """Return what watches the runs of a configuration."""
        return self._output(plan).flight

    def stream(self, plan: DumpPlan | None) -> WriteStream:
        """Return the function that writes the graph files which are not part of a dump's tree.

        With a dump its sink does: what cannot be written is logged, counted and raised as the plan says.
        Without one it is raised.
        """
        return write_stream if plan is None or not plan.is_enabled else self.sink(plan).stream

    def configured(self, plan: DumpPlan) -> str:
        """Return when a configuration first took effect, ``YYYYMMDDHHMMSS``."""
        return self._output(plan).configured

    def use(self, plan: DumpPlan, items: frozenset[str]) -> None:
        """Note the ``kernels`` items for which something is dumped: ``close`` names the others."""
        self._output(plan).used |= items

    def suggest(self, plan: DumpPlan, used: frozenset[str], nodes: Sequence[Node]) -> None:
        """Note what may have been meant by the items that select nothing of a network.

        Args:
            plan: The plan.
            used: The items that select something.
            nodes: The operators of the network.
        """
        if plan.what.selector.mode is not DumpMode.KERNELS:
            return
        for pattern in plan.what.selector.patterns:
            if pattern.item not in used and (hint := suggest_for(pattern, nodes)):
                self._output(plan).hints[pattern.item] = hint

    def claim_metadata(self, plan: DumpPlan) -> bool:
        """Tell the first network of a configuration, and no other, that it writes the metadata."""
        with self._lock:
            output = self._output(plan)
            is_first = not output.is_described
            output.is_described = True
            return is_first

    def close(self) -> None:
        """Close every sink, and warn of ``kernels`` and names of ``set_dump`` that were never met.

        A network that runs afterwards opens its configuration's sink anew.
        """
        while output := self._pop_output():
            with contextlib.suppress(DumpWriteError):  # logged when it was lost; other sinks must close too
                if isinstance(output.sink, HashingSink):
                    output.sink.complete()
                output.flight.close()
            self._warn_of_unused(output)

    def _pop_output(self) -> _Output | None:
        """Return an output that is not closed yet, and forget it; None where all are closed."""
        with self._lock:
            return self._outputs.popitem()[1] if self._outputs else None

    def _warn_of_unused(self, output: _Output) -> None:
        """Warn of items of ``kernels``, and of names of ``set_dump``, for which nothing was dumped."""
        source, unused = output.plan.source, output.unused()
        if unused:
            _log.warning("%s: kernels that matched nothing that ran: %s", source, ", ".join(unused))
        unmet = self.named_marks.unmet()
        if unmet and output.plan.what.selector.mode is DumpMode.MARKED:
            _log.warning("%s: set_dump met no operator or scope named %s", source, ", ".join(unmet))

    def _output(self, plan: DumpPlan) -> _Output:
        """Return the output of a plan's configuration, told by its path; the first network opens it."""
        with self._lock:
            if plan.source not in self._outputs:
                flight = _flight(plan, _sink(plan))
                self._outputs[plan.source] = _Output(
                    plan,
                    flight,
                    _hashing(plan, flight.sink),
                    OverflowLimit(plan.when.overflow_limit),
                    CLOCK.seconds(),
                )
                _advise(plan)
            return self._outputs[plan.source]


def _flight(plan: DumpPlan, sink: Sink) -> Flight:
    """Return what watches the runs of a plan, whose files go into a sink."""
    if not plan.watch.rules and not plan.watch.history:
        return Flight(sink)
    from msdump.capture.flight.watched import WatchedFlight

    return WatchedFlight(plan, sink)


def _sink(plan: DumpPlan) -> Sink:
    """Return the sink of a plan: one that writes at once, or on Ascend one that leaves it to threads."""
    budget = Budget(plan.files.max_bytes)
    files = _files(plan)
    if plan.writes_behind:
        from msdump.store.write.async_sink import AsyncSink

        return AsyncSink(
            plan.files.on_write_error,
            budget,
            files,
            queue_bytes=plan.files.queue_bytes,
            writer_threads=plan.files.writer_threads,
        )
    return SyncSink(plan.files.on_write_error, budget, files())


def _files(plan: DumpPlan) -> Callable[[], Files]:
    """Return what gives each thread its own way to where the files of a plan go."""
    # vendor: CANN's own files may be written by their owner, MindSpore's only read
    mode = DUMP_MODE if plan.files.file_format is FileFormat.BIN else FILE_MODE
    trace = recording.active()
    if trace is None:
        return partial(DiskFiles, mode, plan.files.path)
    return lambda: TracedFiles(DiskFiles(mode, plan.files.path), trace)


def _hashing(plan: DumpPlan, sink: Sink) -> Sink:
    """Return a sink that takes rows with hashes, where the statistics of a plan have some, else the same."""
    if plan.statistics is None:
        return sink
    from msdump.capture.statistics.rows import has_hashes

    if not has_hashes(plan.statistics):
        return sink
    return HashingSink(sink, min(WAITING_BYTES, plan.files.queue_bytes))


def _advise(plan: DumpPlan) -> None:
    """Log what is worth knowing of a configuration before anything is dumped."""
    if plan.statistics is None:
        return
    from msdump.capture.statistics.rows import advice

    message = advice(plan.statistics)
    if message is not None:
        _log.warning("%s: %s", plan.source, message)


PROCESS: Final = Process()
"""The process that users' networks run in."""

atexit.register(PROCESS.close)
