"""Sources of questions: dumps, packs, and results of comparisons, each with a label.

PACK/msdump_pack.json               numbers of rows; written last, so that a pack is complete or none
PACK/statistics/rank=0/*.parquet    the rows of a view, the rank in the files as well
"""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from msdump import reading
from msdump.errors import DumpReadError, ToolError, cause_of
from msdump.look.query import engine
from msdump.look.query.columns import VIEWS
from msdump.read import read_json
from msdump.return_codes import ReturnCode
from msdump.store import names

MANIFEST: Final = "msdump_pack.json"

_LABELLED: Final = re.compile(r"(?P<label>[A-Za-z_][A-Za-z0-9_.-]*)=(?P<path>.+)", re.DOTALL)


class QuestionedKind(enum.Enum):
    """Kind of a source."""

    DUMP = enum.auto()
    PACK = enum.auto()
    COMPARISON = enum.auto()


@dataclass(frozen=True, slots=True)
class QuestionedSource:
    """A source; its label stands in the column ``dump`` or ``comparison``."""

    label: str
    path: str
    kind: QuestionedKind


def parse_sources(texts: Sequence[str]) -> tuple[QuestionedSource, ...]:
    """Return the sources that a command line names, each as PATH or NAME=PATH.

    Raises:
        DumpReadError: Nothing stands at a path, or a file that is no result of a comparison.
        ToolError: Two have the same label.
    """
    sources: dict[str, QuestionedSource] = {}
    for text in texts:
        labelled = None if os.path.lexists(text) else _LABELLED.fullmatch(text)
        label, path = labelled.group("label", "path") if labelled else (text.rstrip("/") or "/", text)
        if os.path.isdir(path):
            is_pack = os.path.lexists(os.path.join(path, MANIFEST))  # noqa: PTH118 - the text as it was given
            kind = QuestionedKind.PACK if is_pack else QuestionedKind.DUMP
        elif not os.path.lexists(path):
            message = "no such file or directory; a dump, a pack or a result of compare is needed"
            raise DumpReadError(path, message)
        elif Path(path).suffix == ".json":
            kind = QuestionedKind.COMPARISON
        else:
            message = "no directory of a dump or pack, and no .json file of msdump compare"
            raise DumpReadError(path, message)
        if sources.setdefault(label, QuestionedSource(label, path, kind)).path != path:
            message = f"two sources are called {label!r}; give each another name: NAME=PATH"
            raise ToolError(ReturnCode.PARAMETER, message)
    return tuple(sources.values())


def is_named(text: str) -> bool:
    """Return whether a text is NAME=PATH of an existing path."""
    labelled = _LABELLED.fullmatch(text)
    return labelled is not None and os.path.lexists(labelled["path"])


FORMAT: Final = 1
"""Version of the form of packs."""


def check_pack(folder: str) -> None:
    """Refuse (DumpReadError) a directory that is no pack of this form."""
    path = f"{folder}/{MANIFEST}"
    manifest = read_json(path)
    form = manifest.get("format") if isinstance(manifest, dict) else None
    if form != FORMAT:
        message = f"a pack of form {form!r}; this msdump reads form {FORMAT}: pack the dump again"
        raise DumpReadError(path, message)


def select_pack(
    folder: str, view: str, fault: Callable[[str], object], find_fault: Callable[[str], str] | None = None
) -> str | None:
    """Return the SQL that reads a view of a pack, None where the pack has no row of it.

    ``fault`` gets messages about files that are left out: irregular ones (DuckDB would wait for the
    writer of a pipe), and damaged ones, of which ``find_fault`` returns the fault of a SELECT.
    """
    columns = ", ".join(f'"{column.name}"' for column in VIEWS[view])
    select = f"select {columns} from read_parquet([{{}}], hive_partitioning = false)"
    listed: list[str] = []
    for path in sorted(map(str, Path(folder, view).rglob("*.parquet"))):
        file = engine.pattern(path)
        try:
            reading.open_file(path).close()
            why = "" if find_fault is None else find_fault(select.format(file))
        except OSError as error:
            why = cause_of(error)
        if why:
            fault(f"{path}: {why}; the file is left out: pack the dump again")
        else:
            listed.append(file)
    return select.format(", ".join(listed)) if listed else None


_OF_OPERATOR: Final = (
    "rank iteration execution pass_number=pass order=execution_order op_type operator=full_name scope source"
    " verdict=operator_verdict note=operator_note directory"
)
_OF_TENSOR: Final = "verdict dtype golden_dtype shape limit=error_limit note"
_OF_ERROR: Final = "distance cosine largest=max_error scaled=scaled_error ulps masked"
"""Fields of a document's operators, tensors and errors; ``field=column`` where the view's name differs."""


def comparison_rows(path: str, label: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each compared tensor, and for each operator that one side lacks."""
    try:
        for operator in read_json(path)["operators"]:
            cells = {"comparison": label} | _renamed(operator, _OF_OPERATOR)
            cells["op_name"] = names.sanitize(operator["operator"])
            own = {f"output:{each['output']}": each["error"]["distance"] for each in operator["own"]}
            tensors = (*operator["inputs"], *operator["outputs"])
            for tensor in tensors:
                error = _renamed(tensor["error"] or {}, _OF_ERROR)
                numbers = {"own_distance": own.get(tensor["tensor"])} | error
                io, _, slot = tensor["tensor"].partition(":")
                yield cells | numbers | _renamed(tensor, _OF_TENSOR) | {"io": io, "slot": int(slot)}
            if not tensors:
                yield cells | {"verdict": operator["verdict"]}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DumpReadError(path, "no result of msdump compare: its --json document is needed") from error


def _renamed(fields: Mapping[str, Any], columns: str) -> dict[str, Any]:
    pairs = (each.partition("=") for each in columns.split())
    return {column or name: fields[name] for name, _, column in pairs if name in fields}
