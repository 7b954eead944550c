"""The runs that wrote into one dump of compiled graphs, told apart by the times in their directories' names.

GE and acl make a directory for the time at which a dump was configured, MindSpore (Ascend O2) and torchair
one for each step as well. So the directories of one process have different times, in the order of its steps.
"""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from msdump.errors import DumpReadError
from msdump.store.layouts import Key

_log = logging.getLogger("msdump.store")


@dataclass(frozen=True, slots=True)
class DumpedRun:
    """A run of a program that dumped compiled graphs.

    Attributes:
        number: Its number among those in the dump, from 0, in the order of time.
        times: The times in the names of its directories, ``YYYYMMDDHHMMSS``, in order.
    """

    number: int
    times: tuple[str, ...]

    @property
    def time(self) -> str:
        """The first of its times, by which it may be called as well as by its number."""
        return self.times[0]


def runs(keys: Iterable[Key]) -> tuple[tuple[DumpedRun, ...], dict[Key, int]]:
    """Return the runs of directories that have a time, in the order of time, and the run of each directory.

    Where a device comes back to a step or to an earlier one, or to a model without steps, another run begins.

    Args:
        keys: Directories of executions; those without a time belong to no run.
    """
    timed = sorted((key for key in keys if key.time is not None), key=_order)
    number, numbers = 0, dict[Key, int]()
    times: list[dict[str, None]] = [{}]
    last_step: dict[Hashable, int] = {}
    seen: dict[Hashable, str] = {}
    for (time, _), same in itertools.groupby(timed, key=_order):
        together = [*same]
        again = any(seen.get(_identity(key), time) != time for key in together)
        if again or any(_step(key) < last_step.get(_device(key), 0) for key in together):
            number += 1
            times.append({})
            last_step, seen = {}, {}
        times[number][time] = None
        for key in together:
            numbers[key] = number
            last_step[_device(key)] = _step(key)
            seen[_identity(key)] = time
    found = (DumpedRun(each, tuple(stamps)) for each, stamps in enumerate(times) if stamps)
    return tuple(found), numbers


def _order(key: Key) -> tuple[str, int]:
    return key.time or "", _step(key)


def _step(key: Key) -> int:
    return 0 if key.step is None else key.step


def _device(key: Key) -> Hashable:
    return (key.rank, key.device)


def _identity(key: Key) -> Hashable:
    """Return what the directories of one process share with those of another one alone."""
    return (key.rank, key.device, key.step, key.model, key.model_id)


def chosen(path: str, found: Sequence[DumpedRun], wanted: int | None) -> DumpedRun | None:
    """Return a run by its number or its time; None: the newest one, None where there is no run.

    Args:
        path: The dump.
        found: Its runs.
        wanted: The number, or a time as a number, 20240131120000.

    Raises:
        DumpReadError: There is no such run.
    """
    if wanted is None or not found:
        return found[-1] if found else None
    for run in found:
        if wanted == run.number or str(wanted) in run.times:
            return run
    raise DumpReadError(path, f"no run {wanted}: there are {_listed(found)}")


@functools.cache
def warn_of_several(path: str, found: tuple[DumpedRun, ...]) -> None:
    """Log that a dump holds several runs of which the newest is read, once for each dump as it is."""
    _log.warning(
        "%s: holds %d runs, %s; the newest, %d, is taken", path, len(found), _listed(found), len(found) - 1
    )


def _listed(found: Sequence[DumpedRun]) -> str:
    most = 4
    texts = [f"{run.number} ({run.time})" for run in found]
    return ", ".join(texts if len(texts) <= most else [*texts[:2], "...", texts[-1]])
