"""Networks that hold the same matrices in other layouts, and dumps of several networks beside one model."""

from __future__ import annotations

import shutil

import numpy as np
import onnx
import pytest

from tests.dump.compared import accused
from tests.dump.nets import model, node, value

FEEDS = {"x": np.random.default_rng(0).standard_normal((3, 4)).astype("f4")}

pytestmark = pytest.mark.usefixtures("quiet")


def dense(width):
    """Return a network of one product with a matrix of four rows."""
    weight = np.random.default_rng(1).standard_normal((4, width)).astype("f4")
    nodes = [node("MatMul", "x w", "y"), node("Relu", "y", "z")]
    return model(nodes, [value("x", [3, 4])], ["z"], {"w": weight})


def hold_transposed(root):
    """Let a product read its weight transposed, as MindSpore's dense layers do: an argument says so."""
    shutil.rmtree(root / "rank_0" / "graphs")  # they declare the other shape
    for path in [*root.rglob("MatMul.*.input.1.*.npy"), *root.rglob("Parameter.w.*.npy")]:
        np.save(path, np.load(path).T.copy())
    (path,) = root.rglob("MatMul.*.input.1.*.npy")
    for slot in (2, 3):
        np.save(
            path.with_name(path.name.replace("input.1", f"input.{slot}").replace("Float32", "Bool")),
            slot == 3,
        )


@pytest.mark.parametrize("is_with_model", [False, True], ids=["files", "model"])
@pytest.mark.parametrize("width", [2, 4], ids=["oblong", "square"])
def test_transposed_weight(door, width, is_with_model):
    """A product that reads the transposed weight agrees; with another weight it is accused."""
    path = str(door.folder / "net.onnx")
    onnx.save(dense(width), path)
    door.dump(path, FEEDS, naming="2.7")
    golden = door.path
    mine = shutil.copytree(golden, door.folder / "mine")
    hold_transposed(mine)
    options = ("--model", path) if is_with_model else ()

    assert [] == accused(mine, golden, *options)
    assert [] == accused(golden, mine, *options)

    for weight in [*mine.rglob("MatMul.*.input.1.*.npy"), *mine.rglob("Parameter.w.*.npy")]:
        np.save(weight, np.load(weight) * np.float32(1.5))
    assert "weight" == accused(mine, golden, *options)[0][0]


def test_two_networks_and_one_model(door):
    """Operators of a network that the model is not of are compared, and do not run again by it."""
    path = str(door.folder / "net.onnx")
    onnx.save(dense(2), path)
    door.configure(naming="2.7")
    door.load(path).run(FEEDS)
    door.load(model([node("Exp", "x", "e"), node("Add", "e x", "y")], [value("x", [3, 4])], ["y"])).run(FEEDS)
    golden = door.path
    mine = shutil.copytree(golden, door.folder / "mine")

    assert [] == accused(mine, golden, "--model", path)

    (other,) = mine.rglob("Exp.*.output.0.*.npy")
    np.save(other, np.load(other) * 2)
    assert [("own", "Exp-op0")] == accused(mine, golden, "--model", path)
