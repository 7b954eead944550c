"""The first look at two tensors: what it decides, and what it leaves to the full measure."""

from __future__ import annotations

import math

import numpy as np
import pytest

from msdump.tools.diff import screening
from msdump.tools.judge import errors

LIMIT = 1e-3
GOLDEN = np.random.default_rng(0).standard_normal((7, 20_001)).astype("f4")


@pytest.fixture(params=["compiled", "numpy"], autouse=True)
def way(request, monkeypatch):
    """Look by the compiled pass, where there is one, or by numpy."""
    if request.param == "numpy":
        monkeypatch.setattr("msdump.statistics.pairs.PAIRS", None)


def test_clear_agreement_has_the_numbers_of_the_full_measure():
    """Tensors that clearly agree are as far apart as the full measure says."""
    mine = GOLDEN * np.float32(1 + LIMIT / 10)

    found, full = screening.look(mine, GOLDEN, LIMIT), errors.measure(mine, GOLDEN)

    for name in ("distance", "largest", "norm", "scaled"):
        assert getattr(full, name) == pytest.approx(getattr(found, name), rel=1e-5), name
    assert not found.is_same
    assert full.cosine == pytest.approx(found.cosine, abs=1e-6)


def changed(value):
    """Return a tensor that agrees but for its last element."""
    mine = GOLDEN * np.float32(1.00001)
    mine[-1, -1] = value
    return mine


@pytest.mark.parametrize(
    ("mine", "golden"),
    [
        (GOLDEN.copy(), GOLDEN),
        (GOLDEN * np.float32(1 + LIMIT), GOLDEN),
        (changed(math.nan), GOLDEN),
        (GOLDEN, changed(math.nan)),
        (changed(math.inf), changed(math.inf)),
        (changed(1), changed(-math.inf)),
        (changed(-10_000), changed(-10_001)),
        (GOLDEN * np.float32(1e-20), GOLDEN * np.float32(1.0001e-20)),
        (GOLDEN.astype("f8"), GOLDEN.astype("f8") * 1.0001),
    ],
    ids=[
        "equal",
        "near the limit",
        "NaN",
        "golden NaN",
        "infinite",
        "golden infinite",
        "masks",
        "tiny",
        "doubles",
    ],
)
def test_what_is_left_to_the_full_measure(mine, golden):
    """Equal tensors, those near the limit, NaN, infinities, masks, tiny or other numbers are not decided."""
    assert screening.look(mine, golden, LIMIT) is None
