"""The flight recorder: a sink that keeps the files of the last steps in memory until they are wanted.

What is dumped between ``begin`` and ``end`` is one step. Steps are dropped, oldest first and always whole, as
newer ones take their place or their memory. ``release`` writes those that are kept, in their own order, and
lets the rest of a step that goes on pass. Files outside of steps, such as those of graphs, pass at once.
"""

from __future__ import annotations

import hashlib
import importlib
import itertools
import json
import logging
import struct
import threading
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from msdump import dtypes
from msdump.communication import CallPlace, current, shared
from msdump.errors import DumpWriteError, RankError, WatchHitError
from msdump.graph import WORLD_GROUP, Graph
from msdump.plan import DumpPlan, OnHit
from msdump.reasons import Reason
from msdump.record import Artifact, Buffer
from msdump.selector import IterationSet
from msdump.statistics import StatisticNeed, Totals, compiled, passes
from msdump.store import CLOCK, Key, PathKind, is_constants
from msdump.store.write import Sink, Summary, exits, owned, size_of
from msdump.threads import new_lock
from msdump.watch import (
    ALONE,
    DIGEST_BYTES,
    Finding,
    Hit,
    Sighting,
    Undecided,
    WatchedTensor,
    WatchRule,
    digest,
    disagreeing,
    exactly,
)

if TYPE_CHECKING:
    from msdump.capture.flight.watched import GraphWatch


_MOST_EVENTS: Final = 100


class HistoryNote:
    """Keeps the note of one rank up to date."""

    def __init__(self, path: str, rank: int, history: HistorySink, limits: tuple[int, int]) -> None:
        """Write nothing yet.

        Args:
            path: Root of the dump.
            rank: Number of the rank.
            history: The steps.
            limits: How many steps it keeps, and in how many bytes.
        """
        self._path = path
        self._rank = rank
        self._history = history
        self._limits = limits
        self._events: list[dict[str, Any]] = []
        self._event_count = 0

    def released(self, reason: str, iteration: int | None, written: tuple[int, ...]) -> None:
        """Note that steps were written, and why.

        Args:
            reason: Why.
            iteration: The iteration that went on, None between two.
            written: Numbers of the iterations that were written.
        """
        self._event_count += 1
        if len(self._events) < _MOST_EVENTS:
            event = {
                "time": CLOCK.seconds(),
                "iteration": iteration,
                "reason": reason,
                "written": list(written),
            }
            self._events.append(event)
        self.write(self._history)

    def write(self, sink: Sink) -> None:
        """Write the note as things are now."""
        account = self._history.account
        content = {
            "msdump": importlib.import_module("msdump").__version__,  # no room to import from
            "rank": self._rank,
            "history": self._limits[0],
            "history_bytes": self._limits[1],
            "released": self._events,
            "releases": self._event_count,
            "written": str(account.written),
            "dropped": {
                "replaced by newer steps": str(account.replaced),
                "for lack of memory": str(account.for_memory),
                "at the end of the program": str(account.at_end),
                "larger than history_bytes": str(account.torn),
            },
        }
        data = (json.dumps(content, indent=2) + "\n").encode()
        sink.replace(Artifact(self._path, Key(PathKind.HISTORY, self._rank).path, (data,)))


_log = logging.getLogger("msdump.capture")

_MOST_LINES: Final = 1000  # warnings of one process about hits; the rest is counted


def stop_error(hit: Hit) -> WatchHitError:
    """Return the error that ends a run at a hit."""
    tensor = hit.subject
    message = f"{tensor.io}.{tensor.slot}: {hit}"
    return WatchHitError(hit.rule.name, tensor.name, hit.moment.iteration, message)


class HitLog:
    """The hits of all networks of a configuration; any thread may use it.

    Attributes:
        iterations: Those in which a rule hit.
    """

    def __init__(self, plan: DumpPlan, history: HistorySink | None, note: HistoryNote | None) -> None:
        """Start with no hit.

        Args:
            plan: What hits do.
            history: The steps that a hit releases, None where none are kept.
            note: Notes what was written, None without a history.
        """
        self._on_hit = plan.watch.on_hit
        self._source = plan.source
        self._history = history
        self._note = note
        self._lock = new_lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._undecided: set[tuple[str, str]] = set()
        self._lines: Counter[str] = Counter()  # by rule
        self._told: dict[tuple[str, int], int] = {}  # the last iteration with a line, by rule and rank
        self.iterations = IterationSet(())

    def take(self, findings: Sequence[Finding]) -> Hit | None:
        """Log what was found at an operator, and release the history; return the first hit.

        Raises:
            DumpWriteError: The steps that it releases could not be written.
        """
        hits = [finding for finding in findings if isinstance(finding, Hit)]
        with self._lock:
            for finding in findings:
                if isinstance(finding, Undecided):
                    self._warn_of(finding)
                else:
                    self._tell(finding)
        if hits and self._on_hit is not OnHit.LOG:
            self._release(hits[0])
        return hits[0] if hits else None

    def _release(self, hit: Hit) -> None:
        if self._history is None:
            return
        written = self._history.release()
        if written and self._note is not None:
            reason = f"watch rule {hit.rule.name!r} hit at {hit.subject.name}: {hit}"
            self._note.released(reason, hit.moment.iteration, written)

    def _tell(self, hit: Hit) -> None:
        """Warn of a hit: the first one of a rule at an operator, then the tenth, ..., one of a step at most.

        What is not finite spreads to all that follow: the first one says where it began.
        """
        self.iterations = self.iterations.including(hit.moment.iteration)
        key = (hit.rule.name, hit.subject.name)
        self._counts[key] += 1
        count = self._counts[key]
        step = hit.rule.name, hit.moment.rank
        is_told = self._told.get(step) == hit.moment.iteration or self._lines.total() >= _MOST_LINES
        if str(count).strip("0") != "1" or is_told:
            return
        self._told[step] = hit.moment.iteration
        self._lines[hit.rule.name] += 1
        often = f" ({count} times so far)" if count > 1 else ""
        _log.warning(
            "watch rule %r hit in iteration %d: %s %s.%d: %s%s",
            *(hit.rule.name, hit.moment.iteration, hit.subject.name),
            *(hit.subject.io, hit.subject.slot, hit, often),
        )

    def _warn_of(self, undecided: Undecided) -> None:
        key = (undecided.rule.name, undecided.reason)
        if key not in self._undecided:
            self._undecided.add(key)
            tensor = undecided.subject
            _log.warning(
                "watch rule %r cannot be checked at %s %s.%d: %s",
                *(undecided.rule.name, tensor.name, tensor.io, tensor.slot, undecided.reason),
            )

    def close(self) -> None:
        """Log how often each rule hit, where more happened than was told."""
        with self._lock:
            totals: Counter[str] = Counter()
            for (rule, _), count in self._counts.items():
                totals[rule] += count
            for rule, count in totals.items():
                operators = sum(1 for name, _ in self._counts if name == rule)
                if count > self._lines[rule]:
                    _log.warning(
                        "%s: watch rule %r hit %d times at %d operators", self._source, rule, count, operators
                    )
            self._counts.clear()


_KIND: Final = "comparison of ranks"
_NUMBER: Final = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class HeldTensor:
    """What this rank holds of a tensor.

    Attributes:
        subject: The tensor.
        moment: When it was seen.
        rules: The rules that compare it.
        digest: What tells whether another rank holds the same.
    """

    subject: WatchedTensor
    moment: Sighting
    rules: Sequence[WatchRule]
    digest: bytes


class RankComparison(threading.local):
    """The tensors of the step that this thread is in, and those of the same step on the other ranks."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._held: dict[bytes, HeldTensor] = {}
        self._is_given_up = False

    def begin(self) -> None:
        """Begin a step."""
        self._held.clear()

    def add(
        self,
        place: Hashable,
        subject: WatchedTensor,
        moment: Sighting,
        rules: Sequence[WatchRule],
        array: np.ndarray,
    ) -> None:
        """Take in a tensor of the step.

        Args:
            place: Tells tensors of the same operator and slot apart, such as those of two graphs.
            subject: The tensor.
            moment: When it was seen.
            rules: The rules that compare it.
            array: Its elements.
        """
        looking = [rule for rule in rules if moment.iteration in rule.target.iterations]
        if looking:
            key = _key(place, subject, moment)
            self._held[key] = HeldTensor(subject, moment, looking, digest(array))

    def findings(self, network: int, iteration: int) -> tuple[list[Finding], str]:
        """Give the other ranks what this one holds, and compare what they give.

        Args:
            network: Number of the network among those of its configuration, the same on all ranks.
            iteration: Number of the iteration.

        Returns:
            What was found on this rank, and a sentence where another rank holds something else than this
            one and most, else "".

        Raises:
            RankError: The other ranks cannot be asked, or are elsewhere; later steps compare nothing.
        """
        if self._is_given_up:
            return [], ""
        held, self._held = self._held, {}
        world = current()
        place = CallPlace(f"the end of iteration {iteration}", _KIND, WORLD_GROUP)
        try:
            given = shared(world, f"watch {network}", _packed(iteration, held), place)
        except RankError:
            self._is_given_up = True  # who did not come once is not waited for again
            raise
        told = {rank: _unpacked(data) for rank, data in given.items()}
        elsewhere = [rank for rank, (number, _) in told.items() if number != iteration]
        if elsewhere:
            self._is_given_up = True
            message = f"rank {elsewhere[0]} is in iteration {told[elsewhere[0]][0]}"
            raise RankError(place.operator, message, elsewhere[0])
        return _compared(world.identity.rank, held, {rank: digests for rank, (_, digests) in told.items()})


def _compared(
    rank: int, held: Mapping[bytes, HeldTensor], told: Mapping[int, Mapping[bytes, bytes]]
) -> tuple[list[Finding], str]:
    """Return what was found on a rank, and who else is apart, given the digests of all ranks by tensor."""
    findings: list[Finding] = []
    elsewhere = ""
    for key, tensor in held.items():
        holding = {each: digests[key] for each, digests in told.items() if key in digests}
        apart = disagreeing(holding)
        for rule in tensor.rules:
            if len(holding) == 1:
                findings.append(Undecided(rule, tensor.subject, tensor.moment, ALONE))
            elif rank in apart:
                count = exactly(len(apart))
                findings.append(Hit(rule, rule.limits[0], tensor.subject, tensor.moment, count, apart[rank]))
        if apart and rank not in apart and not elsewhere:
            subject = tensor.subject
            elsewhere = f"{subject.name} {subject.io}.{subject.slot}: {next(iter(apart.values()))}"
    return findings, elsewhere


def _key(place: Hashable, subject: WatchedTensor, moment: Sighting) -> bytes:
    text = repr((place, subject.name, str(subject.io), subject.slot, moment.pass_number))
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()


def _packed(iteration: int, held: Mapping[bytes, HeldTensor]) -> bytes:
    """Return the number of an iteration and the digests of its tensors as bytes.

    >>> _unpacked(_packed(3, {}))
    (3, {})
    """
    parts = (key + tensor.digest for key, tensor in held.items())
    return b"".join((_NUMBER.pack(iteration), *parts))


def _unpacked(data: bytes) -> tuple[int, dict[bytes, bytes]]:
    (iteration,) = _NUMBER.unpack_from(data)
    starts = range(_NUMBER.size, len(data), 2 * DIGEST_BYTES)
    middles = ((start, start + DIGEST_BYTES) for start in starts)
    return iteration, {data[start:end]: data[end : end + DIGEST_BYTES] for start, end in middles}


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


SQUARES: Final = StatisticNeed(squares=True)
"""What screens need."""

Wanted = tuple[np.ndarray, StatisticNeed]
"""A tensor in its own type, and what a pass over its elements has to find out."""


class MeasuredAhead:
    """Statistics of tensors that wait to be looked at; the caller keeps the tensors alive meanwhile."""

    __slots__ = ("_squares", "_totals")

    def __init__(self, wanted: Iterable[Wanted] = ()) -> None:
        """Measure tensors together, on all threads.

        Nothing is measured without the compiled pass: numpy is faster at what screens need by itself.

        Args:
            wanted: The tensors.
        """
        self._squares: dict[int, float] = {}
        self._totals: dict[tuple[int, StatisticNeed], Totals] = {}
        if compiled.KERNEL is None:
            return
        screened: dict[int, np.ndarray] = {}
        others: dict[StatisticNeed, list[np.ndarray]] = {}
        for array, need in wanted:
            if need is SQUARES:
                screened[id(array)] = array
            else:
                others.setdefault(need, []).append(array)
        self._squares = passes.squares_of([*screened.values()])
        for need, arrays in others.items():
            self._measure(arrays, need)

    def _measure(self, arrays: Iterable[np.ndarray], need: StatisticNeed) -> None:
        typed = ((array, dtypes.from_numpy(array.dtype)) for array in arrays)
        tensors = [(array, dtype) for array, dtype in typed if array.size and passes.is_measurable(dtype)]
        if not tensors:
            return
        for (array, _), totals in zip(tensors, passes.measure_all(tensors, need), strict=True):
            self._totals[id(array), need] = totals
            if need.squares:
                self._squares[id(array)] = totals.squares

    def squares(self, array: np.ndarray) -> float | None:
        """Return the sum of the squares of a tensor's elements, None where it was not measured."""
        return self._squares.get(id(array))

    def totals(self, array: np.ndarray, need: StatisticNeed) -> Totals | None:
        """Return what ``passes.measure`` finds of a tensor, None where it was not measured for that need."""
        return self._totals.get((id(array), need))


NOTHING_AHEAD: Final = MeasuredAhead()
"""Of an operator that is looked at by itself nothing is known before."""


class Flight:
    """Follows runs of a configuration without rules and without a history; any thread may use it.

    Attributes:
        sink: Where the files of its networks go.
        networks: Gives each of its networks a number, from 0.
    """

    def __init__(self, sink: Sink) -> None:
        """Watch nothing.

        Args:
            sink: Takes what is written.
        """
        self.sink = sink
        self.networks = itertools.count()

    @property
    def written(self) -> IterationSet:
        """Iterations that are on disk whole, of those that are dumped only where something was found."""
        return IterationSet()

    def graph_watch(self, graphs: Iterable[Graph]) -> GraphWatch | None:  # noqa: ARG002 - of those with rules
        """Return what checks the rules on some graphs, None without rules."""
        return None

    def begin(self, iteration: int) -> None:
        """Begin a step of this thread."""

    def compare_ranks(self, network: int, iteration: int) -> None:
        """Check the rules that compare what ranks hold at the end of a step of this thread."""

    def end(self) -> None:
        """End the step of this thread."""

    def broken_off(self, iteration: int, error: BaseException) -> None:
        """Write what is kept of a step that failed, and of those before it."""

    def close(self) -> None:
        """Close the sink.

        Raises:
            DumpWriteError: A file could not be written and the plan wants to know.
        """
        self.sink.close()
