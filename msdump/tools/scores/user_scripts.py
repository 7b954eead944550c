"""Functions in scripts of the user's own, which nobody else may change."""

from __future__ import annotations

import functools
import os
import stat
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from msdump import reading
from msdump.errors import ToolError
from msdump.tools.return_codes import ReturnCode

_MOST_BYTES: Final = 1 << 20
_FOREIGN_WRITERS: Final = stat.S_IWGRP | stat.S_IWOTH


# Cached: the function is asked for once for each tensor.
@functools.lru_cache(maxsize=64)
def load(path: Path, name: str, code: ReturnCode) -> Callable[..., Any]:
    """Return a function of a script.

    Args:
        path: The script.
        name: Name of the function.
        code: Return code of the error where the script fails or lacks the function.

    Raises:
        ToolError: The script cannot be used.
    """
    module = types.ModuleType(path.stem)
    module.__file__ = str(path)
    try:
        # Not imported: that would read the file a second time, unchecked, and write a cache beside it.
        exec(compile(_checked_text(path), path, "exec"), module.__dict__)  # noqa: S102 - the user's own, and checked
    except ToolError:
        raise
    except Exception as error:
        kind = type(error).__name__
        raise ToolError(code, f"{path}: {kind}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise ToolError(code, f"{path}: has no function {name}")
    return function  # type: ignore[no-any-return]  # whatever it is, it can be called


def check(path: Path) -> None:
    """Check that nobody but its owner may write a script, and that it has at most one MiB.

    Raises:
        ToolError: Others may write it, it is larger, or it cannot be read.
    """
    _checked_text(path)


def _checked_text(path: Path) -> bytes:
    try:
        with reading.open_file(path) as file:
            # The status of the open file, not of the path, which may be another file by now.
            status = os.fstat(file.fileno())
            if status.st_mode & _FOREIGN_WRITERS:
                raise ToolError(ReturnCode.UNSAFE_FILE, f"{path}: others may change it; run chmod go-w on it")
            if status.st_size > _MOST_BYTES:
                fault = f"{path}: {status.st_size} bytes are over the {_MOST_BYTES} allowed"
                raise ToolError(ReturnCode.UNSAFE_FILE, fault)
            return file.readall()
    except OSError as error:
        raise ToolError(ReturnCode.UNSAFE_FILE, f"{path}: cannot be read: {error.strerror}") from error
