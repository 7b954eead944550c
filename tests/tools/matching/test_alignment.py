"""The longest order that two sequences share."""

from __future__ import annotations

from difflib import SequenceMatcher
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump.tools.matching.alignment import aligned

WORDS = st.lists(st.sampled_from("abc"), max_size=30)


@given(WORDS, WORDS)
@settings(deadline=None)
def test_any_sequences(mine, golden):
    """Equal elements are aligned in order, and no fewer than another method finds."""
    places = aligned(mine, golden)

    assert [mine[own] for own, _ in places] == [golden[other] for _, other in places]
    assert all(one < two and other < next_one for (one, other), (two, next_one) in pairwise(places))
    blocks = SequenceMatcher(None, mine, golden, autojunk=False).get_matching_blocks()
    assert len(places) >= sum(block.size for block in blocks)


@pytest.mark.parametrize(
    ("mine", "golden", "places"),
    [
        ("abcd", "abcd", [(0, 0), (1, 1), (2, 2), (3, 3)]),
        ("acd", "abcd", [(0, 0), (1, 2), (2, 3)]),
        ("xabc", "abc", [(1, 0), (2, 1), (3, 2)]),
        ("", "abc", []),
        ("a" * 1000, "b" * 10, []),
    ],
    ids=["equal", "one less", "one more", "empty", "nothing in common"],
)
def test_alignment(mine, golden, places):
    """What one sequence lacks moves what is behind it."""
    assert places == aligned(mine, golden)
