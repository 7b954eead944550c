"""A lock on the directory of a rank: no second process may take itself for the same rank."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import Final

from msdump.store.write.directories import open_directory

_held: Final[dict[str, int]] = {}  # descriptors by directory; they hold the locks until the process ends


def hold(directory: str, root: str) -> bool:
    """Lock a directory until the process ends; it is made where it is missing.

    Args:
        directory: The directory of a rank.
        root: The root of the dump, below which no link is followed.

    Returns:
        Whether no other process has locked it. On file systems without locks nobody has.

    Raises:
        OSError: The directory cannot be opened or made.
    """
    place = os.path.realpath(directory)
    if place in _held:
        return True
    fd = open_directory(directory, root)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        return error.errno not in {errno.EWOULDBLOCK, errno.EACCES}
    _held[place] = fd
    return True
