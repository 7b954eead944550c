"""A trial write into the root of a dump: a path that cannot be written is an error before anything runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from msdump.errors import DumpWriteError
from msdump.store.write.place import OpenDirectory
from msdump.store.write.sinks import reason

_BLOCK: Final = bytes(4096)  # an empty file would fit on a full disk


def probe(path: str) -> None:
    """Create the root of a dump and write a file in it, which is removed again.

    Missing directories are created 0700.

    Args:
        path: Absolute directory.

    Raises:
        DumpWriteError: The directory cannot be created or written; says which part of the path
            is at fault and what to do.
    """
    try:
        place = OpenDirectory(path)
        try:
            place.prove(_BLOCK)
        finally:
            place.close()
    except OSError as error:
        raise DumpWriteError(f"dump path {path!r} {_fault(path, error)}") from error


def _fault(path: str, error: OSError) -> str:
    """Return which part of a path is at fault and why, for the message."""
    nearest = Path(path)
    if nearest.is_dir():
        return f"cannot be written: {reason(error)}"
    while not os.path.lexists(nearest):
        nearest = nearest.parent
    finding = "is the last directory that exists" if nearest.is_dir() else "is not a directory"
    return f"cannot be created ({str(nearest)!r} {finding}): {reason(error)}"
