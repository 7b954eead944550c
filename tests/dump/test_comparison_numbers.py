"""Operators of one scope and type with other numbers than in the graph beside them, or in the model."""

import re
import shutil

import numpy as np
import pytest

from tests.dump.compared import accused
from tests.dump.nets import model, node, value

FEEDS = {"x": np.random.default_rng(0).standard_normal((4, 4)).astype("f4")}
WEIGHTS = {
    name: np.random.default_rng(number).standard_normal((4, 4)).astype("f4")
    for number, name in enumerate("abcd", 1)
}
NODES = {
    "p": node("MatMul", "x a", "p"),
    "q": node("MatMul", "p b", "q"),
    "r": node("MatMul", "x c", "r"),
    "s": node("MatMul", "r d", "s"),
}

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture
def dump(door):
    """Return a function that dumps a network of the nodes in an order, and of a sum of their values."""

    def run(name, order, addends):
        network = model(
            [*(NODES[each] for each in order), node("Sum", addends, "y")],
            [value("x", [4, 4])],
            ["y"],
            WEIGHTS,
        )
        return door.aside(name, network, FEEDS, naming="2.7")

    return run


@pytest.fixture
def sides(dump):
    """Return a copy of a dump, and the dump."""
    golden = dump("golden", "pqrs", "p q s x")
    return shutil.copytree(golden, golden.parent / "mine"), golden


def renumbered(path, numbers):
    """Give the MatMul files of a dump other numbers."""
    moved = [
        (file, re.sub(r"-op(\d+)", lambda found: f"-op{numbers[int(found[1])]}", file.name))
        for file in path.rglob("MatMul.*.npy")
    ]
    for file, name in moved:
        file.rename(file.with_name(f"{name}.moved"))
    for file, name in moved:
        file.with_name(f"{name}.moved").rename(file.with_name(name))


def torn(path, message):
    """Make the graph files of a dump a vendor's, and tear the text ones; leave, tear or take the messages."""
    for file in [*path.rglob("*.ir")]:
        text = re.sub(r": 0x0$", ": 0x55d0c8a0", file.read_text(), flags=re.MULTILINE)
        file.write_text(text[: len(text) * 2 // 3])
    for file in [*path.rglob("*.pb")]:
        if message == "torn":
            file.write_bytes(file.read_bytes()[:-100])
        elif message == "gone":
            file.unlink()


@pytest.mark.parametrize("message", ["torn", "gone"])
@pytest.mark.parametrize("side", ["mine", "golden"])
def test_a_torn_graph_of_numbers_that_are_others(dump, side, message, caplog):
    """The .pb beside a torn .ir replaces it; without one, operators that only names accuse are unchecked."""
    whole = dump("whole", "pqrs", "p q s x")
    pair = {"mine": whole, "golden": whole} | {side: shutil.copytree(whole, whole.parent / side)}
    renumbered(pair[side], (3, 1, 5, 2))
    torn(pair[side], message)

    verdicts = [verdict for verdict, _ in accused(pair["mine"], pair["golden"])]

    assert set() == {*verdicts} - {"unchecked"}
    assert (message == "whole") == (not verdicts)
    assert "the graph file ends after" in caplog.text


@pytest.mark.parametrize(
    ("message", "verdict"), [("whole", "own"), ("torn", "unchecked"), ("gone", "unchecked")]
)
def test_a_fault_beside_a_torn_graph(sides, message, verdict):
    """An operator is accused where another file stands for the graph that breaks off, not by names alone."""
    mine, golden = sides
    torn(mine, message)
    (path,) = mine.rglob("AddN.*.output.0.*.npy")
    np.save(path, np.load(path) * 1.5)

    assert [(verdict, "AddN-op0")] == accused(mine, golden)


def test_other_order_of_nodes(dump):
    """A model that lists the same operators in another order numbers them so, and none is accused."""
    golden, other = dump("golden", "pqrs", "p q s x"), dump("other", "rspq", "x s p q")
    mine = shutil.copytree(other, other.parent / "mine")

    assert [] == accused(mine, golden)
    assert [] == accused(mine, golden, "--model", f"{golden}.onnx")
    assert [] == accused(mine, other, "--model", f"{golden}.onnx")


def test_shape_that_no_graph_tells(sides):
    """An output of another shape than its graph declares keeps its number, and is accused."""
    mine, golden = sides
    (graph,) = mine.rglob("*.ir")
    graph.write_text(re.sub(r" \{instance name: \S+\}", "", graph.read_text()))
    (path,) = mine.rglob("MatMul.*-op2.*.output.0.*.npy")
    np.save(path, np.load(path)[:2])

    assert [("shape", "MatMul-op2")] == accused(mine, golden)
