"""A file written piece by piece, for text (graphs, protobuf texts) too large to hold in memory at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

from msdump.errors import DumpWriteError
from msdump.record import Buffer
from msdump.store.write.files import DUMP_MODE, DiskFiles
from msdump.store.write.sinks import reason

WriteStream: TypeAlias = Callable[[str, str, Iterable[Buffer]], object]
"""Writes a file piece by piece: directory, name and contents."""


def write_stream(directory: str, name: str, pieces: Iterable[Buffer]) -> int:
    """Write a file, in place of an older one of the name; it appears when it is complete.

    Args:
        directory: Where it goes; made if missing.
        name: Its name.
        pieces: Its contents.

    Returns:
        Its bytes.

    Raises:
        DumpWriteError: It cannot be written; the older one stays.
    """
    path = Path(directory, name)
    files = DiskFiles()
    try:
        return files.stream(str(path.parent.absolute()), path.name, pieces, DUMP_MODE)
    except OSError as error:
        raise DumpWriteError(f"cannot write {str(path)!r}: {reason(error)}") from error
    finally:
        files.close()
