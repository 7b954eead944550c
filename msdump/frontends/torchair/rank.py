"""Which of how many processes this is: torch.distributed's world size and global rank, else the launcher's.

They name the directory of a process's dump, ``worldsize{world}_global_rank{rank}`` (``store/layouts.py``).
"""

from __future__ import annotations

import sys

from msdump.communication.world import current
from msdump.store import run_paths


def world() -> tuple[int, int]:
    """Return the number of processes and this one's global rank, (1, 0) for a process alone."""
    # not imported here: where nobody has done so, the launcher's variables alone tell
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        identity = current().identity
        return identity.size, identity.rank
    return distributed.get_world_size(), distributed.get_rank()


def directory() -> str:
    """Return the name of the directory of this process's dump."""
    size, rank = world()
    return run_paths.world(size, rank)
