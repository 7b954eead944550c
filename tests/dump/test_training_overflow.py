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
