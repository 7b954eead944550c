"""The history: a sink that keeps the files of the last steps in memory until something happens.

A step is all that a thread dumps between ``begin`` and ``end``. Newer steps push out the oldest ones, always
whole. ``release`` writes the kept steps in order; the rest of the current step is then written at once.
Files outside of steps, such as graph files, are written at once.
"""

from __future__ import annotations

import contextlib
import enum
import importlib
import json
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from msdump.errors import DumpWriteError
from msdump.record import Artifact
from msdump.selector import IterationSet
from msdump.store import CLOCK, Key, PathKind, is_constants
from msdump.store.write import Sink, Summary, exits, owned, size_of

_MOST_EVENTS: Final = 100  # releases that the note lists; the rest is counted
_PER_FILE: Final = 1024  # bytes of memory that a file takes beyond its contents, about

_Operation = Callable[[], None]
"""Writes one file, or some rows, into the sink behind the history."""


class Fate(enum.StrEnum):
    """Fates of a step, as the note spells them."""

    WRITTEN = "written"
    REPLACED = "replaced by newer steps"
    NO_MEMORY = "for lack of memory"
    AT_END = "at the end of the program"
    LOST = "since no file could be written"
    TORN = "larger than history_bytes"
    """The step alone exceeded the memory: only its end was written, or nothing."""


@dataclass(slots=True, eq=False)
class _Step:
    """The unwritten files of one step."""

    iteration: int
    operations: list[_Operation] = field(default_factory=list)  # they write its files, in order
    bytes: int = 0  # memory that they take
    is_open: bool = False  # released: further files are written at once
    before: Summary | None = None  # count of the written files when it was released
    is_torn: bool = False  # larger than the memory, so that its first files are lost


class HistorySink:
    """Keeps the last steps of all networks of a configuration; any thread may call it.

    A file of its own, the note, lists the releases and the iterations that were written or dropped.
    """

    def __init__(self, sink: Sink, path: str, rank: int, steps: int, most_bytes: int) -> None:
        self._sink = sink
        self.skip, self.flush = sink.skip, sink.flush  # of the files that are not kept
        self.stream = sink.stream  # a graph file belongs to no step
        self.holds_buffers = sink.holds_buffers  # a released step passes buffers on without a copy
        self.write, self.replace, self.keep = (
            partial(self._take, write) for write in (sink.write, sink.replace, sink.keep)
        )
        self._path = path
        self._rank = rank
        self._steps = steps
        self._most_bytes = most_bytes
        self._lock = exits.new_guard()
        self._kept: deque[_Step] = deque()
        self._going_on: dict[int, _Step] = {}  # by thread: networks may run at the same time
        self._constants: list[_Operation] = []
        self._bytes = 0
        self._fates = {fate: IterationSet(()) for fate in Fate}
        self._events: list[dict[str, Any]] = []
        self._event_count = 0
        exits.register(self)

    @property
    def written(self) -> IterationSet:
        """Iterations that are on disk as a whole."""
        return self._fates[Fate.WRITTEN]

    def begin(self, iteration: int) -> None:
        """Begin a step of this thread."""
        with self._lock:
            self.end()
            self._going_on[threading.get_ident()] = _Step(iteration)
        exits.activate(self)

    def end(self) -> None:
        """End the step of this thread and keep it; drop the oldest step if there are too many."""
        with self._lock:
            step = self._going_on.pop(threading.get_ident(), None)
            if step is None:
                return
            if step.is_open:
                self._note_loss(step)
                return
            self._kept.append(step)
            while len(self._kept) > self._steps:
                self._drop_oldest(Fate.REPLACED)

    def release(self, reason: str, iteration: int | None, *, of_all_threads: bool = False) -> None:
        """Write the kept steps and this thread's step, and note why; DumpWriteError as for a sink."""
        if not self._event_count:  # the new file of the note must not count as one of a step
            with contextlib.suppress(DumpWriteError):
                self._write_note()
        failures: list[DumpWriteError] = []

        with self._lock:
            threads = [*self._going_on] if of_all_threads else [threading.get_ident()]
            going_on = [self._going_on[thread] for thread in threads if thread in self._going_on]
            steps = [*self._kept, *(step for step in going_on if not step.is_open)]
            constants, self._constants = self._constants, []
            self._kept.clear()
            for step in going_on:
                step.is_open = True
            self._write(constants, failures)
            for step in steps:
                self._add_fate(Fate.TORN if step.is_torn else Fate.WRITTEN, step)
                step.before = self._sink.summary
                self._bytes -= step.bytes
                operations, step.operations, step.bytes = step.operations, [], 0
                self._write(operations, failures)
                if not step.is_open:
                    self._note_loss(step)
        if failures:
            raise failures[0]
        if steps:
            self._event_count += 1
            if len(self._events) < _MOST_EVENTS:
                written = [step.iteration for step in steps]
                event = {"time": CLOCK.seconds(), "iteration": iteration, "reason": reason}
                self._events.append(event | {"written": written})
            self._write_note()

    def _write(self, operations: Iterable[_Operation], failures: list[DumpWriteError]) -> None:
        for write in (*operations, self._sink.flush):
            try:
                write()
            except DumpWriteError as error:  # the other files are written all the same
                failures.append(error)

    def _note_loss(self, step: _Step) -> None:
        """Note that a released step is not on disk, where all of its files were lost."""
        if step.before is not None and self._sink.summary.lost_all_since(step.before):
            self._fates[Fate.WRITTEN] = self._fates[Fate.WRITTEN].excluding(step.iteration)
            self._add_fate(Fate.LOST, step)

    def _write_note(self) -> None:
        content = {
            "msdump": importlib.import_module("msdump").__version__,  # an import would be circular
            "rank": self._rank,
            "history": self._steps,
            "history_bytes": self._most_bytes,
            "released": self._events,
            "releases": self._event_count,
            "written": str(self.written),
            "dropped": {fate: str(self._fates[fate]) for fate in Fate if fate is not Fate.WRITTEN},
        }
        data = (json.dumps(content, indent=2) + "\n").encode()
        self._sink.replace(Artifact(self._path, Key(PathKind.HISTORY, self._rank).path, (data,)))

    def append(self, path: str, rows: bytes, header: bytes = b"") -> None:
        """Keep rows while this thread is in a step, else write them."""
        with self._lock:
            step = self._step
            if step is None:
                self._sink.append(path, rows, header)
            elif self._makes_room(step, len(rows)):
                step.operations.append(partial(self._sink.append, path, rows, header))

    def append_later(self, path: str, make: Callable[[], bytes], header: bytes, size: int) -> None:
        """Make a row now, as a kept step does not hold tensors that the run may change."""
        del size
        self.append(path, make(), header)

    @property
    def summary(self) -> Summary:
        """Written, skipped and lost files so far; files kept in memory do not count."""
        return self._sink.summary

    def complete(self) -> None:
        """Write the kept steps of all threads, since a signal ends the process."""
        with contextlib.suppress(DumpWriteError):
            self.release(exits.heard[-1], None, of_all_threads=True)
            self.flush()

    def close(self) -> None:
        """Close the sink without the kept steps, but write them if an exception ends the program."""
        try:
            error = getattr(sys, "last_value", None)  # set where the interpreter ends with a traceback
            if error is not None:
                self.release(f"{type(error).__name__}: {error}", None)
            with self._lock:
                while self._kept:
                    self._drop_oldest(Fate.AT_END)
                self._constants.clear()
            self._write_note()
        finally:
            exits.deactivate(self)
            self._sink.close()

    def forget(self) -> None:
        """Drop the steps in a forked child: the parent has them."""
        self._kept.clear()
        self._going_on.clear()
        self._constants.clear()
        self._bytes = 0

    @property
    def _step(self) -> _Step | None:
        """The unreleased step of this thread, None without one."""
        step = self._going_on.get(threading.get_ident())
        return None if step is None or step.is_open else step

    def _take(self, write: Callable[[Artifact], None], artifact: Artifact) -> None:
        """Keep a file while this thread is in a step, else write it."""
        with self._lock:
            step = self._step
            if step is None:
                write(artifact)
                return
            # constants come once, in the first step, and outlast it
            is_constant = is_constants(artifact.directory)
            if is_constant or self._makes_room(step, size_of(artifact.buffers)):
                # copies of views that the run may change
                copy = artifact._replace(buffers=tuple([owned(buffer) for buffer in artifact.buffers]))
                (self._constants if is_constant else step.operations).append(partial(write, copy))

    def _makes_room(self, step: _Step, size: int) -> bool:
        """Count a file as kept, and drop the oldest steps for it; tear the step where it never fits."""
        if step.is_torn:
            return False
        size += _PER_FILE
        while self._bytes + size > self._most_bytes and self._kept:
            self._drop_oldest(Fate.NO_MEMORY)
        if self._bytes + size <= self._most_bytes:
            step.bytes += size
            self._bytes += size
            return True
        self._bytes -= step.bytes
        step.operations, step.bytes, step.is_torn = [], 0, True
        return False

    def _drop_oldest(self, fate: Fate) -> None:
        step = self._kept.popleft()
        self._bytes -= step.bytes
        self._add_fate(fate, step)

    def _add_fate(self, fate: Fate, step: _Step) -> None:
        self._fates[fate] = self._fates[fate].including(step.iteration)
