"""Which operator of one execution stands where another one stood in the other execution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet


def pairs(
    anchors: Sequence[int | None], alone: AbstractSet[int], free: AbstractSet[int]
) -> Iterator[tuple[int, int]]:
    """Yield places of operators that replace each other.

    They are the only ones without a counterpart between two pairs.

    Where several of one side stand in such a gap nothing tells which belongs to which; without any
    pair in the whole execution there is no gap.

    Args:
        anchors: For each place of one execution the place of its counterpart in the other one, None
            for none.
        alone: Places of the first execution whose operator the other one lacks.
        free: Places of the other one whose operator the first lacks.
    """
    if all(anchor is None for anchor in anchors):
        return
    last = max((place for place in (*free, *anchors) if place is not None), default=-1)
    before, pending = -1, []
    for place, anchor in enumerate((*anchors, last + 1)):
        if place in alone:
            pending.append(place)
        if anchor is None:
            continue
        if len(pending) == 1:
            between = [other for other in range(before + 1, anchor) if other in free]
            if len(between) == 1:
                yield pending[0], between[0]
        before, pending = anchor, []
