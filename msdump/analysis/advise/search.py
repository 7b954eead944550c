"""The search for a small set of operators to keep: predicted from single roundings, then measured."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, groupby
from typing import Final

import numpy as np

from msdump.analysis.advise.roundings import RoundingMeter, TensorRounding, list_roundings
from msdump.analysis.advise.variants import DeviceRuns
from msdump.graph.kernel import FLOAT32

MOST_EXACT: Final = 16
"""Networks of up to so many operators that can be kept are searched exhaustively."""

_ONE_STRETCH: Final = 40  # runs of the network that measuring without stretches may cost
_SEARCHING: Final = 30  # runs of the network, as an estimate, until a small set is found
_SHRINKING: Final = 600  # runs of the network after which a set is not shrunk further
_FEWEST: Final = 16  # operators that are tried side by side, more where none of them can go
_SECTIONS: Final = 4  # sets of a series that are tried side by side


@dataclass(slots=True)
class SetSearch:
    """Searches a small set of operators to keep, again whenever inputs are added.

    Attributes:
        runs: The network and its inputs.
        limit: The largest error of any output of any input.
        best: The smallest set so far that held for the inputs of its time.
        is_minimal: Whether no operator of the set that was found last can go, for its inputs.
    """

    runs: DeviceRuns
    limit: float
    best: frozenset[int] | None = None
    is_minimal: bool = False
    _energies: dict[str, np.ndarray] = field(default_factory=dict)
    _wide: np.ndarray | None = None
    _sizes: Mapping[int, int] = field(init=False)

    def __post_init__(self) -> None:
        """Count the operators of each candidate."""
        candidates = self.runs.variants.candidates
        self._sizes = {position: len(nodes) for position, nodes in candidates.items()}

    def smallest(self) -> frozenset[int] | None:
        """Return a small set with measured errors within the bound, None where there is none."""
        self.best, self.is_minimal = None, True
        nothing, everything = frozenset[int](), frozenset(self._sizes)
        found = self._first_holding([nothing, everything])
        if not found:
            return found
        is_small = sum(self._sizes.values()) <= MOST_EXACT
        return self._exhaustive() if is_small else self._by_roundings()

    def _exhaustive(self) -> frozenset[int]:
        """Return the set of fewest operators, of several the one with the smallest error."""
        counts = range(1, 1 + len(self._sizes))
        sets = [frozenset(each) for count in counts for each in combinations(self._sizes, count)]
        for _, alike in groupby(sorted(sets, key=self._size), self._size):
            found = self._first_holding([*alike], by_error=True)
            if found is not None:
                return found
        raise AssertionError("everything holds")

    def _by_roundings(self) -> frozenset[int]:
        variants, count = self.runs.variants, len(self._sizes)
        roundings = self._measured()
        self._expect(_SEARCHING + count / 8)
        kept = self._thinned(self._of_series(roundings.series()), roundings)
        return self._shrunk(kept, roundings, variants.spent + _SHRINKING * len(variants.graph.nodes))

    def _expect(self, runs: float) -> None:
        """Report the estimated number of runs of the network that are left."""
        variants = self.runs.variants
        variants.progress.expect(variants.spent + runs * len(variants.graph.nodes))

    def _measured(self) -> Roundings:
        """Return the roundings with their energies: the largest of all inputs."""
        variants, examples = self.runs.variants, self.runs.examples
        singles = list_roundings(variants)
        is_short = len(singles) / 2 * len(examples) <= _ONE_STRETCH and not variants.heavy
        stretches = 1 if is_short else round(math.sqrt(len(singles)))
        waiting = [example for example in examples if example.name not in self._energies]
        each = 1 + len(singles) / 4 / stretches + (stretches if stretches > 1 else 0)
        self._expect(each * len(waiting) + _SEARCHING + len(self._sizes) / 8)
        for example in waiting:
            variants.progress.say(f"measuring {len(singles)} roundings on {example.name}")
            # of a large network the first input shows how errors grow, the others show overflows
            clipped_only = bool(self._energies) and not is_short
            meter = RoundingMeter(variants, example, stretches, clipped_only=clipped_only)
            self._energies[example.name] = meter.energies(singles)
        if self._wide is None:
            self._wide = np.zeros((len(singles), len(variants.graph.outputs)))
            if variants.to is not FLOAT32:
                meter = RoundingMeter(variants, examples[0], stretches)
                self._wide = meter.energies([replace(single, dtype=variants.to) for single in singles])
        return Roundings(singles, np.maximum.reduce([*self._energies.values()]), self._wide, self._sizes)

    def _of_series(self, gone: Sequence[int]) -> frozenset[int]:
        """Return the smallest set that holds while operators leave in a given order."""
        low, high = 0, len(gone)
        while high - low > 1 + len(gone) // 100:
            step = max(1.0, (high - low) / (_SECTIONS + 1))
            sections = (low + round(number * step) for number in range(1, _SECTIONS + 1))
            tried = {frozenset(gone[place:]): place for place in sections if place < high}
            found = self._first_holding([*reversed(tried)])
            low = low if found is None else tried[found]
            high = min((place for place in tried.values() if place > low), default=high)
        return frozenset(gone[low:])

    def _thinned(self, kept: frozenset[int], roundings: Roundings) -> frozenset[int]:
        """Return a set after halves, quarters or eighths, the least harmful operators, have left at once."""
        found: frozenset[int] | None = kept
        while found is not None:
            kept, order = found, roundings.by_harm(found)
            counts = [len(order) >> shift for shift in range(1, _SECTIONS) if len(order) >> shift]
            found = self._first_holding([kept - {*order[:count]} for count in counts])
        return kept

    def _shrunk(self, kept: frozenset[int], roundings: Roundings, most: float) -> frozenset[int]:
        """Return a set that no single operator can leave, unless the search may spend no more.

        Errors may cancel out, so an operator that a larger set needs may be able to leave a smaller one: all
        are tried again once some have left.
        """
        waiting, costs, width = roundings.by_harm(kept), dict[int, float](), len(kept)
        while waiting and self.runs.variants.spent < most:
            self._expect(len(waiting) / 2)
            tried, waiting = waiting[:width], waiting[width:]
            before, *errors = self._errors([kept, *(kept - {each} for each in tried)])
            costs |= zip(tried, errors, strict=True)
            free = sorted((each for each in tried if costs[each] <= self.limit), key=costs.__getitem__)
            # together as many as the bound allows, the cheapest first; squares add up
            squares = before**2 + np.cumsum([costs[each] ** 2 - before**2 for each in free])
            count = int(np.sum(squares <= self.limit**2))
            counts = sorted({1, count // 2, *range(count - 1, count + 3)} & {*range(1, 1 + len(free))})
            found = self._first_holding([kept - {*free[:each]} for each in reversed(counts)])
            if found is None:
                width *= 2
            else:
                kept, width = found, _FEWEST
                waiting = sorted(kept, key=costs.__getitem__)
        self.is_minimal = not waiting
        return kept

    def _first_holding(
        self, sets: Sequence[frozenset[int]], *, by_error: bool = False
    ) -> frozenset[int] | None:
        """Return the first set with errors within the bound on all inputs, None for none.

        With ``by_error`` the one with the smallest error, on the input that refuted a set last.
        """
        left = [*sets]
        while left:
            errors = dict(zip(left, self._errors(left), strict=True))
            left = [each for each in left if errors[each] <= self.limit]
            if by_error:
                left.sort(key=errors.__getitem__)
            if left and self.runs.holds(left[0], self.limit):
                self.best = min(left[0], self.best or left[0], key=self._size)
                return left[0]
            # the others are looked at on the input that has refuted this one
            del left[:1]
        return None

    def _errors(self, sets: Sequence[frozenset[int]]) -> list[float]:
        found = self.runs.first_errors(sets)
        for each, error in zip(sets, found, strict=True):
            self.runs.variants.progress.say(f"{self._size(each)} operators kept: error {error:.3g}")
        return found

    def _size(self, kept: Collection[int]) -> int:
        return sum(self._sizes[position] for position in kept)


BROKEN: Final = 1e30
"""Squared error that stands for NaN or infinities in the outputs."""


class Roundings:
    """Predicts the error of a set of kept operators from the squared errors of single roundings.

    Errors of many roundings are as good as independent: the square of the output's error is the sum of the
    single squares. A set loses the operator that adds least. Since a rounding with several guards happens
    once, the neighbours of operators that left cost less, and the kept ones stay connected.
    """

    def __init__(
        self,
        singles: Sequence[TensorRounding],
        narrow: np.ndarray,
        wide: np.ndarray,
        sizes: Mapping[int, int],
    ) -> None:
        """Combine the measured squares.

        Args:
            singles: The roundings.
            narrow: Squares of the error of each output (columns) for each rounding that happens.
            wide: The same where all guards are kept, in the wider type; 0 for float32.
            sizes: Number of operators of each candidate.
        """
        self._guards = [single.guards for single in singles]
        narrow, wide = (
            np.nan_to_num(side, nan=BROKEN, posinf=BROKEN).clip(0, BROKEN) for side in (narrow, wide)
        )
        # each output weighs as much as its share of the whole error
        total = narrow.sum(axis=0)
        self._weighed: list[float] = ((narrow - wide) @ (total / max(total.sum(), 1e-300))).tolist()
        self._sizes = sizes
        self._of: dict[int, list[int]] = defaultdict(list)
        for index, guards in enumerate(self._guards):
            for guard in guards:
                self._of[guard].append(index)

    def added(self, position: int, gone: Collection[int]) -> float:
        """Return by how much the squared error, weighed over outputs, grows when an operator leaves."""
        return sum(
            self._weighed[index] for index in self._of[position] if self._guards[index].isdisjoint(gone)
        )

    def series(self) -> list[int]:
        """Return the order in which operators leave the set of all, the least harmful one first."""
        gone: set[int] = set()
        order = []
        gains = {position: self.added(position, gone) / self._sizes[position] for position in self._sizes}
        while gains:
            position = min(gains, key=lambda each: (gains[each], each))
            del gains[position]
            gone.add(position)
            order.append(position)
            for each in self._neighbours(position) & gains.keys():
                gains[each] = self.added(each, gone) / self._sizes[each]
        return order

    def _neighbours(self, position: int) -> set[int]:
        return {guard for index in self._of[position] for guard in self._guards[index]}

    def by_harm(self, kept: frozenset[int]) -> list[int]:
        """Return the operators of a set by the error that they add when they leave it, the least first."""
        gone = self._sizes.keys() - kept
        return sorted(kept, key=lambda each: (self.added(each, gone) / self._sizes[each], each))
