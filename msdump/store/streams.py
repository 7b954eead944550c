"""A file written piece by piece, for texts that are larger than memory should hold at once."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from msdump.errors import DumpWriteError
from msdump.store.files import DUMP_MODE, make_directories
from msdump.store.sinks import reason

_BUFFER: Final = 1 << 20
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def write_stream(directory: str, name: str, pieces: Iterable[bytes]) -> None:
    """Write a file, in place of an older one of the name; it appears when it is complete.

    Args:
        directory: Where it goes; made if missing.
        name: Its name.
        pieces: Its contents.

    Raises:
        DumpWriteError: It cannot be written; the older one stays.
    """
    path = Path(directory, name)
    try:
        make_directories(str(path.parent.absolute()))
        _write(path, pieces)
    except OSError as error:
        raise DumpWriteError(f"cannot write {str(path)!r}: {reason(error)}") from error


def _write(path: Path, pieces: Iterable[bytes]) -> None:
    temporary = path.with_name(f".{os.getpid()}-{time.time_ns()}.tmp")
    try:
        with os.fdopen(os.open(temporary, _NEW, DUMP_MODE), "wb", _BUFFER) as file:
            file.writelines(pieces)
        temporary.replace(path)
    except BaseException:  # an interrupt too
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
