"""Sides of a measurement, timed in turns, and the figure that comes of them; peak memory of a process.

Sides take turns and pause between them: the threads of an onnxruntime session that has just run look for
work for a while, which would slow down the next side. The median over the rounds counts.
"""

from __future__ import annotations

import gc
import math
import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

Side = Callable[[], Any]
Round = tuple[float, ...]
"""Seconds of one call of each side."""

PAUSE: Final = 0.05
"""Seconds between two sides."""

_SHORTEST: Final = 0.02
"""Seconds that a side takes at least: one that is shorter is called several times."""

_FEWEST_ROUNDS, _MOST_ROUNDS = 5, 31
_WARM_UPS: Final = 2


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement's network and circumstances.

    Attributes:
        network: Name of the network; "" for none.
        batch: Its batch size.
        threads: Of one operator.
        folder: An empty folder for its files, in memory where the machine has such a place.
        seconds: How long the rounds of one figure may take; a few run in any case.
    """

    network: str
    batch: int
    threads: int
    folder: Path
    seconds: float

    @property
    def path(self) -> Path:
        """The network's file, built where it is missing."""
        from scripts.bench.networks import files  # onnxscript, which one side's memory must not hold

        return files.path(self.network, self.batch)

    def within(self, name: str) -> Case:
        """Return the case with a folder of its own below this one's."""
        folder = self.folder / name
        folder.mkdir()
        return replace(self, folder=folder)


class UnavailableError(Exception):
    """The measurement needs something that is not there: its text names it."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A measurement.

    Attributes:
        value: The median over the rounds.
        low: Their lower quartile.
        high: Their upper quartile.
        seconds: Median seconds of one call of each side; () where no time was taken.
    """

    value: float
    low: float
    high: float
    seconds: tuple[float, ...] = ()

    @classmethod
    def of(cls, values: Sequence[float], seconds: tuple[float, ...] = ()) -> Figure:
        """Return the figure of one value a round."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0], seconds)
        low, _, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(statistics.median(values), low, high, seconds)


def ratio(
    ours: Side, theirs: Side, case: Case, *, tidy: Side = lambda: None, is_alone: bool = True
) -> Figure:
    """Return (time of ours / time of theirs).

    Args:
        ours: The measured side.
        theirs: The side for comparison.
        case: How many threads its operators have, and how long the measurement may take.
        tidy: Called after each side, outside of its time.
        is_alone: Whether a side of one thread runs in the calling thread only: its CPU time counts, which
            other programs disturb less.
    """
    rounds = timed((ours, theirs), case, tidy=tidy, is_alone=is_alone)
    return figure(rounds, lambda ours, theirs: ours / theirs)


def figure(rounds: Sequence[Round], formula: Callable[..., float]) -> Figure:
    """Return the figure that a formula makes of the seconds of each round."""
    seconds = tuple(map(statistics.median, zip(*rounds, strict=True)))
    return Figure.of([formula(*times) for times in rounds], seconds)


def timed(
    sides: Sequence[Side], case: Case, *, tidy: Side = lambda: None, is_alone: bool = False
) -> list[Round]:
    """Return the seconds of one call of each side, round by round; arguments as of ``ratio``."""
    clock = time.thread_time if is_alone and case.threads == 1 else time.perf_counter
    counts = [_calls(side, tidy) for side in sides]
    rounds: list[Round] = []
    ends = time.perf_counter() + case.seconds
    while len(rounds) < _FEWEST_ROUNDS or (len(rounds) < _MOST_ROUNDS and time.perf_counter() < ends):
        spent = [0.0] * len(sides)
        for turn in range(len(sides)):  # another side begins each round
            position = (turn + len(rounds)) % len(sides)
            spent[position] = _seconds(sides[position], counts[position], clock, tidy)
        rounds.append(tuple(spent))
    return rounds


def together(sides: Sequence[Side], count: int) -> list[Round]:
    """Return the seconds of ``count`` rounds, for sides that several processes must call equally often."""
    for side in sides:
        side()
    return [tuple(_seconds(side, 1, time.perf_counter, lambda: None) for side in sides) for _ in range(count)]


def _calls(side: Side, tidy: Side) -> int:
    """Warm a side up; return how often it is called in a round."""
    for _ in range(_WARM_UPS):
        spent = _seconds(side, 1, time.perf_counter, tidy)
    return max(1, math.ceil(_SHORTEST / spent))


def _seconds(side: Side, calls: int, clock: Callable[[], float], tidy: Side) -> float:
    gc.collect()
    gc.disable()
    start = clock()
    for _ in range(calls):
        kept = side()
    spent = clock() - start
    gc.enable()
    del kept
    tidy()
    time.sleep(PAUSE)
    return spent / calls


def peak_mib() -> float:
    """Return the peak resident memory of this process in MiB, without that of the one that started it."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    match = re.search(r"^VmHWM:\s+(\d+) kB$", text, re.MULTILINE)
    assert match, text
    return int(match[1]) / 1024
