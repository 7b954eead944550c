"""Comparing two .npy files, as CANN's ``file_compare`` does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

import numpy as np

from msdump.encode import npy
from msdump.errors import DumpReadError, FormatError, ToolError
from msdump.store.names import SUFFIX
from msdump.store.read import mapped
from msdump.tools.return_codes import ReturnCode
from msdump.tools.scores import algorithms
from msdump.tools.scores.algorithms import Score
from msdump.tools.scores.choice import EVERY, Choice

# vendor: file_compare leaves two of the ten out.
NAMES: Final = tuple(
    name for name in algorithms.ALL if name not in {"KullbackLeiblerDivergence", "StandardDeviation"}
)
"""Algorithms of the vendor's ``file_compare``, in the order of its report."""


def compare(dumped: str, golden: str, choice: Choice = EVERY, *, limit: int = 0) -> tuple[Score, ...]:
    """Return the scores of algorithms for the tensors in two .npy files.

    Args:
        dumped: The file that is examined.
        golden: The file that it is compared with.
        choice: The algorithms.
        limit: Only so many elements from the first count, 0: all.

    Raises:
        ToolError: A file is missing, is no .npy file or holds text, or the shapes differ.
    """
    dumped_array, golden_array = read(dumped), read(golden)
    # vendor: here shapes have to be the same; the comparison of directories is less strict.
    if dumped_array.shape != golden_array.shape:
        raise ToolError(
            ReturnCode.SHAPE,
            f"{dumped}: shape {dumped_array.shape} differs from {golden_array.shape} of {golden}",
        )
    try:
        return choice.scores(dumped_array, golden_array, limit=limit, paths=(dumped, golden))
    except FormatError as error:
        raise ToolError(ReturnCode.DATA_TYPE, f"{dumped}, {golden}: {error}") from error


def read(path: str) -> np.ndarray:
    """Return the tensor of a .npy file.

    Raises:
        ToolError: It is missing, has another name, or is no .npy file.
    """
    if not path.endswith(SUFFIX):
        raise ToolError(ReturnCode.FILE_TYPE, f"{path}: only .npy files can be compared")
    if not os.path.exists(path):
        raise ToolError(ReturnCode.PATH, f"{path}: no such file")
    try:
        return npy.decode(mapped.load(path), path)
    except DumpReadError as error:
        raise ToolError(ReturnCode.DUMP_DATA, str(error)) from error


def report(scores: Sequence[Score], names: Sequence[str]) -> str:
    """Return the text of a report: a line ``Name: value`` for each algorithm.

    >>> print(report([Score("0.500000")], ["MaxAbsoluteError"]), end="")
    MaxAbsoluteError: 0.500000
    """
    return "".join(f"{name}: {score.text}\n" for name, score in zip(names, scores, strict=True))
