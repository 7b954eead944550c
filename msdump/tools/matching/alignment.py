"""The longest order that two sequences share: which elements stay when one becomes the other."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Final

_MOST_CHANGES: Final = 400
"""Sequences that differ in more elements are not aligned: time and memory grow with its square."""


def aligned(mine: Sequence[Hashable], golden: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return the places of equal elements in a shortest way from one sequence to the other, in order.

    Nothing comes back where the sequences have too little in common. (E. W. Myers, An O(ND) Difference
    Algorithm and Its Variations, 1986.)

    >>> aligned("conv add relu".split(), "conv relu".split())
    [(0, 0), (2, 1)]
    """
    size = len(mine), len(golden)
    if abs(size[0] - size[1]) > _MOST_CHANGES:
        return []
    furthest = {1: 0}
    steps: list[dict[int, int]] = []
    for changes in range(min(sum(size), _MOST_CHANGES) + 1):
        steps.append(dict(furthest))
        for diagonal in range(-changes, changes + 1, 2):
            place = _start(furthest, diagonal, changes)
            other = place - diagonal
            while place < size[0] and other < size[1] and mine[place] == golden[other]:
                place, other = place + 1, other + 1
            furthest[diagonal] = place
            if place >= size[0] and other >= size[1]:
                return list(_way_back(steps, *size))[::-1]
    return []


def _start(furthest: dict[int, int], diagonal: int, changes: int) -> int:
    """Return how far one more change reaches in the first sequence: one element less, or one more."""
    is_added = diagonal == -changes or (
        diagonal != changes and furthest.get(diagonal - 1, -1) < furthest.get(diagonal + 1, -1)
    )
    return furthest[diagonal + 1] if is_added else furthest[diagonal - 1] + 1


def _way_back(steps: Sequence[dict[int, int]], place: int, other: int) -> Iterator[tuple[int, int]]:
    """Yield the places of equal elements on the way that was found, the last ones first."""
    for changes in range(len(steps) - 1, -1, -1):
        furthest, diagonal = steps[changes], place - other
        start = _start(furthest, diagonal, changes) if changes else 0
        begin = start, start - diagonal
        while place > begin[0] and other > begin[1]:
            place, other = place - 1, other - 1
            yield place, other
        is_added = changes and start == furthest.get(diagonal + 1)
        place, other = (begin[0], begin[1] - 1) if is_added else (begin[0] - 1, begin[1])
