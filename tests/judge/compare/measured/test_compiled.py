"""Rows of statistics beside the tensors of a graph that was compiled as a whole: names alone pair them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.dump.compared import accused, document, faults
from tests.dump.test_comparison import FEEDS, GRAPHS, LENET, O0, O2
from tests.texts import parsed
from tests.world import opened

ROWS = {"saved_data": "statistic"}
WITH_ROWS = {"O0": O0, "O1": O0 | {"jit_level": "O1"}, "GPU": {"device_target": "GPU"}}


@pytest.fixture
def dumped(tmp_path):
    """Return a function that dumps a network; it returns the root of the dump."""

    def dump(name, network, feeds=FEEDS, *, context, **changes):
        (tmp_path / name).mkdir()
        with opened(tmp_path / name) as door:
            door.dump(network, feeds, context=context, **changes)
            return door.path

    return dump


TRANSFORMER = GRAPHS / "transformer.onnx"
TOKENS = {
    "input_ids": np.arange(16).reshape(2, 8) % 30,
    "attention_mask": np.ones((2, 8), np.int64),
    "token_type_ids": np.zeros((2, 8), np.int64),
}


@pytest.mark.parametrize(("network", "feeds"), [(LENET, FEEDS), (TRANSFORMER, TOKENS)], ids=["cnn", "bert"])
@pytest.mark.parametrize("file_format", ["npy", "bin"])
@pytest.mark.parametrize("mode", WITH_ROWS)
def test_sound_runs_agree(dumped, mode, file_format, network, feeds):
    """A fused kernel has no counterpart by its name; operators that names pair agree, and none is accused."""
    tensors = dumped("tensors", network, feeds, context=O2, file_format=file_format)
    rows = dumped("rows", network, feeds, context=WITH_ROWS[mode], **ROWS)

    for sides in ((tensors, rows), (rows, tensors)):
        _, told = document(*sides)
        assert [] == faults(told)
        assert "equal" in {each["verdict"] for each in told["operators"]}


def test_branches_are_left_alone(dumped):
    """A branch that a compiled graph holds inside stands in the place of no operator around it."""
    feeds = {"x": np.ones((2, 3), np.float32), "flag": np.array(True)}
    tensors = dumped("tensors", GRAPHS / "if.onnx", feeds, context=O2)
    rows = dumped("rows", GRAPHS / "if.onnx", feeds, context=WITH_ROWS["GPU"], **ROWS)

    assert [] == [verdict for verdict, _ in accused(tensors, rows) if verdict != "unchecked"]


@pytest.mark.parametrize("scale", [1.0, 1e-3, 300.0])
def test_inputs_that_are_rounded(dumped, scale):
    """An input of the network in float32 agrees with its reading by the first operator in float16."""
    random = np.random.default_rng(1)
    weights = {"w": random.standard_normal((16, 16)).astype("f4")}
    network = parsed("g (float[4,16] x) => (y) { y = MatMul(x, w) }", **weights)
    feeds = {"x": (random.standard_normal((4, 16)) * scale).astype("f4")}
    tensors = dumped("tensors", network, feeds, context=O2)
    rows = dumped("rows", network, feeds, context=O0, **ROWS)

    for sides in ((tensors, rows), (rows, tensors)):
        assert [] == [verdict for verdict, _ in accused(*sides) if verdict != "unchecked"]
