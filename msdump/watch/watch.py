"""Checks watch rules step after step, and keeps the values of earlier steps that they need.

Tensors that ranks should share are compared; ranks that differ from the majority are named. Most tensors are
cleared by their sum of squares alone: it bounds the magnitude of all elements below every limit.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Final

import numpy as np

from msdump.watch.quantities import FLOAT16_LIMIT, Bounds, Past, Seen, exactly
from msdump.watch.rules import Limit, WatchedTensor, WatchRule

_ALONE: Final = "only one rank has the tensor"

DIGEST_BYTES: Final = 16


def digest(array: np.ndarray) -> bytes:
    """Return a hash of shape, type and bits of an array, in 16 bytes.

    >>> digest(np.float32([1, 2])) == digest(np.float32([1, 2])), digest(np.int32([1])) == digest(np.int32(1))
    (True, False)
    """
    found = hashlib.blake2b(f"{array.shape} {array.dtype} ".encode(), digest_size=DIGEST_BYTES)
    found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.digest()


_SLACK: Final = 1.001  # factor above the rounding error of a float32 sum of squares (short runs)
_VANISHED: Final = 2.0**-125  # above the error of a square that underflows in float32
_LARGE: Final = (inf, math.nextafter(FLOAT16_LIMIT, 0))  # magnitudes to try; infinity: any finite number


def cleared_squares(rules: Sequence[WatchRule]) -> tuple[float, float]:
    """Return an open interval: if the sum of squares of a tensor's elements is in it, no rule hits."""
    limits = [(limit, rule) for rule in rules for limit in rule.limits]
    most = min((_harmless_magnitude(limit, rule) for limit, rule in limits), default=inf)
    takes_zeros = all(_keeps(limit, rule, 0.0) for limit, rule in limits)
    return (-1.0 if takes_zeros else 0.0), most * most


def are_cleared(squares: np.ndarray, sizes: np.ndarray, intervals: np.ndarray) -> np.ndarray:
    """Return for each tensor whether its sum of squares proves that no rule hits.

    The root of the sum of squares bounds every element; if the sum is not zero, some element is not zero.

    >>> are_cleared(np.array([4.0, 9.0, 0.0, np.nan]), np.array([1, 1, 1, 1]), np.array([[0.0, 9.0]] * 4))
    array([ True, False, False, False])

    Args:
        squares: Sum of the squares of each tensor's elements, in float64 or added up in float32.
        sizes: Number of elements of each tensor.
        intervals: A row for each tensor: its ``cleared_squares``.
    """
    with np.errstate(all="ignore"):
        return (squares > intervals[:, 0]) & (squares * _SLACK + sizes * _VANISHED < intervals[:, 1])


def _harmless_magnitude(limit: Limit, rule: WatchRule) -> float:
    """Return a magnitude up to which elements (not all zero) cannot pass a limit; 0 if unknown."""
    candidates = {*_LARGE, abs(limit.value), abs(limit.value) / 2, *map(abs, rule.settings.values())}
    return next(
        (each for each in sorted(candidates, reverse=True) if each and _keeps(limit, rule, each)), 0.0
    )


def _keeps(limit: Limit, rule: WatchRule, magnitude: float) -> bool:
    """Return whether elements up to a magnitude cannot pass a limit."""
    below = limit.quantity.below
    if below is None or limit.quantity.past is not Past.NOTHING or rule.is_first_only:
        return False
    return limit.comparison.holds(below(magnitude, rule.settings), limit.value) is False


Remember = Callable[[Seen, bool], Seen]
"""Returns the part of a tensor that is kept for the next step; with its elements only if the flag is set."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """The moment and place of a check.

    Attributes:
        iteration: Number of the iteration.
        rank: Number of the rank.
        pass_number: Run of the operator within the iteration, from 0.
        time: Microseconds since the epoch, 0 where unknown.
        place: Network and graph, which separate equal names.
        path: File of the tensor, or directory of the table with its statistics; "" while a network runs.
        source: Source line of the operator, "" where unknown.
    """

    iteration: int
    rank: int = 0
    pass_number: int = 0
    time: int = 0
    place: str = ""
    path: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Hit:
    """A limit that a tensor has passed.

    Attributes:
        rule: The rule.
        limit: Its limit.
        subject: The tensor.
        moment: Moment of the check.
        measured: The quantity; bounds where statistics alone showed the hit.
        note: A sentence that replaces the numbers in messages; "" to show the numbers.
    """

    rule: WatchRule
    limit: Limit
    subject: WatchedTensor
    moment: Sighting
    measured: Bounds
    note: str = ""

    def __str__(self) -> str:
        """Return the note, or value and limit: ``the largest element is 7 (> max_gt 5)``."""
        if self.note:
            return self.note
        limit, value = self.limit, f"{self.limit.value:g}"
        name = f"{limit.parameter} " if limit.parameter else ""
        return f"{limit.quantity.text} is {self.measured} ({limit.comparison.value} {name}{value})"


@dataclass(frozen=True, slots=True)
class Undecided:
    """A rule that could not be checked on a tensor, and the reason as a sentence."""

    rule: WatchRule
    subject: WatchedTensor
    reason: str


Finding = Hit | Undecided


@dataclass(frozen=True, slots=True)
class SharedTensor:
    """A tensor of a rank that ranks should share.

    Attributes:
        subject: The tensor.
        moment: Moment of the check.
        rules: Rules that compare it.
        digest: A hash of the contents.
    """

    subject: WatchedTensor
    moment: Sighting
    rules: Sequence[WatchRule]
    digest: bytes


def compare_ranks(
    held: Mapping[int, Hashable], tensors: Mapping[int, SharedTensor]
) -> tuple[list[Finding], dict[int, str]]:
    """Compare the contents of a tensor that ranks should share.

    Args:
        held: Digest of the tensor by rank, in the order of ranks.
        tensors: The tensor by rank, on the ranks that are reported.

    Returns:
        The hits and undecided rules on ``tensors``, and a sentence for each rank that is in a minority.
    """
    apart = _disagreeing(held)
    findings: list[Finding] = []
    for rank, tensor in tensors.items():
        for rule in tensor.rules:
            if len(held) == 1:
                findings.append(Undecided(rule, tensor.subject, _ALONE))
            elif rank in apart:
                count = exactly(len(apart))
                findings.append(Hit(rule, rule.limits[0], tensor.subject, tensor.moment, count, apart[rank]))
    return findings, apart


def _disagreeing(held: Mapping[int, Hashable]) -> dict[int, str]:
    """Return a sentence for each rank that differs from the majority; on a tie the first digest wins.

    >>> _disagreeing({0: "a", 1: "b", 2: "a"}), _disagreeing({0: "a", 1: "b"}), _disagreeing({0: "a", 1: "a"})
    ({1: 'rank 1 differs from rank 0, 2'}, {1: 'rank 1 differs from rank 0'}, {})
    """
    common = Counter(held.values()).most_common(1)[0][0]
    others = ", ".join(str(rank) for rank, each in held.items() if each == common)
    return {rank: f"rank {rank} differs from rank {others}" for rank, each in held.items() if each != common}


class RuleWatch:
    """Checks rules on the tensors of one step after the other.

    Memory is bounded: the last step's value of each tensor with a rule on changes, and a window of values for
    each running median.
    """

    def __init__(self, rules: Sequence[WatchRule], remember: Remember | None = None) -> None:
        """Start with nothing seen.

        Args:
            rules: The rules.
            remember: Reduces a tensor to the part needed in the next step; None: tensors are kept unchanged.
        """
        self.rules = tuple(rules)
        self._remember = remember or (lambda seen, _: seen)
        self._before: dict[Hashable, Seen] = {}
        self._trails: dict[Hashable, deque[float]] = {}
        self._begun: set[Hashable] = set()
        self._compares = any(_compares_steps(rule) for rule in rules)

    def rules_for(self, subject: WatchedTensor) -> tuple[WatchRule, ...]:
        """Return the rules that select a tensor, including rules that compare ranks."""
        return tuple(rule for rule in self.rules if rule.target.takes(subject))

    def check(
        self, rules: Sequence[WatchRule], subject: WatchedTensor, moment: Sighting, seen: Seen
    ) -> list[Finding]:
        """Return the limits that a tensor has passed, and the rules that could not be checked.

        Args:
            rules: Rules that select it (``rules_for``), without rules that compare ranks.
            subject: The tensor.
            moment: Moment of the check.
            seen: Its statistics and elements.
        """
        key = (moment.place, subject.name, subject.io, subject.slot, moment.rank, moment.pass_number)
        before = self._before.get(key)
        findings: list[Finding] = []
        for rule in rules:
            if moment.iteration not in rule.target.iterations or (
                rule.is_first_only and (rule.name, key) in self._begun
            ):
                continue
            if rule.is_first_only:
                self._begun.add((rule.name, key))
            for limit in rule.limits:
                measured = self._passed(rule, limit, seen, before, key)
                if isinstance(measured, str):
                    findings.append(Undecided(rule, subject, measured))
                elif measured is not None:
                    findings.append(Hit(rule, limit, subject, moment, measured))
        if self._compares and any(_compares_steps(rule) for rule in rules):
            self._before.pop(key, None)  # first, to free the old value's memory
            self._before[key] = self._remember(seen, any(rule.keeps_elements for rule in rules))
        return findings

    def _passed(
        self, rule: WatchRule, limit: Limit, seen: Seen, before: Seen | None, key: Hashable
    ) -> Bounds | str | None:
        """Return the quantity's bounds if it passes a limit, else None; a reason (str) if undecidable."""
        past = limit.quantity.past
        if past is Past.TENSOR and before is None:
            return None
        bounds = limit.quantity.bounds(seen, before, rule.settings)
        if past is Past.VALUES:
            if not bounds.is_exact:
                return _needs(limit, None)
            growth = self._growth(rule, limit, key, bounds.low)
            if growth is None:
                return None
            bounds = exactly(growth)
        passes = limit.comparison.holds(bounds, limit.value)
        if passes is None or (passes and not bounds.is_exact):
            exact = _exact(rule, limit, seen, before)
            if isinstance(exact, str):
                return exact
            if exact is not None:
                bounds = exactly(exact)
                passes = limit.comparison.holds(bounds, limit.value)
            elif passes is None:
                return _needs(limit, seen)
        return bounds if passes else None

    def _growth(self, rule: WatchRule, limit: Limit, key: Hashable, value: float) -> float | None:
        """Return a value divided by the median of the last steps; None if there are too few steps."""
        trail = self._trails.setdefault(
            (rule.name, limit.quantity.text, limit.parameter, key), deque(maxlen=int(rule.settings["window"]))
        )
        median = statistics.median(trail) if len(trail) >= rule.settings["after"] else None
        if isfinite(value):  # the median is of finite values only
            trail.append(value)
        if median is None:
            return None
        if not isfinite(value):
            return inf
        # for negative medians, a rise by ``abs(median)`` counts as a growth of 2
        return (value - median) / abs(median) + 1 if median else inf if value > 0 else 1


def _compares_steps(rule: WatchRule) -> bool:
    return any(limit.quantity.past is Past.TENSOR for limit in rule.limits)


def _exact(rule: WatchRule, limit: Limit, seen: Seen, before: Seen | None) -> float | str | None:
    """Return a quantity computed from the elements; None without elements; a reason (str) if undefined."""
    exact, old = limit.quantity.exact, None
    if exact is None or seen.elements is None:
        return None
    if limit.quantity.past is Past.TENSOR:
        if before is None or before.elements is None:
            return None
        old = before.elements()
    array = seen.elements()
    if old is not None and array.shape != old.shape:
        was, is_now = (f"({','.join(map(str, shape))})" for shape in (old.shape, array.shape))
        return f"its shape was {was} in the step before and is {is_now}"
    with np.errstate(all="ignore"):
        return exact(array, old, rule.settings)


def _needs(limit: Limit, seen: Seen | None) -> str:
    if limit.quantity.past is Past.TENSOR and seen is not None and seen.elements is not None:
        return f"{limit.quantity.text} needs the elements of the step before, which were not kept"
    columns = " and ".join(limit.quantity.columns)
    or_statistics = f", or the statistics {columns}" if columns else ""
    return f"{limit.quantity.text} needs {limit.quantity.source}{or_statistics}"
