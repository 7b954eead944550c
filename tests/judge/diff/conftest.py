"""Fixtures of tests of lockstep: models from a few lines, and a comparison of two variants."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import parser

from msdump.execute import WeightCopies, values
from msdump.graph import loader
from msdump.judge import inputs
from msdump.judge.diff import LockstepComparison, make_side, models, pair_sides
from msdump.judge.verdict import Limits

GRAPHS = Path(__file__).resolve().parents[3] / "graphs"
HEAD = '<ir_version: 10, opset_import: ["" : 20]>'


def load(text, **training):
    """Return the graph of a folder's model by its name, or of a model as text."""
    if "{" not in text:
        return loader.load(GRAPHS / f"{text}.onnx", **training)
    return loader.load(parser.parse_model(f"{HEAD} {text}"), **training)


def comparison(graph, mine="Ascend", golden="float32", *, trains=False):
    """Return the comparison of two variants of a model."""
    pair = models.parse(mine), models.parse(golden)
    copies = WeightCopies()
    first, second = (make_side(graph, variant, copies, trains=trains) for variant in pair)
    limits = Limits(precision=models.precision(*pair))
    return LockstepComparison(
        first, second, pair_sides(first, second, is_one_model=True), limits, trains=trains
    )


@pytest.fixture
def compared():
    """Return a function that compares two variants on made-up or given inputs, and returns the comparison."""

    def compare(text, mine="Ascend", golden="float32", *fed, trains=False, **training):
        both = comparison(load(text, **training), mine, golden, trains=trains)
        for arrays in fed or [inputs.made_up(both.mine.model, {}, 0, 0)]:
            both.run(values.bind_inputs(both.mine.model, (), arrays))
        return both

    return compare
