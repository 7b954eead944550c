"""Which operators stand in each other's place."""

from __future__ import annotations

import pytest

from msdump.tools.compare.verdict import replacements


@pytest.mark.parametrize(
    ("anchors", "alone", "free", "expected"),
    [
        ([0, None, 2], {1}, {1}, [(1, 1)]),
        ([None, 1], {0}, {0}, [(0, 0)]),
        ([0, None], {1}, {1}, [(1, 1)]),
        ([0, None], {1}, {1, 2}, []),
        ([0, None, None, 2], {1, 2}, {1}, []),
        ([0, None, 3], {1}, {1, 2}, []),
        ([0, None, 1, None], {1, 3}, {2}, [(3, 2)]),
        ([0, None, 2, None, 4], {1, 3}, {1, 3}, [(1, 1), (3, 3)]),
        ([2, None, 0, 3], {1}, {1}, []),
        ([0, None, 2], set(), {1}, []),
        ([0, None, 2], {1}, set(), []),
        ([None], {0}, {0}, []),
        ([], set(), {0}, []),
    ],
    ids=[
        "between",
        "before the first",
        "behind the last",
        "two behind the last",
        "two for one",
        "one for two",
        "only the last",
        "each its own",
        "other order",
        "not alone",
        "not free",
        "nothing in common",
        "nothing at all",
    ],
)
def test_pairs(anchors, alone, free, expected):
    """The only operator without a counterpart of each side between two pairs belong together."""
    assert expected == list(replacements.pairs(anchors, alone, free))
