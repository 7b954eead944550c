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
    """An algorithm of the user's own, in a Python file.

    Attributes:
        name: Its name, title of its column.
        path: The file.
        arguments: Names and values that ``-a`` gives it.
    """

    name: str
    path: str
    arguments: tuple[tuple[str, str], ...] = ()

    def score(self, dumped: np.ndarray, golden: np.ndarray, **context: Any) -> Score:
        """Return the algorithm's score for two tensors; "NaN" and a note where it raises an exception.

        Args:
            dumped: The tensor that is examined, as a float32 vector.
            golden: The tensor that it is compared with, likewise.
            context: More attributes of ``args``.
        """
        try:
            # Loaded here, not in find: this may run in another process, to which functions do not travel.
            compare = user_scripts.load(Path(self.path), _FUNCTION, ReturnCode.ALGORITHM)
            result = compare(dumped, golden, SimpleNamespace(**dict(self.arguments), **context))
            text, note = result
        except Exception as error:  # noqa: BLE001 - somebody else's code
            return Score(NAN, f"{self.name}: {type(error).__name__}: {error}")
        if not (isinstance(text, str) and isinstance(note, str)):
            return Score(NAN, f"{self.name}: compare() must return two texts, got {result!r:.80}")
        return Score(text, note)


def find(folder: str) -> tuple[CustomAlgorithm, ...]:
    """Return the algorithms in a folder of the user's, by name; none where it has no ``algorithm``.

    Raises:
        ToolError: The folder is missing, or holds a file that others may write, that is larger than
            a MiB, or that has no function ``compare`` of three arguments.
    """
    if not os.path.isdir(folder):
        raise ToolError(ReturnCode.PATH, f"{folder}: no such directory of custom scripts (-c)")
    own_algorithms = []
    for path in sorted(Path(folder, _FOLDER).glob("*.py")):
        match = _FILE.fullmatch(path.name)
        if match is not None:
            # Scripts that cannot be used are an error before anything is compared.
            user_scripts.load(path, _FUNCTION, ReturnCode.ALGORITHM)
            own_algorithms.append(CustomAlgorithm(match[1], str(path)))
    return tuple(own_algorithms)
