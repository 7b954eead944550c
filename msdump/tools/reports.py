"""Files that commands over dumps write: owner only, complete or not there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from msdump.errors import ToolError
from msdump.tools.return_codes import ReturnCode


def stamped(prefix: str, suffix: str) -> str:
    """Return a file name with the local time, ``result_20240131120000.csv``."""
    return f"{prefix}_{datetime.now().astimezone():%Y%m%d%H%M%S}{suffix}"


def write(folder: str, name: str, parts: Iterable[str]) -> str:
    """Write a text file; return its path. The folder is made with mode 0700, the file with 0600.

    Raises:
        ToolError: It cannot be written.
    """
    path = Path(os.path.realpath(folder), name)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", newline="", dir=path.parent, prefix=".", delete=False
        ) as file:
            try:
                file.writelines(parts)
                file.close()
                Path(file.name).replace(path)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        raise ToolError(ReturnCode.WRITE, f"{path}: cannot be written: {error.strerror or error}") from error
    return str(path)
