"""Files that one of two dumps has lost, torn or emptied, and files that it was never to have."""

import shutil
from collections import Counter

import numpy as np
import onnx
import pytest

from tests.dump import o2
from tests.dump.compared import command, document
from tests.dump.nets import without
from tests.dump.test_comparison import FEEDS, LENET
from tests.texts import parsed

OPERATORS = 15
"""Operators of LeNet."""

INPUTS, OUTPUTS = 1, 2
"""Values of ``input_output``."""

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture
def sides(door):
    """Return two dumps of LeNet by their sides."""
    return dict(zip(("mine", "golden"), door.twice(LENET, FEEDS), strict=True))


def halves(door, changes, model=LENET):
    """Return a dump that a configuration leaves parts out of, and a whole one."""
    part = door.aside("part", model, FEEDS, naming="2.7", **changes)
    return part, door.aside("whole", LENET, FEEDS, naming="2.7")


def unreadable(report):
    """Return last component of the name, tensor and note of each tensor that cannot be read."""
    return [
        (operator["operator"].rpartition("/")[2], tensor["tensor"], tensor["note"])
        for operator in report["operators"]
        for tensor in (*operator["inputs"], *operator["outputs"])
        if tensor["verdict"] == "unreadable"
    ]


@pytest.mark.parametrize(
    ("options", "has_configuration"),
    [((), True), ((), False), (("--model", LENET), False)],
    ids=["files, configured", "files, bare", "model, bare"],
)
@pytest.mark.parametrize(
    ("pattern", "lost"),
    [
        ("ReLU.*ReLU-op0.*.output.0.*.npy", [("ReLU-op0", "output:0")]),
        ("Conv2D.*conv1*.*.input.0.*.npy", [("Conv2D-op0", "input:0")]),
        ("MatMul.*fc1*.*.input.1.*.npy", [("MatMul-op0", "input:1")]),
        ("ReLU.*ReLU-op0.*.npy", [("ReLU-op0", "input:0"), ("ReLU-op0", "output:0")]),
    ],
)
@pytest.mark.parametrize("side", ["mine", "golden"])
def test_files_that_are_gone(sides, side, pattern, lost, has_configuration, options):
    """Files that either side lacks are reported, and the dumps do not agree."""
    for path in sides[side].rglob(pattern):
        path.unlink()
    if not has_configuration:
        (folder,) = sides[side].rglob(".dump_metadata")
        (folder / "data_dump.json").unlink()

    code, report = document(sides["mine"], sides["golden"], *options)

    assert (1, "unreadable", len(lost)) == (code, report["verdict"], report["tensors"]["unreadable"])
    told = f"its file is missing in {side}"
    assert [(*each, told) for each in lost] == unreadable(report)
    assert {"equal", "agrees", "unreadable"} >= {each["verdict"] for each in report["operators"]}


@pytest.mark.parametrize("is_mine", [True, False], ids=["mine", "golden"])
@pytest.mark.parametrize(
    "changes",
    [
        {"input_output": OUTPUTS},
        {"input_output": INPUTS},
        {"dump_mode": 1, "kernels": ["Default/relu-ReLU/ReLU-op0", "Default/conv1-Conv2d/Conv2D-op0"]},
    ],
    ids=["outputs", "inputs", "kernels"],
)
def test_files_that_were_not_asked_for(door, changes, is_mine):
    """Files that one side's configuration left out are not lost."""
    pair = halves(door, changes)

    code, report = document(*(pair if is_mine else reversed(pair)))

    assert (0, "equal", []) == (code, report["verdict"], unreadable(report))


LEFT_OUT = "mine's configuration leaves it out"


@pytest.mark.parametrize("has_graph", [True, False], ids=["graph", "bare"])
@pytest.mark.parametrize(
    ("kernels", "count"),
    [
        (["Default/relu-ReLU/ReLU-op0"], 1),
        (["relu"], 4),
        (["name-regex(Default/fc.+)"], 6),
        (["Default/relu-ReLU/ReLU-op0", "maxpool"], 3),
    ],
    ids=["name", "type", "regex", "several"],
)
def test_operators_that_were_not_asked_for(door, kernels, count, has_graph):
    """Golden operators that MINE's configuration leaves out are unchecked and counted, none is missing."""
    part, whole = halves(door, {"dump_mode": 1, "kernels": kernels})
    if not has_graph:
        for path in [*door.folder.rglob("*.ir")]:
            path.unlink()

    code, report = document(part, whole)
    printed = command(part, whole).stdout

    notes = [each["note"] for each in report["operators"] if each["verdict"] == "unchecked"]
    verdicts = Counter(each["verdict"] for each in report["operators"])
    assert (0, "equal", {LEFT_OUT}) == (code, report["verdict"], {*notes})
    assert {"equal": count, "unchecked": OPERATORS - count} == verdicts
    assert f"left out  {OPERATORS - count} operators of golden by mine's configuration" in printed


def test_operators_that_nothing_tells_to_be_left_out(door):
    """Without MINE's configuration an operator that it left out is missing."""
    part, whole = halves(door, {"dump_mode": 1, "kernels": ["relu"]})
    (file,) = part.rglob("data_dump.json")
    file.unlink()

    _, report = document(part, whole)

    assert {"equal": 4, "missing": OPERATORS - 4} == Counter(each["verdict"] for each in report["operators"])


def test_a_selected_network_that_lacks_an_operator(door):
    """An operator that MINE's graph has not is missing whatever its configuration leaves out."""
    network = onnx.load(LENET)
    relu = next(each for each in network.graph.node if each.op_type == "Relu")
    part, whole = halves(door, {"dump_mode": 1, "kernels": ["conv2d"]}, without(network, relu.name))

    _, report = document(part, whole)

    found = [each["operator"] for each in report["operators"] if each["verdict"] == "missing"]
    assert 1 == len(found)
    assert "ReLU" in found[0]


@pytest.mark.parametrize("side", ["mine", "golden"])
def test_graph_file_that_breaks_off(sides, side, caplog):
    """A torn graph file is reported and not used, and accuses no operator."""
    (path,) = sides[side].rglob("*.ir")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    code, report = document(sides["mine"], sides["golden"])

    assert (1, "equal") == (code, report["verdict"])
    assert "the graph file ends after" in caplog.text
    assert {"equal"} == {each["verdict"] for each in report["operators"]}


SIBLINGS = """g (float[2,3] x) => (float[3,2] y) {
    a = Transpose <perm = [1, 0]> (x)
    b = Sin(a)
    c = Transpose <perm = [1, 0]> (b)
    d = Cos(c)
    y = Transpose <perm = [1, 0]> (d)
}"""


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize(
    ("side", "verdicts"),
    [("mine", {"missing", "unreadable"}), ("golden", {"unchecked", "unreadable"})],
    ids=["mine", "golden"],
)
def test_one_of_several_operators_of_a_compiled_graph(door, number, side, verdicts):
    """Of several operators of one scope and type the one with a lost file is reported, no other accused."""
    feeds = {"x": np.arange(6, dtype="f4").reshape(2, 3)}
    golden = o2.aside(door, "golden", parsed(SIBLINGS), feeds)
    sides = {"golden": golden, "mine": shutil.copytree(golden, door.folder / "mine")}
    (path,) = sides[side].rglob(f"Transpose.*op{number}.*")
    path.unlink()

    _, report = document(sides["mine"], sides["golden"])

    (found,) = [each for each in report["operators"] if each["verdict"] != "equal"]
    assert found["verdict"] in verdicts
    assert path.name.split(".")[1] == found["operator"].replace("/", "_")


@pytest.mark.parametrize("is_mine", [True, False], ids=["mine", "golden"])
def test_operators_of_compiled_graphs_that_were_not_asked_for(door, is_mine):
    """Operators that the configuration beside a compiled dump leaves out are not lost, and not missing."""
    kernels = ["name-regex(conv)", "name-regex(fc)", "name-regex(trans)"]
    whole = o2.aside(door, "whole", LENET, FEEDS)
    pair = [o2.aside(door, "part", LENET, FEEDS, dump_mode=1, kernels=kernels), whole]

    code, report = document(*(pair if is_mine else reversed(pair)))

    assert (0, "equal") == (code, report["verdict"])
    assert {"equal", "unchecked"} >= {each["verdict"] for each in report["operators"]}
