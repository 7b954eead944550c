"""A step that is added to the list reaches whatever MindSpore's door dumps."""

from __future__ import annotations

import numpy as np
import pytest

from msdump.errors import ExecutionError
from tests.capture import histogram
from tests.dump import nets, o2
from tests.dump.conftest import config

CPU, O0, O1 = (
    {"device_target": "CPU"},
    {"device_target": "Ascend", "jit_level": "O0"},
    {"device_target": "Ascend", "jit_level": "O1"},
)
X = np.array([1, -2], np.float32)
NEG = {("Neg", "input"): 1, ("Neg", "output"): 1}


def network():
    """Return one operator."""
    return nets.model([nets.node("Neg", "x", "y", "neg")], [nets.value("x", [2])], ["y"])


def failing():
    """Return an operator that fails: its index is out of range."""
    nodes = [nets.node("Gather", "x number", "y", "look")]
    return nets.model(nodes, [nets.value("x", [2])], ["y"], {"number": np.array([5], np.int64)})


RANKS = {
    "CPU": (CPU, {}, NEG | {("Parameter", "output"): 1}),
    "O0 on the host's terms": (O0, {"trans_flag": True}, NEG),
    "O0 on the device's terms": (O0, {"trans_flag": False}, NEG),
    "O0 statistics": (O0, {"saved_data": "statistic"}, NEG),
    "O1": (O1, {}, NEG),
}


@pytest.mark.parametrize(("context", "changes", "expected"), RANKS.values(), ids=RANKS)
def test_operators_one_by_one(door, monkeypatch, context, changes, expected):
    """A new step sees every tensor that becomes a .npy file or a row."""
    seen = histogram.added(monkeypatch)

    door.dump(network(), {"x": X}, context=context, **changes)

    assert expected == seen.counts


FILES = {
    "bin": {"file_format": "bin"},
    "npy": {"file_format": "npy"},
    "statistics": {"file_format": "npy", "saved_data": "statistic"},
}


@pytest.mark.parametrize("changes", FILES.values(), ids=FILES)
def test_compiled_graphs(door, monkeypatch, changes):
    """A new step sees every tensor of a compiled graph, its inputs as outputs of Data included."""
    seen = histogram.added(monkeypatch)

    o2.dump(door, network(), {"x": X}, **changes)

    assert NEG | {("Data", "output"): 1} == seen.counts


@pytest.mark.parametrize("context", [O0, o2.CONTEXT], ids=["O0", "O2"])
def test_failing_operators(door, monkeypatch, context):
    """A new step sees the inputs of the operator that fails."""
    monkeypatch.chdir(door.folder)
    blocks = {"O2": o2.configuration, "O0": config}[context["jit_level"]]
    seen = histogram.added(monkeypatch)
    door.configure(blocks(door.path, op_debug_mode=4, input_output=1))

    with pytest.raises(ExecutionError, match="Gather"):
        door.load(failing(), **context).run({"x": X})

    assert {("Gather", "input"): 2} == seen.counts
