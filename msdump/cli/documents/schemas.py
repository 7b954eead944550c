"""JSON Schemas of the documents that commands print with ``--json``.

python -m msdump.cli.documents.schemas docs/schema
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from msdump.cli.documents.advise import AdviseDocument
from msdump.cli.documents.baseline import BaselineDocument
from msdump.cli.documents.check import CheckDocument
from msdump.cli.documents.compare import CompareDocument
from msdump.cli.documents.convert import ConvertDocument
from msdump.cli.documents.diff import DiffDocument
from msdump.cli.documents.document import ErrorDocument, JsonDocument
from msdump.cli.documents.overflow import OverflowDocument
from msdump.cli.documents.query import PackDocument, QueryDocument
from msdump.cli.documents.report import ReportDocument
from msdump.cli.documents.run import RunDocument
from msdump.cli.documents.show import ShowDocument
from msdump.cli.documents.trend import TrendDocument
from msdump.cli.documents.watch import WatchDocument

DOCUMENTS: Final[dict[str, type[JsonDocument]]] = {
    "baseline": BaselineDocument,
    "check": CheckDocument,
    "compare": CompareDocument,
    "convert": ConvertDocument,
    "diff": DiffDocument,
    "diff --advise": AdviseDocument,
    "overflow": OverflowDocument,
    "pack": PackDocument,
    "query": QueryDocument,
    "report": ReportDocument,
    "run": RunDocument,
    "show": ShowDocument,
    "trend": TrendDocument,
    "watch": WatchDocument,
}
"""The document of each command that takes ``--json``, and of options that give another one."""


def file_name(command: str) -> str:
    """Return the name of the file that holds a command's schema.

    >>> file_name("diff --advise")
    'diff_advise.schema.json'
    """
    return f"{command.replace(' --', '_')}.schema.json"


def schema_text(command: str) -> str:
    """Return the schema of what a command prints as the text of its file."""
    printed: Any = DOCUMENTS[command] | ErrorDocument
    schema = TypeAdapter(printed).json_schema(mode="serialization")
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"msdump {command} --json",
    }
    return json.dumps({**head, **schema}, indent=2) + "\n"


def main(arguments: list[str]) -> None:
    """Write the schemas into the folder that the only argument names."""
    if len(arguments) != 1:
        sys.exit("usage: python -m msdump.cli.documents.schemas FOLDER")
    for command in DOCUMENTS:
        Path(arguments[0], file_name(command)).write_text(schema_text(command), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
