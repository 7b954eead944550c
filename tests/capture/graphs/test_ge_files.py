"""Graph files that the environment turns on, and their places."""

import os
import re

import onnx.parser
import pytest

from msdump import env
from msdump.capture import HostView, graph_files
from msdump.capture.graph_files import StageFiles
from msdump.counters import Counters
from msdump.graph import loader

STAGES = (
    "PreRunBegin",
    "PrepareAfterPrepareOptimize",
    "OptimizeOriginalGraph_FeGraphFusionAfter",
    "OptimizeOriginalGraph_FeInsertTransNodeAfter",
    "Build",
    "PreRunAfterBuild",
)
NAME = re.compile(r"(?P<kind>ge_proto|ge_onnx)_(?P<number>\d{8})_graph_\d+_(?P<stage>\w+)\.(txt|pbtxt)")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """Work in a directory of the test, without variables."""
    for name in (env.GE_GRAPH, env.GE_GRAPH_LEVEL, env.GE_GRAPH_PATH, env.GE_GRAPH_FORMAT):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    graph_files._warn.cache_clear()
    return tmp_path


def view():
    """Return a graph."""
    text = (
        '<ir_version: 10, opset_import: ["": 20]> g (float[2] x) => (y) <float[1] w = {7}> { y = Add(x, w) }'
    )
    return HostView(loader.load(onnx.parser.parse_model(text)))


def write(monkeypatch, *, is_dumped=False, **variables):
    """Write every stage under variables; return kind and stage of each file."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    files = StageFiles(2, Counters(), is_dumped=is_dumped)
    for stage in STAGES:
        files.write(stage, view())


def found(place):
    """Return kind and stage of the files in a directory, by number."""
    matches = [NAME.fullmatch(path.name) for path in sorted(place.iterdir())]
    return {(match["kind"], match["stage"]) for match in matches}


BOTH = {("ge_proto", stage) for stage in STAGES} | {("ge_onnx", stage) for stage in STAGES}
CASES = {
    "nothing": ({}, set()),
    "off": ({"DUMP_GE_GRAPH": "0"}, set()),
    "everything": ({"DUMP_GE_GRAPH": "1"}, BOTH),
    "level 1": ({"DUMP_GE_GRAPH": "2", "DUMP_GRAPH_LEVEL": "1"}, BOTH),
    "level 2": ({"DUMP_GE_GRAPH": "2", "DUMP_GRAPH_LEVEL": "2"}, BOTH),
    "the last": (
        {"DUMP_GE_GRAPH": "2", "DUMP_GRAPH_LEVEL": "3"},
        {("ge_proto", "Build"), ("ge_onnx", "Build")},
    ),
    "the first": (
        {"DUMP_GE_GRAPH": "3", "DUMP_GRAPH_LEVEL": "4"},
        {("ge_proto", "PreRunBegin"), ("ge_onnx", "PreRunBegin")},
    ),
    "parts of names": (
        {"DUMP_GE_GRAPH": "2", "DUMP_GRAPH_LEVEL": "Begin|Fusion", "DUMP_GRAPH_FORMAT": "ge_proto"},
        {("ge_proto", "PreRunBegin"), ("ge_proto", "OptimizeOriginalGraph_FeGraphFusionAfter")},
    ),
    "one kind": (
        {"DUMP_GE_GRAPH": "2", "DUMP_GRAPH_FORMAT": "onnx", "DUMP_GRAPH_LEVEL": "3"},
        {("ge_onnx", "Build")},
    ),
    "level without files": ({"DUMP_GRAPH_LEVEL": "1"}, set()),
}


@pytest.mark.parametrize(("variables", "expected"), CASES.values(), ids=CASES)
def test_what_is_written(place, monkeypatch, variables, expected):
    """DUMP_GE_GRAPH turns files on, level and format choose among them."""
    write(monkeypatch, **variables)

    assert expected == found(place)


def test_numbers_grow(place, monkeypatch):
    """Both files of a stage have one number; stages are numbered in their order."""
    write(monkeypatch, DUMP_GE_GRAPH="2")

    names = [NAME.fullmatch(path.name) for path in sorted(place.iterdir())]
    order = sorted((int(match["number"]), match["stage"]) for match in names if match["kind"] == "ge_proto")
    assert list(STAGES) == [stage for _, stage in order]
    assert {(m["number"], m["stage"]) for m in names} == {(f"{number:08}", stage) for number, stage in order}


def test_place(place, monkeypatch):
    """DUMP_GRAPH_PATH holds a directory for each process and device."""
    write(monkeypatch, DUMP_GE_GRAPH="2", DUMP_GRAPH_LEVEL="3", DUMP_GRAPH_PATH="a/b")

    assert {("ge_proto", "Build"), ("ge_onnx", "Build")} == found(place / f"a/b/pid_{os.getpid()}_deviceid_2")


@pytest.mark.parametrize(("content", "has_data"), [("1", True), ("2", False), ("3", False)])
def test_data(place, monkeypatch, content, has_data):
    """Only 1 writes the elements of constants."""
    write(monkeypatch, DUMP_GE_GRAPH=content, DUMP_GRAPH_LEVEL="3")

    text = next(place.glob("ge_proto*")).read_text()

    assert has_data == (r"\000\000\340\100" in text)
    assert text.startswith('graph {\n  name: "g"\n  input: "x:0"\n')


def test_bad_variables(monkeypatch, caplog):
    """A wrong value of a variable is logged once."""
    monkeypatch.setenv(env.GE_GRAPH, "yes")
    monkeypatch.setenv(env.GE_GRAPH_FORMAT, "ge_proto|readable|pdf")

    for _ in range(2):
        assert not StageFiles(0, Counters(), is_dumped=False).is_wanted

    assert [
        "DUMP_GE_GRAPH = 'yes': must be 1, 2 or 3; no graph files are written",
        "DUMP_GRAPH_FORMAT = 'ge_proto|readable|pdf': ge_readable files are not written",
        "DUMP_GRAPH_FORMAT = 'ge_proto|readable|pdf': 'pdf' is unknown; must be ge_proto or onnx",
    ] == caplog.messages
