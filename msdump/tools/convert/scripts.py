"""Format conversions of the user's own, in msaccucmp's form.

``DIR/format_convert/convert_<SOURCE>_to_<TARGET>.py`` holds a function
``convert(shape_from, shape_to, array)`` that returns an array. The array that it
gets is flat; for the weight of a grouped convolution it also gets the number of
groups, as a fourth argument.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from msdump.errors import ToolError
from msdump.tools.return_codes import ReturnCode
from msdump.tools.scores import user_scripts

FOLDER: Final = "format_convert"


def check(directory: str) -> None:
    """Check the folder ``format_convert`` of a directory and the scripts in it.

    Raises:
        ToolError: It is missing, or others than its owner may change a script.
    """
    folder = Path(directory, FOLDER)
    if not os.path.isdir(folder):
        raise ToolError(ReturnCode.PATH, f"{directory}: has no folder {FOLDER} with scripts")
    for path in sorted(folder.glob("convert_*_to_*.py")):
        user_scripts.check(path)


def find(directory: str, source: str, target: str) -> Callable[..., Any] | None:
    """Return the function that converts a format to another, None where no script does.

    Raises:
        ToolError: The script cannot be used.
    """
    path = Path(directory, FOLDER, f"convert_{source}_to_{target}.py")
    return user_scripts.load(path, "convert", ReturnCode.CONVERT_FUNCTION) if os.path.isfile(path) else None


def call(
    function: Callable[..., Any],
    array: np.ndarray,
    shape_to: tuple[int, ...],
    groups: int,
) -> np.ndarray:
    """Return an array that a script has converted, cut to the wanted shape.

    Args:
        function: The script's function ``convert``.
        array: The elements, in the device's shape.
        shape_to: The wanted shape, empty where the file does not tell it.
        groups: Groups of the convolution, 1 for none.

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
