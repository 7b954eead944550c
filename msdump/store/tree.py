"""The directories of a dump, found by walking them down to the iterations."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from typing import Final

from msdump.errors import DumpReadError
from msdump.store.layouts import DIRECTORIES, Key, Kind, parse

_LEAVES: Final = frozenset({Kind.ITERATION, Kind.CONSTANTS})
_TENSOR_PLACES: Final = frozenset({Kind.GRAPH, *_LEAVES})
_OPENABLE: Final = frozenset({Kind.RANK, Kind.NETWORK, *_TENSOR_PLACES})
_DEPTH: Final = 4
_FAULTS: Final = {
    errno.ENOENT: "no such directory; give the directory of a dump",
    errno.ENOTDIR: "not a directory but a file; give the directory of a dump",
}


@dataclass(frozen=True, slots=True)
class Tree:
    """What stands where.

    Attributes:
        paths: Absolute path of every directory down to the iterations, and of every file beside them.
        children: What stands in a directory; None: in the root.
        ignored: Absolute paths of what belongs to no dump, unsorted.
    """

    paths: dict[Key, str] = field(default_factory=dict)
    children: dict[Key | None, list[Key]] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)

    def of(self, parent: Key | None, *kinds: Kind) -> list[Key]:
        """Return the keys of some kinds that stand in a directory."""
        return [key for key in self.children.get(parent, ()) if key.kind in kinds]

    def add(self, parent: Key | None, key: Key, path: str) -> None:
        """Add what stands at a path."""
        self.paths[key] = path
        self.children.setdefault(parent, []).append(key)


def locate(folder: str) -> tuple[str, Key | None] | None:
    """Return the root of the dump that a directory belongs to, and the directory's own key.

    The key is None where the directory is the root; without a dump the result is None.

    Raises:
        DumpReadError: The directory does not exist or cannot be listed.
    """
    found = (parse(entry.name) for entry in _entries(folder) if entry.is_dir())
    if any(key is not None and key.kind is Kind.RANK for key in found):
        return folder, None
    parts = folder.split("/")
    for depth in range(_DEPTH, 0, -1):
        key = parse("/".join(parts[-depth:]))
        if key is not None and key.kind in _OPENABLE:
            return "/".join(parts[:-depth]) or "/", key
    return None


def scan(root: str, only: Key | None) -> Tree:
    """Walk a dump from its root; with ``only``, the part of it that this key holds.

    Raises:
        DumpReadError: A directory cannot be listed.
    """
    tree = Tree()
    _scan(tree, root, "", None, only)
    return tree


def _scan(tree: Tree, folder: str, prefix: str, parent: Key | None, only: Key | None) -> None:
    for entry in _entries(folder):
        is_directory = entry.is_dir()
        key = parse(f"{prefix}{entry.name}")
        if key is None or is_directory != (key.kind in DIRECTORIES):
            tree.ignored.append(entry.path)
        elif _is_wanted(key, only):
            tree.add(parent, key, entry.path)
            if is_directory and key.kind not in _LEAVES:
                _scan(tree, entry.path, f"{prefix}{entry.name}/", key, only)


def _is_wanted(key: Key, only: Key | None) -> bool:
    if only is None:
        return True
    if key.kind not in _TENSOR_PLACES:
        return key.rank == only.rank
    mine = (key.rank, key.net, key.graph, key.iteration)
    theirs = (only.rank, only.net, only.graph, only.iteration)
    return all(a is None or b is None or a == b for a, b in zip(mine, theirs, strict=True))


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise DumpReadError(folder, _FAULTS.get(error.errno or 0) or error.strerror or str(error)) from error
