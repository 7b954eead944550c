"""JSON Schema of MINDSPORE_DUMP_CONFIG files, for editors.

python -m msdump.config.schema docs/schema/mindspore_dump.schema.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from msdump.config import watch
from msdump.config.models import CommonDumpSettings, E2eDumpSettings, MsdumpSettings, Section

_BOUNDS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})


class DumpConfig(Section):
    """A MINDSPORE_DUMP_CONFIG file."""

    common_dump_settings: CommonDumpSettings
    e2e_dump_settings: E2eDumpSettings = E2eDumpSettings()
    msdump: MsdumpSettings = MsdumpSettings()
    schema_url: Annotated[str, Field(alias="$schema")] = ""
    """Address of this schema, for editors; it has no effect."""


def schema_text() -> str:
    """Return the schema as the text of its file."""
    schema = DumpConfig.model_json_schema(by_alias=True)
    # a rule takes what its condition takes: its models derive from the table of conditions
    schema["$defs"]["MsdumpSettings"]["properties"]["watch"]["items"] = watch.rule_schema()
    described = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    return json.dumps(_with_whole_bounds(described), indent=2, ensure_ascii=False) + "\n"


def _with_whole_bounds(value: Any) -> Any:
    """Return a schema whose whole bounds stand without a point, whichever version of pydantic wrote it."""
    if isinstance(value, list):
        return [_with_whole_bounds(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: int(item)
        if key in _BOUNDS and isinstance(item, float) and item.is_integer()
        else _with_whole_bounds(item)
        for key, item in value.items()
    }


def main(arguments: list[str]) -> None:
    """Write the schema to the file that the only argument names."""
    if len(arguments) != 1:
        sys.exit("usage: python -m msdump.config.schema FILE")
    Path(arguments[0]).write_text(schema_text(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
