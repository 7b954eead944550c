"""The rank of the calling thread: the process's rank, or one of several ranks in one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msdump.config import Identity, launchers
from msdump.errors import InputError
from msdump.graph import WORLD_GROUP
from msdump.threads import new_lock

if TYPE_CHECKING:
    from msdump.communication.transport import CallPlace, Transport


WORLD_GROUPS: Final = (WORLD_GROUP, "nccl_world_group", "mccl_world_group")
"""The names of the group of all ranks: on Ascend, on GPU, on CPU."""


_Kept = TypeVar("_Kept")


class World:
    """All ranks from the viewpoint of one rank; thread-safe."""

    def __init__(self, identity: Identity, transport: Transport | None = None) -> None:
        """Set the rank without communication; processes of MPI get their transport later."""
        self.identity = identity
        # ranks of each group that ``create_group`` made, by name; groups without this rank included
        self.groups: dict[str, tuple[int, ...]] = {}
        self._transport = transport
        self._lock = new_lock()
        self._kept: dict[Hashable, Any] = {}
        self._at_end: list[Callable[[], None]] = []

    def ranks(self, group: str) -> tuple[int, ...]:
        """Return the ranks of a group in the order of ``create_group``; InputError for an unknown group."""
        if group in WORLD_GROUPS:
            return tuple(range(self.identity.size))
        if group not in self.groups:
            known = ", ".join(map(repr, (WORLD_GROUP, *self.groups)))
            raise InputError(
                f"no group {group!r}, only {known}; create it with msdump.communication.create_group"
            )
        return self.groups[group]

    def create_group(self, name: object, ranks: object) -> None:
        """Make a group, as ``create_group`` describes."""
        size = self.identity.size
        if not isinstance(name, str) or not name:
            raise InputError(f"create_group: group = {name!r}: must be a name")
        if name in WORLD_GROUPS or name in self.groups:
            raise InputError(f"create_group: there is a group {name!r} already")
        if not isinstance(ranks, Sequence) or isinstance(ranks, str) or not ranks:
            raise InputError(f"create_group: rank_ids = {ranks!r}: must be a list of ranks")
        for rank in ranks:
            if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < size:
                raise InputError(f"create_group: rank {rank!r}: must be from 0 to {size - 1}")
        if len(set(ranks)) < len(ranks):
            raise InputError(f"create_group: rank_ids = {list(ranks)}: a rank is listed twice")
        self.groups[name] = tuple(ranks)

    def transport(self, place: CallPlace) -> Transport:
        """Return the transport of tensors; the first call finds the other ranks by MPI (or RankError)."""
        with self._lock:
            if self._transport is None:
                from msdump.communication.mpi import MpiTransport  # not above: one rank needs no MPI

                self._transport = MpiTransport(place, self.identity.rank, self.identity.size)
            return self._transport

    def fail(self, reason: str) -> None:
        """Report the failure of this rank to the others: their waits for it end."""
        if self._transport is not None:
            self._transport.fail(reason)

    def keep(self, key: Hashable, make: Callable[[], _Kept]) -> _Kept:
        """Return the object that the rank caches under a key; the first call makes it."""
        with self._lock:
            if key not in self._kept:
                self._kept[key] = make()
            kept: _Kept = self._kept[key]
            return kept

    def call_at_end(self, close: Callable[[], None]) -> None:
        """Register a function that ``end`` calls before it reports the end to the other ranks."""
        self._at_end.append(close)

    def end(self) -> None:
        """Complete the rank's files, and report its end to the others."""
        while self._at_end:
            self._at_end.pop()()
        if self._transport is not None:
            self._transport.end()


class _Thread(threading.local):
    """Thread-local world: of a thread that is a rank by itself, else None."""

    world: World | None = None


_thread: Final = _Thread()
_process: World | None = None


def current() -> World:
    """Return the world of the calling thread's rank.

    Raises:
        InputError: The launcher's variables are not valid.
    """
    global _process  # noqa: PLW0603 - the process has one
    if _thread.world is not None:
        return _thread.world
    identity = launchers.identity()
    if _process is None or _process.identity != identity:
        _process = World(identity)
    return _process


def own() -> World | None:
    """Return the world of the calling thread if the thread is a rank; otherwise None."""
    return _thread.world


def work_as(world: World | None) -> None:
    """Set the world of the calling thread; None: the thread uses the process's world again."""
    _thread.world = world


def init(backend_name: str | None = None) -> None:
    """Check the launcher's variables; the call is optional.

    The rank is known without this call. The first collective contacts the other ranks.

    Args:
        backend_name: "hccl", "nccl" or "mccl", without a difference here.

    Raises:
        InputError: The backend or the launcher's variables are not valid.
    """
    if backend_name not in {None, "hccl", "nccl", "mccl"}:
        raise InputError(f"init: backend_name = {backend_name!r}: must be 'hccl', 'nccl' or 'mccl'")
    current()


def get_rank(group: str = WORLD_GROUP) -> int:
    """Return the number of this rank in a group, from 0.

    Raises:
        InputError: The group is unknown, or does not contain the rank.
    """
    world = current()
    return _index(world.ranks(group), world.identity.rank, group)


def get_group_size(group: str = WORLD_GROUP) -> int:
    """Return the number of ranks in a group.

    Raises:
        InputError: The group is unknown.
    """
    return len(current().ranks(group))


def get_local_rank() -> int:
    """Return the number of this rank on its machine, from 0."""
    return current().identity.local_rank


def get_world_rank_from_group_rank(group: str, group_rank_id: int) -> int:
    """Return the world rank of the member with a number in a group.

    Raises:
        InputError: The group is unknown, or has fewer ranks.
    """
    ranks = current().ranks(group)
    if type(group_rank_id) is not int or not 0 <= group_rank_id < len(ranks):
        raise InputError(f"group {group!r} has no rank {group_rank_id!r}, only 0 to {len(ranks) - 1}")
    return ranks[group_rank_id]


def get_group_rank_from_world_rank(world_rank_id: int, group: str) -> int:
    """Return the number of a world rank in a group.

    Raises:
        InputError: The group is unknown, or does not contain the rank.
    """
    return _index(current().ranks(group), world_rank_id, group)


def create_group(group: str, rank_ids: list[int]) -> None:
    """Create a named group of ranks for collectives; every member must call this function.

    Raises:
        InputError: The name is in use or not a string, or the ranks are not a list of different ranks.
    """
    current().create_group(group, rank_ids)


def destroy_group(group: str) -> None:
    """Remove a group.

    Raises:
        InputError: The group is unknown, or is the group of all ranks.
    """
    world = current()
    if group in WORLD_GROUPS:
        raise InputError(f"destroy_group: {group!r} is the group of all ranks and cannot be destroyed")
    world.ranks(group)  # raises InputError for an unknown group
    del world.groups[group]


def _index(ranks: tuple[int, ...], rank: int, group: str) -> int:
    if rank not in ranks:
        raise InputError(f"rank {rank!r} is not in group {group!r}, which holds {list(ranks)}")
    return ranks.index(rank)
