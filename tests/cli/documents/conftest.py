"""What the tests of ``--json`` share: commands whose standard output is read as a document."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from pydantic import TypeAdapter

from msdump.cli import main
from msdump.cli.documents.document import ErrorDocument
from msdump.cli.documents.schemas import DOCUMENTS
from tests.dump import settings


@pytest.fixture(autouse=True)
def _fresh(fresh):
    """Let each test begin as a new process."""


@pytest.fixture
def told():
    """Return a function that runs a command with --json and returns its exit code and its document.

    What is printed must be one document of the command's schema, and nothing else.
    """

    def run(*arguments):
        done = CliRunner().invoke(main, [*map(str, arguments), "--json"])
        TypeAdapter(DOCUMENTS[arguments[0]] | ErrorDocument).validate_json(done.stdout)
        return done.exit_code, json.loads(done.stdout)

    return run


@pytest.fixture
def config(tmp_path):
    """Return a function that writes a configuration and returns its path."""

    def write(**changes):
        common = settings.common(tmp_path / "dump", iteration="0|2", support_device=[0, 1])
        path = tmp_path / "data_dump.json"
        blocks = {"common_dump_settings": common | changes, "e2e_dump_settings": {"enable": True}}
        path.write_text(json.dumps(blocks), encoding="utf-8")
        return path

    return write
