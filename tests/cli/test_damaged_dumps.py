"""A command delivers the readable part of a damaged dump, counts the missing one, and ends with 1."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest
from click.testing import CliRunner

import msdump
from msdump.cli import main
from tests.dump import settings
from tests.texts import parsed

COMMANDS = {
    "compare": ("compare", "mine", "golden", "-out", "out"),
    "compare, as golden": ("compare", "golden", "mine", "-out", "out"),
    "baseline": ("baseline", "mine", "-out", "out"),
    "watch": ("watch", "mine", "--rules", "rules.json"),
    "trend": ("trend", "mine", "*ReLU-op0"),
    "show": ("show", "mine", "*ReLU-op0"),
    "report": ("report", "mine", "-o", "page.html"),
    "pack": ("pack", "mine", "-out", "out"),
    "query": ("query", "mine", "select count(*) from statistics"),
}


def cut(path, size):
    """Keep the first bytes of a file."""
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:size])


def cut_in_a_row(root):
    """Cut the table within its fourth row."""
    table = next(root.rglob("statistic.csv"))
    cut(table, len(b"".join(table.read_bytes().splitlines(keepends=True)[:4])) + 9)


def cut_behind_a_row(root):
    """Cut the table behind its third row."""
    table = next(root.rglob("statistic.csv"))
    cut(table, len(b"".join(table.read_bytes().splitlines(keepends=True)[:4])))


def remove_a_file(root):
    """Remove the tensor of an output."""
    next(root.rglob("ReLU.*.output.0.*.npy")).unlink()


def cut_a_graph(root):
    """Cut the graph file in the middle."""
    graph = next(root.rglob("*.ir"))
    cut(graph, graph.stat().st_size // 2)


ROW, COUNT = "the last row has no line feed", "3 of 6 tensors have no row in statistic.csv"
GONE, GRAPH = "1 of 6 tensors with a row in statistic.csv have no file", "ends after 2 of 3 operators"
DAMAGES = {
    "a row": (cut_in_a_row, ROW, COMMANDS.keys()),
    "rows": (cut_behind_a_row, COUNT, COMMANDS.keys()),
    "a file": (remove_a_file, GONE, COMMANDS.keys()),
    "a graph": (cut_a_graph, GRAPH, {"compare", "compare, as golden", "watch", "report", "pack"}),
}


@pytest.fixture(scope="module")
def dumped(tmp_path_factory):
    """Return a dump of three operators, files and statistics."""
    folder = tmp_path_factory.mktemp("damaged")
    body = '["net/Relu"] a = Relu(x) ["net/Neg"] b = Neg(a) ["net/Exp"] y = Exp(b)'
    model = parsed(f"g (float[2,2] x) => (y) {{ {body} }}")
    blocks = {
        "common_dump_settings": settings.common(folder / "dump") | {"saved_data": "full"},
        "e2e_dump_settings": {"enable": True},
    }
    network = msdump.load(model, config=blocks, context={"device_target": "Ascend", "jit_level": "O0"})
    network.run({"x": np.float32([[1, 2], [3, 4]])})
    return folder / "dump"


@pytest.fixture
def sides(dumped, tmp_path, monkeypatch):
    """Put two equal dumps into the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.json").write_text(json.dumps({"rules": [{"condition": "tensor_overflow"}]}))
    for side in ("mine", "golden"):
        shutil.copytree(dumped, tmp_path / side)
    return tmp_path


@pytest.mark.parametrize("patterns", [("*.ir",), ("*.pb",), ("*.ir", "*.pb"), ("*.csv",)], ids=" ".join)
@pytest.mark.parametrize("command", COMMANDS)
def test_tensors_are_read_without_the_graph(sides, command, patterns):
    """A wrecked graph file is a warning of commands that need it, with exit code 1; they do their work."""
    folders = (sides / "mine/rank_0/graphs", sides / "mine/rank_0/execution_order")
    damaged = [path for folder in folders for pattern in patterns for path in folder.glob(pattern)]
    for path in damaged:
        path.chmod(0o600)
        path.write_bytes(bytes(range(255, 127, -1)) * 9)

    done = CliRunner().invoke(main, COMMANDS[command])

    assert damaged
    assert (int(bool(done.stderr)), False) == (done.exit_code, "error" in done.stderr), done.stderr
    assert "missing" in done.stderr or not done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_whole_dump_ends_with_0(sides, command):
    """Nothing is missing of a dump as it was written."""
    done = CliRunner().invoke(main, COMMANDS[command])

    assert (0, "") == (done.exit_code, done.stderr)


@pytest.mark.parametrize(
    ("damage", "command"), [(name, each) for name, row in DAMAGES.items() for each in sorted(row[2])]
)
def test_what_is_missing_is_counted(sides, damage, command):
    """The command does its work, counts the missing files or rows, and ends with 1."""
    harm, told, _ = DAMAGES[damage]
    harm(sides / "mine")

    done = CliRunner().invoke(main, COMMANDS[command])

    assert 1 == done.exit_code, done.output
    assert told in done.stderr
    assert "" != done.stdout


FILES_OF_USERS = {
    "limits": ("compare", "mine", "golden", "--limits", "deep.json"),
    "a configuration, of report": ("report", "mine", "--config", "deep.json"),
    "a configuration, of explain": ("explain", "mine", "ReLU-op0", "--config", "deep.json"),
    "rules": ("watch", "mine", "--rules", "deep.json"),
    "a trace": ("report", "mine", "--trace", "deep.json"),
    "a result": ("query", "deep.json", "from comparisons"),
    "a pack": ("query", "pack", "from statistics"),
}


@pytest.mark.parametrize("arguments", FILES_OF_USERS.values(), ids=FILES_OF_USERS)
def test_deeply_nested_json(sides, arguments):
    """A JSON file with more brackets than Python can nest is refused in a sentence that names the file."""
    (sides / "pack").mkdir()
    for name in ("deep.json", "pack/msdump_pack.json"):
        (sides / name).write_text("[" * 100_000)

    done = CliRunner().invoke(main, arguments)

    assert 2 == done.exit_code
    assert re.search(r"msdump: error: \S*(deep|msdump_pack)\.json: .*nested too deeply\n", done.stderr)
