"""Delta debugging (Zeller and Hildebrandt, 2002): the smallest part of a list for which a test holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

_Item = TypeVar("_Item")


def minimise(items: Sequence[_Item], holds: Callable[[Sequence[_Item]], bool]) -> list[_Item]:
    """Return a part of a list for which a test holds, and without any one of whose items it does not.

    >>> minimise(range(100), lambda part: {7, 42} <= set(part))
    [7, 42]

    Args:
        items: The list, for which the test holds.
        holds: The test; it is asked about each part once.
    """
    asked: dict[tuple[int, ...], bool] = {}

    def test(part: Sequence[int]) -> bool:
        key = tuple(part)
        if key not in asked:
            asked[key] = holds([items[index] for index in key])
        return asked[key]

    left = list(range(len(items)))
    count = 2
    while len(left) > 1:
        size = -(-len(left) // count)
        parts = [left[start : start + size] for start in range(0, len(left), size)]
        others = [[index for index in left if index not in part] for part in parts]
        smaller = next((part for part in parts if test(part)), None)
        if smaller is not None:
            left, count = smaller, 2
            continue
        smaller = next((rest for rest in others if rest and test(rest)), None)
        if smaller is not None:
            left, count = smaller, max(count - 1, 2)
        elif count >= len(left):
            break
        else:
            count = min(2 * count, len(left))
    return [items[index] for index in left]
