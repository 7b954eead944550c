"""Comparing two .npy files, as CANN's ``file_compare`` does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

import numpy as np

from msdump.encode import npy
from msdump.errors import DumpReadError, FormatError, ToolError
from msdump.store.read import mapped
from msdump.tools.return_codes import ReturnCode
from msdump.tools.scores import algorithms
from msdump.tools.scores.algorithms import Score
from msdump.tools.scores.choice import EVERY, Choice

NAMES: Final = tuple(
    name for name in algorithms.ALL if name not in {"KullbackLeiblerDivergence", "StandardDeviation"}
)
"""What ``file_compare`` computes."""

_SUFFIX: Final = ".npy"


def compare(mine: str, golden: str, choice: Choice = EVERY, *, limit: int = 0) -> tuple[Score, ...]:
    """Return what algorithms say of the tensors in two .npy files.

    Args:
        mine: The file that is examined.
        golden: The file that it is compared with.
        choice: The algorithms.
        limit: Only so many elements from the first count, 0: all.

    Raises:
        ToolError: A file is missing, is no .npy file or holds text, or the shapes differ.
    """
    ours, theirs = read(mine), read(golden)
    if ours.shape != theirs.shape:
        raise ToolError(
            ReturnCode.SHAPE, f"{mine}: shape {ours.shape} differs from {theirs.shape} of {golden}"
        )
    try:
        return choice.scores(ours, theirs, limit=limit, paths=(mine, golden))
    except FormatError as error:
        raise ToolError(ReturnCode.DATA_TYPE, f"{mine}, {golden}: {error}") from error


def read(path: str) -> np.ndarray:
    """Return the tensor of a .npy file.

    Raises:
        ToolError: It is missing, has another name, or is no .npy file.
    """
    if not path.endswith(_SUFFIX):
        raise ToolError(ReturnCode.FILE_TYPE, f"{path}: only .npy files can be compared")
    if not os.path.exists(path):
        raise ToolError(ReturnCode.PATH, f"{path}: no such file")
    try:
        return npy.decode(mapped.load(path), path)
    except DumpReadError as error:
        raise ToolError(ReturnCode.DUMP_DATA, str(error)) from error


def report(scores: Sequence[Score], names: Sequence[str]) -> str:
    """Return a line ``Name: value`` for each algorithm."""
    return "".join(f"{name}: {score.text}\n" for name, score in zip(names, scores, strict=True))
