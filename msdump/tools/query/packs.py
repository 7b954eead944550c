"""Writing packs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata

from msdump.errors import ToolError
from msdump.store.write.directories import open_directory
from msdump.tools import reports
from msdump.tools.query import engine
from msdump.tools.query.columns import VIEWS
from msdump.tools.query.packed import FORMAT
from msdump.tools.query.session import Session
from msdump.tools.query.sources import MANIFEST
from msdump.tools.return_codes import ReturnCode


@dataclass(frozen=True, slots=True)
class Pack:
    """What was packed.

    Attributes:
        path: The directory.
        rows: Number of rows of each view that has some.
    """

    path: str
    rows: Mapping[str, int]


def write(session: Session, folder: str) -> Pack:
    """Write every view that has rows as Parquet files, a directory for each rank.

    Raises:
        ToolError: The directory holds something, cannot be written to, or there is nothing to pack.
        DumpReadError: A source cannot be read.
    """
    if os.path.isdir(folder) and os.listdir(folder):  # noqa: PTH208
        raise ToolError(ReturnCode.PATH, f"{folder}: holds files already; remove them first")
    try:
        os.close(open_directory(os.path.realpath(folder)))
    except OSError as error:
        message = f"{folder}: cannot be made: {error.strerror or error}"
        raise ToolError(ReturnCode.WRITE, message) from error
    rows = {view: _write(session, view, folder) for view in VIEWS}
    packed = {view: count for view, count in rows.items() if count}
    if not packed:
        raise ToolError(ReturnCode.NO_DUMP_FILE, "nothing to pack: the dumps have no files")
    manifest = {"format": FORMAT, "msdump": metadata.version("msdump"), "rows": packed}
    reports.write(folder, MANIFEST, [json.dumps(manifest, indent=2) + "\n"])
    return Pack(folder, packed)


def _write(session: Session, view: str, folder: str) -> int:
    # every cell is read before a file is written: one that cannot be read makes the session read anew
    ((count, *_),) = session.ask(f"select count(*), count(columns(*)) from {view}").fetch(1)
    if count:
        place = engine.literal(os.path.join(folder, view))  # noqa: PTH118 - the text as it was given
        options = "format parquet, partition_by (rank), write_partition_columns true"
        session.ask(f"copy (from {view}) to {place} ({options})")
    return int(count)
