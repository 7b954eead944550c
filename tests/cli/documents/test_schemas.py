"""The JSON Schemas of the documents that commands print with ``--json``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from msdump.cli.documents import schemas
from msdump.cli.documents.schemas import DOCUMENTS, file_name, schema_text

FOLDER = Path(__file__).parents[3] / "docs" / "schema"


@pytest.mark.parametrize("command", DOCUMENTS)
def test_checked_in_schema_is_current(command):
    """The schema in docs equals the one that the models give; regenerate it with ``make schema``."""
    assert schema_text(command) == (FOLDER / file_name(command)).read_text(encoding="utf-8")


def test_no_schema_is_left_over():
    """Every schema of a command in docs belongs to one that takes --json."""
    expected = {file_name(command) for command in DOCUMENTS} | {"mindspore_dump.schema.json"}
    assert expected == {path.name for path in FOLDER.iterdir()}


@pytest.mark.parametrize("command", DOCUMENTS)
def test_every_field_is_described(command):
    """A reader of the schema finds a description of every field and every object."""
    for name, definition in json.loads(schema_text(command))["$defs"].items():
        assert "description" in definition, name
        for field, described in definition.get("properties", {}).items():
            assert described.get("description"), f"{name}.{field}"


@pytest.mark.parametrize("command", DOCUMENTS)
def test_an_error_is_a_document_too(command):
    """The schema of every command allows ``{"error": ...}``."""
    names = [each["$ref"].rpartition("/")[2] for each in json.loads(schema_text(command))["anyOf"]]

    assert [DOCUMENTS[command].__name__, "ErrorDocument"] == names


def test_main_writes_the_files(tmp_path):
    """The module writes a schema for each command into the folder that is named."""
    schemas.main([str(tmp_path)])

    assert {file_name(command) for command in DOCUMENTS} == {path.name for path in tmp_path.iterdir()}


def test_main_wants_one_folder():
    """Without a folder the module says how it is used."""
    with pytest.raises(SystemExit, match="usage: python -m"):
        schemas.main([])
