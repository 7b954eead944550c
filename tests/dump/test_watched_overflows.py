"""``operator_overflow`` while a network runs: what the device says of an operator."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from msdump.errors import WatchHitError
from tests.dump import nets
from tests.dump.test_flight import MODES, iterations
from tests.dump.test_overflow import SATURATION, overflow

RULE = [{"condition": "operator_overflow"}]


def squares():
    """Return a model that squares, and then makes the result small again."""
    nodes = [nets.node("Mul", "x x", "a"), nets.node("Mul", "a small", "b"), nets.node("Neg", "b", "y")]
    return nets.model(nodes, [nets.value("x", [2, 3])], ["y"], {"small": np.float32(1e-3)})


def feed(value):
    """Return an input with one large element."""
    array = np.ones((2, 3), np.float32)
    array[0, 1] = value
    return {"x": array}


@pytest.mark.parametrize("level", ["O0", "O1", "O2"])
def test_saturation_is_told_though_all_is_finite(level, door, caplog):
    """float16 that the device clamps is finite everywhere; its status tells the operator."""
    overflow(door, SATURATION)
    door.configure(watch=RULE, on_hit="log", precision_mode="force_fp16", file_format="npy")
    network = door.load(squares(), device_target="Ascend", jit_level=level)
    with caplog.at_level(logging.WARNING, "msdump"):
        outputs = [network.run(feed(value))["y"] for value in (10, 1000, 10)]
        door.process.close()

    assert all(np.isfinite(array).all() for array in outputs)
    hits = [each.getMessage() for each in caplog.records if "watch rule" in each.getMessage()]
    assert [True] == ["hit in iteration 1: Default/" in each and " output.0: " in each for each in hits]
    assert "the number of overflows that the device recorded of the operator is 1 (> 0)" in hits[0]


@pytest.mark.parametrize("mode", MODES)
def test_infinity_is_an_overflow_of_who_makes_and_who_passes_it(mode, door):
    """An operator whose output is infinite overflows in each mode, and only these are written."""
    door.configure(watch=RULE, file_format="npy")
    network = door.load(squares(), **MODES[mode])
    for value in (10, 1e30, 10):
        network.run(feed(value))

    assert [1] == iterations(door.path)


def test_all_outputs_of_an_overflowing_operator_hit(door, caplog):
    """The device tells of an operator, so that its finite outputs hit as well, and its inputs do not."""
    made = nets.model(
        [nets.node("Split", "x", "b c", axis=0, num_outputs=2)], [nets.value("x", [2, 3])], ["b", "c"]
    )
    door.configure(watch=RULE, on_hit="log")
    network = door.load(made, **MODES["O0"])
    with caplog.at_level(logging.WARNING, "msdump"):
        network.run(feed(np.inf))
        network.run(feed(1))
        door.process.close()

    first, total = [each.getMessage() for each in caplog.records if "watch rule" in each.getMessage()]
    assert "hit in iteration 0: Default/Split-op0 output.0: " in first
    assert total.endswith("hit 2 times at 1 operators")


def test_overflow_releases_the_history_and_ends_the_run(door):
    """The steps before an overflow are on disk, and the error names the operator."""
    overflow(door, SATURATION)
    door.configure(watch=RULE, on_hit="stop", history=2, precision_mode="force_fp16")
    network = door.load(squares(), **MODES["O0"])

    for _ in range(5):
        network.run(feed(10))
    with pytest.raises(WatchHitError, match="'operator_overflow' hit at Default/Mul-op0 in iteration 5"):
        network.run(feed(1000))

    assert [3, 4, 5] == iterations(door.path)
