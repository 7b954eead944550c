"""JSON Schema of MINDSPORE_DUMP_CONFIG files, for editors.

python -m msdump.config.schema docs/schema/mindspore_dump.schema.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from msdump.config import watch
from msdump.config.models import DumpConfig


def schema_text() -> str:
    """Return the schema as the text of its file."""
    schema = DumpConfig.model_json_schema(by_alias=True)
    # a rule takes what its condition takes: its models derive from the table of conditions
    schema["$defs"]["MsdumpSettings"]["properties"]["watch"]["items"] = watch.rule_schema()
    described = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    return json.dumps(described, indent=2, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> None:
    """Write the schema to the file that the only argument names."""
    if len(arguments) != 1:
        sys.exit("usage: python -m msdump.config.schema FILE")
    Path(arguments[0]).write_text(schema_text(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
