"""Runs of a graph told apart by the order of their timestamps."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdump.store.read.executions import timeline
from msdump.store.read.executions.timeline import Moment

ORDER = "ABC"


def moments(text, *, has_order=True):
    """Return a moment for each letter: an operator, a microsecond after the one before."""
    return [Moment(time, what, ORDER.index(what) if has_order else None) for time, what in enumerate(text)]


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("", []),
        ("ABC", [0]),
        ("ABCABCABC", [0, 3, 6]),
        ("AABC", [0, 1]),  # broken off after its first operator
        ("BCABC", [0, 2]),  # the first one dumped fewer operators
        ("ABCBC", [0, 3]),
        ("ABBC", [0, 2]),
        ("ACBACB", [0, 3]),  # operators that run side by side: the list is not their order
    ],
)
def test_runs(text, starts):
    """A run begins where a tensor comes again, or earlier where the order starts again."""
    assert starts == timeline.runs(moments(text))


def test_without_an_order():
    """Where the order is not known the tensor that comes again begins the run."""
    assert [0, 3] == timeline.runs(moments("BCABC", has_order=False))


@pytest.mark.parametrize(("loaded", "starts"), [(None, [0]), (0, [0]), (2, [0, 2]), (9, [0])])
def test_the_time_of_loading(loaded, starts):
    """What is older than the loading of the graph is of an earlier run, though nothing comes again."""
    assert starts == timeline.runs(moments("ABC"), loaded)


@pytest.mark.parametrize(
    ("text", "has_order", "whole"),
    [
        ("ABCAB", True, [True, False]),
        ("ABABC", True, [False, True]),
        ("ABCC", True, [True, True]),  # the second one dumped the last operator only
        ("ABCAB", False, [True, False]),
        ("", True, []),
    ],
)
def test_whole(text, has_order, whole):
    """A run that did not reach the last operator was broken off."""
    found = moments(text, has_order=has_order)

    assert whole == timeline.whole(found, timeline.runs(found))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sets(st.integers(0, 9), min_size=1).map(sorted), min_size=1, max_size=6))
def test_no_run_holds_a_tensor_twice(selections):
    """Whatever each run dumped, none that is found holds a tensor twice, and together they hold all."""
    found = [
        Moment(time, what, what) for time, what in enumerate(what for chosen in selections for what in chosen)
    ]

    starts = timeline.runs(found)

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

    assert borders == timeline.runs(found)


@pytest.mark.parametrize(
    ("span", "number"), [((5, 6), 0), ((12, 18), 0), ((21, 21), 0), ((28, 29), 1), ((99, 99), 1)]
)
def test_nearest(span, number):
    """A pass belongs to the execution in whose time it lies, else to the nearest one."""
    assert number == timeline.nearest([(10, 20), (30, 40)], span)


@pytest.mark.parametrize(
    ("span", "loaded", "number"),
    [
        ((28, 29), 25, 1),
        ((28, 29), 30, 0),
        ((21, 22), 21, 1),
        ((21, 22), 22, 0),
        ((12, 18), 5, 0),
        ((50, 60), 70, 1),
    ],
)
def test_nearest_of_a_program(span, loaded, number):
    """A pass before the last loading is of no execution behind it, however near; and the other way round."""
    assert number == timeline.nearest([(10, 20), (30, 40)], span, loaded)
