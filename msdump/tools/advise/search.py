"""The search for a small set of operators to keep: predicted by single roundings, measured on the device."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from msdump.graph.kernel.emulation import FLOAT32
from msdump.tools.advise import exact
from msdump.tools.advise.atoms import RoundingMeter, atoms_of
from msdump.tools.advise.peeling import Roundings, Series
from msdump.tools.advise.runs import DeviceRuns, Example

MOST_EXACT: Final = 16
"""Networks of up to so many operators that can be kept are searched exhaustively."""

_ONE_STRETCH: Final = 40  # runs of the network that measuring without stretches may cost
_PATIENCE: Final = 24
"""Operators that cannot be dropped, one after the other, until no further one is tried."""

_TRIES: Final = 48  # runs of the network, of all inputs, that are spent on dropping single operators

Progress = Callable[[str], None]
"""Takes a line that says what goes on."""


@dataclass(slots=True)
class SetSearch:
    """Finds the sets of one network, for more and more inputs.

    Attributes:
        runs: The network and its inputs.
        limit: The largest error of any output of any input.
        progress: Told what goes on.
        best: The smallest set so far that held for the inputs of its time.
    """

    runs: DeviceRuns
    limit: float
    progress: Progress
    best: frozenset[int] | None = None
    _energies: list[np.ndarray] = field(default_factory=list)
    _sizes: Mapping[int, int] = field(init=False)

    def __post_init__(self) -> None:
        """Count the operators."""
        candidates = self.runs.variants.candidates
        self._sizes = {position: candidate.size for position, candidate in candidates.items()}

    @property
    def share(self) -> float:
        """How often the whole network has run, partial runs added up."""
        return self.runs.spent / len(self.runs.variants.graph.nodes)

    @property
    def is_exact(self) -> bool:
        """Whether the network is small enough to try every set."""
        return sum(self._sizes.values()) <= MOST_EXACT

    def add(self, example: Example) -> None:
        """Look at one more input from now on; what held before is forgotten."""
        self.best = None
        self.runs.examples.append(example)

    def smallest(self) -> frozenset[int] | None:
        """Return a small set whose measured errors stay within the bound, None where none was found."""
        if self.runs.worst(frozenset(), self.limit) <= self.limit:
            return frozenset()
        if self.is_exact:
            return exact.smallest(self.runs, self.limit, self._costs(), self.progress)
        return self._by_roundings()

    def _costs(self) -> dict[int, int]:
        values = dict(self.runs.examples[0].feeds)
        variants = self.runs.variants
        costs = {}
        for position in range(len(variants.graph.nodes)):
            values |= variants.run(position, values, is_kept=True)
            costs[position] = variants.cost(position, values)
        return costs

    def _by_roundings(self) -> frozenset[int] | None:
        roundings = self._measured()
        series = roundings.series()
        kept = self._of_series(series)
        if kept is None:
            return None
        limit = roundings.square(kept)
        improved = roundings.improved(kept, limit)
        if self._size(improved) < self._size(kept) and self._holds(improved):
            kept = improved
        return self._dropped(kept, roundings)

    def _measured(self) -> Roundings:
        """Return the roundings with their energies: the largest of all inputs."""
        variants = self.runs.variants
        atoms = atoms_of(variants)
        wide = np.zeros((len(atoms), len(variants.graph.outputs)))
        is_short = len(atoms) / 2 * len(self.runs.examples) <= _ONE_STRETCH
        stretches = 1 if is_short else round(math.sqrt(len(atoms)))
        for example in self.runs.examples[len(self._energies) :]:
            self.progress(f"measuring {len(atoms)} roundings on {example.name}")
            meter = RoundingMeter(variants, example, stretches)
            # of a large network the first input tells how errors grow, the others what overflows
            clipped_only = bool(self._energies) and not is_short
            self._energies.append(meter.energies(atoms, clipped_only=clipped_only))
            self.runs.spent += meter.spent
        if variants.to is not FLOAT32:
            meter = RoundingMeter(variants, self.runs.examples[0], stretches)
            wide = meter.energies([replace(atom, dtype=variants.to) for atom in atoms])
        return Roundings(atoms, np.maximum.reduce(self._energies), wide, self._sizes)

    def _of_series(self, series: Series) -> frozenset[int] | None:
        """Return the smallest set of a series that holds, found by halving."""
        low, high = 0, len(series.gone)
        guess = max((i for i, square in enumerate(series.squares) if square <= self.limit**2), default=0)
        best: frozenset[int] | None = None
        while low <= high:
            kept = series.kept(guess)
            if self._holds(kept):
                best, low = kept, guess + 1
            else:
                high = guess - 1
            # near the prediction first, then by halves
            guess = (low + high) // 2
        return best

    def _dropped(self, kept: frozenset[int], roundings: Roundings) -> frozenset[int]:
        """Return a set without the operators that the device can do without, one by one."""
        count = len(self.runs.variants.graph.nodes)
        most = self.runs.spent + _TRIES * count * len(self.runs.examples)
        tried: set[int] = set()
        while self.runs.spent < most and len(tried) < _PATIENCE:
            gone = set(self._sizes) - kept
            left = {position: roundings.added(position, gone) for position in kept - tried}
            if not left:
                break
            position = min(left, key=lambda each: (left[each] / self._sizes[each], each))
            tried.add(position)
            if self._holds(kept - {position}):
                kept -= {position}
                tried.clear()  # errors may cancel out: what failed in a larger set may hold in a smaller one
        return kept

    def _holds(self, kept: frozenset[int]) -> bool:
        worst = self.runs.worst(kept, self.limit)
        self.progress(f"{self._size(kept)} operators kept: error {worst:.3g}")
        if worst <= self.limit and (self.best is None or self._size(kept) < self._size(self.best)):
            self.best = kept
        return worst <= self.limit

    def _size(self, kept: frozenset[int]) -> int:
        return sum(self._sizes[position] for position in kept)
