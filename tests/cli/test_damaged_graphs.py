"""Dumps whose graph files are damaged: commands read their tensors as where the files are missing."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from msdump.cli import main
from tests.dump import nets
from tests.dump.conftest import opened

O0 = {"device_target": "Ascend", "jit_level": "O0"}
COMMANDS = {
    "compare": ("compare", "mine", "golden", "-out", "out"),
    "compare, as golden": ("compare", "golden", "mine", "-out", "out"),
    "trend": ("trend", "mine", "*MatMul*"),
    "watch": ("watch", "mine", "--rules", "rules.json"),
    "report": ("report", "mine", "-o", "page.html"),
    "query": ("query", "mine", "select count(*) from tensors"),
    "show": ("show", "mine"),
}
DAMAGES = {"text": ("*.ir",), "message": ("*.pb",), "both": ("*.ir", "*.pb"), "order": ("*.csv",)}


@pytest.fixture(scope="module")
def dumps(tmp_path_factory):
    """Make a dump, and return its folder."""
    folder = tmp_path_factory.mktemp("whole")
    with opened(folder) as door:
        door.dump(nets.dense(), {"x": np.ones((2, 4), np.float32)}, steps=2, context=O0, saved_data="full")
    return folder


def _said(*arguments):
    done = CliRunner().invoke(main, [*arguments])
    return done.exit_code, done.stderr


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("command", COMMANDS)
def test_tensors_are_read_without_the_graph(command, damage, dumps, tmp_path, monkeypatch, fresh):
    """A damaged graph file is told by a warning, with exit code 1; the command does its work."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.json").write_text(json.dumps({"rules": [{"condition": "tensor_overflow"}]}))
    for side in ("mine", "golden"):
        _copy(dumps / "dump", tmp_path / side)
    folders = (tmp_path / "mine/rank_0/graphs", tmp_path / "mine/rank_0/execution_order")
    damaged = [path for folder in folders for glob in DAMAGES[damage] for path in folder.glob(glob)]
    for path in damaged:
        path.write_bytes(bytes(range(255, 127, -1)) * 9)

    code, said = _said(*COMMANDS[command])

    assert damaged
    assert (int(bool(said)), False) == (code, "error" in said), said
    assert "missing" in said or not said


def _copy(source, target):
    for path in source.rglob("*"):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            copy.write_bytes(path.read_bytes())
