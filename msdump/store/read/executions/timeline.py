"""Runs of a graph whose tensors lie in one directory, separated by the order of their timestamps.

A graph runs its operators in a fixed order and each of them once. Where a tensor comes again, a new
run has begun: another program wrote into the same path, or a loop ran its body once more. A run that
was broken off or that dumped other operators hides where the next one begins; the order of the
operators tells, and the time at which the graph was loaded.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

Span = tuple[int, int]
"""First and last timestamp of a run."""


@dataclass(frozen=True, slots=True)
class Moment:
    """When a tensor was taken.

    Attributes:
        time: Microseconds since the epoch.
        tensor: Which tensor of the graph it is: equal for the same tensor in every run.
        place: Number of its operator in the graph's order, None where that is not known.
        bearers: How many operators of the graph have files of this name: so often it comes in one run.
    """

    time: int
    tensor: Hashable
    place: int | None = None
    bearers: int = 1


def ordinals(keys: Iterable[Hashable]) -> Iterator[int]:
    """Yield for each key how often it came before: the pass numbers of tensors in the order of time.

    >>> list(ordinals("abac"))
    [0, 0, 1, 0]
    """
    counts: Counter[Hashable] = Counter()
    for key in keys:
        yield counts[key]
        counts[key] += 1


def runs(moments: Sequence[Moment], loaded: int | None = None) -> list[int]:
    """Return the index of the moment at which each run begins; 0 comes first, where there are any moments.

    >>> order = "ABC"
    >>> moments = [Moment(time, tensor, order.index(tensor)) for time, tensor in enumerate("ABCAB")]
    >>> runs(moments)
    [0, 3]

    Args:
        moments: By time.
        loaded: When a program last loaded the graph, microseconds since the epoch: what is older is of
            an earlier program. None where that is not known.
    """
    repeats = _starts(moments, loaded, follows_order=False)
    # Operators that ran side by side are not in the list's order: the list then tells nothing.
    drops = sum(_drop(before, after) > 0 for before, after in pairwise(moments))
    # in a list that holds, the order goes back once between two runs and nowhere else
    return repeats if drops >= len(repeats) else _starts(moments, loaded, follows_order=True)


def _starts(moments: Sequence[Moment], loaded: int | None, *, follows_order: bool) -> list[int]:
    """Return where runs begin: where the graph was loaded in between, or a tensor comes once too often.

    With ``follows_order`` a run that a repeated tensor tells of begins at the largest drop in the operators'
    order since the tensor came before; else at the repeated tensor.
    """
    starts = [0] if moments else []
    indices: defaultdict[Hashable, list[int]] = defaultdict(list)
    index = 0
    while index < len(moments):
        moment, before = moments[index], indices[moments[index].tensor]
        if loaded is not None and index > starts[-1] and moments[index - 1].time < loaded <= moment.time:
            cut = index
        elif len(before) >= moment.bearers:
            cut = _largest_drop(moments, before[-moment.bearers], index) if follows_order else index
        else:
            before.append(index)
            index += 1
            continue
        starts.append(cut)
        # the moments from the cut up to here belong to the new run
        indices.clear()
        for number in range(cut, index):
            indices[moments[number].tensor].append(number)
    return starts


def _largest_drop(moments: Sequence[Moment], first: int, last: int) -> int:
    """Return the moment at which the graph's order starts again, at the latest the last one."""
    return max(range(last, first, -1), key=lambda index: _drop(moments[index - 1], moments[index]))


def _drop(before: Moment, after: Moment) -> int:
    """Return how far the order goes back between two moments, 0 where it does not or is not known."""
    if before.place is None or after.place is None:
        return 0
    return max(0, before.place - after.place)


def spans(moments: Sequence[Moment], starts: Sequence[int]) -> list[Span]:
    """Return first and last timestamp of each run."""
    return [(part[0].time, part[-1].time) for part in _parts(moments, starts)]


def nearest(candidates: Sequence[Span], span: Span, loaded: int | None = None) -> int:
    """Return the index of the candidate that overlaps a span, else of the one nearest in time.

    >>> nearest([(0, 9), (20, 29)], (12, 14))
    0

    Args:
        candidates: Spans, at least one.
        span: The span to be assigned.
        loaded: When a program last loaded the graph: a span before that time belongs to none behind it,
            however near. None where that is not known.
    """
    indices: Sequence[int] = range(len(candidates))
    if loaded is not None:
        is_later = span[0] >= loaded
        indices = [index for index in indices if (candidates[index][0] >= loaded) == is_later] or indices
    return min(indices, key=lambda index: _gap(candidates[index], span))


def _gap(one: Span, other: Span) -> int:
    """Return the microseconds between two spans, 0 where they overlap."""
    return max(0, one[0] - other[1], other[0] - one[1])


def whole(moments: Sequence[Moment], starts: Sequence[int]) -> list[bool]:
    """Tell of each run whether it went as far as the one that went farthest.

    The operators' order tells; without it a whole run ends with the tensor that the longest one ends with.
    """
    parts = _parts(moments, starts)
    if any(moment.place is None for moment in moments):
        last = max(parts, key=len, default=[Moment(0, None)])[-1].tensor
        return [any(moment.tensor == last for moment in part) for part in parts]
    reached = [max(moment.place or 0 for moment in part) for part in parts]
    return [place == max(reached) for place in reached]


def _parts(moments: Sequence[Moment], starts: Sequence[int]) -> list[Sequence[Moment]]:
    return [moments[start:end] for start, end in zip(starts, [*starts[1:], len(moments)], strict=False)]
