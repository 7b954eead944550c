"""A step that is added to the list reaches whatever pyACL's door dumps."""

from __future__ import annotations

import numpy as np
import pytest

from tests.capture import histogram
from tests.frontends.acl.single_calls import call
from tests.texts import parsed

X = np.arange(6, dtype=np.float32).reshape(2, 3)
NEG = {("Neg", "input"): 1, ("Neg", "output"): 1}
ALL = {"dump_list": [{}], "dump_mode": "all"}


def network():
    """Return one operator."""
    return parsed("graph (float[2,3] x) => (y) { [neg] y = Neg(x) }")


def failing():
    """Return a model of an operator that fails where the index is out of range."""
    return parsed("graph (float[2,3] x, int64[1] i) => (y) { [look] y = Gather(x, i) }")


MODELS = {
    "tensors": (ALL, NEG | {("Data", "output"): 1}),
    "statistics": (ALL | {"dump_data": "stats", "dump_stats": ["Max"]}, NEG | {("Data", "output"): 1}),
    "watcher": (
        {"dump_scene": "watcher", "dump_mode": "output", "dump_list": [{"watcher_nodes": ["neg"]}]},
        {("Neg", "output"): 1},
    ),
}


@pytest.mark.parametrize(("section", "expected"), MODELS.values(), ids=MODELS)
def test_models(script, monkeypatch, section, expected):
    """A new step sees every tensor that becomes part of a dump file, a row, or is read again."""
    seen = histogram.added(monkeypatch)
    script.begin(section)

    script.run(script.load(network()), X)

    assert expected == seen.counts


@pytest.mark.parametrize("changes", [{}, {"dump_data": "stats", "dump_stats": ["Max"]}], ids=["bin", "csv"])
def test_single_operators(script, monkeypatch, changes):
    """A new step sees the tensors of an operator that is called alone."""
    seen = histogram.added(monkeypatch)
    script.begin({"dump_op_switch": "on", "dump_level": "op", "dump_mode": "all"} | changes)

    call("Neg", [X], (np.float32, (2, 3)))

    assert NEG == seen.counts


@pytest.mark.parametrize("scene", ["lite_exception", "aic_err_norm_dump"])
def test_failing_operators(script, monkeypatch, scene):
    """A new step sees the inputs of the operator that fails, and its outputs as they lie in memory."""
    seen = histogram.added(monkeypatch)
    script.begin({"dump_scene": scene})

    assert 500002 == script.run(script.load(failing()), X, np.array([7]))[0]

    assert {("Gather", "input"): 2, ("Gather", "output"): 1} == seen.counts
