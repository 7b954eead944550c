"""The user's own algorithms: ``{folder}/algorithm/alg_{name}.py`` with ``compare(mine, golden, args)``.

The function gets two float32 vectors and the arguments of ``-a`` as attributes of ``args``; it
returns a text for the report and a note, "" where nothing is to be said.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from msdump.errors import ToolError
from msdump.tools.return_codes import ReturnCode
from msdump.tools.scores import user_scripts
from msdump.tools.scores.algorithms import NAN, Score

_FOLDER: Final = "algorithm"
_FILE: Final = re.compile(r"alg_([A-Za-z0-9_]+)\.py")
_FUNCTION: Final = "compare"


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
            compare = user_scripts.load(Path(self.path), _FUNCTION, ReturnCode.ALGORITHM)
            found = compare(mine, golden, SimpleNamespace(**dict(self.arguments), **context))
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
    if not os.path.isdir(folder):
        raise ToolError(ReturnCode.PATH, f"{folder}: no such directory of custom scripts (-c)")
    found = []
    for path in sorted(Path(folder, _FOLDER).glob("*.py")):
        match = _FILE.fullmatch(path.name)
        if match is not None:
            user_scripts.load(path, _FUNCTION, ReturnCode.ALGORITHM)
            found.append(CustomAlgorithm(match[1], str(path)))
    return tuple(found)
