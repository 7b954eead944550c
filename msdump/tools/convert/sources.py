"""Finds the dump files to convert, and the directory for the results of each."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msdump.errors import ToolError
from msdump.tools.convert.result import Source
from msdump.tools.return_codes import ReturnCode

FOREIGN: Final = frozenset(
    {
        *(".csv", ".json", ".npy", ".npz", ".bin", ".pt", ".txt", ".log", ".tmp", ".md"),
        *(".ir", ".pb", ".pbtxt", ".dot", ".onnx", ".o", ".py", ".sh"),
    }
)
"""Suffixes of other files that lie beside dump files; names of dump files end in a number."""


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """The dump files to convert.

    Attributes:
        sources: The files and the directories of their results.
        skipped: Number of other files in the directories, by suffix.
    """

    sources: tuple[Source, ...]
    skipped: Counter[str]


def find(dumps: Sequence[str], output: str, *, is_recursive: bool = True) -> SourceFiles:
    """Return the dump files among files and in directories, those of a directory sorted by path.

    Args:
        dumps: Files, which are all taken for dump files, and directories.
        output: Directory of the results; results of a directory's files keep their place below it.
        is_recursive: Whether to look into the directories' directories too.

    Raises:
        ToolError: A path does not exist, or two files would have results of the same names.
    """
    skipped: Counter[str] = Counter()
    sources: list[Source] = []
    for path in map(Path, dumps):
        if os.path.isdir(path):
            sources += _in_directory(path.absolute(), Path(output), skipped, is_recursive=is_recursive)
        elif os.path.exists(path):
            sources.append(Source(str(path.absolute()), output))
        else:
            raise ToolError(ReturnCode.PATH, f"{path}: no such file or directory")
    _check_names(sources)
    return SourceFiles(tuple(sources), skipped)


def _in_directory(root: Path, output: Path, skipped: Counter[str], *, is_recursive: bool) -> Iterator[Source]:
    for directory, folders, names in os.walk(root, onerror=_raise):
        # In place: os.walk goes into what is left here, in this order.
        folders[:] = sorted(name for name in folders if name[0] != ".") if is_recursive else ()
        destination = output / Path(directory).relative_to(root)
        for name in sorted(names):
            suffix = Path(name).suffix
            if name.startswith(".") or suffix in FOREIGN:
                skipped[suffix] += 1
            else:
                yield Source(f"{directory}/{name}", str(destination))


def _raise(error: OSError) -> None:
    raise ToolError(ReturnCode.PATH, f"{error.filename}: {error.strerror}") from error


def _check_names(sources: Iterable[Source]) -> None:
    """Refuse files that would overwrite each other's results; ToolError names two of them."""
    source_of: dict[tuple[str, str], str] = {}
    for source in sources:
        first_path = source_of.setdefault((source.directory, Path(source.path).name), source.path)
        if first_path != source.path:
            fault = f"{source.path} and {first_path} would have results of the same names"
            raise ToolError(ReturnCode.PARAMETER, f"{fault}; convert them one by one")
