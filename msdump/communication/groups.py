"""RankGroups of ranks by name; those of all ranks bear MindSpore's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msdump.errors import InputError
from msdump.graph.operator_types import WORLD_GROUP

WORLD_GROUPS: Final = (WORLD_GROUP, "nccl_world_group", "mccl_world_group")
"""The names of the group of all ranks: on Ascend, on GPU, on CPU."""


class RankGroups:
    """The groups that one rank knows; those that it is not in count as well."""

    def __init__(self, size: int) -> None:
        """Know the group of all ranks.

        Args:
            size: Number of ranks.
        """
        self._size = size
        self._ranks: dict[str, tuple[int, ...]] = {}

    def create(self, name: object, ranks: object) -> None:
        """Make a group.

        Raises:
            InputError: The name is taken or no text, or the ranks are no list of different ranks.
        """
        if not isinstance(name, str) or not name:
            raise InputError(f"create_group: group = {name!r}: a name is expected")
        if name in WORLD_GROUPS or name in self._ranks:
            raise InputError(f"create_group: there is a group {name!r} already")
        if not isinstance(ranks, Sequence) or isinstance(ranks, str) or not ranks:
            raise InputError(f"create_group: rank_ids = {ranks!r}: a list of ranks is expected")
        for rank in ranks:
            if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < self._size:
                raise InputError(f"create_group: rank {rank!r}: there are 0 to {self._size - 1}")
        if len(set(ranks)) < len(ranks):
            raise InputError(f"create_group: rank_ids = {list(ranks)}: a rank stands twice")
        self._ranks[name] = tuple(ranks)

    def destroy(self, name: str) -> None:
        """Forget a group.

        Raises:
            InputError: There is no such group, or it is that of all ranks.
        """
        if name in WORLD_GROUPS:
            raise InputError(f"destroy_group: {name!r} is the group of all ranks, which stays")
        self.ranks(name)
        del self._ranks[name]

    def ranks(self, name: str) -> tuple[int, ...]:
        """Return the ranks of a group, in its own order.

        Raises:
            InputError: There is no such group.
        """
        if name in WORLD_GROUPS:
            return tuple(range(self._size))
        if name not in self._ranks:
            known = ", ".join(map(repr, (WORLD_GROUP, *self._ranks)))
            raise InputError(
                f"no group {name!r}: msdump.communication.create_group makes it (there are {known})"
            )
        return self._ranks[name]
