"""The arithmetic of two commits beside each other."""

import pytest

from tests.bench.ab import Change


@pytest.mark.parametrize(
    ("pairs", "is_floor", "change"),
    [
        ([(2.0, 1.0), (2.0, 2.0), (4.0, 1.0)], False, Change(2.0, 1.0, 0.5, 0.25, 1.0)),
        ([(2.0, 1.0), (2.0, 2.0), (4.0, 1.0)], True, Change(2.0, 1.0, 2.0, 1.0, 4.0)),
        ([(1.5, 3.0)], False, Change(1.5, 3.0, 2.0, 2.0, 2.0)),
    ],
    ids=["less is better", "more is better", "one round"],
)
def test_change_is_the_median_share(pairs, is_floor, change):
    """B's figure as a share of A's, so that more than 1 is worse, whatever is measured."""
    assert change == Change.of(pairs, is_floor=is_floor)


@pytest.mark.parametrize(
    ("least", "most", "verdict"),
    [(1.03, 1.2, "worse"), (0.8, 0.97, "better"), (0.9, 1.2, ""), (1.01, 1.02, ""), (0.99, 0.995, "")],
)
def test_verdict_needs_all_rounds(least, most, verdict):
    """A change is told where every round shows it by more than the tolerance."""
    assert verdict == Change(1, 1, 1, least, most).verdict(0.02)
