"""Ranks: which one this is, groups of them, and the collectives by which they exchange tensors."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msdump.communication.calls import (
        create_group,
        destroy_group,
        get_group_rank_from_world_rank,
        get_group_size,
        get_local_rank,
        get_rank,
        get_world_rank_from_group_rank,
        init,
    )
    from msdump.communication.spawning import spawn

__all__ = [
    "create_group",
    "destroy_group",
    "get_group_rank_from_world_rank",
    "get_group_size",
    "get_local_rank",
    "get_rank",
    "get_world_rank_from_group_rank",
    "init",
    "spawn",
]


def __getattr__(name: str) -> Any:
    """Import a public name from where it lives."""
    if name not in __all__:
        raise AttributeError(f"module 'msdump.communication' has no attribute {name!r}")
    home = "spawning" if name == "spawn" else "calls"
    return getattr(importlib.import_module(f"msdump.communication.{home}"), name)
