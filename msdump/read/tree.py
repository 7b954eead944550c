"""The directories of a dump down to the iterations, and the runs that wrote them.

GE and acl make a directory for the time at which a dump was configured, MindSpore (Ascend O2) and torchair
one for each step as well. So the directories of one process have different times, in the order of its steps.
"""

from __future__ import annotations

import errno
import functools
import itertools
import logging
import os
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from msdump import reading
from msdump.errors import DumpReadError, cause_of
from msdump.store import Key, PathKind, layouts

if TYPE_CHECKING:
    from msdump.read.operator_graph import OperatorGraph


_LEAVES: Final = frozenset(
    {
        *(PathKind.ITERATION, PathKind.CONSTANTS, PathKind.EXECUTION, PathKind.EXCEPTIONS),
        PathKind.CAPTURED_STEP,
    }
)
_TENSOR_PLACES: Final = frozenset({PathKind.GRAPH, PathKind.ITERATION, PathKind.CONSTANTS})
_OPENABLE: Final = frozenset(
    {
        *(PathKind.RANK, PathKind.NETWORK, *_TENSOR_PLACES),
        *(PathKind.TIME, PathKind.SINGLE, PathKind.MODEL, PathKind.MODEL_NUMBER, PathKind.EXECUTION),
        *(PathKind.WORLD, PathKind.CAPTURED_GRAPH, PathKind.CAPTURED_STEP),
    }
)
_ROOTED: Final = frozenset(
    {PathKind.RANK, PathKind.WORLD, PathKind.TIME, PathKind.ACL_CONFIG, PathKind.EXTRA_INFO}
)
"""Kinds of paths that stand in the root of a dump and nowhere else."""

_DEPTH: Final = 7
_MOST_LEVELS: Final = 3  # levels below a directory that are searched for a dump
_MOST_FOLDERS: Final = 1000  # per level, so that a home directory is not searched through
_MOST_STEPS: Final = 8  # numbered directories that are examined before a directory counts as no root
_FAULTS: Final = {
    errno.ENOENT: "no such directory; give the directory of a dump",
    errno.ENOTDIR: "a file, not a directory; give the directory of a dump",
}


@dataclass(frozen=True, slots=True)
class TreeListing:
    """The directories and files of a dump by the keys that their paths parse to."""

    # absolute path of every directory down to the iterations, and of every file beside them
    paths: dict[Key, str] = field(default_factory=dict)
    # keys directly below each directory's key; None is the key of the root
    children: dict[Key | None, list[Key]] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)  # absolute paths that belong to no dump, unsorted
    # which execution is read where several lie in one directory; None: the last whole one
    execution: int | None = None
    # the graphs that were read, by the contents of their files: ranks of one program share them
    graphs: dict[Hashable, OperatorGraph | None] = field(default_factory=dict, repr=False)
    _of_rank: dict[tuple[int | None, PathKind], list[Key]] = field(default_factory=dict, repr=False)

    def of_rank(self, number: int, *kinds: PathKind) -> list[Key]:
        """Return the keys of some kinds that a rank has, wherever they stand."""
        return [key for kind in kinds for key in self._of_rank.get((number, kind), ())]

    def of(self, parent: Key | None, *kinds: PathKind) -> list[Key]:
        """Return the keys of some kinds that stand in a directory."""
        return [key for key in self.children.get(parent, ()) if key.kind in kinds]

    def add(self, parent: Key | None, key: Key, path: str) -> None:
        """Add the file or directory at a path below its parent's key."""
        self.paths[key] = path
        self.children.setdefault(parent, []).append(key)
        self._of_rank.setdefault((key.rank, key.kind), []).append(key)


def locate(folder: str) -> tuple[str, Key | None] | None:
    """Return the root of the dump that a directory belongs to, and the directory's own key.

    The key is None where the directory is the root, or the root is the only one below it; without a dump the
    result is None.

    Raises:
        DumpReadError: The directory does not exist, cannot be listed, or has several dumps below it.
    """
    if _is_root(folder):
        return folder, None
    parts = folder.split("/")
    # the longest path first: its last components alone might fit another layout
    for depth in range(_DEPTH, 0, -1):
        key = layouts.parse("/".join(parts[-depth:]), is_directory=True)
        if key is not None and key.kind in _OPENABLE:
            return "/".join(parts[:-depth]) or "/", key
    level = [folder]
    for _ in range(_MOST_LEVELS):
        below = (
            entry.path
            for path in level
            for entry in (_entries(path) if os.path.isdir(path) else [])
            if reading.is_directory(entry)
        )
        level = list(itertools.islice(below, _MOST_FOLDERS))
        roots = sorted(path for path in level if os.path.isdir(path) and _is_root(path))
        if len(roots) > 1:
            message = f"the directory contains several dumps, such as {roots[0]} and {roots[1]}; give one"
            raise DumpReadError(folder, message)
        if roots:
            return roots[0], None
    return None


def _is_root(folder: str) -> bool:
    steps = []
    for entry in _entries(folder):
        key = layouts.parse(entry.name, is_directory=reading.is_directory(entry))
        if key is not None and key.kind in _ROOTED:
            return True
        if key is not None and key.kind is PathKind.STEP:
            steps.append(entry.path)
    return any(_is_step(path) for path in steps[:_MOST_STEPS])


def _is_step(folder: str) -> bool:
    """Return whether a directory holds directories named by times, as a step of Ascend O2 does."""
    keys = (
        layouts.parse(entry.name, is_directory=True)
        for entry in _entries(folder)
        if reading.is_directory(entry)
    )
    return any(key is not None and key.kind is PathKind.TIME for key in keys)


def scan(root: str, only: Key | None, execution: int | None = None) -> TreeListing:
    """Walk a dump, with ``only`` the part of a key; DumpReadError if a directory cannot be listed."""
    tree = TreeListing(execution=execution)
    _scan(tree, root, "", None, only)
    return tree


def _scan(tree: TreeListing, folder: str, prefix: str, parent: Key | None, only: Key | None) -> None:
    for entry in _entries(folder):
        is_directory = reading.is_directory(entry)
        key = layouts.parse(f"{prefix}{entry.name}", is_directory=is_directory)
        if key is None:
            tree.ignored.append(entry.path)
        elif _is_wanted(key, only):
            tree.add(parent, key, entry.path)
            if is_directory and key.kind not in _LEAVES:
                _scan(tree, entry.path, f"{prefix}{entry.name}/", key, only)


def _is_wanted(key: Key, only: Key | None) -> bool:
    if only is None:
        return True
    if only.time is not None:
        is_compiled = key.rank is None or key.world is not None
        return is_compiled and key.holds(only)
    if only.world is not None:
        return key.holds(only)
    return key.rank == only.rank if key.kind not in _TENSOR_PLACES else key.holds(only)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise DumpReadError(folder, _FAULTS.get(error.errno or 0) or cause_of(error)) from error


_log = logging.getLogger("msdump.store")


@dataclass(frozen=True, slots=True)
class DumpedRun:
    """A run of a program that dumped compiled graphs."""

    number: int  # its number in the dump, from 0, in the order of time
    times: tuple[str, ...]  # the times in the names of its directories, ``YYYYMMDDHHMMSS``, in order

    @property
    def time(self) -> str:
        """The first of its times, by which it may be called as well as by its number."""
        return self.times[0]


def separate_runs(keys: Iterable[Key]) -> tuple[tuple[DumpedRun, ...], dict[Key, int]]:
    """Group directories with times into runs; return the runs in order, and each directory's run.

    A new run begins where a device repeats a step, returns to an earlier one, or repeats a model without
    steps. Directories of executions without a time belong to no run.
    """
    timed = sorted((key for key in keys if key.time is not None), key=_order)
    number, numbers = 0, dict[Key, int]()
    times: list[dict[str, None]] = [{}]
    last_step: dict[Hashable, int] = {}
    seen: dict[Hashable, str] = {}
    for (time, _), same in itertools.groupby(timed, key=_order):
        together = [*same]
        again = any(seen.get(_identity(key), time) != time for key in together)
        if again or any(_step(key) < last_step.get(_device(key), 0) for key in together):
            number += 1
            times.append({})
            last_step, seen = {}, {}
        times[number][time] = None
        for key in together:
            numbers[key] = number
            last_step[_device(key)] = _step(key)
            seen[_identity(key)] = time
    found = (DumpedRun(each, tuple(stamps)) for each, stamps in enumerate(times) if stamps)
    return tuple(found), numbers


def _order(key: Key) -> tuple[str, int]:
    return key.time or "", _step(key)


def _step(key: Key) -> int:
    return 0 if key.step is None else key.step


def _device(key: Key) -> Hashable:
    return (key.rank, key.device)


def _identity(key: Key) -> Hashable:
    return (key.rank, key.device, key.step, key.model, key.model_id)


def choose_run(path: str, found: Sequence[DumpedRun], wanted: int | None) -> DumpedRun | None:
    """Return a run by its number or its time (20240131120000), the newest one for None; None without runs.

    Raises:
        DumpReadError: There is no such run.
    """
    if wanted is None or not found:
        return found[-1] if found else None
    for run in found:
        if wanted == run.number or str(wanted) in run.times:
            return run
    raise DumpReadError(path, f"no run {wanted}: there are {_run_texts(found)}")


@functools.cache
def warn_of_several(path: str, found: tuple[DumpedRun, ...]) -> None:
    """Log that a dump holds several runs of which the newest is read, once for each dump as it is."""
    _log.warning(
        "%s: holds %d runs, %s; the newest, %d, is read", path, len(found), _run_texts(found), len(found) - 1
    )


def _run_texts(found: Sequence[DumpedRun]) -> str:
    most = 4
    texts = [f"{run.number} ({run.time})" for run in found]
    return ", ".join(texts if len(texts) <= most else [*texts[:2], "...", texts[-1]])
