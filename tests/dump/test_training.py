"""The files of training steps: inputs that are written in place, Parameter files, what is not shown."""

from __future__ import annotations

import numpy as np
import pytest

import msdump
from tests import steps
from tests.dump import trees


def dumped(root, iteration):
    """Return the arrays of an iteration's tensor files by (operator name, io, slot)."""
    return {
        (match["name"], match["io"], int(match["slot"])): np.load(path)
        for match, path in trees.tensors(root, iteration=iteration)
    }


@pytest.mark.parametrize("form", ["plain", "algorithm"])
def test_updated_inputs_show_new_values(door, form):
    """An operator that writes its inputs shows them as they are afterwards, and the outputs it declares."""
    door.configure()
    network = steps.plain() if form == "plain" else msdump.load(steps.with_training_info())
    for _ in range(2):
        network.train_step(steps.X, steps.T)

    _, states = steps.expected(2)
    for step, state in enumerate(states):
        files = dumped(door.rank, step)
        momentum = {key[1:]: array for key, array in files.items() if "ApplyMomentum" in key[0]}
        slots = [("input", slot) for slot in range(5)]
        assert [*slots, ("output", 0)] == sorted(momentum)
        np.testing.assert_allclose(state["w"], momentum["input", 0], rtol=1e-5)
        np.testing.assert_allclose(state["m"], momentum["input", 1], rtol=1e-5)
        np.testing.assert_array_equal(momentum["input", 0], momentum["output", 0])
        # the forward operator read the old weight; Parameter files hold the values of the step's end
        before = states[step - 1] if step else steps.START
        np.testing.assert_allclose(before["w"], files["Default_MatMul-op0", "input", 1], rtol=1e-5)
        np.testing.assert_array_equal(momentum["input", 0], files["w", "output", 0])
        assert [step + 1] == files["step", "output", 0].tolist()
