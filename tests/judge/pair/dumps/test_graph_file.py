"""The compiled graph as a file, and a comparison that needs it."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from msdump.cli import main
from msdump.encode import ge
from msdump.graph import loader

MODEL = "graphs/lenet.onnx"


def compiled(path, *options):
    """Run msdump compile; return its result."""
    return CliRunner().invoke(main, ["compile", MODEL, "-o", str(path), *options])


def operators(path):
    """Return the operators of a graph file."""
    (graph,) = json.loads(path.read_bytes())["graph"]
    return graph["op"]


def test_json(tmp_path):
    """The JSON has name and originals of every operator, by the names that MindSpore dumps."""
    result = compiled(tmp_path / "graph.json")

    assert (0, "") == (result.exit_code, result.output)
    listed = operators(tmp_path / "graph.json")
    graph = loader.load(MODEL)
    attributes = [each for op in listed for each in op["attr"] if each["key"] == ge.ORIGINAL_NAMES]
    originals = [name for each in attributes for name in each["value"]["list"].get("s", ())]
    assert sorted(node.name for node in graph.nodes) == sorted(set(originals) - {"x"})
    assert len(set(originals)) == len(originals)
    assert "lenet" == json.loads((tmp_path / "graph.json").read_bytes())["name"]
    assert {node.operator.full_name for node in graph.nodes} & {op["name"] for op in listed}


def test_choices(tmp_path):
    """Names and fusion follow the options, as in the run that dumped."""
    compiled(tmp_path / "a.json", "--node-names", "--fusion-switch", "off", "--precision-mode", "force_fp32")

    listed = operators(tmp_path / "a.json")

    assert {node.name for node in loader.load(MODEL).nodes} <= {op["name"] for op in listed}
    assert not any(op["type"] == "Cast" for op in listed)


def casts(path):
    """Return the number of conversions that the device adds to a compiled graph."""
    return sum(op["type"] == "Cast" for op in operators(path))


def test_operators_of_other_types(tmp_path):
    """An operator that keeps its type among narrow ones gets conversions around it."""
    (tmp_path / "keep.cfg").write_text("OpType::MaxPool\n")
    narrow = ("--precision-mode", "force_fp16")

    compiled(tmp_path / "all.json", *narrow)
    compiled(tmp_path / "kept.json", *narrow, "--keep-dtype", str(tmp_path / "keep.cfg"))
    missing = compiled(tmp_path / "none.json", "--keep-dtype", str(tmp_path / "none.cfg"))

    assert casts(tmp_path / "all.json") < casts(tmp_path / "kept.json")
    assert 2 == missing.exit_code
    assert "no such file; keep_dtype must be the path of a readable file" in missing.stderr


@pytest.mark.parametrize(
    ("suffix", "start"),
    [(".txt", 'graph {\n  name: "lenet"'), (".pbtxt", "ir_version: 6\n")],
    ids=["txt", "pbtxt"],
)
def test_other_forms(tmp_path, suffix, start):
    """The suffix chooses GE's text or ONNX's words."""
    compiled(tmp_path / f"graph{suffix}")

    assert (tmp_path / f"graph{suffix}").read_text().startswith(start)


@pytest.mark.parametrize(
    ("path", "code", "message"),
    [("graph.png", 2, "its name must end in .json, .txt, .pbtxt"), ("file/graph.json", 1, "Not a directory")],
    ids=["suffix", "place"],
)
def test_refusals(tmp_path, path, code, message):
    """A wrong suffix is a wrong argument; a place that cannot be written is a failure."""
    (tmp_path / "file").touch()

    result = compiled(tmp_path / path)

    assert code == result.exit_code
    assert message in result.stderr
