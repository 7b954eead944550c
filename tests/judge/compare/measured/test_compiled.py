"""Rows of statistics beside the tensors of a graph that was compiled as a whole: tensors tell its graph."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.dump.compared import accused, document
from tests.dump.conftest import opened
from tests.dump.test_comparison import FEEDS, GRAPHS, LENET, O0, O2
from tests.texts import parsed

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


def changed(tmp_path, name, change):
    """Return LeNet with one weight changed."""
    network = onnx.load(LENET)
    weight = next(each for each in network.graph.initializer if each.name == name)
    array = change(numpy_helper.to_array(weight)).astype(np.float32)
    weight.CopyFrom(numpy_helper.from_array(array, name))
    onnx.save(network, tmp_path / "changed.onnx")
    return tmp_path / "changed.onnx"


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
    """Tensors of a fused kernel agree with the rows of its parts, inputs and weights among them."""
    tensors = dumped("tensors", network, feeds, context=O2, file_format=file_format)
    rows = dumped("rows", network, feeds, context=WITH_ROWS[mode], **ROWS)

    for sides in ((tensors, rows), (rows, tensors)):
        code, told = document(*sides)
        assert (0, "agrees") == (code, told["verdict"])
        compared = [each for each in told["operators"] if each["verdict"] in {"equal", "agrees"}]
        assert 6 <= len(compared)


FAULTS = {
    "sign": lambda array: -array,
    "noise": lambda array: array * (1 + 0.02 * np.random.default_rng(3).standard_normal(array.shape)),
    "an element": lambda array: np.where(np.arange(array.size).reshape(array.shape) == 7, 3.0, array),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("is_mine", [True, False], ids=["tensors-rows", "rows-tensors"])
def test_wrong_weight_is_the_first(dumped, tmp_path, fault, is_mine):
    """A weight that differs beyond rounding is named first, whether mine or golden holds statistics."""
    tensors = dumped("tensors", changed(tmp_path, "conv2.weight", FAULTS[fault]), context=O2)
    rows = dumped("rows", LENET, context=O0, **ROWS)

    code, told = document(*((tensors, rows) if is_mine else (rows, tensors)))

    assert (1, "weight") == (code, told["verdict"])
    (first,) = [each for each in told["operators"] if each["operator"] == told["first"]]
    assert "conv2" in first["operator"]


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
