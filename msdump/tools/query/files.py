"""The view ``files``: every file of a dump, and what it holds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

from msdump.store import layouts
from msdump.store.layouts import Key
from msdump.store.read import tree
from msdump.tools.query import tensors
from msdump.tools.query.places import OpenedDump

_FOREIGN: Final = "foreign"


def rows(opened: OpenedDump) -> Iterator[dict[str, Any]]:
    """Yield a row for each file below a dump, sorted by directory and name."""
    top = opened.dump.path
    place = tree.locate(top) or tree.locate_below(top)
    root = top if place is None else place[0]

    def note(error: OSError) -> None:
        opened.fault(f"{error.filename}: {error.strerror or error}")

    for folder, folders, names in os.walk(top, onerror=note):
        folders.sort()
        below = os.path.relpath(folder, root)
        prefix = "" if below == "." else f"{below}/"
        directory = None if not prefix else layouts.parse(below, is_directory=True)
        where = {"dump": opened.label} if directory is None else opened.place_of(directory)
        told = where | {"directory": opened.below(folder)}
        for name in sorted(names):
            yield told | _file(f"{folder}/{name}", layouts.parse(prefix + name, is_directory=False), opened)


def _file(path: str, key: Key | None, opened: OpenedDump) -> dict[str, Any]:
    """Return what is known of a file; its rank and graph also where its directory does not tell them."""
    told = {} if key is None else {k: v for k, v in opened.place_of(key).items() if v is not None}
    kind = _FOREIGN if key is None else key.kind.name.lower()
    row = told | {"kind": kind, "name": path.rpartition("/")[2], "path": path}
    try:
        status = os.lstat(path)
    except OSError as error:  # a run that goes on may have replaced it
        opened.fault(f"{path}: {error.strerror or error}")
        return row
    return row | {"bytes": status.st_size, "modified": tensors.moment(status.st_mtime_ns // 1000)}
