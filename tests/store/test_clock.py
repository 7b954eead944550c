"""Timestamps that never repeat."""

import itertools
import threading
import time

from msdump.store import Clock


def counting(start=1_600_000_000_000_000):
    """Return a clock that gives ``start``, ``start + 1``, ... microseconds."""
    return Clock(itertools.count(1000 * start, 1000).__next__)


def test_times_strictly_increase_where_the_source_does_not():
    """A source that repeats or steps back still gives increasing times."""
    clock = Clock(iter([5_000_000, 5_000_999, 4_000_000, 5_001_000, 9_000_000]).__next__)

    times = [clock.now() for _ in range(5)]

    assert times == [5000, 5001, 5002, 5003, 9000]


def test_threads_share_no_time():
    """Threads that ask at once get different times."""
    clock = counting()
    times: list[list[int]] = [[] for _ in range(4)]

    def ask(own):
        own.extend(clock.now() for _ in range(5000))

    threads = [threading.Thread(target=ask, args=(own,)) for own in times]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(itertools.chain.from_iterable(times))) == 20_000


def test_times_of_directories_and_failures(monkeypatch):
    """Directories carry the local second, failures the millisecond, which never repeats."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    moment = 1_600_000_000_123_456_789
    clock = Clock(iter([moment, moment, moment, moment - 5_000_000]).__next__)

    assert "20200913122640" == clock.seconds()
    assert ["20200913122640123", "20200913122640124", "20200913122640125"] == [
        clock.milliseconds() for _ in range(3)
    ]
    monkeypatch.undo()
    time.tzset()
