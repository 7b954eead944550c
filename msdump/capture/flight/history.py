"""The flight recorder: a sink that keeps the files of the last steps in memory until they are wanted.

What is dumped between ``begin`` and ``end`` is one step. Steps are dropped, oldest first and always whole, as
newer ones take their place or their memory. ``release`` writes those that are kept, in their own order, and
lets the rest of a step that goes on pass. Files outside of steps, such as those of graphs, pass at once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from msdump.errors import DumpWriteError
from msdump.iterations import IterationSet
from msdump.reasons import Reason
from msdump.record import Artifact, Buffer
from msdump.store.layouts import is_constants
from msdump.store.write import exits
from msdump.store.write.buffers import owned, size_of
from msdump.store.write.sinks import Sink, Summary

_Operation = Callable[[], None]
"""Hands one file, or some rows, to the sink behind the history."""

_PER_FILE: Final = 1024  # bytes of memory that a file takes beyond its contents, about


class _Step:
    """What one step has dumped so far.

    Attributes:
        iteration: Number of its iteration.
        operations: What it takes to write it.
        bytes: Memory that they hold.
        is_open: Its files are written at once from now on.
        is_lost: It was larger than all the memory there is, so that a part of it is gone.
    """

    __slots__ = ("bytes", "is_lost", "is_open", "iteration", "operations")

    def __init__(self, iteration: int) -> None:
        self.iteration = iteration
        self.operations: list[_Operation] = []
        self.bytes = 0
        self.is_open = False
        self.is_lost = False


class StepAccount:
    """What became of the steps: numbers of iterations by what was done with them.

    Attributes:
        written: Those that were written.
        replaced: Those whose place newer ones took.
        for_memory: Those that were dropped to make room for newer ones.
        at_end: Those that were kept when the program ended, with nothing to write them for.
        torn: Those larger than all the memory, of which only the end was written, or nothing.
    """

    def __init__(self) -> None:
        """Start with nothing."""
        self.written = IterationSet(())
        self.replaced = IterationSet(())
        self.for_memory = IterationSet(())
        self.at_end = IterationSet(())
        self.torn = IterationSet(())


class HistorySink:
    """Keeps the files of the last steps of all networks of a configuration; any thread may call it.

    Attributes:
        account: What became of the steps so far.
    """

    def __init__(self, sink: Sink, steps: int, most_bytes: int) -> None:
        """Keep nothing yet.

        Args:
            sink: Takes what is written.
            steps: How many steps are kept beside the one that goes on.
            most_bytes: Most memory that they hold together.
        """
        self._sink = sink
        self._steps = steps
        self._most_bytes = most_bytes
        self._lock = exits.new_guard()
        self._kept: deque[_Step] = deque()
        self._going_on: dict[int, _Step] = {}  # by thread: networks may run at the same time
        self._constants: list[_Operation] = []
        self._bytes = 0
        self.account = StepAccount()

    @property
    def holds_buffers(self) -> bool:
        """Whether buffers must stay as they are: a step that passes is handed on as it is."""
        return self._sink.holds_buffers

    @property
    def held_bytes(self) -> int:
        """Memory that the steps hold."""
        return self._bytes

    def begin(self, iteration: int) -> None:
        """Take what this thread dumps from now on for a step."""
        with self._lock:
            self.end()
            self._going_on[threading.get_ident()] = _Step(iteration)

    def end(self) -> None:
        """Keep the step that this thread has dumped, and drop the oldest one where there are too many."""
        with self._lock:
            step = self._going_on.pop(threading.get_ident(), None)
            if step is None or step.is_open:
                return
            self._kept.append(step)
            while len(self._kept) > self._steps:
                dropped = self._drop_oldest()
                self.account.replaced = self.account.replaced.including(dropped.iteration)

    def release(self, *, of_all_threads: bool = False) -> tuple[int, ...]:
        """Write the steps that are kept, and what the one of this thread has dumped; its rest passes.

        Args:
            of_all_threads: Write what other threads have dumped of theirs, too.

        Returns:
            Numbers of the iterations that were written, that of the step that goes on last.

        Raises:
            DumpWriteError: A file could not be written and the plan wants to know.
        """
        with self._lock:
            threads = [*self._going_on] if of_all_threads else [threading.get_ident()]
            going_on = [self._going_on[thread] for thread in threads if thread in self._going_on]
            steps = [*self._kept, *(step for step in going_on if not step.is_open)]
            self._kept.clear()
            constants, self._constants = self._constants, []
            failures: list[DumpWriteError] = []
            for operation in constants:
                _write(operation, failures)
            for step in steps:
                self._write_step(step, failures)
            for step in going_on:
                step.is_open = True
            if failures:
                raise failures[0]
            return tuple(step.iteration for step in steps)

    def _write_step(self, step: _Step, failures: list[DumpWriteError]) -> None:
        account = self.account
        if step.is_lost:
            account.torn = account.torn.including(step.iteration)
        else:
            account.written = account.written.including(step.iteration)
        self._bytes -= step.bytes
        operations, step.operations, step.bytes = step.operations, [], 0
        for operation in operations:
            _write(operation, failures)

    def write(self, artifact: Artifact) -> None:
        """Keep a new file for the step that goes on, or write it."""
        self._take(artifact, self._sink.write)

    def replace(self, artifact: Artifact) -> None:
        """Keep a file that replaces an older one for the step that goes on, or write it."""
        self._take(artifact, self._sink.replace)

    def keep(self, artifact: Artifact) -> None:
        """Keep a file that stays where it exists for the step that goes on, or write it."""
        self._take(artifact, self._sink.keep)

    def append(self, path: str, rows: bytes, header: bytes = b"") -> None:
        """Keep rows for the step that goes on, or write them."""
        with self._lock:
            step = self._current()
            if step is None:
                self._sink.append(path, rows, header)
            elif self._makes_room(step, len(rows)):
                self._hold(step, partial(self._sink.append, path, rows, header), len(rows))

    def stream(self, directory: str, name: str, pieces: Iterable[Buffer]) -> None:
        """Write a file for people at once: it shows a graph, no step."""
        self._sink.stream(directory, name, pieces)

    def skip(self, reason: Reason, count: int = 1) -> None:
        """Count tensors that are not written on purpose."""
        self._sink.skip(reason, count)

    @property
    def summary(self) -> Summary:
        """What was written, skipped and lost so far; what is kept does not count."""
        return self._sink.summary

    def flush(self) -> None:
        """Return when everything that is not kept is on disk."""
        self._sink.flush()

    def drop(self) -> None:
        """Drop what is kept: the program ends and nothing has happened."""
        with self._lock:
            while self._kept:
                dropped = self._drop_oldest()
                self.account.at_end = self.account.at_end.including(dropped.iteration)
            self._constants.clear()

    def close(self) -> None:
        """Drop what is kept and close the sink behind."""
        self.drop()
        self._sink.close()

    def forget(self) -> None:
        """Drop what is kept in a forked child: the parent has it."""
        self._kept.clear()
        self._going_on.clear()
        self._constants.clear()
        self._bytes = 0

    def _current(self) -> _Step | None:
        """Return the step that this thread dumps and that is kept, else None."""
        step = self._going_on.get(threading.get_ident())
        return None if step is None or step.is_open else step

    def _take(self, artifact: Artifact, hand_on: Callable[[Artifact], None]) -> None:
        with self._lock:
            step = self._current()
            if step is None:
                hand_on(artifact)
                return
            if is_constants(artifact.directory):  # written once: the first step must not take them with it
                self._constants.append(partial(hand_on, _copied(artifact)))
                return
            size = size_of(artifact.buffers)
            if self._makes_room(step, size):
                self._hold(step, partial(hand_on, _copied(artifact)), size)

    def _hold(self, step: _Step, operation: _Operation, size: int) -> None:
        step.operations.append(operation)
        step.bytes += size + _PER_FILE
        self._bytes += size + _PER_FILE

    def _makes_room(self, step: _Step, size: int) -> bool:
        """Drop oldest steps until some bytes fit; False, and the step lost, where they never do."""
        if step.is_lost:
            return False
        needed = size + _PER_FILE
        while self._bytes + needed > self._most_bytes and self._kept:
            dropped = self._drop_oldest()
            self.account.for_memory = self.account.for_memory.including(dropped.iteration)
        if self._bytes + needed <= self._most_bytes:
            return True
        self._bytes -= step.bytes
        step.operations, step.bytes, step.is_lost = [], 0, True
        return False

    def _drop_oldest(self) -> _Step:
        dropped = self._kept.popleft()
        self._bytes -= dropped.bytes
        return dropped


def _copied(artifact: Artifact) -> Artifact:
    """Return a file whose contents nobody changes."""
    buffers = tuple(map(owned, artifact.buffers))
    return Artifact(artifact.directory, artifact.name, buffers, artifact.tensor_bytes)


def _write(operation: _Operation, failures: list[DumpWriteError]) -> None:
    """Write one file; what fails does not keep the others from being written."""
    try:
        operation()
    except DumpWriteError as error:
        failures.append(error)
