"""Interleaved timing of two sides, and peak memory of a process."""

from __future__ import annotations

import gc
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

Side = Callable[[], Any]


def ratio(ours: Side, theirs: Side, *, threads: int, rounds: int, tidy: Side = lambda: None) -> float:
    """Return the median over rounds of (time of ours / time of theirs).

    Args:
        ours: The measured side.
        theirs: What it is compared with.
        threads: 1: CPU time of this thread is taken, else wall time.
        rounds: How often; the sides take turns in going first.
        tidy: Called after each side, outside of its time.
    """
    clock = time.thread_time if threads == 1 else time.perf_counter
    for side in (ours, theirs) * 2:
        _timed(side, clock, tidy)
    ratios = []
    for turn in range(rounds):
        sides = (ours, theirs) if turn % 2 else (theirs, ours)
        spent = {side: _timed(side, clock, tidy) for side in sides}
        ratios.append(spent[ours] / spent[theirs])
    return statistics.median(ratios)


def _timed(side: Side, clock: Callable[[], float], tidy: Side) -> float:
    gc.collect()
    gc.disable()
    start = clock()
    kept = side()
    spent = clock() - start
    gc.enable()
    del kept
    tidy()
    return spent


def peak_mib() -> float:
    """Return the peak resident memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
