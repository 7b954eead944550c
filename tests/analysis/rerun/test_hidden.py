"""Overflows inside of fused kernels, which the parts behind them hide."""

from __future__ import annotations

import numpy as np
import pytest

from msdump.analysis.rerun import values
from msdump.execute import Float64Runner
from msdump.graph import fuse_elementwise, loader
from tests.texts import parsed

X = np.random.default_rng(3).standard_normal((4, 16)) * 2.0**16
DOUBLED = 2 * X
SCALE = 2.0**-16


def kernel():
    """Return the graph of ``tanh((x + x) / 2**16) * 3``, one kernel."""
    model = parsed(
        f"""net (float[4,16] x) => (float[4,16] y) <float three = {{3}}, float scale = {{{SCALE}}}> {{
            [sum] sum = Add(x, x) [small] small = Mul(sum, scale)
            [curve] curve = Tanh(small) [scaled] y = Mul(curve, three)
        }}"""
    )
    return fuse_elementwise(loader.load(model))


def beyond(edge):
    """Return the result where sums beyond an edge have become infinite."""
    return 3 * np.tanh(SCALE * np.where(np.abs(DOUBLED) > edge, np.copysign(np.inf, DOUBLED), DOUBLED))


def one_off():
    """Return the result with the wrong number at the place of the smallest sum."""
    result = 3 * np.tanh(SCALE * DOUBLED)
    result.flat[np.abs(DOUBLED).argmin()] = 3.0
    return result


@pytest.mark.parametrize(
    ("expected", "dumped"),
    [
        ("Add-op0", beyond(65504.0)),
        ("Add-op0", beyond(65504.0).astype(np.float16)),
        ("", 3 * np.tanh(SCALE * DOUBLED)),
        ("", 3.3 * np.tanh(SCALE * DOUBLED)),
        ("", one_off()),
        ("Add-op0", beyond(4e4)),
    ],
    ids=["overflow", "in float16", "right", "wrong", "one element", "from a smaller number"],
)
def test_a_hidden_overflow_is_told_from_other_errors(expected, dumped):
    """Elements that are off have to come from an infinity, of the largest numbers alone."""
    graph = kernel()
    (node,) = graph.operators

    def run(change):
        return Float64Runner(graph).run(node, {"x": X}, change=change)

    assert expected == values.overflowed_part(node, run, 0, dumped)


def rows():
    """Return the graph of ``x / (m + m)`` with a number ``m`` for each row, one kernel."""
    text = "net (float[4,16] x, float[4,1] m) => (y) { [sum] sum = Add(m, m) [share] y = Div(x, sum) }"
    return fuse_elementwise(loader.load(parsed(text)))


@pytest.mark.parametrize(
    ("expected", "lost"), [("Add-op0", [3]), ("Add-op0", [0, 1, 2, 3]), ("", [0]), ("", [])], ids=str
)
def test_a_hidden_overflow_of_one_number_for_a_row(expected, lost):
    """A part that writes one number for many elements is named if the largest are lost."""
    graph = rows()
    (node,) = graph.operators
    parameters = {"x": X, "m": np.array([[1.0], [2.0], [4.0], [9.0]])}
    dumped = X / (2 * parameters["m"])
    dumped[lost] = 0.0

    def run(change):
        return Float64Runner(graph).run(node, parameters, change=change)

    assert expected == values.overflowed_part(node, run, 0, dumped)
