"""Several ranks in one process: each rank is a thread with separate networks, run numbers and files."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from msdump.communication.transport import Hub, ThreadTransport, time_limit
from msdump.communication.world import World, own, work_as
from msdump.config import Identity
from msdump.errors import InputError
from msdump.store.write import exits

_Made = TypeVar("_Made")

MOST_RANKS: Final = 64
"""Ranks that one process can have."""

THREADS: Final = "threads"
"""The launcher of ranks that are threads."""

_LOOK_UP: Final = 0.2  # seconds between two looks at the threads: a signal gets through in between
_GRACE: Final = 10.0  # seconds that threads may still take after Ctrl-C


@dataclass(slots=True)
class Outcome:
    """Result or error of a rank's function, and the time of an error in seconds of ``time.monotonic``."""

    result: Any = None
    error: BaseException | None = None
    ended: float = 0.0


def spawn(size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Run a function as several ranks, each in a thread of its own; return the results in rank order.

    Within the function, ``msdump.load`` returns a network of the rank. The network counts its own runs, dumps
    into the directory of the rank, and runs on the device with the rank's number. Threads started by the
    function belong to the process, not to the rank.

    Args:
        size: Number of ranks.
        function: Called once per rank; ``msdump.communication.get_rank()`` returns the number of the rank.
        args: Arguments of the function.

    Raises:
        InputError: The number is not from 1 to 64, or the caller is itself such a rank.
        Exception: The error of the first rank that failed.
    """
    threads = RankThreads(size)
    outcomes = threads.at_once(lambda: function(*args))
    failed = threads.first_failure(outcomes)
    if failed is not None:
        error = outcomes[failed].error
        assert error is not None
        error.add_note(f"in rank {failed} of {size}")
        raise error
    return [outcome.result for outcome in outcomes]


class RankThreads:
    """Several ranks of one process."""

    def __init__(self, size: int) -> None:
        """Connect ranks.

        Raises:
            InputError: The number is not from 1 to 64, or the caller is itself such a rank.
        """
        if type(size) is not int or not 1 <= size <= MOST_RANKS:
            raise InputError(f"{size!r} ranks: must be a number from 1 to {MOST_RANKS}")
        if own() is not None:
            raise InputError("a rank of a process cannot have ranks of its own")
        self._hub = Hub(time_limit())
        self._transports = [ThreadTransport(self._hub, rank) for rank in range(size)]
        self._worlds = [
            World(Identity(rank, size, rank, THREADS), transport)
            for rank, transport in enumerate(self._transports)
        ]

    @property
    def is_stopped(self) -> bool:
        """Whether all ranks must end at once: after Ctrl-C, or if a rank has failed."""
        return self._hub.board.is_stopped or self._hub.board.failed is not None

    def first_failure(self, outcomes: Sequence[Outcome]) -> int | None:
        """Return the rank that failed first, None if no rank failed; later failures may be consequences.

        A network reports its failure to the other ranks while its own rank still writes files, so the other
        ranks may end earlier.
        """
        failed = [rank for rank, outcome in enumerate(outcomes) if outcome.error is not None]
        first = self._hub.board.failed
        if first is not None and first[0] in failed:
            return first[0]
        return min(failed, key=lambda rank: outcomes[rank].ended, default=None)

    def in_turn(self, function: Callable[[], _Made]) -> list[_Made]:
        """Call a function as each rank, one after the other, in this thread; return the results."""
        results = []
        for world in self._worlds:
            work_as(world)
            try:
                results.append(function())
            finally:
                work_as(None)
        return results

    def at_once(self, function: Callable[[], Any]) -> list[Outcome]:
        """Call a function as all ranks, each in a thread of its own; return their outcomes.

        Raises:
            KeyboardInterrupt: Ctrl-C; ranks that do not end within seconds are left behind.
        """
        exits.listen()  # the threads themselves can install no handler of signals
        outcomes = [Outcome() for _ in self._worlds]
        threads = [
            threading.Thread(
                target=self._work, args=(rank, function, outcome), name=f"rank {rank}", daemon=True
            )
            for rank, outcome in enumerate(outcomes)
        ]
        for thread in threads:
            thread.start()
        try:
            _join(threads)
        except BaseException:
            self._hub.stop()
            _join(threads, _GRACE)
            raise
        return outcomes

    def _work(self, rank: int, function: Callable[[], Any], outcome: Outcome) -> None:
        world, transport = self._worlds[rank], self._transports[rank]
        work_as(world)
        try:
            outcome.result = function()
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            outcome.error, outcome.ended = error, time.monotonic()
            transport.fail(f"{type(error).__name__}: {error}")
        finally:
            world.end()
            transport.end()


def _join(threads: Sequence[threading.Thread], most: float | None = None) -> None:
    end = None if most is None else time.monotonic() + most
    for thread in threads:
        while thread.is_alive() and (end is None or time.monotonic() < end):
            thread.join(_LOOK_UP)
