"""The first look at two tensors: cases that it decides, and cases for the full measure."""

from __future__ import annotations

import math
from dataclasses import astuple

import numpy as np
import pytest

from msdump.judge import errors
from msdump.judge.diff import measure_pair
from msdump.statistics import compiled
from msdump.statistics import distances as first_look

LIMIT = 1e-3
GOLDEN = np.random.default_rng(0).standard_normal((7, 20_001)).astype("f4")


@pytest.fixture(params=["compiled", "numpy"], autouse=True)
def way(request, monkeypatch):
    """Look by the compiled pass, where there is one, or by numpy."""
    if request.param == "numpy":
        monkeypatch.setattr(compiled, "KERNEL", None)


def masked(mine, golden):
    """Return two tensors that agree but for a masked lane in each row."""
    pair = GOLDEN * np.float32(1 + LIMIT / 10), GOLDEN.copy()
    for tensor, value in zip(pair, (mine, golden), strict=True):
        tensor[:, 0] = value
    return pair


def changed(value):
    """Return a tensor that agrees but for its last element."""
    mine = GOLDEN * np.float32(1.00001)
    mine[-1, -1] = value
    return mine


MASKS = [(), (-10_000, -10_001), (-65_504, -math.inf), (-3.4e38, -65_504)]


@pytest.mark.parametrize("masks", MASKS, ids=str)
def test_clear_agreement_has_the_numbers_of_the_full_measure(masks):
    """Tensors that clearly agree, beside mask constants, are as far apart as the full measure says."""
    mine, golden = masked(*masks) if masks else (GOLDEN * np.float32(1 + LIMIT / 10), GOLDEN)

    found, full = measure_pair(mine, golden, LIMIT), errors.measure(mine, golden)

    for name in ("distance", "largest", "norm", "scaled"):
        assert getattr(full, name) == pytest.approx(getattr(found, name), rel=1e-5), name
    assert full.cosine == pytest.approx(found.cosine, abs=1e-6)
    assert (False, 7 if masks else 0) == (found.is_same, found.masked)
    assert found.masked == full.masked


LEFT = {
    "equal": (GOLDEN.copy(), GOLDEN),
    "near the limit": (GOLDEN * np.float32(1 + LIMIT), GOLDEN),
    "NaN": (changed(math.nan), GOLDEN),
    "golden NaN": (GOLDEN, changed(math.nan)),
    "infinite": (changed(math.inf), changed(math.inf)),
    "golden infinite": (changed(1), changed(-math.inf)),
    "one mask": (changed(-10_000), changed(-10_001)),
    "tiny": (GOLDEN * np.float32(1e-20), GOLDEN * np.float32(1.0001e-20)),
    "doubles": (GOLDEN.astype("f8"), GOLDEN.astype("f8") * 1.0001),
    "masks far apart": masked(-10_000, -20_000),
    "masks of one side": masked(-10_000, 1),
    "masks beside NaN": masked(-10_000, math.nan),
    "infinite lanes": masked(math.inf, math.inf),
    "large numbers": [tensor * np.float32(1e4) for tensor in masked(-1, -1)],
    "equal masks": masked(-10_000, -10_001)[1:] * 2,
}


@pytest.mark.parametrize(("mine", "golden"), LEFT.values(), ids=LEFT)
def test_the_rest_is_left_to_the_full_measure(mine, golden):
    """Undecided tensors have all numbers, and units of the last place, of the full measure."""
    found, full = measure_pair(mine, golden, LIMIT), errors.measure(mine, golden)

    assert not math.isnan(found.ulps)
    assert astuple(full) == pytest.approx(astuple(found), nan_ok=True)


def test_many_tensors_at_once():
    """A look at many tensors equals a look at each one; others than float32 have none."""
    sizes = (1, 300_001, 5, 70_000, 0, 1_000_003)
    golden = [np.arange(size, dtype="f4") % 97 for size in sizes]
    mine = [tensor * np.float32(1 + LIMIT / 10) for tensor in golden]
    tensors = [*zip(mine, golden, strict=True), (GOLDEN.astype("f8"),) * 2, (GOLDEN[:2], GOLDEN[:1])]

    taken = [pair for pair in tensors if first_look.takes(*pair)]

    assert len(sizes) == len(taken)
    for (x, y), look in zip(taken, first_look.distances(taken), strict=True):
        apart, wide = np.abs(x - y).astype("f8"), y.astype("f8")
        expected = (apart @ apart, wide @ wide, apart.max(initial=0), np.abs(wide).max(initial=0))
        assert expected == pytest.approx(look, rel=1e-6)
