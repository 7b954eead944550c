"""Where a program is cut into segments: a pure function of what stands alone and what is looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

MOST_BYTES: Final = 24 << 20
"""Bytes of tensors that a segment holds for an observer; an operator whose tensors reach it ends it.

They all live until the last operator of the segment has run.
"""

MOST_SHOWN: Final = 256
"""Operators of one segment that an observer looks at: their results wait for the last of them."""

MOST_WEIGHTS: Final = 128 << 20
"""Bytes of weights that the sessions of a segment pack; an operator with more of them begins one.

While a session is made, each weight is there three times: in the file's pages, as the copy that the runtime
takes of it, and packed. Only the last one stays.
"""

MOST: Final = 2048
"""Operators of one segment: the time to make a session grows faster than the number of its operators."""


def cut(
    operators: range,
    joins: Callable[[int], bool],
    shown: Callable[[int], int | None],
    waits: Callable[[int], bool],
    weights: Callable[[int], int] = lambda _: 0,
) -> list[range]:
    """Return the segments of consecutive operators.

    >>> cut(range(5), lambda position: position != 2, lambda _: None, lambda _: False)
    [range(0, 2), range(2, 3), range(3, 5)]
    >>> cut(range(4), lambda _: True, {1: 8}.get, lambda _: True)
    [range(0, 2), range(2, 4)]

    Args:
        operators: Positions of the operators.
        joins: Tells whether the operator at a position may run with others; else it stands alone.
        shown: Returns how many bytes of tensors an observer is shown at a position, None where it looks away.
        waits: Tells whether nothing may run on before the observer has seen a position that it is shown.
        weights: Returns how many bytes of weights the operator at a position packs.
    """
    segments: list[range] = []
    start, held, count, packed = operators.start, 0, 0, 0

    def close(end: int) -> None:
        nonlocal start, held, count, packed
        if end > start:
            segments.append(range(start, end))
        start, held, count, packed = end, 0, 0, 0

    for position in operators:
        size, weight = shown(position), weights(position)
        if packed and weight and packed + weight > MOST_WEIGHTS:
            close(position)
        packed += weight
        if not joins(position):
            close(position)
            close(position + 1)
        elif size is not None:
            held, count = held + size, count + 1
            if waits(position) or held >= MOST_BYTES or count >= MOST_SHOWN:
                close(position + 1)
        if position + 1 - start >= MOST:
            close(position + 1)
    close(operators.stop)
    return segments
