"""The directories of dumped operators below two paths, and which belongs to which."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msdump.errors import ToolError
from msdump.store.layouts import STATISTICS
from msdump.tools.compare.pairing import dump_folder
from msdump.tools.return_codes import ReturnCode

_TIME: Final = re.compile(r"[0-9]{14}")  # YYYYMMDDHHMMSS: when the dump was configured
_SHOWN: Final = 5

_IsWanted = Callable[[Sequence[str]], bool]
"""Tells by the names of its files whether a directory is looked for."""


@dataclass(frozen=True, slots=True)
class FolderPair:
    """Two directories of dumped operators that belong together.

    Attributes:
        label: What tells them from other ones, "" where there is only one.
        dumped: The one that is examined.
        golden: The one that it is compared with.
    """

    label: str
    dumped: str
    golden: str


@dataclass(frozen=True, slots=True)
class FolderPairs:
    """Directories that belong together, and those without a counterpart.

    Attributes:
        pairs: In the order of their labels, numbers by value.
        alone: Directories without a counterpart.
    """

    pairs: tuple[FolderPair, ...]
    alone: tuple[str, ...]


def pair(dumped: str, golden: str) -> FolderPairs:
    """Return the directories of dumped operators below two paths, as they belong together.

    Directories with the same path belong together, whenever the dumps were made; else the only
    one of each side, or those of the same iteration.

    Args:
        dumped: What is examined: such a directory, or one above it.
        golden: What it is compared with.

    Raises:
        ToolError: A path is no directory, has none of dumped operators below it, or several dumps.
    """
    return _paired(dumped, golden, _labelled(dumped, _has_dumps), _labelled(golden, _has_dumps))


def pair_statistics(dumped: str, golden: str) -> FolderPairs:
    """Return the directories of statistics below two paths, as they belong together; as ``pair``."""
    return _paired(dumped, golden, _labelled(dumped, _has_statistics), _labelled(golden, _has_statistics))


def hold_statistics_alone(*roots: str) -> bool:
    """Tell whether each directory has statistics below it and one of them no dump files."""
    has_all = all(next(_holding(root, _has_statistics), None) for root in roots)
    return has_all and not all(next(_holding(root, _has_dumps), None) for root in roots)


def _paired(dumped: str, golden: str, ours: dict[str, str], theirs: dict[str, str]) -> FolderPairs:
    if len(ours) == len(theirs) == 1:
        return FolderPairs((FolderPair("", *ours.values(), *theirs.values()),), ())
    if not ours.keys() & theirs.keys():
        ours, theirs = _by_iteration(ours), _by_iteration(theirs)
    both = sorted(ours.keys() & theirs.keys(), key=_order)
    if not both:
        raise ToolError(
            ReturnCode.NO_DUMP_FILE,
            f"no directory of {dumped} ({_examples(ours)}) has a counterpart in {golden}"
            f" ({_examples(theirs)}); give the directory of one iteration on each side",
        )
    alone = [side[label] for side in (ours, theirs) for label in sorted(side) if label not in both]
    return FolderPairs(tuple(FolderPair(label, ours[label], theirs[label]) for label in both), tuple(alone))


def lowest(path: str) -> str:
    """Return a directory of dumped operators, or the only one below it; else the directory itself.

    Raises:
        ToolError: There are several below it.
    """
    found = list(_holding(path, _has_dumps))
    if len(found) > 1 and path not in found:
        raise ToolError(
            ReturnCode.PARAMETER,
            f"{path} holds several directories of dump files, {found[0]} is one; give one",
        )
    return found[0] if len(found) == 1 else path


def _labelled(root: str, is_wanted: _IsWanted) -> dict[str, str]:
    """Return the directories that hold something by their path without the time of the dump."""
    if not os.path.isdir(root):
        raise ToolError(ReturnCode.PATH, f"{root}: no such directory")
    found = {path: _label(Path(path).relative_to(root)) for path in _holding(root, is_wanted)}
    if not found:
        raise ToolError(ReturnCode.FILE_NAME, f"{root}: no dump files in it, nor below it{_hint(root)}")
    twice = [label for label, count in Counter(found.values()).items() if count > 1]
    if twice:
        one, other, *_ = (path for path, label in found.items() if label == twice[0])
        raise ToolError(
            ReturnCode.PARAMETER,
            f"{root} holds several dumps, such as {one} and {other}; give one of them",
        )
    return {label: path for path, label in found.items()}


def _hint(root: str) -> str:
    is_measured = next(_holding(root, _has_statistics), None)
    return f", only {STATISTICS}, which needs one on the other side" if is_measured else ""


def _label(path: Path) -> str:
    return "/".join(part for part in path.parts if not _TIME.fullmatch(part))


def _holding(root: str, is_wanted: _IsWanted) -> Iterator[str]:
    for folder, below, files in os.walk(root):
        below.sort()
        if is_wanted(files):
            yield folder


def _has_dumps(names: Sequence[str]) -> bool:
    return any(dump_folder.parse(name, name) is not None for name in names)


def _has_statistics(names: Sequence[str]) -> bool:
    return STATISTICS in names


def _by_iteration(labelled: Mapping[str, str]) -> dict[str, str]:
    """Return directories by the number that their path ends in; none where a number comes twice."""
    numbers = {label: label.rpartition("/")[2] for label in labelled}
    counts = Counter(numbers.values())
    return {
        numbers[label]: path
        for label, path in labelled.items()
        if numbers[label].isdigit() and counts[numbers[label]] == 1
    }


def _order(label: str) -> list[tuple[int, str]]:
    parts = label.split("/")
    return [(int(part), "") if part.isascii() and part.isdigit() else (-1, part) for part in parts]


def _examples(labelled: Mapping[str, str]) -> str:
    shown = [path for _, path in sorted(labelled.items())[:_SHOWN]]
    more = f" and {len(labelled) - _SHOWN} more" if len(labelled) > _SHOWN else ""
    return f"{', '.join(shown) or 'none with a number of its own'}{more}"
