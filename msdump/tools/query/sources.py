"""What questions are asked of: dumps, packs, and results of comparisons, each with a label."""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msdump.errors import DumpReadError, ToolError
from msdump.tools.return_codes import ReturnCode

MANIFEST: Final = "msdump_pack.json"
"""The file that makes a directory a pack; it is written last."""

_LABELLED: Final = re.compile(r"(?P<label>[A-Za-z_][A-Za-z0-9_.-]*)=(?P<path>.+)", re.DOTALL)
_RESULTS: Final = frozenset({".json", ".csv"})


class QuestionedKind(enum.Enum):
    """What stands at a path."""

    DUMP = enum.auto()
    PACK = enum.auto()
    COMPARISON = enum.auto()


@dataclass(frozen=True, slots=True)
class QuestionedSource:
    """Something that questions are asked of.

    Attributes:
        label: What the column ``dump`` or ``comparison`` holds.
        path: Its directory or file.
        kind: What it is.
    """

    label: str
    path: str
    kind: QuestionedKind


def parse(texts: Sequence[str]) -> tuple[QuestionedSource, ...]:
    """Return the sources that a command line names, each as PATH or NAME=PATH.

    Raises:
        DumpReadError: Nothing stands at a path, or a file that is no result of a comparison.
        ToolError: Two have the same label.
    """
    sources: dict[str, QuestionedSource] = {}
    for text in texts:
        source = _source(text)
        if sources.setdefault(source.label, source).path != source.path:
            message = f"two sources are called {source.label!r}; give each another name: NAME=PATH"
            raise ToolError(ReturnCode.PARAMETER, message)
    return tuple(sources.values())


def is_named(text: str) -> bool:
    """Tell whether a text names a source, NAME=PATH, whose path is there."""
    labelled = _LABELLED.fullmatch(text)
    return labelled is not None and os.path.lexists(labelled["path"])


def _source(text: str) -> QuestionedSource:
    labelled = _LABELLED.fullmatch(text)
    if labelled and not os.path.lexists(text):
        return QuestionedSource(labelled["label"], labelled["path"], _kind(labelled["path"]))
    return QuestionedSource(text.rstrip("/") or "/", text, _kind(text))


def _kind(path: str) -> QuestionedKind:
    if os.path.isdir(path):
        is_pack = os.path.lexists(os.path.join(path, MANIFEST))  # noqa: PTH118 - the text as it was given
        return QuestionedKind.PACK if is_pack else QuestionedKind.DUMP
    if not os.path.lexists(path):
        raise DumpReadError(
            path, "no such file or directory; a dump, a pack or a result of compare is needed"
        )
    if Path(path).suffix in _RESULTS:
        return QuestionedKind.COMPARISON
    message = "no directory of a dump or pack, and no .json or .csv file of msdump compare"
    raise DumpReadError(path, message)
