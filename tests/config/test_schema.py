"""The JSON Schema of configuration files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from msdump.config.models import BLOCKS
from msdump.config.schema import main, schema_text

SCHEMA = Path(__file__).parents[2] / "docs" / "schema" / "mindspore_dump.schema.json"


def test_checked_in_schema_is_current():
    """The schema in docs equals the one that the models give; regenerate it with msdump.config.schema."""
    assert schema_text() == SCHEMA.read_text(encoding="utf-8")


def test_main_writes_the_file(tmp_path):
    """The module writes the schema to the file that is named."""
    main([str(tmp_path / "s.json")])

    assert schema_text() == (tmp_path / "s.json").read_text(encoding="utf-8")


def test_main_wants_one_file():
    """Without a file the module says how it is used."""
    with pytest.raises(SystemExit, match="usage: python -m"):
        main([])


def test_every_key_is_described_and_required_keys_are_marked():
    """An editor can explain every key and demand the required ones."""
    definitions = json.loads(schema_text())["$defs"]

    for model in BLOCKS.values():
        described = definitions[model.__name__]["properties"]
        assert list(model.model_fields) == list(described)
        assert all(entry["description"] for entry in described.values())
    assert {
        "dump_mode",
        "net_name",
        "iteration",
        "input_output",
        "kernels",
        "support_device",
    } == set(definitions["CommonDumpSettings"]["required"])
