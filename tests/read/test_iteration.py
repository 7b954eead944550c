"""Runs of a graph, separated by the order of their timestamps."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump.read import iteration
from msdump.read.iteration import Moment

ORDER = "ABC"


def moments(text, *, has_order=True):
    """Return a moment for each letter: an operator, a microsecond after the one before."""
    return [Moment(time, what, ORDER.index(what) if has_order else None) for time, what in enumerate(text)]


@pytest.mark.parametrize(
    ("text", "has_order", "starts", "whole"),
    [
        ("", True, [], []),
        ("ABC", True, [0], [True]),
        ("ABCABCABC", True, [0, 3, 6], [True] * 3),
        ("AABC", True, [0, 1], [False, True]),  # broken off after its first operator
        ("ABABC", True, [0, 2], [False, True]),
        ("ABCAB", True, [0, 3], [True, False]),
        ("ABCAB", False, [0, 3], [True, False]),
        ("BCABC", True, [0, 3], [True, True]),
        ("BCABC", False, [0, 3], [True, False]),
        ("ABCBC", True, [0, 3], [True, True]),
        ("ABCC", True, [0, 3], [True, True]),  # the second one dumped the last operator only
        ("ABBC", True, [0, 2], [False, True]),
        ("ACBACB", True, [0, 3], [True, True]),  # operators run side by side, in no listed order
    ],
)
def test_runs(text, has_order, starts, whole):
    """A pass begins where a tensor comes again; one without the last operator was broken off."""
    found = moments(text, has_order=has_order)

    assert starts == iteration.pass_starts(found)
    assert whole == iteration.whole_passes([found[at:end] for at, end in pairwise([*starts, len(found)])])


def test_a_load_begins_a_run():
    """A pass that dumped other operators than the one before begins where the graph was loaded."""
    assert [0, 2] == iteration.pass_starts(moments("BCABC"), loaded=2)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sets(st.integers(0, 9), min_size=1).map(sorted), min_size=1, max_size=6))
def test_no_run_holds_a_tensor_twice(selections):
    """Whatever each pass dumped, none that is found holds a tensor twice, and together they hold all."""
    found = [
        Moment(time, what, what) for time, what in enumerate(what for chosen in selections for what in chosen)
    ]

    starts = iteration.pass_starts(found)

    assert sorted(set(starts)) == starts
    assert 0 == starts[0]
    ends = [*starts[1:], len(found)]
    for start, end in zip(starts, ends, strict=True):
        part = [moment.tensor for moment in found[start:end]]
        assert len(set(part)) == len(part)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 10), min_size=1, max_size=6))
def test_runs_that_were_broken_off(lengths):
    """Runs of one graph are found again wherever each was broken off."""
    found = [Moment(0, what, what) for length in lengths for what in range(length)]
    borders = [sum(lengths[:number]) for number in range(len(lengths))]

    assert borders == iteration.pass_starts(found)


@pytest.mark.parametrize(
    ("span", "loaded", "number"),
    [
        *(((5, 6), None, 0), ((12, 18), None, 0), ((21, 21), None, 0)),
        *(((28, 29), None, 1), ((99, 99), None, 1)),
        *(((28, 29), 25, 1), ((28, 29), 30, 0), ((21, 22), 21, 1), ((21, 22), 22, 0)),
        *(((12, 18), 5, 0), ((50, 60), 70, 1)),
    ],
)
def test_nearest(span, loaded, number):
    """A pass belongs to the nearest execution on the same side of the last loading of the graph."""
    assert number == iteration.nearest_span([(10, 20), (30, 40)], span, loaded)
