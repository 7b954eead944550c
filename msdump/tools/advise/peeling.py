"""Which operators to keep, by the errors of single roundings, which add up as squares.

Errors of many roundings are as good as independent: the square of the output's error is the sum of the
squares of those that happen. Beginning with everything kept, the operator goes first that adds least; since a
rounding with several guards happens once, the neighbours of operators that went cost less, and what is kept
stays connected. So each set of the series holds the next one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump.tools.advise.atoms import Atom

BROKEN: Final = 1e30
"""Stands for the square of an error without bound: NaN or infinities in the outputs."""

_ROUNDS: Final = 3  # of exchanging operators of a set


@dataclass(frozen=True, slots=True)
class Series:
    """Sets of kept operators, each within the one before it.

    Attributes:
        gone: Positions in the order in which they leave the set, which begins with all of them.
        squares: Predicted square of the error after none, one, two, ... have left.
    """

    gone: tuple[int, ...]
    squares: tuple[float, ...]

    def kept(self, count: int) -> frozenset[int]:
        """Return the set when so many have left."""
        return frozenset(self.gone[count:])


class Roundings:
    """The roundings of a network with their energies: what a set of kept operators leaves of them."""

    def __init__(
        self, atoms: Sequence[Atom], narrow: np.ndarray, wide: np.ndarray, sizes: Mapping[int, int]
    ) -> None:
        """Take what was measured.

        Args:
            atoms: The roundings.
            narrow: Squares of the error of each output (columns) for each rounding that happens.
            wide: The same where all guards are kept, in the wider type; 0 for float32.
            sizes: Number of operators of each candidate.
        """
        self._guards = [atom.guards for atom in atoms]
        narrow, wide = (
            np.nan_to_num(side, nan=BROKEN, posinf=BROKEN).clip(0, BROKEN) for side in (narrow, wide)
        )
        self._wide = wide.sum(axis=0)
        self._more = narrow - wide
        # an output counts as much as it lacks; the search for the next operator goes by one number
        total = narrow.sum(axis=0)
        self._weighed: list[float] = (self._more @ (total / max(total.sum(), 1e-300))).tolist()
        self._sizes = sizes
        self._of: dict[int, list[int]] = defaultdict(list)
        for index, guards in enumerate(self._guards):
            for guard in guards:
                self._of[guard].append(index)

    def square(self, kept: frozenset[int]) -> float:
        """Return the predicted square of the largest error of an output."""
        happening = [not guards <= kept for guards in self._guards]
        squares: np.ndarray = self._wide + self._more[happening].sum(axis=0)
        return float(squares.max(initial=0.0))

    def added(self, position: int, gone: Collection[int]) -> float:
        """Return what it adds, all outputs weighed, that an operator leaves when some have left."""
        return sum(
            self._weighed[index] for index in self._of[position] if self._guards[index].isdisjoint(gone)
        )

    def series(self) -> Series:
        """Return the sets that are left when operators leave one by one, the least harmful first."""
        gone: set[int] = set()
        kept = frozenset(self._sizes)
        order, squares = [], [self.square(kept)]
        gains = {position: self.added(position, gone) / self._sizes[position] for position in self._sizes}
        while gains:
            position = min(gains, key=lambda each: (gains[each], each))
            del gains[position]
            gone.add(position)
            kept -= {position}
            squares.append(self.square(kept))
            order.append(position)
            for each in self._neighbours(position) & gains.keys():
                gains[each] = self.added(each, gone) / self._sizes[each]
        return Series(tuple(order), tuple(squares))

    def _neighbours(self, position: int) -> set[int]:
        return {guard for index in self._of[position] for guard in self._guards[index]}

    def improved(self, kept: frozenset[int], most: float) -> frozenset[int]:
        """Return a smaller set with a predicted square up to a limit, or the set itself.

        Operators are dropped while the limit allows, and exchanged for one that helps more.
        """
        for _ in range(_ROUNDS):
            smaller = self._dropped(kept, most)
            exchanged = self._exchanged(smaller)
            if exchanged is None:
                return smaller
            kept = exchanged
        return self._dropped(kept, most)

    def _dropped(self, kept: frozenset[int], most: float) -> frozenset[int]:
        while kept:
            gone = set(self._sizes) - kept
            costs = {position: self.added(position, gone) for position in kept}
            position = min(costs, key=lambda each: (costs[each], each))
            if self.square(kept - {position}) > most:
                break
            kept -= {position}
        return kept

    def _exchanged(self, kept: frozenset[int]) -> frozenset[int] | None:
        """Return the set with one operator in place of another so that the error becomes smallest."""
        gone = set(self._sizes) - kept
        best, chosen = 0.0, None
        for out in kept:
            cost = self.added(out, gone)
            for entering in self._near(kept - {out}) - {out}:
                gain = self.added(entering, (gone | {out}) - {entering}) - cost
                if self._sizes[entering] <= self._sizes[out] and gain > best * (1 + 1e-9) + 1e-300:
                    best, chosen = gain, (out, entering)
        if chosen is None:
            return None
        return (kept - {chosen[0]}) | {chosen[1]}

    def _near(self, kept: Iterable[int]) -> set[int]:
        kept = set(kept)
        near = {guard for position in kept for guard in self._neighbours(position)}
        alone = {
            position
            for position in self._sizes
            if any(self._guards[i] == {position} for i in self._of[position])
        }
        return (near | alone) - kept
