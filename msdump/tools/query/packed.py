"""Reading packs: the views of dumps as Parquet files.

PACK/msdump_pack.json               what it holds; written last, so that a pack is complete or none
PACK/statistics/rank=0/*.parquet    the rows of a view, the rank in the files as well
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from msdump import reading
from msdump.errors import DumpReadError
from msdump.tools.query import engine
from msdump.tools.query.columns import VIEWS
from msdump.tools.query.sources import MANIFEST

FORMAT: Final = 1
"""Number of the form of packs; another one is refused."""

ENDING: Final = ".parquet"


def check(folder: str) -> None:
    """Check that a directory is a pack of this form.

    Raises:
        DumpReadError: It is not.
    """
    path = f"{folder}/{MANIFEST}"
    try:
        told = json.loads(reading.read_bytes(path))
    except OSError as error:
        raise DumpReadError(path, error.strerror or str(error)) from error
    except ValueError as error:
        raise DumpReadError(path, f"not JSON: {error}") from error
    form = told.get("format") if isinstance(told, dict) else None
    if form != FORMAT:
        message = f"a pack of form {form!r}; this msdump reads form {FORMAT}: pack the dump again"
        raise DumpReadError(path, message)


def select(folder: str, view: str) -> str | None:
    """Return the SQL that reads a view of a pack, None where the pack has no row of it."""
    place = Path(folder, view)
    if not os.path.isdir(place):
        return None
    names = sorted(str(path) for path in place.rglob(f"*{ENDING}"))
    listed = ", ".join(map(engine.pattern, names))
    columns = ", ".join(f'"{column.name}"' for column in VIEWS[view])
    return f"select {columns} from read_parquet([{listed}], hive_partitioning = false)" if names else None
