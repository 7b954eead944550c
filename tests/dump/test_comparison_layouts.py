"""Networks that hold the same matrices in other layouts, and dumps of several networks beside one model."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from tests.dump.compared import accused
from tests.dump.nets import model, node, value

O0 = {"device_target": "Ascend", "jit_level": "O0"}
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
    mine, golden = door.twice(dense(width), FEEDS)
    hold_transposed(mine)
    options = ("--model", f"{golden}.onnx") if is_with_model else ()

    assert [] == accused(mine, golden, *options)
    assert [] == accused(golden, mine, *options)

    for weight in [*mine.rglob("MatMul.*.input.1.*.npy"), *mine.rglob("Parameter.w.*.npy")]:
        np.save(weight, np.load(weight) * np.float32(1.5))
    assert "weight" == accused(mine, golden, *options)[0][0]


def grouped(groups):
    """Return a network of one convolution in groups."""
    weight = np.random.default_rng(2).standard_normal((8, 8 // groups, 3, 3)).astype("f4")
    convolution = node("Conv", "x w", "y", group=groups, pads=[1] * 4)
    return model([convolution, node("Relu", "y", "z")], [value("x", [1, 8, 6, 6])], ["z"], {"w": weight})


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_weight_that_is_laid_out_by_group(door, groups):
    """A weight in a device's format is read by the groups in the graph."""
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 8, 6, 6)).astype("f4")}
    golden = door.aside("golden", grouped(groups), feeds)
    door.dump(grouped(groups), feeds, context=O0, enable=True, trans_flag=False)
    (held,) = door.path.rglob("*.input.1.FRACTAL_Z.*.npy")

    assert [] == accused(door.path, golden)
    assert {("unchecked", "x"), ("unchecked", "w")} == set(
        accused(golden, door.path)
    )  # files of the CPU alone

    np.save(held, np.load(held) * np.float16(1.5))
    assert ["weight"] == [verdict for verdict, _ in accused(door.path, golden)]
