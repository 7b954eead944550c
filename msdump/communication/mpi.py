"""Ranks that are processes of MPI: mpi4py carries arrays as they are.

No call of MPI blocks: a rank tests its requests again and again, so that it gets notices of ranks that
failed, keeps its time limit, and lets Python handle signals. A collective of MPI is one request, which cannot
name the ranks that are missing; so tensors go by a send and a receive for each rank.
"""

from __future__ import annotations

import ctypes
import functools
import json
import logging
import os
import socket
import sys
import threading
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import numpy as np

from msdump.communication.transport import MOST_POSTED, Board, CallPlace, Parcel, Transport, Wait, time_limit
from msdump.errors import RankError
from msdump.store.write import exits
from msdump.threads import new_lock

_log = logging.getLogger("msdump.communication")

_NOTICE_TAG: Final = 1
_FIRST_TAG: Final = 16

_BUSY: Final = 0.005  # first seconds of a wait, in which the rank yields its core but does not sleep
_SLEEP: Final = 0.0005
_LOOK_AROUND: Final = 0.02  # seconds between two looks at the other ranks
_ANNOUNCE_AFTER: Final = 1.0  # seconds of a wait, at most half of the limit, until the others get a notice
_GRACE: Final = 10.0  # seconds, at most the limit, that others have to end after a failure by themselves

_FAILED, _ENDED, _WAITS, _GOES_ON = "failed", "ended", "waits", "goes on"

_HELLO_BYTES: Final = 512
_LONGEST_NAME: Final = 64  # of a machine
_MULTIPLE: Final = 3  # MPI_THREAD_MULTIPLE of Open MPI and MPICH
_LOOK_UP: Final = 0.02  # seconds


@dataclass(frozen=True, slots=True)
class Peer:
    """The process of a rank: number in MPI's communicator, machine, process id and its namespace."""

    number: int
    host: str
    pid: int
    namespace: str

    def is_dead(self) -> bool:
        """Return whether the process has ended; always False for processes on other machines."""
        if (self.host, self.namespace) != _machine():
            return False
        try:
            os.kill(self.pid, 0)
            # os.kill succeeds for zombies: ended children that this process has not waited for
            return os.waitid(os.P_PID, self.pid, os.WNOHANG | os.WEXITED | os.WNOWAIT) is not None
        except ProcessLookupError:
            return True
        except (PermissionError, ChildProcessError):
            return False

    def __str__(self) -> str:
        """Name process and machine."""
        return f"process {self.pid} on {self.host}"


@functools.cache
def _machine() -> tuple[str, str]:
    """Return the machine, and the namespace of process ids, "" on systems without them."""
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = ""
    return socket.gethostname()[:_LONGEST_NAME], namespace


def _start(place: CallPlace, rank: int, size: int, limit: float) -> Any:
    """Start MPI, unless the program has; return the module ``mpi4py.MPI``."""
    try:
        import mpi4py
    except ImportError as error:
        raise RankError(
            place.operator,
            f"rank {rank} of {size} needs mpi4py to reach the other ranks; pip install 'msdump[mpi]'",
        ) from error
    mpi4py.rc.initialize = mpi4py.rc.finalize = False
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # no library of MPI
        raise RankError(place.operator, f"mpi4py finds no MPI: {error}; pip install 'msdump[mpi]'") from error
    if not MPI.Is_initialized():
        _initialize(MPI, place, rank, limit)
    if MPI.COMM_WORLD.size != size:
        raise RankError(
            place.operator,
            f"rank {rank} is one of {size}, but MPI has {MPI.COMM_WORLD.size}: start ranks that exchange"
            f" tensors with MPI's launcher, mpirun -n {size}",
        )
    return MPI


def _initialize(mpi: Any, place: CallPlace, rank: int, limit: float) -> None:
    """Start MPI in a thread, by ctypes: it waits for the other processes, and mpi4py would hold the GIL."""
    library = ctypes.CDLL(mpi.__file__)  # ctypes releases the GIL
    provided = ctypes.c_int()
    codes: list[int] = []

    def work() -> None:
        codes.append(library.MPI_Init_thread(None, None, _MULTIPLE, ctypes.byref(provided)))

    thread = threading.Thread(target=work, name="msdump-mpi-start", daemon=True)
    began = time.monotonic()
    thread.start()
    while thread.is_alive() and time.monotonic() < began + limit:
        thread.join(_LOOK_UP)
    if thread.is_alive():
        raise RankError(
            place.operator, f"rank {rank} has waited {limit:g} s here: another rank has not started MPI"
        )
    if codes != [0]:
        raise RankError(place.operator, f"MPI cannot be started (MPI_Init_thread returned {codes})")


class MpiTransport(Transport):
    """Transport of a rank that is a process of MPI; any thread may use it."""

    def __init__(self, place: CallPlace, rank: int, size: int) -> None:
        """Find the other ranks; RankError without mpi4py, without MPI's launcher, or if two have one rank."""
        super().__init__(rank, Board(), time_limit())
        self._lock = new_lock()  # MPI may allow one thread at a time
        self._posted: dict[int, list[tuple[Any, np.ndarray]]] = {}
        self._kept: list[Any] = []  # unfinished sends of notices, and unfinished requests of failed exchanges
        self._helper: threading.Thread | None = None
        self._activity = f"looks for the others in {place}"
        self._is_open = False
        exits.close_last(self)
        self._mpi = _start(place, rank, size, self._limit)
        self._comm, request = self._mpi.COMM_WORLD.Idup()
        wait = self.wait(place)
        self._finish(request, size, wait)
        self._comm.Set_errhandler(self._mpi.ERRORS_RETURN)
        host, namespace = _machine()
        hello = json.dumps([self._rank, host, os.getpid(), namespace]).encode()
        hellos = np.zeros((size, _HELLO_BYTES), np.uint8)
        sent = np.frombuffer(hello.ljust(_HELLO_BYTES), np.uint8)
        self._finish(self._comm.Iallgather(sent, hellos), size, wait)
        peers: dict[int, Peer] = {}
        for number, data in enumerate(hellos):
            claimed, *process = json.loads(data.tobytes())
            peer = Peer(number, *process)
            if claimed in peers:
                fault = f"{peers[claimed]} and {peer} both have rank {claimed}; give each its own"
                raise RankError(wait.place.operator, fault)
            peers[claimed] = peer
        self._peers = [peers[each] for each in range(size)]
        self._activity = ""
        self._is_open = True
        _report_exceptions(self)

    def _finish(self, request: Any, size: int, wait: Wait) -> None:
        """Wait until a collective MPI request, which needs every rank, is complete."""
        while not request.Test():
            wait.check([each for each in range(size) if each != self._rank])
            time.sleep(_SLEEP)

    def exchange(
        self, channel: str, sends: Sequence[Parcel], receives: Sequence[Parcel], place: CallPlace
    ) -> None:
        """Start sends and receives, and wait until all are done."""
        tag, wait = self._tag(channel), self.wait(place)
        with self._lock:
            number = [peer.number for peer in self._peers]
            pending = [(rank, self._comm.Irecv(array, number[rank], tag)) for rank, array in receives]
            pending += [(rank, self._comm.Isend(array, number[rank], tag)) for rank, array in sends]
        try:
            self._settle(pending, wait)
        except BaseException:
            self._kept.append((pending, sends, receives))  # MPI may still write to them
            raise

    def post(self, channel: str, send: Parcel, place: CallPlace) -> None:
        """Start to send a copy of an array; a helper thread keeps it going."""
        rank, array = send
        wait = self.wait(place)
        posted = self._posted.setdefault(rank, [])
        while len(posted) >= MOST_POSTED:
            self._settle([(rank, posted[0][0])], wait)
            self._forget_received()
        copy = array.copy()
        with self._lock:
            posted.append((self._comm.Isend(copy, self._peers[rank].number, self._tag(channel)), copy))
            if self._helper is None:
                self._helper = threading.Thread(target=self._push, name="msdump-mpi", daemon=True)
                self._helper.start()

    def fail(self, reason: str) -> None:
        """Report the failure to all other ranks, unless another rank failed before."""
        with self._lock:
            if self._is_open and self._board.failed is None:
                self._board.failed = (self._rank, reason)
                self._notify(_FAILED, reason)

    def end(self) -> None:
        """Report the end to all other ranks, and finalize MPI when all ranks have ended.

        After a failure the other ranks have a few seconds to end; then MPI aborts them.
        """
        if not self._is_open or self._mpi.Is_finalized():  # the program may have called MPI_Finalize itself
            self._is_open = False
            return
        with self._lock:
            self._notify(_ENDED, "")
        deadline: float | None = None
        while len(self._board.ended) < len(self._peers) - 1:
            self._take_notices()
            with self._lock:
                self._forget_received()
            if deadline is None and (
                self._board.failed is not None or any(peer.is_dead() for peer in self._peers)
            ):
                deadline = time.monotonic() + min(_GRACE, self._limit)
            if deadline is not None and time.monotonic() > deadline:
                self._is_open = False
                self._comm.Abort(1)
            time.sleep(_SLEEP)
        self._is_open = False
        if not self._mpi.Is_finalized():
            self._mpi.Finalize()

    def close(self) -> None:
        """Call ``end`` at the exit of the interpreter."""
        self.end()

    def complete(self) -> None:
        """Log the place of the rank on SIGTERM."""
        if self._activity:
            _log.error("rank %d is ended by a signal while it %s", self._rank, self._activity)

    def forget(self) -> None:
        """In a forked child: leave MPI to the parent."""
        self._is_open = False

    def _tag(self, channel: str) -> int:
        most: int = self._comm.Get_attr(self._mpi.TAG_UB)
        return _FIRST_TAG + zlib.crc32(channel.encode()) % (most - _FIRST_TAG)

    def _settle(self, pending: Sequence[tuple[int, Any]], wait: Wait) -> None:
        """Wait until requests are done; look at the other ranks in between."""
        requests = [request for _, request in pending]
        busy_until, look_at, is_announced = wait.began + _BUSY, wait.began + _LOOK_AROUND, False
        self._activity = f"waits in {wait.place}"
        try:
            while not self._are_done(requests):
                now = time.monotonic()
                if now >= look_at:
                    look_at = now + _LOOK_AROUND
                    self._look_around(
                        [rank for rank, request in pending if not self._are_done([request])], wait
                    )
                    if not is_announced and now - wait.began > min(_ANNOUNCE_AFTER, self._limit / 2):
                        is_announced = True
                        self._notify(_WAITS, str(wait.place))
                if now < busy_until:
                    os.sched_yield()
                else:
                    time.sleep(_SLEEP)
        finally:
            self._activity = ""
            if is_announced:
                self._notify(_GOES_ON, "")

    def _are_done(self, requests: list[Any]) -> bool:
        with self._lock:
            return bool(self._mpi.Request.Testall(requests))

    def _look_around(self, missing: Sequence[int], wait: Wait) -> None:
        self._take_notices()
        for rank in missing:
            if self._peers[rank].is_dead() and rank not in self._board.ended:
                raise wait.error(f"rank {rank} ({self._peers[rank]}) has died", rank)
        wait.check(missing)

    def _notify(self, kind: str, text: str) -> None:
        data = np.frombuffer(json.dumps([self._rank, kind, text]).encode(), np.uint8)
        with self._lock:
            self._kept += [
                (self._comm.Isend(data, peer.number, _NOTICE_TAG), data)
                for rank, peer in enumerate(self._peers)
                if rank != self._rank
            ]

    def _take_notices(self) -> None:
        status = self._mpi.Status()
        with self._lock:
            while self._comm.Iprobe(self._mpi.ANY_SOURCE, _NOTICE_TAG, status):
                data = np.empty(status.Get_count(self._mpi.BYTE), np.uint8)
                self._comm.Recv(data, status.Get_source(), _NOTICE_TAG)
                self._note(*json.loads(data.tobytes()))

    def _note(self, rank: int, kind: str, text: str) -> None:
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
        """Move posted tensors on while the rank computes: MPI works only in its calls."""
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


def _report_exceptions(transport: MpiTransport) -> None:
    """Report an exception that ends the program to the other ranks, before it is printed."""
    show = sys.excepthook

    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        transport.fail(f"{kind.__name__}: {error}")
        show(kind, error, trace)

    sys.excepthook = report
