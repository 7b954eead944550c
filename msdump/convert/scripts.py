"""Format conversions by scripts of the user, as msaccucmp takes them, and loading of functions from scripts.

``DIR/format_convert/convert_<SOURCE>_to_<TARGET>.py`` holds a function
``convert(shape_from, shape_to, array)`` that returns an array. Its argument
``array`` is flat; for the weight of a grouped convolution there is a fourth argument,
the number of groups. A script that others may change is refused.
"""

from __future__ import annotations

import functools
import os
import stat
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from msdump import reading
from msdump.errors import ToolError
from msdump.return_codes import ReturnCode

_FOLDER: Final = "format_convert"


def check_scripts(directory: str) -> None:
    """Refuse (ToolError) a directory without ``format_convert``, or with a script that others may change."""
    folder = Path(directory, _FOLDER)
    if not os.path.isdir(folder):
        raise ToolError(ReturnCode.PATH, f"{directory}: has no folder {_FOLDER} with scripts")
    for path in sorted(folder.glob("convert_*_to_*.py")):
        _checked_text(path)


def find_script(directory: str, source: str, target: str) -> Callable[..., Any] | None:
    """Return the function that converts a format to another, None without a script for it."""
    path = Path(directory, _FOLDER, f"convert_{source}_to_{target}.py")
    return load_function(path, "convert", ReturnCode.CONVERT_FUNCTION) if os.path.isfile(path) else None


def call_script(
    function: Callable[..., Any],
    array: np.ndarray,
    shape_to: tuple[int, ...],
    groups: int,
) -> np.ndarray:
    """Return an array converted by a script, and cut to ``shape_to`` unless that is empty.

    Raises:
        ToolError: The script fails, or returns no array.
    """
    # vendor: functions for ungrouped weights take three arguments only.
    extra = (groups,) if groups > 1 else ()
    try:
        converted = function(list(array.shape), list(shape_to), array.reshape(-1), *extra)
    except Exception as error:
        kind = type(error).__name__
        raise ToolError(ReturnCode.CONVERT_FUNCTION, f"the script failed: {kind}: {error}") from error
    if not isinstance(converted, np.ndarray):
        kind = type(converted).__name__
        raise ToolError(ReturnCode.CONVERT_FUNCTION, f"the script returned a {kind}, not an array")
    return converted[tuple(map(slice, shape_to))] if converted.ndim == len(shape_to) else converted


_MOST_BYTES: Final = 1 << 20
_FOREIGN_WRITERS: Final = stat.S_IWGRP | stat.S_IWOTH


# Cached: the function is loaded for each tensor.
@functools.lru_cache(maxsize=64)
def load_function(path: Path, name: str, code: ReturnCode) -> Callable[..., Any]:
    """Return a function of a script; ToolError with ``code`` if the script fails or lacks the function."""
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


def _checked_text(path: Path) -> bytes:
    """Return the text of a script; ToolError where others may write it, or where it is larger than 1 MiB."""
    try:
        with reading.open_file(path) as file:
            # The status of the open file, not of the path, which may be another file by now.
            status = os.fstat(file.fileno())
            if status.st_mode & _FOREIGN_WRITERS:
                raise ToolError(
                    ReturnCode.UNSAFE_FILE, f"{path}: other users may change the script; run chmod go-w on it"
                )
            if status.st_size > _MOST_BYTES:
                fault = f"{path}: {status.st_size} bytes are over the {_MOST_BYTES} allowed"
                raise ToolError(ReturnCode.UNSAFE_FILE, fault)
            return file.readall()
    except OSError as error:
        raise ToolError(ReturnCode.UNSAFE_FILE, f"{path}: cannot be read: {error.strerror}") from error
