"""Operators of one execution that stand where another operator stood in the other execution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet


def pairs(
    anchors: Sequence[int | None], alone: AbstractSet[int], free: AbstractSet[int]
) -> Iterator[tuple[int, int]]:
    """Yield the places of operators that replace each other.

    An operator replaces another one if each is the only one of its execution without a counterpart in
    the gap between two operators that have one. Where several of one side stand in a gap, nothing tells
    which belongs to which.

    >>> list(pairs([0, None, 2], alone={1}, free={1}))
    [(1, 1)]
    >>> list(pairs([0, None, None, 2], alone={1, 2}, free={1}))
    []

    Args:
        anchors: For each place of one execution the place of its counterpart in the other one, None
            for none.
        alone: Places of the first execution whose operator the other one lacks.
        free: Places of the other one whose operator the first lacks.
    """
    if all(anchor is None for anchor in anchors):  # without any pair the whole execution would be one gap
        return
    last = max((place for place in (*free, *anchors) if place is not None), default=-1)
    previous_anchor, pending = -1, []
    for place, anchor in enumerate((*anchors, last + 1)):
        if place in alone:
            pending.append(place)
        if anchor is None:
            continue
        if len(pending) == 1:
            candidates = [
                golden_place for golden_place in range(previous_anchor + 1, anchor) if golden_place in free
            ]
            if len(candidates) == 1:
                yield pending[0], candidates[0]
        previous_anchor, pending = anchor, []
