"""The rank that a thread works as: the process's own, or that of one of several ranks in one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msdump.communication.groups import RankGroups
from msdump.communication.waiting import CallPlace, time_limit
from msdump.config import launchers
from msdump.config.launchers import Identity
from msdump.threads import new_lock

if TYPE_CHECKING:
    from msdump.communication.transport import Transport

_Kept = TypeVar("_Kept")

Connect = Callable[[CallPlace], "Transport"]
"""Finds the other ranks, at the first collective."""


class World:
    """All ranks, seen from one of them; any thread may use it.

    Attributes:
        identity: Which rank this is.
        groups: The groups of ranks.
    """

    def __init__(self, identity: Identity, connect: Connect, transport: Transport | None = None) -> None:
        """Know who this is; nobody else is spoken to yet.

        Args:
            identity: Which rank this is.
            connect: Finds the other ranks, at the first collective.
            transport: What tensors go by, where the others are known from the beginning.
        """
        self.identity = identity
        self.groups = RankGroups(identity.size)
        self._connect = connect
        self._transport = transport
        self._lock = new_lock()
        self._kept: dict[Hashable, Any] = {}
        self._at_end: list[Callable[[], None]] = []

    def transport(self, place: CallPlace) -> Transport:
        """Return what tensors go by; the first call finds the other ranks.

        Args:
            place: Where the rank is, for messages.

        Raises:
            RankError: They cannot be found.
        """
        with self._lock:
            if self._transport is None:
                self._transport = self._connect(place)
            return self._transport

    def fail(self, reason: str) -> None:
        """Tell the other ranks that this one has failed; nobody waits for it any more."""
        if self._transport is not None:
            self._transport.fail(reason)

    def keep(self, key: Hashable, make: Callable[[], _Kept]) -> _Kept:
        """Return what the rank keeps under a key; the first call makes it."""
        with self._lock:
            if key not in self._kept:
                self._kept[key] = make()
            kept: _Kept = self._kept[key]
            return kept

    def call_at_end(self, close: Callable[[], None]) -> None:
        """Call a function when the rank ends, before the others hear of that."""
        self._at_end.append(close)

    def end(self) -> None:
        """Complete what the rank writes, and tell the others that it has ended."""
        while self._at_end:
            self._at_end.pop()()
        if self._transport is not None:
            self._transport.end()


class _Thread(threading.local):
    """The world of a thread that works as a rank of its own."""

    world: World | None = None


_thread: Final = _Thread()
_process: World | None = None


def current() -> World:
    """Return the world of the rank that the calling thread works as.

    Raises:
        InputError: The launcher's variables make no sense.
    """
    return _thread.world or _of_process()


def own() -> World | None:
    """Return the world of a thread that works as a rank of its own, None in any other thread."""
    return _thread.world


def work_as(world: World | None) -> None:
    """Let the calling thread work as a rank of its own, None: as the process again."""
    _thread.world = world


def _of_process() -> World:
    global _process  # noqa: PLW0603 - the process has one
    identity = launchers.identity()
    if _process is None or _process.identity != identity:
        _process = World(identity, _by_mpi)
    return _process


def _by_mpi(place: CallPlace) -> Transport:
    from msdump.communication.mpi import connect

    identity = current().identity
    return connect(place, identity.rank, identity.size, time_limit())
