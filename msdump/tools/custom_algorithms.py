"""The user's own algorithms: ``{folder}/algorithm/alg_{name}.py`` with ``compare(mine, golden, args)``.

The function gets two float32 vectors and the arguments of ``-a`` as attributes of ``args``; it
returns a text for the report and a note, "" where nothing is to be said.
"""

from __future__ import annotations

import importlib.util
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from msdump.errors import ToolError
from msdump.tools.algorithms import NAN, Score
from msdump.tools.return_codes import ReturnCode

_FOLDER: Final = "algorithm"
_FILE: Final = re.compile(r"alg_([A-Za-z0-9_]+)\.py")
_LARGEST: Final = 1 << 20  # bytes
_OTHERS_MAY_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class CustomAlgorithm:
    """An algorithm in a file of the user's.

    Attributes:
        name: Its name, title of its column.
        path: The file.
        arguments: What ``-a`` gives it.
    """

    name: str
    path: str
    arguments: tuple[tuple[str, str], ...] = ()

    def score(self, mine: np.ndarray, golden: np.ndarray, **context: Any) -> Score:
        """Return what it says of two tensors; whatever it raises becomes the note.

        Args:
            mine: The tensor that is examined, as a float32 vector.
            golden: The one that it is compared with.
            context: More attributes of ``args``.
        """
        try:
            found = _function(self.path)(mine, golden, SimpleNamespace(**dict(self.arguments), **context))
            text, note = found
        except Exception as error:  # noqa: BLE001 - somebody else's code
            return Score(NAN, f"{self.name}: {type(error).__name__}: {error}")
        if not (isinstance(text, str) and isinstance(note, str)):
            return Score(NAN, f"{self.name}: compare() must return two texts, got {found!r:.80}")
        return Score(text, note)


def find(folder: str) -> tuple[CustomAlgorithm, ...]:
    """Return the algorithms in a folder of the user's, by name; none where it has no ``algorithm``.

    Raises:
        ToolError: The folder is missing, or holds a file that others may write, that is larger than
            a MiB, or that has no function ``compare`` of three arguments.
    """
    if not Path(folder).is_dir():
        raise ToolError(ReturnCode.PATH, f"{folder}: no such directory of custom scripts (-c)")
    found = []
    for path in sorted(Path(folder, _FOLDER).glob("*.py")):
        match = _FILE.fullmatch(path.name)
        if match is not None:
            _check(path)
            found.append(CustomAlgorithm(match[1], str(path)))
    return tuple(found)


def _check(path: Path) -> None:
    status = path.stat()
    if status.st_mode & _OTHERS_MAY_WRITE:
        mode = stat.filemode(status.st_mode)
        raise ToolError(
            ReturnCode.UNSAFE_FILE, f"{path}: others may write this script ({mode}); chmod go-w it"
        )
    if status.st_size > _LARGEST:
        raise ToolError(
            ReturnCode.UNSAFE_FILE, f"{path}: {status.st_size} bytes; a script has at most {_LARGEST}"
        )
    _function(str(path))


@lru_cache(maxsize=64)
def _function(path: str) -> Callable[..., Any]:
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None and spec.loader is not None, "a .py file has a loader"  # noqa: PT018 - one thing
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ToolError(ReturnCode.ALGORITHM, f"{path}: {type(error).__name__}: {error}") from error
    function = getattr(module, "compare", None)
    if not callable(function):
        raise ToolError(ReturnCode.ALGORITHM, f"{path}: no function compare(mine, golden, args)")
    found: Callable[..., Any] = function
    return found
