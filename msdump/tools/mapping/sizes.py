"""How many items go into a unit: as many as take a worker a quarter of a second, fewer near the end."""

from __future__ import annotations

import contextlib
import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

_Item = TypeVar("_Item")

ITEM_COST: Final = 1 << 17
"""Bytes that are worked on in the time that an item costs by itself."""

LARGE: Final = 4 << 20
"""Bytes of an item beside whose work the interpreter's share counts little."""

_SECONDS: Final = 0.25
_FIRST_RATE: Final = 300e6  # bytes a second, until a unit tells
_GROWTH: Final = 4  # times the unit before: one that was done in no time tells little of the next
_MOST_ITEMS: Final = 4096
_SHARES: Final = 2  # units for each worker that what is left at the end is cut into, again and again
_LEAST: Final = 0.1  # of a unit's time: what is left is cut no smaller


def file_size(path: str) -> int:
    """Return the bytes of a file, 0 where it cannot be asked: whoever reads it says why."""
    with contextlib.suppress(OSError):
        return os.stat(path).st_size  # noqa: PTH116 - of many files
    return 0


def directory_size(path: str) -> int:
    """Return the bytes of the files in a directory, without those below it; 0 where it cannot be listed."""
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        return sum(file_size(entry.path) for entry in entries)
    return 0


@dataclass(frozen=True, slots=True)
class Batch(Generic[_Item]):
    """The items of a unit.

    Attributes:
        items: The items.
        sizes: Bytes that each reads.
    """

    items: tuple[_Item, ...]
    sizes: tuple[int, ...]

    @property
    def cost(self) -> int:
        """Bytes that are worked on in the time that the unit takes."""
        return sum(self.sizes) + len(self.items) * ITEM_COST


@dataclass
class Batches(Generic[_Item]):
    """Cuts items into units, by the rate at which units before were done.

    Attributes:
        items: The items, which may be found while others are worked on.
        size: Returns the bytes that an item reads.
        workers: How many units are worked on at the same time.
    """

    items: Iterable[_Item]
    size: Callable[[_Item], int]
    workers: int = 1
    _cost: int = 0
    _seconds: float = 0.0
    _most: float = _FIRST_RATE * _SECONDS
    _sized: Iterator[tuple[_Item, int]] = field(init=False)
    _held: deque[tuple[_Item, int]] = field(default_factory=deque)
    _held_cost: int = 0

    def __post_init__(self) -> None:
        """Begin with the first item."""
        self._sized = ((item, self.size(item)) for item in self.items)

    def learn(self, batch: Batch[_Item], seconds: float) -> None:
        """Take in how long a unit took."""
        self._cost += batch.cost
        self._seconds += seconds

    def holds(self, cost: int) -> bool:
        """Tell whether items of a cost are left; looks ahead so far."""
        while self._held_cost < cost:
            ahead = next(self._sized, None)
            if ahead is None:
                return False
            self._held.append(ahead)
            self._held_cost += ahead[1] + ITEM_COST
        return True

    def begin_large(self) -> bool:
        """Tell whether the items that ``holds`` looked at are large, in the mean."""
        return sum(size for _, size in self._held) >= LARGE * len(self._held)

    def next(self) -> Batch[_Item] | None:
        """Return the next unit, None where no item is left."""
        enough = self._enough()
        if not self.holds(1):
            return None
        taken: list[tuple[_Item, int]] = []
        cost = 0
        while not taken or (cost < enough and len(taken) < _MOST_ITEMS and self.holds(1)):
            taken.append(self._held.popleft())
            cost += taken[-1][1] + ITEM_COST
            self._held_cost -= taken[-1][1] + ITEM_COST
        items, sizes = zip(*taken, strict=True)
        return Batch(items, sizes)

    def _enough(self) -> float:
        """Return the cost of the next unit."""
        rate = self._cost / self._seconds if self._seconds else _FIRST_RATE
        enough = min(rate * _SECONDS, self._most)
        self._most = enough * _GROWTH
        shares = _SHARES * self.workers
        if self.holds(math.ceil(enough * shares)):
            return enough
        # the end is in sight: workers should come to it at the same time
        return max(self._held_cost / shares, enough * _LEAST)

    def rest(self) -> Iterator[tuple[_Item, int]]:
        """Yield the items that are left with their sizes, one by one."""
        yield from self._held
        yield from self._sized
