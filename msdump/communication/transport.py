"""Sends and receives between ranks: the Transport interface, its timeouts, and the transport of threads.

A call raises RankError after its time limit, or when a rank that it waits for has failed or ended.
"""

from __future__ import annotations

import abc
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from msdump import env
from msdump.errors import InputError, RankError

_LONGEST: Final = 24 * 60 * 60  # seconds
_DEFAULT: Final = 120.0


def time_limit() -> float:
    """Return how many seconds a rank waits for another one: MSDUMP_COMMUNICATION_TIMEOUT, or 120.

    Raises:
        InputError: The variable is no number of seconds.
    """
    text = env.read(env.COMMUNICATION_TIMEOUT)
    if text is None:
        return _DEFAULT
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _LONGEST:  # false for NaN, too
        raise InputError(
            f"{env.COMMUNICATION_TIMEOUT} = {text!r}: must be a number of seconds above 0, at most {_LONGEST}"
        )
    return seconds


@dataclass(frozen=True, slots=True)
class CallPlace:
    """A collective of a rank: the operator's full name, its kind (``AllReduce``), the group's name."""

    operator: str
    kind: str
    group: str

    def __str__(self) -> str:
        """Name operator, collective and group."""
        return f"{self.kind} {self.operator} (group {self.group})"


@dataclass(slots=True)
class Board:
    """State of all ranks as far as one rank has been notified; ranks that are threads share one Board."""

    failed: tuple[int, str] | None = None  # the first rank that failed, and the reason
    is_stopped: bool = False  # Ctrl-C: all waits end
    ended: set[int] = field(default_factory=set)  # ranks that have ended
    waits: dict[int, str] = field(default_factory=dict)  # collective in which a rank waits, by rank


@dataclass(slots=True)
class Wait:
    """A rank's wait for other ranks: ``limit`` seconds at most, less if ``board`` has a failure or an end."""

    place: CallPlace
    rank: int
    board: Board
    limit: float
    began: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds until the wait fails."""
        return self.began + self.limit - time.monotonic()

    def check(self, missing: Iterable[int]) -> None:
        """Raise RankError if a rank failed, a missing one has ended, or the time is over; else do nothing."""
        board = self.board
        if board.is_stopped:
            raise self.error("interrupted")
        if board.failed is not None:
            culprit, reason = board.failed
            raise self.error(f"rank {culprit} failed: {reason}", culprit)
        awaited = sorted(set(missing))
        for rank in awaited:
            if rank in board.ended:
                raise self.error(f"rank {rank} has ended its program before this collective", rank)
        if awaited and self.left <= 0:
            places = {rank: f"waits in {text}" for rank, text in board.waits.items()}
            where = "; ".join(f"rank {rank} {places.get(rank, 'is in no collective')}" for rank in awaited)
            message = f"rank {self.rank} has waited {self.limit:g} s here: {where}"
            raise self.error(message, awaited[0] if len(awaited) == 1 else None)

    def error(self, message: str, culprit: int | None = None) -> RankError:
        """Return the error that ends the wait."""
        prefix = f"{self.place.kind} of group {self.place.group}"
        return RankError(self.place.operator, f"{prefix}: {message}", culprit)


MOST_POSTED: Final = 16
"""Tensors on the way from one rank to another one, not yet received, from which on the sender waits."""

Parcel = tuple[int, np.ndarray]
"""A rank, and the bytes that go to it or come from it: a contiguous array of uint8."""


class Transport(abc.ABC):
    """Sends and receives of one rank; arrays of one channel arrive in the order in which they were sent."""

    def __init__(self, rank: int, board: Board, limit: float) -> None:
        """Take part as a rank with a time limit in seconds."""
        self._rank = rank
        self._board = board
        self._limit = limit

    def wait(self, place: CallPlace) -> Wait:
        """Return a Wait for the collective at a place; its time limit starts now."""
        return Wait(place, self._rank, self._board, self._limit)

    @abc.abstractmethod
    def exchange(
        self, channel: str, sends: Sequence[Parcel], receives: Sequence[Parcel], place: CallPlace
    ) -> None:
        """Send arrays and receive into arrays; return when the caller may use all of them again."""

    @abc.abstractmethod
    def post(self, channel: str, send: Parcel, place: CallPlace) -> None:
        """Send a copy of an array without waiting for the receiver; RankError if too many wait there."""

    @abc.abstractmethod
    def fail(self, reason: str) -> None:
        """Report the first failure of a rank to all others: their waits end."""

    @abc.abstractmethod
    def end(self) -> None:
        """Report to all other ranks that this one has ended, and settle open sends."""


_LONGEST_SLEEP: Final = 0.2  # seconds of a thread's wait between two looks, so that Ctrl-C gets through


@dataclass(eq=False, slots=True)
class _Message:
    """A sent array that is not received yet: the sender's array (exchange) or a copy (post)."""

    array: np.ndarray
    is_received: bool = False


@dataclass(slots=True)
class Hub:
    """State that the ranks of one process share."""

    limit: float  # seconds that a thread waits for another one
    board: Board = field(default_factory=Board)  # state of all of them
    condition: threading.Condition = field(default_factory=threading.Condition)  # notified of every change
    # messages that wait for their receiver, by sender, receiver and channel
    mail: dict[tuple[int, int, str], deque[_Message]] = field(default_factory=dict)
    # messages that were posted and are not received yet, by sender and receiver
    posted: dict[tuple[int, int], list[_Message]] = field(default_factory=dict)

    def stop(self) -> None:
        """End all waits, now and later."""
        with self.condition:
            self.board.is_stopped = True
            self.condition.notify_all()


class ThreadTransport(Transport):
    """Transport of a rank that is a thread: arrays are handed over and copied once, by the receiver."""

    def __init__(self, hub: Hub, rank: int) -> None:
        """Take part as a rank."""
        super().__init__(rank, hub.board, hub.limit)
        self._hub = hub

    def exchange(
        self, channel: str, sends: Sequence[Parcel], receives: Sequence[Parcel], place: CallPlace
    ) -> None:
        """Pass arrays to other threads; copy the arrays that they pass to this thread."""
        wait = self.wait(place)
        sent = [(peer, self._put(peer, channel, array)) for peer, array in sends]
        mail = self._hub.mail
        try:
            # one wait for all senders: an error names every missing rank
            self._until(
                lambda: [peer for peer, _ in receives if not mail.get((peer, self._rank, channel))], wait
            )
            for peer, array in receives:
                with self._hub.condition:
                    message = mail[peer, self._rank, channel].popleft()
                array[:] = message.array  # outside the lock: other threads copy at the same time
                with self._hub.condition:
                    message.is_received = True
                    self._hub.condition.notify_all()
            self._until(lambda: [peer for peer, message in sent if not message.is_received], wait)
        except BaseException:
            with self._hub.condition:  # withdraw unread arrays: the caller may overwrite them from now on
                for peer, message in sent:
                    if message in (unread := mail[self._rank, peer, channel]):
                        unread.remove(message)
            raise

    def post(self, channel: str, send: Parcel, place: CallPlace) -> None:
        """Hand over a copy of an array."""
        peer, array = send
        posted = self._hub.posted.setdefault((self._rank, peer), [])

        def find_full() -> list[int]:
            posted[:] = [message for message in posted if not message.is_received]
            return [peer] if len(posted) >= MOST_POSTED else []

        self._until(find_full, self.wait(place))
        posted.append(self._put(peer, channel, array.copy()))

    def fail(self, reason: str) -> None:
        """Make the waits of all ranks fail with this reason."""
        with self._hub.condition:
            if self._board.failed is None:
                self._board.failed = (self._rank, reason)
            self._hub.condition.notify_all()

    def end(self) -> None:
        """Make waits for this rank fail; posted arrays of this rank may still be received."""
        with self._hub.condition:
            self._board.ended.add(self._rank)
            self._hub.condition.notify_all()

    def _put(self, peer: int, channel: str, array: np.ndarray) -> _Message:
        message = _Message(array)
        with self._hub.condition:
            self._hub.mail.setdefault((self._rank, peer, channel), deque()).append(message)
            self._hub.condition.notify_all()
        return message

    def _until(self, missing: Callable[[], list[int]], wait: Wait) -> None:
        """Wait until ``missing`` returns no ranks."""
        with self._hub.condition:
            if not missing():
                return
            self._board.waits[self._rank] = str(wait.place)
            try:
                while peers := missing():
                    wait.check(peers)
                    self._hub.condition.wait(min(_LONGEST_SLEEP, max(wait.left, 0.001)))
            finally:
                self._board.waits.pop(self._rank, None)
