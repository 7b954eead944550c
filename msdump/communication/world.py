"""The rank that a thread works as: the process's own, or that of one of several ranks in one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

from msdump.config import launchers
from msdump.config.launchers import Identity

_Kept = TypeVar("_Kept")


class World:
    """All ranks, seen from one of them.

    Attributes:
        identity: Which rank this is.
    """

    def __init__(self, identity: Identity) -> None:
        """Know who this is; nobody else is spoken to yet."""
        self.identity = identity
        self._lock = threading.RLock()
        self._kept: dict[Hashable, Any] = {}

    def keep(self, key: Hashable, make: Callable[[], _Kept]) -> _Kept:
        """Return what the rank keeps under a key; the first call makes it."""
        with self._lock:
            if key not in self._kept:
                self._kept[key] = make()
            kept: _Kept = self._kept[key]
            return kept


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


def _of_process() -> World:
    global _process  # noqa: PLW0603 - the process has one
    identity = launchers.identity()
    if _process is None or _process.identity != identity:
        _process = World(identity)
    return _process
