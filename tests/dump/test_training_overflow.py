"""Operators that overflow in training steps (op_debug_mode 3), as a loss scale makes them."""

from __future__ import annotations

import numpy as np
import pytest

import msdump
from msdump.training import step_graph
from tests.dump import trees
from tests.training.mlp import batch, mlp

STEPS = 4
CONTEXT = {"device_target": "Ascend", "jit_level": "O0"}
CHANGES = {"precision_mode": "must_keep_origin_dtype"}


def train(door, **changes):
    """Train in float16 with a scale that overflows in the steps 0 and 3; return what is dumped of each step.

    That is, by graph and name of every operator, whether an output of it is not finite.
    """
    door.configure(**CHANGES, **changes)
    step = step_graph(
        mlp(),
        optimizer="momentum:0.1,0.9",
        precision="float16",
        loss_scale="dynamic:1048576,factor=64,window=2",
        device_target="Ascend",
    )
    network = msdump.load(step, context=CONTEXT)
    overflowed = [bool(network.train_step(*batch(number))[1]) for number in range(STEPS)]
    assert [True, False, False, True] == overflowed
    door.again()  # every file is there
    steps = [{} for _ in range(STEPS)]
    for graph in sorted((door.rank / "Net").iterdir()):
        for number in range(STEPS):
            for match, path in trees.tensors(graph / str(number)):
                array = np.load(path)
                key = (graph.name, match["name"])
                is_bad = match["io"] == "output" and array.dtype.kind == "f" and not np.isfinite(array).all()
                steps[number][key] = steps[number].get(key, False) or bool(is_bad)
    return steps


@pytest.mark.parametrize("enable", [True, False], ids=["sync", "async"])
def test_dumped_operators_are_those_that_overflow(door, tmp_path, enable):
    """In the steps that overflow, exactly the operators with an infinity or NaN in an output are dumped."""
    everything = train(door, enable=enable)
    door.folder = tmp_path / "overflow"
    door.folder.mkdir()
    dumped = train(door, enable=enable, op_debug_mode=3)

    expected = [{name for name, is_bad in step.items() if is_bad} for step in everything]
    assert expected == [set(step) for step in dumped]
    assert [True, False, False, True] == [bool(step) for step in dumped]
    assert ("0", "Gradients_Default_network-WithLossCell_Grad_Cast_Cast-op0") in dumped[0]


@pytest.mark.parametrize("device_target", ["CPU", "Ascend"])
def test_skipped_step_has_no_kernel_of_the_branch(door, device_target):
    """The optimizer is graph 2, whose directory only steps without overflow have; graph 1 has no kernel."""
    door.configure()
    step = step_graph(
        mlp(),
        optimizer="momentum:0.1,0.9",
        precision={"fc1": "float16", "fc2": "float16"},
        loss_scale="dynamic:1048576,factor=64,window=2",
        device_target=device_target,
    )
    network = msdump.load(step, context=CONTEXT if device_target == "Ascend" else {})
    states = [network.state()]

    for number in range(STEPS):
        network.train_step(*batch(number))
        states.append(network.state())

    door.again()
    directories = {
        graph.name: {path.name for path in graph.iterdir()} - {"constants"}
        for graph in (door.rank / "Net").iterdir()
    }
    assert {"0": {"0", "1", "2", "3"}, "2": {"1", "2"}} == directories
    files = {
        (match["name"].rpartition("_")[2], match["io"], int(match["slot"])): np.load(path)
        for match, path in trees.tensors(door.rank / "Net" / "2" / "1")
    }
    # the last parameter comes first
    np.testing.assert_array_equal(states[2]["fc2.bias"], files["ApplyMomentum-op0", "input", 0])
    np.testing.assert_array_equal(states[2]["fc2.bias"], files["ApplyMomentum-op0", "output", 0])
    for name in ("fc1.weight", "moments.fc1.weight", "global_step"):
        np.testing.assert_array_equal(states[0][name], states[1][name])
        assert (states[1][name] != states[2][name]).any()


def test_compiled_step_skips_as_well():
    """Ascend O2 computes the branches of a loss scale as O0 does."""
    step = step_graph(mlp(), precision="float16", loss_scale="dynamic:1048576,factor=64,window=2")
    one = msdump.load(step, context=CONTEXT)
    two = msdump.load(step, context=CONTEXT | {"jit_level": "O2"})

    for number in range(STEPS):
        overflows = [bool(network.train_step(*batch(number))[1]) for network in (one, two)]
        assert [number in {0, 3}] * 2 == overflows
    for name, array in one.state().items():
        np.testing.assert_allclose(array, two.state()[name], atol=1e-3, err_msg=name)
