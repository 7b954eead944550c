"""Files of inputs that differ from their producers' outputs, though outputs agree."""

from __future__ import annotations

import numpy as np
import pytest

from tests.dump import o2
from tests.dump.compared import accused, document
from tests.dump.nets import model, node, value

WEIGHT = np.random.default_rng(1).standard_normal((3, 5)).astype("f4")
FEEDS = {
    "x": np.random.default_rng(2).standard_normal((2, 3)).astype("f4"),
    "t": np.random.default_rng(3).standard_normal((5, 4)).astype("f4"),
}
NODES = [
    node("Tanh", "x", "p"),
    node("MatMul", "p w", "q"),
    node("Sin", "t", "r"),
    node("MatMul", "q r", "s"),
    node("Relu", "s", "y"),
]

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture
def sides(door):
    """Return two dumps of one network."""
    inputs = [value("x", [2, 3]), value("t", [5, 4])]
    return door.twice(model(NODES, inputs, ["y"], {"w": WEIGHT}), FEEDS)


def exchange(root, operator, first=0, second=1):
    """Exchange the contents of two input files of an operator."""
    paths = [next(root.rglob(f"*{operator}.*.input.{slot}.*.npy")) for slot in (first, second)]
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, reversed(contents), strict=True):
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("operator", "verdict", "note"),
    [
        ("MatMul-op0", "weight", "input 1 w: shape"),
        ("MatMul-op1", "own", "input 0 is not what Default/MatMul-op0 wrote: shape"),
    ],
    ids=["weight", "values"],
)
def test_exchanged_inputs_of_other_shapes(sides, operator, verdict, note):
    """An operator with exchanged contents of its input files is accused, not healed."""
    mine, golden = sides
    exchange(mine, operator)

    code, report = document(mine, golden)

    (found,) = [each for each in report["operators"] if each["verdict"] not in {"equal", "agrees"}]
    assert (1, verdict, f"Default/{operator}") == (code, found["verdict"], found["operator"])
    assert found["note"].startswith(note)


def test_an_input_that_changed_in_between(sides):
    """An input that differs from its producer's output is reported, though the output does not show it."""
    mine, golden = sides
    (path,) = mine.rglob("ReLU.*.input.0.*.npy")
    np.save(path, np.load(path) - 3 * (np.load(path) < 0).astype("f4"))

    _, report = document(mine, golden)

    (found,) = [each for each in report["operators"] if each["verdict"] == "own"]
    assert "input 0 is not what Default/MatMul-op1 wrote: it changed in between" == found["note"]


def test_an_input_that_its_producer_wrote_so(sides):
    """A wrong output accuses its producer, not a reader with right results."""
    mine, golden = sides
    for path in (*mine.rglob("MatMul*-op1.*.output.0.*.npy"), *mine.rglob("ReLU.*.input.0.*.npy")):
        np.save(path, np.load(path) - 3 * (np.load(path) < 0).astype("f4"))

    assert [("own", "MatMul-op1")] == accused(mine, golden)


def test_inputs_behind_a_reshape_that_has_no_file(door):
    """Inputs of a compiled kernel are compared with tensors from before a reshape, element by element."""
    network, feeds = "graphs/mini.onnx", {"x": np.linspace(-1, 1, 36, dtype="f4").reshape(1, 1, 6, 6)}
    golden = door.aside("golden", network, feeds, naming="2.7")

    code, report = document(o2.aside(door, "mine", network, feeds), golden)

    assert 0 == code
    assert {"equal", "agrees", "unchecked"} >= {each["verdict"] for each in report["operators"]}
