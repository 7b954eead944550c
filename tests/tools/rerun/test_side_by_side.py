"""Operators that run again side by side."""

from __future__ import annotations

import threading

import pytest

from msdump import env
from msdump.tools.rerun import side_by_side

_COUNT = 50
_LARGE = 1 << 20  # elements of a tensor


@pytest.mark.parametrize(("expected", "given"), [(1, "1"), (2, "2"), (4, "64")])
def test_works_in_as_many_threads_as_one_operator_has(
    expected: int, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results come in the order of the numbers, of no more threads than there are, four at most."""
    monkeypatch.setenv(env.THREADS, given)
    begun = threading.Barrier(expected)
    workers = set()

    def work(number: int) -> int:
        if number < expected:
            begun.wait(timeout=60)
        workers.add(threading.get_ident())
        return number * number

    results = list(side_by_side.each(work, _COUNT, _LARGE))
    assert [number * number for number in range(_COUNT)] == results
    assert expected == len(workers)
    assert [] == list(side_by_side.each(work, 0, 0))


def test_small_tensors_are_for_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where calls are over at once, the calling thread alone works."""
    monkeypatch.setenv(env.THREADS, "2")
    workers = {*side_by_side.each(lambda _: threading.get_ident(), _COUNT, 1000.0)}
    assert {threading.get_ident()} == workers


@pytest.mark.parametrize("given", ["1", "2"])
def test_an_error_ends_what_has_not_begun(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the work raises comes in its turn, and no operator begins afterwards."""
    monkeypatch.setenv(env.THREADS, given)
    done = []

    def work(number: int) -> int:
        if number == 1:
            raise KeyError(number)
        done.append(number)
        return number

    results = side_by_side.each(work, 1, _LARGE)
    assert [0] == list(results)
    results = side_by_side.each(work, 100_000, _LARGE)
    assert 0 == next(results)
    with pytest.raises(KeyError):
        next(results)
    assert len(done) < 100_000
