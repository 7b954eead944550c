"""Training steps that accumulate and clip gradients: the files of both branches, in every mode."""

import numpy as np
import pytest

import msdump
from msdump.training import step_graph
from tests.dump import trees
from tests.training.mlp import batch, mlp
from tests.world import GPU, O0

STEPS = 4
CONTEXT = O0
SCALE = "dynamic:1048576,factor=64,window=2"  # overflows in the steps 0 and 3


def train(context, **choices):
    """Return the network after some steps."""
    options = {"accumulate": 2, "clip_gradients": "global_norm:0.1", **choices}
    network = msdump.load(step_graph(mlp(), optimizer="momentum:0.1,0.9", **options), context=context)
    for number in range(STEPS):
        network.train_step(*batch(number))
    return network


def directories(door):
    """Return the iterations that each graph has directories of."""
    graphs = (door.rank / "Net").iterdir()
    return {graph.name: {path.name for path in graph.iterdir()} - {"constants"} for graph in graphs}


def arrays(folder):
    """Return the arrays of a folder by operator, side and slot."""
    return {
        (match["name"].removeprefix("Default_"), match["io"], int(match["slot"])): np.load(path)
        for match, path in trees.tensors(folder)
    }


@pytest.mark.parametrize("context", [{}, CONTEXT], ids=["CPU", "Ascend"])
def test_update_has_a_graph_of_its_own(door, context):
    """Graph 0 adds gradients, graph 1 clips and updates in each second step, graph 2 counts in the others."""
    door.configure()
    state = train(context).state()
    door.again()

    assert {"0": {"0", "1", "2", "3"}, "1": {"1", "3"}, "2": {"0", "2"}} == directories(door)
    sums, other, update = (arrays(door.rank / "Net" / part) for part in ("0/3", "2/2", "1/3"))
    assert {("input", 0), ("input", 1), ("output", 0)} == {key[1:] for key in other}
    assert {"AssignAdd-op5"} == {name for name, _, _ in other}
    inputs = {}
    for name, side, slot in sorted(update):
        if side == "input":
            inputs.setdefault(name, []).append(slot)
    slots = {
        "Square": [0],
        "ReduceSum": [0, 2, 3],  # no axes: all
        "Sqrt": [0],
        "GreaterEqual": [0, 1],
        "Select": [0, 1, 2],
        "Mul": [0, 1],
        "Div": [0, 1],
        "Assign": [0, 1],
    }
    assert slots == {name: inputs[f"{name}-op0"] for name in slots}
    squares = 0.0
    for number, name in enumerate(("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")):
        gradient = sums[f"AssignAdd-op{number}", "output", 0]
        squares += np.square(gradient, dtype=np.float64).sum()
        np.testing.assert_array_equal(gradient, update[f"Square-op{number}", "input", 0])
        # inputs are saved after the launch: the sum is zero again, the weight is the new one
        assert not update[f"Assign-op{number}", "input", 0].any()
        # the optimizer, and so the last operators of each gradient, begin with the last parameter
        momentum = f"optimizer-Momentum_ApplyMomentum-op{3 - number}"
        np.testing.assert_array_equal(update[momentum, "input", 0], state[name])
        np.testing.assert_array_equal(
            update[momentum, "input", 3], update[f"Div-op{3 - number}", "output", 0]
        )
    assert update["Sqrt-op0", "output", 0] == pytest.approx([np.sqrt(squares)], rel=1e-6)


def test_overflowing_step_has_no_graph_of_the_accumulation(door):
    """A step that a dynamic scale leaves out has graph 0 alone; graph 2 adds, 3 updates, 4 counts."""
    door.configure()
    train(CONTEXT, loss_scale=SCALE, precision="float16", device_target="Ascend")
    door.again()

    assert {"0": {"0", "1", "2", "3"}, "2": {"1", "2"}, "3": {"2"}, "4": {"1"}} == directories(door)
    assert {"AssignAdd", "FloorMod", "Equal"} == {
        name.partition("-")[0] for name, _, _ in arrays(door.rank / "Net" / "2" / "1")
    }


@pytest.mark.parametrize(
    "context", [CONTEXT, {**CONTEXT, "jit_level": "O1"}, {**CONTEXT, "jit_level": "O2"}, GPU], ids=str
)
def test_modes_agree(context):
    """Levels of compilation and devices train alike, with a dump of nothing."""
    choices = {"accumulate": "mean:2", "loss_scale": SCALE, "precision": "float16"}
    expected = train({}, **choices).state()
    assert expected["global_step"] == [1]

    for name, array in train(context, **choices).state().items():
        np.testing.assert_allclose(array, expected[name], atol=1e-3, err_msg=name)  # of float16
