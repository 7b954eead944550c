"""Checks watch rules step after step, and keeps the values of earlier steps that they need.

Tensors that ranks should share are compared by their statistics; ranks that differ from the majority are
named. Most tensors are cleared by their sum of squares alone: it bounds the magnitude of all elements.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Final

import numpy as np

from msdump.watch.quantities import FLOAT16_LIMIT, Elements, Past, Row
from msdump.watch.rules import Comparison, Limit, WatchedTensor, WatchRule

_SLACK: Final = 1.001  # factor above the rounding error of a float32 sum of squares (short runs)
_VANISHED: Final = 2.0**-125  # above the error of a square that underflows in float32
_LARGE: Final = (inf, math.nextafter(FLOAT16_LIMIT, 0))  # magnitudes to try; infinity: any finite number


def cleared_squares(rules: Sequence[WatchRule]) -> tuple[float, float]:
    """Return an open interval: if the sum of squares of a tensor's elements is in it, no rule hits."""
    limits = [(limit, rule) for rule in rules for limit in rule.limits]
    most = inf
    for limit, rule in limits:
        tried = {*_LARGE, abs(limit.value), abs(limit.value) / 2, *map(abs, rule.settings.values())} - {0.0}
        most = min(most, max((each for each in tried if _is_harmless(limit, rule, each)), default=0.0))
    takes_zeros = all(_is_harmless(limit, rule, 0.0) for limit, rule in limits)
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


def _is_harmless(limit: Limit, rule: WatchRule, magnitude: float) -> bool:
    """Return whether elements up to a magnitude, not all of them zero unless it is 0, cannot pass a limit."""
    if limit.quantity.range_below is None or rule.is_first_only:
        return False
    low, high = limit.quantity.range_below(magnitude, rule.settings)
    is_above = limit.comparison in {Comparison.ABOVE, Comparison.AT_LEAST}
    return not limit.comparison.holds(high if is_above else low, limit.value)


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
        note: A sentence that replaces the numbers in messages; "" to show the numbers.
    """

    rule: WatchRule
    limit: Limit
    subject: WatchedTensor
    moment: Sighting
    measured: float
    note: str = ""

    def __str__(self) -> str:
        """Return the note, or value and limit: ``the largest element is 7 (> max_gt 5)``."""
        limit = self.limit
        name = f"{limit.parameter} " if limit.parameter else ""
        passed = f"{limit.comparison.value} {name}{limit.value:g}"
        return self.note or f"{limit.quantity.text} is {self.measured:.6g} ({passed})"


@dataclass(frozen=True, slots=True)
class Undecided:
    """A rule that could not be checked on a tensor, and the reason as a sentence."""

    rule: WatchRule
    subject: WatchedTensor
    reason: str


Finding = Hit | Undecided


@dataclass(frozen=True, slots=True)
class SharedTensor:
    """A tensor of a rank that ranks should share: moment of the check, rules, its statistics as a text."""

    subject: WatchedTensor
    moment: Sighting
    rules: Sequence[WatchRule]
    row: str


def compare_ranks(
    rows: Mapping[int, str], tensors: Mapping[int, SharedTensor]
) -> tuple[list[Finding], dict[int, str]]:
    """Compare the statistics of a tensor that ranks should share; on a tie the first rank's count.

    Args:
        rows: Statistics of the tensor by rank, in the order of ranks.
        tensors: The tensor by rank, on the ranks that are reported.

    Returns:
        The hits and undecided rules on ``tensors``, and a sentence for each rank that is in a minority.
    """
    common = Counter(rows.values()).most_common(1)[0][0]
    others = ", ".join(str(rank) for rank, each in rows.items() if each == common)
    apart = {rank: f"rank {rank} differs from rank {others}" for rank, each in rows.items() if each != common}
    findings: list[Finding] = []
    for rank, tensor in tensors.items():
        for rule in tensor.rules:
            if len(rows) == 1:
                findings.append(Undecided(rule, tensor.subject, "only one rank has the tensor"))
            elif rank in apart:
                found = tensor.subject, tensor.moment, float(len(apart)), apart[rank]
                findings.append(Hit(rule, rule.limits[0], *found))
    return findings, apart


class RuleWatch:
    """Checks rules on the tensors of one step after the other.

    Memory is bounded: the elements of each tensor with a rule on changes in the last step, and a window of
    values for each running median.
    """

    def __init__(
        self,
        rules: Sequence[WatchRule],
        remember: Callable[[Elements], Elements | None] = lambda elements: elements,
    ) -> None:
        """Start with no step; ``remember`` returns elements kept for the next one, None without room."""
        self.rules = tuple(rules)
        self._remember = remember
        self._before: dict[Hashable, Elements | None] = {}
        self._trails: dict[Hashable, deque[float]] = {}
        self._begun: set[Hashable] = set()

    def rules_for(self, subject: WatchedTensor) -> tuple[WatchRule, ...]:
        """Return the rules that select a tensor, including rules that compare ranks."""
        return tuple(rule for rule in self.rules if rule.target.takes(subject))

    def check(
        self,
        rules: Sequence[WatchRule],
        subject: WatchedTensor,
        moment: Sighting,
        row: Row,
        elements: Elements | None = None,
    ) -> list[Finding]:
        """Return the limits that a tensor has passed, and the rules that could not be checked.

        ``rules`` select the tensor (``rules_for``) and compare no ranks. Without elements only its statistics
        are known.
        """
        key = (moment.place, subject.name, subject.io, subject.slot, moment.rank, moment.pass_number)
        findings: list[Finding] = []
        for rule in rules:
            if moment.iteration not in rule.target.iterations or (rule.name, key) in self._begun:
                continue
            if rule.is_first_only:
                self._begun.add((rule.name, key))
            for limit in rule.limits:
                value = self._value(rule, limit, key, row, elements)
                if isinstance(value, str):
                    findings.append(Undecided(rule, subject, value))
                elif value is not None and limit.comparison.holds(value, limit.value):
                    findings.append(Hit(rule, limit, subject, moment, value))
        if any(rule.compares_steps for rule in rules):
            self._before.pop(key, None)  # first, to free the old elements' memory
            self._before[key] = None if elements is None else self._remember(elements)
        return findings

    def _value(
        self, rule: WatchRule, limit: Limit, key: Hashable, row: Row, elements: Elements | None
    ) -> float | str | None:
        """Return a quantity; None where there are too few earlier steps, a reason where it is unknown."""
        quantity = limit.quantity
        compares = quantity.past is Past.TENSOR
        if compares and key not in self._before:
            return None
        if quantity.of_elements is not None and elements is not None:
            array, old = elements(), None
            if compares:
                before = self._before[key]
                if before is None:
                    return f"{quantity.text} needs the elements of the step before, which were not kept"
                old = before()
                if array.shape != old.shape:
                    was, is_now = (f"({','.join(map(str, shape))})" for shape in (old.shape, array.shape))
                    return f"its shape was {was} in the step before and is {is_now}"
            with np.errstate(all="ignore"):
                return quantity.of_elements(array, old, rule.settings)
        try:
            if quantity.of_row is not None:
                value = quantity.of_row(row)
                return self._growth(rule, limit, key, value) if quantity.past is Past.VALUES else value
        except KeyError:  # the row lacks a statistic
            pass
        columns = " and ".join(quantity.columns)
        statistics = f", or the statistics {columns}" if columns and quantity.source == "the elements" else ""
        return f"{quantity.text} needs {quantity.source}{statistics}"

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
