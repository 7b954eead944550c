"""Ranks that are threads of one process: arrays go from hand to hand, and are copied once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from msdump.communication.transport import MOST_POSTED, Parcel
from msdump.communication.waiting import Board, CallPlace, Wait

_LONGEST_SLEEP: Final = 0.2  # seconds: a thread that waits looks up so often, so that Ctrl-C gets through


@dataclass(eq=False, slots=True)
class _Message:
    """An array on its way.

    Attributes:
        array: The array, the sender's own or a copy.
        is_received: The receiver has its copy.
    """

    array: np.ndarray
    is_received: bool = False


@dataclass(slots=True)
class Hub:
    """Where the threads of one process meet.

    Attributes:
        limit: Seconds that a thread waits for another one.
        board: What is known of all of them.
        condition: Told of every change.
        mail: Messages that wait for their receiver, by sender, receiver and channel.
        posted: Messages that were posted and are not received yet, by sender and receiver.
    """

    limit: float
    board: Board = field(default_factory=Board)
    condition: threading.Condition = field(default_factory=threading.Condition)
    mail: dict[tuple[int, int, str], deque[_Message]] = field(default_factory=dict)
    posted: dict[tuple[int, int], list[_Message]] = field(default_factory=dict)

    def stop(self) -> None:
        """End all waits, now and later."""
        with self.condition:
            self.board.is_stopped = True
            self.condition.notify_all()


class ThreadTransport:
    """The sends and receives of one thread (``Transport``)."""

    def __init__(self, hub: Hub, rank: int) -> None:
        """Take part as a rank."""
        self._hub = hub
        self._rank = rank

    def exchange(
        self, channel: str, sends: Sequence[Parcel], receives: Sequence[Parcel], place: CallPlace
    ) -> None:
        """Send arrays and fill others; returns when all of them may be used again.

        Raises:
            RankError: Another rank does not take part.
        """
        wait = Wait(place, self._rank, self._hub.board, self._hub.limit)
        sent = [(peer, self._put(peer, channel, array)) for peer, array in sends]
        try:
            # all at once: who is missing is told whole
            self._until(lambda: [peer for peer, _ in receives if not self._has_come(peer, channel)], wait)
            for peer, array in receives:
                self._fill(peer, channel, array)
            self._until(lambda: [peer for peer, message in sent if not message.is_received], wait)
        except BaseException:
            self._take_back(channel, sent)
            raise

    def post(self, channel: str, send: Parcel, place: CallPlace) -> None:
        """Send a copy of an array without waiting until it is received.

        Raises:
            RankError: Too many earlier ones are not received in time.
        """
        peer, array = send
        wait = Wait(place, self._rank, self._hub.board, self._hub.limit)
        posted = self._hub.posted.setdefault((self._rank, peer), [])
        self._until(lambda: [peer] * (_waiting(posted) >= MOST_POSTED), wait)
        posted[:] = [message for message in posted if not message.is_received]
        posted.append(self._put(peer, channel, array.copy()))

    def fail(self, reason: str) -> None:
        """Tell all other ranks that this one has failed: their waits end."""
        with self._hub.condition:
            if self._hub.board.failed is None:
                self._hub.board.failed = (self._rank, reason)
            self._hub.condition.notify_all()

    def end(self) -> None:
        """Tell all other ranks that this one has ended; what it posted may still be received."""
        with self._hub.condition:
            self._hub.board.ended.add(self._rank)
            self._hub.condition.notify_all()

    def _put(self, peer: int, channel: str, array: np.ndarray) -> _Message:
        message = _Message(array)
        with self._hub.condition:
            self._hub.mail.setdefault((self._rank, peer, channel), deque()).append(message)
            self._hub.condition.notify_all()
        return message

    def _has_come(self, peer: int, channel: str) -> bool:
        return bool(self._hub.mail.get((peer, self._rank, channel)))

    def _fill(self, peer: int, channel: str, array: np.ndarray) -> None:
        with self._hub.condition:
            message = self._hub.mail[peer, self._rank, channel].popleft()
        array[:] = message.array  # outside the lock: other threads copy at the same time
        with self._hub.condition:
            message.is_received = True
            self._hub.condition.notify_all()

    def _until(self, missing: Callable[[], list[int]], wait: Wait) -> None:
        """Wait until no rank is missing any more."""
        hub = self._hub
        with hub.condition:
            if not missing():
                return
            hub.board.waits[self._rank] = str(wait.place)
            try:
                while peers := missing():
                    wait.check(peers)
                    hub.condition.wait(min(_LONGEST_SLEEP, max(wait.left, 0.001)))
            finally:
                hub.board.waits.pop(self._rank, None)

    def _take_back(self, channel: str, sent: Sequence[tuple[int, _Message]]) -> None:
        """Take back what nobody has received: the caller uses the memory for something else."""
        with self._hub.condition:
            for peer, message in sent:
                mail = self._hub.mail[self._rank, peer, channel]
                if message in mail:
                    mail.remove(message)


def _waiting(posted: Sequence[_Message]) -> int:
    return sum(not message.is_received for message in posted)
