"""Sets of iteration numbers.

>>> numbers = IterationSet.of([(5, 8), (0, 0), (7, 9)])
>>> str(numbers), 8 in numbers, 3 in numbers
('0|5-9', True, False)
>>> str(numbers.including(10)), numbers.first_outside(5)
('0|5-10', 10)
>>> str(IterationSet()), 10**9 in IterationSet()
('all', True)
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

_LAST: Final = 1 << 64
"""Above every iteration: (number, _LAST) sorts behind all spans that start at the number."""


@dataclass(frozen=True, slots=True)
class IterationSet:
    """A set of iteration numbers.

    Attributes:
        spans: Closed ranges, sorted, disjoint and not adjacent; None: every iteration.
    """

    spans: tuple[tuple[int, int], ...] | None = None

    @classmethod
    def of(cls, spans: list[tuple[int, int]]) -> IterationSet:
        """Return the union of closed ranges, in any order and overlap."""
        merged: list[tuple[int, int]] = []
        for low, high in sorted(spans):
            # adjacent spans become one, so that the shortest text is printed
            if merged and low <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
            else:
                merged.append((low, high))
        return cls(tuple(merged))

    def __contains__(self, iteration: object) -> bool:
        """Tell whether an iteration belongs to the set."""
        if self.spans is None:
            return True
        if not isinstance(iteration, int):
            return False
        index = bisect_right(self.spans, (iteration, _LAST)) - 1
        return index >= 0 and self.spans[index][0] <= iteration <= self.spans[index][1]

    def including(self, iteration: int) -> IterationSet:
        """Return the set with one more iteration."""
        if self.spans is None:
            return self
        if self.spans and iteration == self.spans[-1][1] + 1:  # a network that counts adds one with each run
            return IterationSet((*self.spans[:-1], (self.spans[-1][0], iteration)))
        return IterationSet.of([*self.spans, (iteration, iteration)])

    def first_outside(self, iteration: int) -> int:
        """Return an iteration, or the next one, that does not belong to a set with an end."""
        assert self.spans is not None, "every iteration belongs to the set"
        index = bisect_right(self.spans, (iteration, _LAST)) - 1
        return iteration if iteration not in self else self.spans[index][1] + 1

    def __str__(self) -> str:
        """Return the shortest text of the iteration grammar for the set."""
        if self.spans is None:
            return "all"
        return "|".join(str(low) if low == high else f"{low}-{high}" for low, high in self.spans)
