"""The state that all networks of a process share: counters, marks by name, sinks, places of files."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from msdump import tracing
from msdump.capture.capture import NamedMarks
from msdump.capture.selection import unmatched
from msdump.capture.statistics import advice, has_hashes
from msdump.capture.triggers import OverflowLimit
from msdump.capture.watch import RunWatch
from msdump.communication import current, own
from msdump.counters import Counters, Run
from msdump.errors import DumpWriteError
from msdump.graph import Node
from msdump.observer import Observer
from msdump.plan import DumpPlan, Existing, FileFormat, Tree
from msdump.selector import DumpMode
from msdump.store import CLOCK, RunPlace, existing
from msdump.store.write import (
    DUMP_MODE,
    FILE_MODE,
    Budget,
    DiskFiles,
    Root,
    Sink,
    SyncSink,
    TracedFiles,
    WriteStream,
    directories,
    reason,
    write_stream,
)
from msdump.threads import new_lock, thread_count

_log = logging.getLogger("msdump.capture")

_MOST_NAMES: Final = 20  # a longer list of unused kernels is cut in the log
_HASHED_BYTES: Final = 64 << 20  # of tensors that wait to be hashed while files are written at once


@dataclass(slots=True)
class _Output:
    """The sink of one configuration, and the state of its dump."""

    plan: DumpPlan  # the plan of the first network
    watch: RunWatch  # the rules and the history
    sink: Sink  # takes the files of all networks
    overflows: OverflowLimit  # counts the overflowing operators of all networks
    configured: str  # when the first network was compiled, ``YYYYMMDDHHMMSS``
    used: set[str] = field(default_factory=set)  # the ``kernels`` items for which something was dumped
    # hints at similar names, by ``kernels`` items that select nothing
    hints: dict[str, str] = field(default_factory=dict)
    is_described: bool = False  # whether ``.dump_metadata`` is written

    def unused(self) -> list[str]:
        """Return the ``kernels`` items for which nothing was dumped, with similar names."""
        items = [
            pattern.item for pattern in self.plan.what.selector.patterns if pattern.item not in self.used
        ]
        items = [f"{item} ({self.hints[item]})" if item in self.hints else item for item in items]
        more = len(items) - _MOST_NAMES
        return items if more <= 0 else [*items[:_MOST_NAMES], f"... and {more} more"]


class Process:
    """The state that dumps of several networks have in common; any thread may use it."""

    def __init__(self, counters: Counters | None = None) -> None:
        self.counters = counters or Counters()  # counters of networks, graphs and files
        # set by ``dump_start`` and ``dump_stop``; None: the plan's iterations decide
        self.is_dumping: bool | None = None
        self.named_marks = NamedMarks()  # the names that ``set_dump`` was given
        self._lock = new_lock()
        self._places: set[tuple[str, Hashable]] = set()
        self._outputs: dict[str, _Output] = {}

    def beside(self) -> Process:
        """Return a second state, for networks that acl or torchair configures.

        Their sinks are separate; graph files are numbered across both.
        """
        return Process(self.counters.beside())

    def dumps(self, plan: DumpPlan, iteration: int) -> bool:
        """Return whether an iteration is dumped: by ``dump_start`` and ``dump_stop``, else by the plan."""
        return iteration in plan.when.iterations if self.is_dumping is None else self.is_dumping

    def settle(self, directory: str, place: Hashable, settle: Callable[[bool], None]) -> None:
        """Call a function the first time that this process dumps into a place; other threads wait for it.

        The function handles the files of earlier programs; its argument is True for the first place in the
        directory. Where it raises, the next network that dumps there calls it again.
        """
        with self._lock:
            if (directory, place) not in self._places:
                settle(all(directory != other for other, _ in self._places))
                self._places.add((directory, place))

    def overflow_limit(self, plan: DumpPlan) -> OverflowLimit:
        """Return the count of overflowing operators that all networks of a configuration share."""
        return self._output(plan).overflows

    def sink(self, plan: DumpPlan) -> Sink:
        """Return the sink of a configuration; all networks share it and its byte limit."""
        return self._output(plan).sink

    def watch(self, plan: DumpPlan) -> RunWatch:
        """Return the rules and the history of a configuration."""
        return self._output(plan).watch

    def stream(self, plan: DumpPlan | None) -> WriteStream:
        """Return the function that writes the graph files which are not part of a dump's tree.

        With a dump, its sink writes them: errors are logged, counted and raised as the plan says. Without a
        dump, errors are raised.
        """
        return write_stream if plan is None or not plan.is_enabled else self.sink(plan).stream

    def configured(self, plan: DumpPlan) -> str:
        """Return when a configuration first took effect, ``YYYYMMDDHHMMSS``."""
        return self._output(plan).configured

    def use(self, plan: DumpPlan, items: frozenset[str]) -> None:
        """Note the ``kernels`` items for which something is dumped: ``close`` names the others."""
        self._output(plan).used |= items

    def suggest(self, plan: DumpPlan, used: frozenset[str], nodes: Sequence[Node]) -> None:
        """Record hints at similar names for ``kernels`` items that select no operator of a network."""
        if plan.what.selector.mode is not DumpMode.KERNELS:
            return
        hints = self._output(plan).hints
        pairs = unmatched(plan.what.selector.patterns, used, nodes)
        hints.update({pattern.item: hint for pattern, hint in pairs if hint})

    def claim_metadata(self, plan: DumpPlan) -> bool:
        """Return True for the first network of a configuration, which writes the metadata, else False."""
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
            with contextlib.suppress(DumpWriteError):  # logged already; other sinks must close too
                output.watch.close()
            source, unused = output.plan.source, output.unused()
            if unused:
                _log.warning(
                    "%s: items of kernels that matched no operator that ran: %s", source, ", ".join(unused)
                )
            unmet = self.named_marks.unmet()
            if unmet and output.plan.what.selector.mode is DumpMode.MARKED:
                _log.warning("%s: set_dump found no operator or scope %s", source, ", ".join(unmet))
        for directory, _ in self._places:
            directories.release(directory)

    def _pop_output(self) -> _Output | None:
        """Return an output that is not closed yet, and forget it; None where all are closed."""
        with self._lock:
            return self._outputs.popitem()[1] if self._outputs else None

    def _output(self, plan: DumpPlan) -> _Output:
        """Return the output of a plan's configuration (its path is the key); the first network opens it."""
        with self._lock:
            if plan.source not in self._outputs:
                watch = RunWatch(plan, _sink(plan))
                self._outputs[plan.source] = _Output(
                    plan, watch, watch.sink, OverflowLimit(plan.when.overflow_limit), CLOCK.seconds()
                )
                message = None if plan.statistics is None else advice(plan.statistics)
                if message is not None:
                    _log.warning("%s: %s", plan.source, message)
            return self._outputs[plan.source]


def _sink(plan: DumpPlan) -> Sink:
    """Return the sink of a plan: synchronous, or with threads for large files (Ascend) and for hashes."""
    budget, files = Budget(plan.files.max_bytes), _files(plan)
    hashes = plan.statistics is not None and has_hashes(plan.statistics)
    if not (plan.writes_behind or hashes):
        return SyncSink(plan.files.on_write_error, budget, files())
    from msdump.store.write import AsyncSink

    hashing_threads = thread_count() - 1 if hashes else 0  # the calling thread hashes, too, when it waits
    sink = partial(AsyncSink, plan.files.on_write_error, budget, files)
    if plan.writes_behind:
        threads = max(plan.files.writer_threads, hashing_threads)
        return sink(queue_bytes=plan.files.queue_bytes, writer_threads=threads)
    queue_bytes = min(_HASHED_BYTES, plan.files.queue_bytes)
    return sink(queue_bytes=queue_bytes, writer_threads=hashing_threads, inline_bytes=None)


def _files(plan: DumpPlan) -> Callable[[], DiskFiles]:
    """Return a function that opens a thread's own access to the disk."""
    # vendor: CANN's own files may be written by their owner, MindSpore's only read
    mode = DUMP_MODE if plan.files.file_format is FileFormat.BIN else FILE_MODE
    trace, root = tracing.active(), Root(plan.files.path)
    if trace is None:
        return partial(DiskFiles, mode, root)
    return partial(TracedFiles, mode, root, trace=trace)


def claim(plan: DumpPlan, process: Process) -> None:
    """Keep, refuse or remove earlier programs' files in the place that a plan's files go to.

    A place is a network of a rank, or a device of a compiled graph. In MindSpore's tree only iterations
    from the plan's first one on count, so that a run may go on where another one ended.

    Raises:
        DumpWriteError: Something lies there and the plan refuses it, or it cannot be removed.
    """
    files, first = plan.files, plan.when.initial_iteration
    if files.tree is Tree.RANKS:
        place = RunPlace(files.path, current().identity.rank, files.net_name, first=first)
    else:
        place = RunPlace(files.path, device=plan.context.device_id, first=first)
    # two spellings of a path are one place
    directory = os.path.realpath(place.directory)
    process.settle(directory, (place.net, place.device), partial(_settle_place, plan, place))


def _settle_place(plan: DumpPlan, place: RunPlace, is_first: bool) -> None:  # noqa: FBT001 - as settle calls it
    """Hold the directory of a place; keep, refuse or remove earlier files, by ``msdump.existing``."""
    identity = current().identity
    is_launched = identity.size > 1 and own() is None
    is_apart = plan.files.tree is not Tree.RANKS  # each program has a directory, named after a time
    with contextlib.ExitStack() as stack:
        try:
            is_alone = stack.enter_context(directories.holding(place.directory, place.root))
        except OSError as error:
            message = f"dump path {place.directory!r} cannot be created: {reason(error)}"
            raise DumpWriteError(message) from error
        if is_apart and plan.files.existing is Existing.KEEP:
            return  # nothing is added to older files: they need not even be counted
        if is_alone or (is_apart and is_launched):  # ranks of one job, each on its own device
            _settle_earlier(plan, replace(place, is_first=is_first))
            return
        if is_launched:
            raise DumpWriteError(
                f"{plan.source}: another process dumps into {place.directory} as rank {identity.rank}: two"
                f" processes have this rank (set by {identity.launcher}), or two jobs share the path; give"
                " each its own"
            )
        if plan.files.existing is Existing.REFUSE:
            raise DumpWriteError(
                f"{plan.source}: another process dumps into {place.directory}, and msdump.existing is"
                " 'refuse'; choose another path"
            )
        if is_first:
            _log.warning(
                "%s: another process dumps into %s: its files stay, and this run adds files; give each run"
                " its own path",
                plan.source,
                place.directory,
            )


def _settle_earlier(plan: DumpPlan, place: RunPlace) -> None:
    """Keep, refuse or remove the files of earlier programs that have ended."""
    if plan.files.existing is Existing.REPLACE:
        try:
            count = existing.remove(place)
        except OSError as error:
            raise DumpWriteError(
                f"dump path {place.root!r}: files of an earlier run cannot be removed: {reason(error)}"
            ) from error
        if count:
            _log.warning(
                "%s: removed %s files of earlier runs in %s", plan.source, f"{count:,}", plan.files.path
            )
        return
    earlier = existing.find(place)
    if not earlier.files:
        return
    owner = f"device {place.device}" if place.rank is None else f"network {place.net}"
    found = (
        f"{plan.files.path} already holds {earlier.files:,} files ({earlier.bytes:,} bytes) of {owner}"
        f" in {earlier.iterations:,} {'directory' if earlier.iterations == 1 else 'directories'}"
    )
    if plan.files.existing is Existing.REFUSE:
        raise DumpWriteError(
            f"{plan.source}: {found}, and msdump.existing is 'refuse'; choose another path,"
            " set initial_iteration behind these files, or set msdump.existing to 'keep' or 'replace'"
        )
    _log.warning(
        "%s: %s; this run adds files, and readers keep the executions apart"
        ' ("msdump": {"existing": "replace"} removes the earlier files, "refuse" is an error)',
        plan.source,
        found,
    )


class DumpWriter:
    """Base class of the dump of one network; writes no graph files, and lists no runs that are not dumped."""

    def __init__(self, plan: DumpPlan, process: Process) -> None:
        """Write into the sink of a plan, which networks of the process share."""
        self.plan = plan
        self.sink = process.sink(plan)  # takes its files
        self._process = process

    def mark(self, marked: frozenset[str]) -> None:
        """Select the dumped operators again, for new full names that ``set_dump`` marked."""

    def write_graph_files(self) -> None:
        """Write the files that exist from compilation on: graphs, metadata, execution order."""

    def begin(self, run: Run, inputs: Mapping[str, Any]) -> Observer:
        """Return the observer of a dumped run, given its numbers and graph inputs."""
        raise NotImplementedError

    def end(self) -> None:
        """Finish a dumped iteration: its files are complete."""
        self.sink.flush()

    def broken_off(self) -> None:
        """Complete the files of an iteration that failed; write errors are only logged."""
        with contextlib.suppress(DumpWriteError):
            self.sink.flush()

    def pass_by(self, run: Run) -> None:
        """Record a run that is not dumped; no-op unless the tree of files lists such runs."""


PROCESS: Final = Process()
"""The process that users' networks run in."""

atexit.register(PROCESS.close)
