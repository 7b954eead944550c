"""Several ranks in one process: each is a thread with networks, numbers and files of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msdump.communication.threads import Hub, ThreadTransport
from msdump.communication.waiting import time_limit
from msdump.communication.world import World, own, work_as
from msdump.config.launchers import Identity
from msdump.errors import InputError
from msdump.store.write import exits

MOST_RANKS: Final = 64
"""Ranks that one process can have."""

THREADS: Final = "threads"
"""The launcher of ranks that are threads."""

_LOOK_UP: Final = 0.2  # seconds between two looks at the threads: a signal gets through in between
_GRACE: Final = 10.0  # seconds that threads may still take after Ctrl-C


@dataclass(slots=True)
class Outcome:
    """How a rank ended.

    Attributes:
        result: What its function returned.
        error: What it raised, None where it returned.
        ended: When, in seconds of ``time.monotonic``; 0 while it runs.
    """

    result: Any = None
    error: BaseException | None = None
    ended: float = 0.0


def spawn(size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Run a function as several ranks, each in a thread of its own; return the results in rank order.

    Within the function ``msdump.load`` loads a network of the rank: it counts its own runs and dumps into
    the directory of its rank, on the device of that number. Threads that the function starts belong to
    rank 0 of the process again.

    Args:
        size: Number of ranks.
        function: Called once in each rank; ``msdump.communication.get_rank()`` tells which it is.
        args: Its arguments.

    Raises:
        InputError: The number is none from 1 to 64, or the caller is such a rank itself.
        Exception: What the first rank that failed raised.
    """
    outcomes = run_ranks(size, lambda: function(*args))
    errors = [outcome for outcome in outcomes if outcome.error is not None]
    if errors:
        first = min(errors, key=lambda outcome: outcome.ended)
        assert first.error is not None
        first.error.add_note(f"in rank {outcomes.index(first)} of {size}")
        raise first.error
    return [outcome.result for outcome in outcomes]


def run_ranks(size: int, function: Callable[[], Any]) -> list[Outcome]:
    """Run a function as several ranks; return how each of them ended, in rank order.

    Raises:
        InputError: The number is none from 1 to 64, or the caller is such a rank itself.
        KeyboardInterrupt: Ctrl-C; ranks that do not end soon are left behind.
    """
    if type(size) is not int or not 1 <= size <= MOST_RANKS:
        raise InputError(f"size = {size!r}: a number from 1 to {MOST_RANKS} is expected")
    if own() is not None:
        raise InputError("a rank of a process cannot have ranks of its own")
    exits.listen()  # the threads themselves can install no handler of signals
    hub = Hub(time_limit())
    outcomes = [Outcome() for _ in range(size)]
    threads = [
        threading.Thread(target=_work, args=(hub, rank, function, outcomes), name=f"rank {rank}", daemon=True)
        for rank in range(size)
    ]
    for thread in threads:
        thread.start()
    try:
        _join(threads)
    except BaseException:
        hub.stop()
        _join(threads, _GRACE)
        raise
    return outcomes


def _work(hub: Hub, rank: int, function: Callable[[], Any], outcomes: Sequence[Outcome]) -> None:
    identity = Identity(rank, len(outcomes), rank, THREADS)
    transport = ThreadTransport(hub, rank)
    world = World(identity, lambda _place: transport)
    work_as(world)
    outcome = outcomes[rank]
    try:
        outcome.result = function()
    except BaseException as error:  # noqa: BLE001 - the caller gets it
        outcome.error, outcome.ended = error, time.monotonic()
        transport.fail(f"{type(error).__name__}: {error}")
    finally:
        world.end()
        transport.end()


def _join(threads: Sequence[threading.Thread], most: float | None = None) -> None:
    """Wait for threads, at most so many seconds."""
    end = None if most is None else time.monotonic() + most
    for thread in threads:
        while thread.is_alive() and (end is None or time.monotonic() < end):
            thread.join(_LOOK_UP)
