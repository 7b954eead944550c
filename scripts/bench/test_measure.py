"""Sides of a measurement: turns, repetitions, medians."""

import itertools
import statistics
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.bench import measure
from scripts.bench.measure import Case, Figure


@pytest.fixture
def clock(monkeypatch):
    """Let time pass only where a side says so; return the function by which it does."""
    now = [0.0]

    def passes(seconds):
        now[0] += seconds

    for name in ("perf_counter", "thread_time"):
        monkeypatch.setattr(measure.time, name, lambda: now[0])
    monkeypatch.setattr(measure.time, "sleep", passes)
    monkeypatch.setattr(
        measure.gc, "collect", lambda: 0
    )  # of a process that has run other tests it takes long
    return passes


def case(tmp_path, seconds):
    """Return a case of two threads."""
    return Case("", 1, 2, tmp_path, seconds)


def test_ratio_is_that_of_the_sides(clock, tmp_path):
    """A side that takes three times as long as the other has the ratio 3, whatever disturbs both."""
    load = itertools.cycle([1, 1, 2, 2, 1, 1])

    figure = measure.ratio(
        lambda: clock(3 * next(load)), lambda: clock(next(load)), case(tmp_path, seconds=40)
    )

    assert 3 == figure.value
    assert (3, 1) == figure.seconds


def test_sides_take_turns_in_beginning(clock, tmp_path):
    """After two calls of each side that warm up, another side begins each round."""
    calls = []

    def side(name):
        calls.append(name)
        clock(1)

    measure.timed([lambda: side("a"), lambda: side("b")], case(tmp_path, seconds=0))

    assert "aabb" + "ab" + "ba" + "ab" + "ba" + "ab" == "".join(calls)


def test_a_short_side_is_called_several_times(clock, tmp_path):
    """The seconds are of one call, though a round takes 20 ms or more."""
    calls = []

    def side():
        calls.append(1)
        clock(0.004)

    rounds = measure.timed([side], case(tmp_path, seconds=0))

    assert 2 + 5 * 5 == len(calls)
    assert [pytest.approx(0.004)] * 5 == [seconds for (seconds,) in rounds]


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=40))
def test_quartiles_enclose_the_median(values):
    """The median of a figure is that of its rounds, and half of them lie between the quartiles."""
    figure = Figure.of(values)

    assert statistics.median(values) == figure.value
    assert min(values) <= figure.low <= figure.value <= figure.high <= max(values)


def test_peak_memory_is_that_of_the_process_itself():
    """It grows by memory that a process touches, and does not count its parent's."""
    program = """
from scripts.bench import measure
before = measure.peak_mib()
held = bytearray(b"x") * (128 << 20)
print(before, measure.peak_mib())
"""
    held = bytearray(b"x") * (256 << 20)

    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)

    before, after = map(float, done.stdout.split())
    assert before < 100 < len(held) >> 20
    assert before + 100 <= after <= before + 140
