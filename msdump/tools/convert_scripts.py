"""Format conversions of the user's own, in msaccucmp's form.

``DIR/format_convert/convert_<SOURCE>_to_<TARGET>.py`` holds a function
``convert(shape_from, shape_to, array)`` that returns an array; one of a grouped
weight gets the number of groups as a fourth argument. The array is flat.
"""

from __future__ import annotations

import functools
import importlib.util
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from msdump.errors import ToolError
from msdump.tools.return_codes import ReturnCode

FOLDER: Final = "format_convert"
_MOST_BYTES: Final = 1 << 20
_FOREIGN_WRITERS: Final = stat.S_IWGRP | stat.S_IWOTH


def check(directory: str) -> None:
    """Check the folder of the scripts.

    Raises:
        ToolError: It is missing, or others than its owner may change a script.
    """
    folder = Path(directory, FOLDER)
    if not folder.is_dir():
        raise ToolError(ReturnCode.PATH, f"{directory}: has no folder {FOLDER} with scripts")
    for path in sorted(folder.glob("convert_*_to_*.py")):
        _check_safe(path)


def find(directory: str, source: str, target: str) -> Callable[..., Any] | None:
    """Return the function that converts a format to another, None where no script does.

    Raises:
        ToolError: The script cannot be used.
    """
    path = Path(directory, FOLDER, f"convert_{source}_to_{target}.py")
    return _load(path) if path.is_file() else None


def call(
    function: Callable[..., Any],
    array: np.ndarray,
    shape_to: tuple[int, ...],
    groups: int,
) -> np.ndarray:
    """Return what a script makes of an array, cut to the shape that is wanted.

    Args:
        function: The script's.
        array: In the shape that the device has.
        shape_to: The shape that is wanted, may be empty.
        groups: Of the convolution, 1 for none.

    Raises:
        ToolError: The script fails, or returns no array.
    """
    extra = (groups,) if groups > 1 else ()
    try:
        made = function(list(array.shape), list(shape_to), array.reshape(-1), *extra)
    except Exception as error:
        kind = type(error).__name__
        raise ToolError(ReturnCode.CONVERT_FUNCTION, f"the script failed: {kind}: {error}") from error
    if not isinstance(made, np.ndarray):
        kind = type(made).__name__
        raise ToolError(ReturnCode.CONVERT_FUNCTION, f"the script returned a {kind}, not an array")
    return made[tuple(map(slice, shape_to))] if made.ndim == len(shape_to) else made


@functools.lru_cache(maxsize=64)
def _load(path: Path) -> Callable[..., Any]:
    _check_safe(path)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        kind = type(error).__name__
        raise ToolError(ReturnCode.CONVERT_FUNCTION, f"{path}: {kind}: {error}") from error
    function = getattr(module, "convert", None)
    if not callable(function):
        raise ToolError(ReturnCode.CONVERT_FUNCTION, f"{path}: has no function convert")
    return function  # type: ignore[no-any-return]  # whatever it is, it can be called


def _check_safe(path: Path) -> None:
    found = path.stat()
    if found.st_mode & _FOREIGN_WRITERS:
        raise ToolError(ReturnCode.UNSAFE_FILE, f"{path}: others may change it; run chmod go-w on it")
    if found.st_size > _MOST_BYTES:
        fault = f"{path}: {found.st_size} bytes are over the {_MOST_BYTES} allowed"
        raise ToolError(ReturnCode.UNSAFE_FILE, fault)
