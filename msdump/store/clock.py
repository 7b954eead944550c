"""Timestamps of dump files: microseconds that never repeat in a process."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Final

_NANOSECONDS: Final = 1000
_MICROSECONDS: Final = 1000
_TIME: Final = re.compile(r"(?<=\.)[0-9]{16}(?=\.|$)")
_MOST_LATER: Final = 1000


class Clock:
    """Gives strictly increasing microseconds since the epoch, 16 digits today; any thread may call it.

    >>> clock = Clock(iter([7000, 7000, 9000]).__next__)
    >>> clock.now(), clock.now(), clock.now()
    (7, 8, 9)
    >>> Clock(iter([7000]).__next__).several(3)
    range(7, 10)
    """

    __slots__ = ("_last", "_last_milliseconds", "_source")

    def __init__(self, source: Callable[[], int] = time.time_ns) -> None:
        self._source = source
        self._last = 0
        self._last_milliseconds = 0

    def now(self) -> int:
        """Return the time, or the last returned time plus 1 if the time is not later than that."""
        micros = self._source() // _NANOSECONDS
        # No call separates the next three lines: no other thread runs between them.
        if micros <= self._last:
            micros = self._last + 1
        self._last = micros
        return micros

    def several(self, count: int) -> range:
        """Return the times that ``count`` calls of ``now`` would return one after the other."""
        micros = self._source() // _NANOSECONDS
        if micros <= self._last:  # as in ``now``
            micros = self._last + 1
        self._last = micros + count - 1
        return range(micros, micros + count)

    def milliseconds(self) -> str:
        """Return the local time as ``YYYYMMDDHHMMSSmmm``, at least 1 ms later than the last returned one."""
        count = self._source() // _NANOSECONDS // _MICROSECONDS
        # As in ``now``: no call, so no other thread in between.
        if count <= self._last_milliseconds:
            count = self._last_milliseconds + 1
        self._last_milliseconds = count
        return f"{local_time(count * _MICROSECONDS)}{count % 1000:03}"

    def seconds(self) -> str:
        """Return the local time as ``YYYYMMDDHHMMSS``, the name of a dump's directory."""
        return local_time(self._source() // _NANOSECONDS)


def later_names(name: str) -> Iterator[str]:
    """Yield a file's name with later times, nearest first; nothing for a name without a time.

    Another process, a fork of this one above all, may give the same time to a file of the same operator.

    >>> name = "Add.Add-op3.0.0.1795216920861338.output.0.DefaultFormat.npy"
    >>> next(later_names(name))
    'Add.Add-op3.0.0.1795216920861339.output.0.DefaultFormat.npy'
    >>> list(later_names("statistic.csv"))
    []
    """
    for match in _TIME.finditer(name):
        for later in range(1, _MOST_LATER):
            yield f"{name[: match.start()]}{int(match[0]) + later}{name[match.end() :]}"


def local_time(microseconds: int) -> str:
    """Return a time since the epoch as ``YYYYMMDDHHMMSS``."""
    return time.strftime("%Y%m%d%H%M%S", time.localtime(microseconds // 1_000_000))


CLOCK: Final = Clock()
"""The clock of the process; every writer uses it, so that no two files share a timestamp."""
