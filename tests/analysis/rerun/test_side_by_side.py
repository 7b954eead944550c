"""Operators that run again side by side."""

from __future__ import annotations

import threading

import pytest

from msdump import env
from msdump.analysis.rerun import reexecution

_COUNT = 50
_LARGE = 1 << 20  # elements of a tensor


@pytest.mark.parametrize(("expected", "given"), [(1, "1"), (2, "2"), (4, "64")])
def test_works_in_as_many_threads_as_one_operator_has(expected, given, monkeypatch):
    """Results come in the order of the numbers, of no more threads than there are, four at most."""
    monkeypatch.setenv(env.THREADS, given)
    begun = threading.Barrier(expected)
    workers = set()

    def work(number):
        if number < expected:
            begun.wait(timeout=60)
        workers.add(threading.get_ident())
        return number * number

    results = list(reexecution.each(work, _COUNT, _LARGE))
    assert [number * number for number in range(_COUNT)] == results
    assert expected == len(workers)
    assert [] == list(reexecution.each(work, 0, 0))
    # where calls are over at once, the calling thread alone works
    assert {threading.get_ident()} == {*reexecution.each(lambda _: threading.get_ident(), _COUNT, 1000.0)}


@pytest.mark.parametrize("given", ["1", "2"])
def test_an_error_ends_the_work(given, monkeypatch):
    """An error of the work comes in its turn, and no operator begins afterwards."""
    monkeypatch.setenv(env.THREADS, given)
    done = []

    def work(number):
        if number == 1:
            raise KeyError(number)
        done.append(number)
        return number

    results = reexecution.each(work, 100_000, _LARGE)
    assert 0 == next(results)
    with pytest.raises(KeyError):
        next(results)
    assert len(done) < 100_000
