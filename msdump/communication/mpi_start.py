"""The start of MPI in a process, and its end: bounded in time, whatever the other processes do."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from msdump.communication.waiting import CallPlace
from msdump.errors import RankError

_HELLO_BYTES: Final = 512
_HELLO_TAG: Final = 2
_LONGEST_NAME: Final = 64  # of a machine
_MULTIPLE: Final = 3  # MPI_THREAD_MULTIPLE of Open MPI and MPICH
_LOOK_UP: Final = 0.02  # seconds


@dataclass(frozen=True, slots=True)
class Peer:
    """The process of a rank.

    Attributes:
        number: The number by which MPI knows it.
        host: Its machine.
        pid: Its process id there.
        namespace: What its process id belongs to: containers have ids of their own.
    """

    number: int
    host: str
    pid: int
    namespace: str

    def is_dead(self) -> bool:
        """Tell whether the process has ended; one on another machine is taken to be alive."""
        if (self.host, self.namespace) != _where():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return _is_zombie(self.pid)

    def __str__(self) -> str:
        """Name process and machine."""
        return f"process {self.pid} on {self.host}"


@functools.cache
def _where() -> tuple[str, str]:
    """Return the machine, and the namespace of process ids, "" on systems without them."""
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = ""
    return socket.gethostname()[:_LONGEST_NAME], namespace


def _is_zombie(pid: int) -> bool:
    """Tell whether a process has ended and its parent has not asked for that yet."""
    try:
        return os.waitid(os.P_PID, pid, os.WNOHANG | os.WEXITED | os.WNOWAIT) is not None
    except ChildProcessError:  # another process's child: it disappears as soon as that one has looked
        return False


def start(place: CallPlace, identity: tuple[int, int], limit: float) -> Any:
    """Start MPI, unless the program has; return the module ``mpi4py.MPI``.

    Args:
        place: Where the rank is, for messages.
        identity: Rank and number of ranks, as the launcher says.
        limit: Seconds until the other processes must have started it too.

    Raises:
        RankError: mpi4py is not installed, or the other processes do not start MPI.
    """
    rank, size = identity
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
    """Start MPI in a thread of its own: it waits for the other processes, and mpi4py holds Python's lock."""
    library = ctypes.CDLL(mpi.__file__)  # calls without Python's lock
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
            place.operator, f"rank {rank} has waited {limit:g} s here: another rank does not start MPI"
        )
    if codes != [0]:
        raise RankError(place.operator, f"MPI cannot be started (MPI_Init_thread returned {codes})")


def meet(
    mpi: Any, place: CallPlace, identity: tuple[int, int], settle: Callable[[list[Any]], None]
) -> tuple[Any, list[Peer]]:
    """Return a communicator of its own, and the process of each rank.

    Args:
        mpi: The module ``mpi4py.MPI``.
        place: Where the rank is, for messages.
        identity: Rank and number of ranks, as the launcher says.
        settle: Waits for requests of MPI.

    Raises:
        RankError: Two processes were told one rank, or one of them does not come.
    """
    rank, size = identity
    comm, request = mpi.COMM_WORLD.Idup()
    settle([request])
    comm.Set_errhandler(mpi.ERRORS_RETURN)
    host, namespace = _where()
    hello = json.dumps([rank, host, os.getpid(), namespace]).encode()
    mine = np.frombuffer(hello.ljust(_HELLO_BYTES), np.uint8)
    others = np.zeros((size, _HELLO_BYTES), np.uint8)
    requests = [comm.Irecv(others[number], number, _HELLO_TAG) for number in range(size)]
    requests += [comm.Isend(mine, number, _HELLO_TAG) for number in range(size)]
    settle(requests)
    peers: dict[int, Peer] = {}
    for number, data in enumerate(others):
        told, host, pid, namespace = json.loads(data.tobytes())
        peer = Peer(number, host, pid, namespace)
        if told in peers:
            raise RankError(
                place.operator,
                f"rank {told} was told twice: to {peers[told]} and to {peer}; each needs its own",
            )
        peers[told] = peer
    return comm, [peers[each] for each in range(size)]


def leave(mpi: Any) -> None:
    """Leave MPI, when all ranks do, unless the program has done so."""
    if not mpi.Is_finalized():
        mpi.Finalize()
