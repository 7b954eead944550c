"""Regions of which one value differs: the parts that they fall into."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from msdump.device import INSERTED_PREFIX
from msdump.judge.pair import GraphSide, align
from msdump.judge.pair.sides import of_array
from tests.judge.pair import values


def _row(names, *extra, factor=1.0):
    """Return operators in a row between a Tanh and a Softmax; operators of the row wrote a multiple."""
    ends = ["x", "Default/Tanh-op0", *(f"Default/{name.replace('+', '')}" for name in names)]
    types = [None, *("".join(part.rpartition("-op")[0] for part in name.split("+")) for name in names), None]
    ends.append("Default/Softmax-op0")
    rows = [(name, kind, before) for kind, (before, name) in zip(types, pairwise(ends), strict=True)]
    elements = np.arange(6.0) - 2

    def content_of(name, _):
        return of_array(elements if "Tanh" in name else elements * factor)

    return GraphSide(values.graph(*rows, *extra, outputs=ends[-1:]), content_of=content_of)


def _pairs(matching):
    return [
        tuple("+".join(name.rpartition("/")[2] for name in names) for names in (pair.mine, pair.golden))
        for pair in matching.pairs[1:-1]
    ]


@pytest.mark.parametrize(
    ("mine", "golden", "expected"),
    [
        pytest.param(
            ["Add-op0+Add-op1", "Sigmoid-op0+Mul-op0"],
            ["Mul-op0", "Add-op0", "Sigmoid-op0", "Mul-op1"],
            [("Add-op0Add-op1", "Mul-op0+Add-op0"), ("Sigmoid-op0Mul-op0", "Sigmoid-op0+Mul-op1")],
            id="equal behind",
        ),
        pytest.param(
            ["Exp-op3+Mul-op3", "Sub-op0+Elu-op0"],
            ["Exp-op2", "Mul-op2", "Add-op0", "Elu-op1"],
            [("Exp-op3Mul-op3", "Exp-op2+Mul-op2"), ("Sub-op0Elu-op0", "Add-op0+Elu-op1")],
            id="equal before",
        ),
        pytest.param(
            ["Exp-op0+Mul-op0"],
            ["Sin-op0", "Exp-op1", "Mul-op1"],
            [("Exp-op0Mul-op0", "Exp-op1+Mul-op1")],
            id="more before",
        ),
        pytest.param(
            ["Exp-op0", "Mul-op0", "Sin-op0"],
            ["Exp-op1+Mul-op1"],
            [("Exp-op0+Mul-op0", "Exp-op1Mul-op1")],
            id="more behind",
        ),
        pytest.param(
            ["Exp-op0+Mul-op0"],
            ["Sin-op0", "Cos-op0"],
            [("Exp-op0Mul-op0", "Sin-op0+Cos-op0")],
            id="nothing in common",
        ),
    ],
)
def test_regions_that_differ_are_cut(mine, golden, expected):
    """In two regions that wrote different values parts of the same types are paired."""
    matching = align(_row(mine), _row(golden, factor=3.0))

    assert expected == _pairs(matching)


def test_what_the_device_inserts_stands_for_nothing():
    """An inserted operator without readers is no operator of golden's."""
    inserted = f"{INSERTED_PREFIX}TransData-op1"
    mine = _row(["Sin-op0+Exp-op0"], (inserted, None, "Default/Sin-op0Exp-op0"))
    golden = _row(["Sin-op1", "Exp-op1"], ("Default/Elu-op0", None, "Default/Exp-op1"), factor=3.0)

    matching = align(mine, golden)

    assert inserted in matching.mine_alone
    assert "Default/Elu-op0" in matching.golden_alone


@pytest.mark.timeout(60)
def test_long_regions_are_cut_in_time():
    """Regions of a thousand operators fall into their kernels."""
    kinds = ("Exp", "Sin", "Cos", "Elu")
    parts = [f"{kinds[number % 4]}-op{number}" for number in range(1000)]
    moved = [f"{kinds[number % 4]}-op{number + 1}" for number in range(1000)]
    fused = [f"{one}+{two}" for one, two in zip(parts[::2], parts[1::2], strict=True)]

    matching = align(_row(fused), _row(moved, factor=3.0))

    assert 500 == len(_pairs(matching))
    assert all(pair.certainty >= 0.5 and pair.outputs for pair in matching.pairs)
