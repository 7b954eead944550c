"""MindSpore's functions of communication: which rank this is, and groups of ranks."""

from __future__ import annotations

from msdump.communication.world import current
from msdump.errors import InputError
from msdump.graph.operator_types import WORLD_GROUP


def init(backend_name: str | None = None) -> None:
    """Check what the launcher says of this process; a program need not call it.

    The rank holds from the beginning, with or without this call, and the first collective finds the other
    ranks.

    Args:
        backend_name: "hccl", "nccl" or "mccl"; all of them mean the same here.

    Raises:
        InputError: Another backend, or the launcher's variables make no sense.
    """
    if backend_name not in {None, "hccl", "nccl", "mccl"}:
        raise InputError(f"init: backend_name = {backend_name!r}: 'hccl', 'nccl' or 'mccl' is expected")
    current()


def get_rank(group: str = WORLD_GROUP) -> int:
    """Return the number of this rank in a group, from 0.

    Raises:
        InputError: There is no such group, or the rank is not in it.
    """
    world = current()
    return _index(world.groups.ranks(group), world.identity.rank, group)


def get_group_size(group: str = WORLD_GROUP) -> int:
    """Return the number of ranks in a group.

    Raises:
        InputError: There is no such group.
    """
    return len(current().groups.ranks(group))


def get_local_rank() -> int:
    """Return the number of this rank among those of its machine, from 0."""
    return current().identity.local_rank


def get_world_rank_from_group_rank(group: str, group_rank_id: int) -> int:
    """Return which of all ranks has a number in a group.

    Raises:
        InputError: There is no such group, or it has fewer ranks.
    """
    ranks = current().groups.ranks(group)
    if type(group_rank_id) is not int or not 0 <= group_rank_id < len(ranks):
        raise InputError(f"group {group!r} has no rank {group_rank_id!r}, only 0 to {len(ranks) - 1}")
    return ranks[group_rank_id]


def get_group_rank_from_world_rank(world_rank_id: int, group: str) -> int:
    """Return the number in a group of one of all ranks.

    Raises:
        InputError: There is no such group, or the rank is not in it.
    """
    return _index(current().groups.ranks(group), world_rank_id, group)


def create_group(group: str, rank_ids: list[int]) -> None:
    """Make a group of ranks, by which collectives name it; every rank of it calls this.

    Raises:
        InputError: The name is taken or no text, or the ranks are no list of different ranks.
    """
    current().groups.create(group, rank_ids)


def destroy_group(group: str) -> None:
    """Forget a group.

    Raises:
        InputError: There is no such group, or it is that of all ranks.
    """
    current().groups.destroy(group)


def _index(ranks: tuple[int, ...], rank: int, group: str) -> int:
    if rank not in ranks:
        raise InputError(f"rank {rank!r} is not in group {group!r}, which holds {list(ranks)}")
    return ranks.index(rank)
