"""Files of earlier programs in the directories into which a run is about to write: counted, or removed.

Only names that the grammars of layouts and file names produce count. Links and files of another owner are
neither counted nor touched; directories are opened without following links, and files are removed through
their descriptors, so that no removal goes to another place where a directory is swapped for a link.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time as calendar
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from msdump import reading
from msdump.errors import passing_over
from msdump.store import layouts, names, operator_names
from msdump.store.layouts import Key, PathKind
from msdump.store.operator_names import OperatorFileKind
from msdump.store.write.sinks import parse_mapping

_RANK_FILES: Final = frozenset({"graphs", "execution_order"})
_TENSOR_PLACES: Final = frozenset(
    {PathKind.ITERATION, PathKind.CONSTANTS, PathKind.EXECUTION, PathKind.SINGLE}
)
_TABLES: Final = frozenset({layouts.MAPPING, layouts.STATISTICS})
_OPERATOR_FILES: Final = (
    *(OperatorFileKind.TENSORS, OperatorFileKind.STATISTICS),
    *(OperatorFileKind.OVERFLOW_JSON, OperatorFileKind.ARGUMENTS),
)
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.-]+")
_STAND_IN: Final = re.compile(r"[0-9]+(?:\.npy|\.json|\.csv)?")
_TIME: Final = "%Y%m%d%H%M%S"
_MOST_MAPPING: Final = 64 << 20  # bytes of a mapping.csv that are read


@dataclass(frozen=True, slots=True)
class RunPlace:
    """Where a run writes: a network of a rank, or a device of Ascend O2, GE and acl."""

    root: str  # absolute directory of the dump
    rank: int | None = None  # number of the rank, None for a device
    net: str = ""  # directory of the network, "" for a device
    device: int | None = None  # number of the device, None for a rank
    first: int = 0  # number of the first iteration or step; earlier ones are left alone
    # whether no other network of the program writes there yet: its graph files are left alone
    is_first: bool = True

    @property
    def directory(self) -> str:
        """Directory that holds all files of the run: of its rank, or of the dump."""
        return self.root if self.rank is None else Key(PathKind.RANK, self.rank).below(self.root)

    def holds(self, key: Key) -> bool:
        """Return whether the run writes into a directory, or may write into directories below it."""
        number = key.step if self.rank is None else key.iteration
        if number is not None and number < self.first:
            return False
        if self.rank is None:
            return key.rank is None and key.device in {None, self.device}
        if key.rank != self.rank or key.world is not None:
            return False
        is_of_all = key.kind in {PathKind.METADATA, PathKind.CONSTANTS} or key.net in _RANK_FILES
        if is_of_all and (self.first or not self.is_first):  # a run that continues one keeps these files
            return False
        return key.net in {None, self.net, *_RANK_FILES}


@dataclass(frozen=True, slots=True)
class ExistingFiles:
    """How much earlier programs left."""

    files: int = 0  # number of files with tensors or statistics
    bytes: int = 0
    iterations: int = 0  # number of the directories that hold them


@dataclass(frozen=True, slots=True)
class _File:
    """A file that an earlier program left, and the call that removes it while its directory is open."""

    folder: str
    kind: PathKind
    size: int
    remove: Callable[[], None]


def find(place: RunPlace) -> ExistingFiles:
    """Count the tensors and statistics that lie where a run writes."""
    files = [file for file in _files(place) if file.kind in _TENSOR_PLACES]
    return ExistingFiles(len(files), sum(file.size for file in files), len({file.folder for file in files}))


def remove(place: RunPlace) -> int:
    """Remove the files of earlier runs and the directories that they leave empty; return their number.

    The run's own directory stays: it may be locked. Files that another process has removed are not counted.

    Raises:
        OSError: One of them cannot be removed.
    """
    count, folders = 0, set()
    for file in _files(place):
        with contextlib.suppress(FileNotFoundError):
            file.remove()
            count += 1
        folders.add(file.folder)
    for folder in sorted(folders, key=len, reverse=True):
        _remove_empty(Path(folder), Path(os.path.realpath(place.directory)))
    return count


def _remove_empty(folder: Path, root: Path) -> None:
    with passing_over(OSError):
        while folder != root:
            folder.rmdir()
            folder = folder.parent


def _files(place: RunPlace) -> Iterator[_File]:
    root = os.path.realpath(place.root)
    for folder, subfolders, file_names, fd in os.fwalk(root):
        relative = "" if folder == root else os.path.relpath(folder, root)
        key = layouts.parse(relative, is_directory=True) if relative else None
        # in place: fwalk descends into the directories named in this list
        subfolders[:] = [name for name in subfolders if _is_wanted(f"{relative}/{name}".lstrip("/"), place)]
        is_ours = _name_test(relative, key, fd)
        for name in filter(is_ours, file_names):
            try:
                status = os.stat(name, dir_fd=fd, follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.S_ISREG(status.st_mode):
                kind = PathKind.RANK if key is None else key.kind
                yield _File(folder, kind, status.st_size, partial(os.unlink, name, dir_fd=fd))


def _is_wanted(relative: str, place: RunPlace) -> bool:
    key = layouts.parse(relative, is_directory=True)
    return key is not None and place.holds(key)


def _name_test(relative: str, key: Key | None, fd: int) -> Callable[[str], bool]:
    """Return a test for the names that a run gives to files in a directory."""
    if key is None or key.kind not in _TENSOR_PLACES:
        return lambda name: _stands_alone(f"{relative}/{name}")
    originals = _originals(fd)

    def is_ours(name: str) -> bool:
        if name in _TABLES:
            return True
        is_stand_in = _STAND_IN.fullmatch(name) is not None
        return is_grammatical(originals.get(name, "") if is_stand_in else name)

    return is_ours


def _stands_alone(path: str) -> bool:
    """Return whether a path is a rank's file outside of iterations: graph file, list or metadata."""
    key = layouts.parse(path, is_directory=False)
    return key is not None and key.rank is not None and key.name is None and key.iteration is None


def is_grammatical(name: str) -> bool:
    """Return whether a name has the form of a file of a tensor, an operator or an operator's arguments."""
    if _PLAIN.fullmatch(name) is None:
        return False
    tensor = names.parse(name)
    if tensor is not None:
        return str(tensor) == name
    return any(operator_names.parse(name, kind) is not None for kind in _OPERATOR_FILES)


def _originals(fd: int) -> dict[str, str]:
    """Return a directory's original file names by stand-in, empty if its mapping.csv cannot be read."""
    with passing_over(OSError), reading.open_file(layouts.MAPPING, directory=fd, follow_links=False) as file:
        return parse_mapping(file.read(_MOST_MAPPING))
    return {}


def free_time(time: str, path_at: Callable[[str], str]) -> str:
    """Return a time, ``YYYYMMDDHHMMSS``, or the first one after it that has no directory yet.

    Two programs that start in the same second would share the directory that the time names.
    """
    while reading.is_taken(path_at(time)):
        seconds = calendar.mktime(calendar.strptime(time, _TIME)) + 1
        time = calendar.strftime(_TIME, calendar.localtime(seconds))
    return time
