"""Ranks that are processes of MPI: mpi4py carries arrays as they are.

No call of MPI blocks: a rank asks again and again whether what it waits for has come, so that it hears of
others that failed, keeps its time limit, and lets Python handle signals.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

import numpy as np

from msdump.communication import mpi_start
from msdump.communication.mpi_start import Peer
from msdump.communication.transport import MOST_POSTED, Parcel
from msdump.communication.waiting import Board, CallPlace, Wait
from msdump.store.write import exits
from msdump.threads import new_lock

_log = logging.getLogger("msdump.communication")

_NOTICE_TAG: Final = 1
_FIRST_TAG: Final = 16

_BUSY: Final = 0.005  # seconds of a wait in which the rank gives its core to others but does not sleep
_SLEEP: Final = 0.0005
_LOOK_AROUND: Final = 0.02  # seconds between two looks at the other ranks
_TELL_AFTER: Final = 1.0  # seconds of a wait, at most half of the limit, after which the others hear of it
_GRACE: Final = 10.0  # seconds, at most the limit, that others have to end after a failure by themselves

_FAILED, _ENDED, _WAITS, _GOES_ON = "failed", "ended", "waits", "goes on"


class MpiTransport:
    """The sends and receives of one process (``Transport``); any thread may use it."""

    def __init__(self, comm: Any, mpi: Any, peers: Sequence[Peer], rank: int, limit: float) -> None:
        """Take part as a rank.

        Args:
            comm: MPI's communicator of all ranks, which nobody else uses.
            mpi: The module ``mpi4py.MPI``.
            peers: The process of each rank.
            rank: Which rank this is.
            limit: Seconds that it waits for another one.
        """
        self._comm = comm
        self._mpi = mpi
        self._peers = peers
        self._rank = rank
        self._limit = limit
        self._board = Board()
        self._lock = new_lock()  # MPI may allow one thread at a time
        self._posted: dict[int, list[tuple[Any, np.ndarray]]] = {}
        self._kept: list[Any] = []  # notices on their way, and what failed exchanges left
        self._helper: threading.Thread | None = None
        self._wait: Wait | None = None
        self._is_open = True

    def exchange(
        self, channel: str, sends: Sequence[Parcel], receives: Sequence[Parcel], place: CallPlace
    ) -> None:
        """Send arrays and fill others; returns when all of them may be used again.

        Raises:
            RankError: Another rank does not take part.
        """
        tag, wait = self._tag(channel), Wait(place, self._rank, self._board, self._limit)
        with self._lock:
            pending = [(rank, self._comm.Irecv(array, self._number(rank), tag)) for rank, array in receives]
            pending += [(rank, self._comm.Isend(array, self._number(rank), tag)) for rank, array in sends]
        try:
            self._settle(pending, wait)
        except BaseException:
            self._kept.append((pending, sends, receives))  # MPI may still write to them
            raise

    def post(self, channel: str, send: Parcel, place: CallPlace) -> None:
        """Send a copy of an array without waiting until it is received.

        Raises:
            RankError: Too many earlier ones are not received in time.
        """
        rank, array = send
        wait = Wait(place, self._rank, self._board, self._limit)
        posted = self._posted.setdefault(rank, [])
        while len(posted) >= MOST_POSTED:
            self._settle([(rank, posted[0][0])], wait)
            self._forget_received()
        copy = array.copy()
        with self._lock:
            posted.append((self._comm.Isend(copy, self._number(rank), self._tag(channel)), copy))
            if self._helper is None:
                self._helper = threading.Thread(target=self._push, name="msdump-mpi", daemon=True)
                self._helper.start()

    def fail(self, reason: str) -> None:
        """Tell all other ranks that this one has failed, unless another one did before."""
        with self._lock:
            if self._is_open and self._board.failed is None:
                self._board.failed = (self._rank, reason)
                self._tell(_FAILED, reason)

    def end(self) -> None:
        """Tell all other ranks that this one has ended, and leave MPI when they all have.

        After a failure they have a few seconds; then MPI ends them.
        """
        if not self._is_open or self._mpi.Is_finalized():  # the program may have left MPI itself
            self._is_open = False
            return
        with self._lock:
            self._tell(_ENDED, "")
        deadline: float | None = None
        while len(self._board.ended) < len(self._peers) - 1:
            self._hear()
            with self._lock:
                self._forget_received()
            if deadline is None and (self._board.failed is not None or self._dead()):
                deadline = time.monotonic() + min(_GRACE, self._limit)
            if deadline is not None and time.monotonic() > deadline:
                self._is_open = False
                self._comm.Abort(1)
            time.sleep(_SLEEP)
        self._is_open = False
        mpi_start.leave(self._mpi)

    def close(self) -> None:
        """End, when the interpreter does."""
        self.end()

    def complete(self) -> None:
        """Say where the rank was, when it is told to end (SIGTERM)."""
        wait = self._wait
        if wait is not None:
            _log.error("rank %d is told to end while it waits in %s", self._rank, wait.place)

    def forget(self) -> None:
        """In a forked child: leave MPI to the parent."""
        self._is_open = False

    def _number(self, rank: int) -> int:
        """Return the number by which MPI knows a rank."""
        return self._peers[rank].number

    def _tag(self, channel: str) -> int:
        most: int = self._comm.Get_attr(self._mpi.TAG_UB)
        return _FIRST_TAG + zlib.crc32(channel.encode()) % (most - _FIRST_TAG)

    def _settle(self, pending: Sequence[tuple[int, Any]], wait: Wait) -> None:
        """Wait until requests are done; look at the other ranks in between."""
        requests = [request for _, request in pending]
        busy_until, look_at, is_told = wait.began + _BUSY, wait.began + _LOOK_AROUND, False
        self._wait = wait
        try:
            while not self._are_done(requests):
                now = time.monotonic()
                if now >= look_at:
                    look_at = now + _LOOK_AROUND
                    self._look_around(
                        [rank for rank, request in pending if not self._are_done([request])], wait
                    )
                    if not is_told and now - wait.began > min(_TELL_AFTER, self._limit / 2):
                        is_told = True
                        self._tell(_WAITS, str(wait.place))
                if now < busy_until:
                    os.sched_yield()
                else:
                    time.sleep(_SLEEP)
        finally:
            self._wait = None
            if is_told:
                self._tell(_GOES_ON, "")

    def _are_done(self, requests: list[Any]) -> bool:
        with self._lock:
            return bool(self._mpi.Request.Testall(requests))

    def _look_around(self, missing: Sequence[int], wait: Wait) -> None:
        self._hear()
        for rank in missing:
            if self._peers[rank].is_dead() and rank not in self._board.ended:
                raise wait.error(f"rank {rank} ({self._peers[rank]}) has died", rank)
        wait.check(missing)

    def _dead(self) -> list[int]:
        return [rank for rank, peer in enumerate(self._peers) if rank != self._rank and peer.is_dead()]

    def _tell(self, kind: str, text: str) -> None:
        """Send a notice to all other ranks."""
        data = np.frombuffer(json.dumps([self._rank, kind, text]).encode(), np.uint8)
        with self._lock:
            self._kept += [
                (self._comm.Isend(data, peer.number, _NOTICE_TAG), data)
                for rank, peer in enumerate(self._peers)
                if rank != self._rank
            ]

    def _hear(self) -> None:
        """Take the notices that have come."""
        status = self._mpi.Status()
        with self._lock:
            while self._comm.Iprobe(self._mpi.ANY_SOURCE, _NOTICE_TAG, status):
                data = np.empty(status.Get_count(self._mpi.BYTE), np.uint8)
                self._comm.Recv(data, status.Get_source(), _NOTICE_TAG)
                self._take(*json.loads(data.tobytes()))

    def _take(self, rank: int, kind: str, text: str) -> None:
        board = self._board
        if kind == _WAITS:
            board.waits[rank] = text
        else:
            board.waits.pop(rank, None)
        if kind == _ENDED:
            board.ended.add(rank)
        elif kind == _FAILED and board.failed is None:
            board.failed = (rank, text)

    def _push(self) -> None:
        """Let posted tensors go their way while the rank computes: MPI moves them only where it is called."""
        while self._is_open:
            with self._lock:
                self._forget_received()
                if not any(self._posted.values()):
                    self._helper = None
                    return
            time.sleep(_SLEEP * 2)

    def _forget_received(self) -> None:
        for posted in self._posted.values():
            posted[:] = [(request, array) for request, array in posted if not self._are_done([request])]


@dataclass(frozen=True, slots=True)
class _Start:
    """A rank that looks for the others: what a process that is told to end says of it.

    Attributes:
        place: Where the rank is.
        rank: Which rank this is.
    """

    place: CallPlace
    rank: int

    def close(self) -> None:
        """End: nobody has been found."""

    def complete(self) -> None:
        """Say where the rank was, when it is told to end (SIGTERM)."""
        _log.error("rank %d is told to end while it looks for the others in %s", self.rank, self.place)

    def forget(self) -> None:
        """Forget nothing, in a forked child."""


def connect(place: CallPlace, rank: int, size: int, limit: float) -> MpiTransport:
    """Find the other ranks by MPI.

    Args:
        place: Where the rank is, for messages.
        rank: Which one this is, as its launcher says.
        size: How many there are, as its launcher says.
        limit: Seconds that a rank waits for another one.

    Raises:
        RankError: mpi4py is not installed, the processes were not started by MPI, or two were told one rank.
    """
    exits.close_last(_Start(place, rank))
    mpi = mpi_start.start(place, (rank, size), limit)
    wait = Wait(place, rank, Board(), limit)

    def settle(requests: list[Any]) -> None:
        while not mpi.Request.Testall(requests):
            wait.check([each for each in range(size) if each != rank])
            time.sleep(_SLEEP)

    comm, peers = mpi_start.meet(mpi, place, (rank, size), settle)
    transport = MpiTransport(comm, mpi, peers, rank, limit)
    exits.close_last(transport)  # instead of the start
    _tell_of_exceptions(transport)
    return transport


def _tell_of_exceptions(transport: MpiTransport) -> None:
    """Tell the other ranks of the exception that ends this one's program, before it is shown."""
    show = sys.excepthook

    def tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        transport.fail(f"{kind.__name__}: {error}")
        show(kind, error, trace)

    sys.excepthook = tell
