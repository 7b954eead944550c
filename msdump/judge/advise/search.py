"""The search for a small set of operators to keep: single roundings measured, sets predicted, then measured.

A tensor between two operators is rounded where one of the two is narrow, so that keeping one of them alone
changes nothing: each use of a tensor is one rounding, which is gone only where all its guards are kept - the
operator that writes it, the one that reads it, and the moving operators between them. The weights of an
operator are another, guarded by it alone.

The network is divided at borders into stretches of operators. The error of one rounding is measured with all
other operators kept, from the rounded tensor to the end of its stretch. Its growth from there to the outputs
is estimated by the summed errors of each tensor that crosses the border, which are propagated together. With
one stretch nothing is estimated. The energy of a rounding is the square of its error in each output. One walk
measures all: operators with large weights are compiled once.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, groupby, pairwise
from typing import Any, Final

import numpy as np

from msdump.device import overflows, rounded
from msdump.dtypes import DType
from msdump.graph import Node
from msdump.graph.kernel import FLOAT16, FLOAT32, keeps_types
from msdump.judge.advise.variants import DeviceRuns, Example, Values, Variants, differing, distance


@dataclass(frozen=True, slots=True)
class TensorRounding:
    """A place where the device rounds: a tensor that an operator reads, an output, an operator's weights."""

    guards: frozenset[int]  # positions of the candidates that must all be kept to avoid the rounding
    position: int  # the operator that reads the rounded tensor; the number of operators for an output
    name: str  # the tensor, "" for the weights of the operator, or for all roundings inside
    dtype: DType
    origin: int = -1  # the operator that writes the tensor, -1 for inputs and moved tensors


def list_roundings(variants: Variants) -> list[TensorRounding]:
    """Return the roundings of a network, by position."""
    singles: list[TensorRounding] = []
    written: dict[str, TensorRounding] = {}
    for position, node in enumerate(variants.graph.nodes):
        singles += _of_operator(variants, written, position, node)
        usual, is_candidate = variants.narrow(node)[-1], position in variants.candidates
        guards, dtype, origin = frozenset[int](), usual.writes, position
        if keeps_types(node) and not node.bodies:
            moved = [written[name] for name in node.inputs if name in written]
            guards = frozenset[int]().union(*(each.guards for each in moved))
            dtype, origin = (moved[0].dtype if moved else usual.reads), -1
            if is_candidate:
                guards, dtype = guards | {position}, usual.reads
        elif is_candidate and (usual.writes is not FLOAT32 or node.bodies):
            guards = frozenset({position})
            dtype = FLOAT16 if usual.writes is FLOAT32 else usual.writes
        names = filter(variants.is_float, node.outputs) if guards else ()
        written |= {name: TensorRounding(guards, position, name, dtype, origin) for name in names}
    end = len(variants.graph.nodes)
    outputs = (value.name for value in variants.graph.outputs if value.name in written)
    return singles + [replace(written[name], position=end) for name in outputs]


def _of_operator(
    variants: Variants, written: Mapping[str, TensorRounding], position: int, node: Node
) -> Iterator[TensorRounding]:
    """Yield the roundings of an operator's inputs and weights."""
    usual, is_candidate = variants.narrow(node)[0], position in variants.candidates
    if node.bodies and is_candidate:
        yield TensorRounding(frozenset({position}), position, "", FLOAT16)
    if keeps_types(node) and not node.bodies:
        return
    reads = is_candidate and usual.reads is not FLOAT32
    own = TensorRounding(frozenset({position} if reads else ()), position, "", usual.reads)
    for name in filter(variants.is_float, dict.fromkeys(variants.needed(position))):
        before = written.get(name, own)
        if guards := before.guards | own.guards:
            origin = before.origin if name in written else -1
            yield TensorRounding(guards, position, name, (own if reads else before).dtype, origin)
    if reads and variants.float_weights(position) and not node.bodies:
        yield own


@dataclass(slots=True)
class _Growth:
    """The error that several roundings make in one value at a border, and its effect on the outputs."""

    values: Values  # the value with these errors in it; behind the border, the values computed from it
    # squared error of each rounding at the border, by the rounding's index
    squares: dict[int, float] = field(default_factory=dict)
    whole: float = 0.0  # squared error of all these roundings together at the border


@dataclass(slots=True)
class RoundingMeter:
    """Measures the errors of the roundings of a network on one input."""

    variants: Variants
    example: Example
    stretches: int  # number of parts that the network is divided into
    clipped_only: bool = False  # whether roundings within the type's range, and of weights, count as 0

    def energies(self, singles: Sequence[TensorRounding]) -> np.ndarray:
        """Return the squared error of each output (columns) for each rounding; infinite for NaN and inf.

        All readers of a tensor see the same rounding error, so squares of the single uses do not add up as
        independent ones do: they are scaled so that their sum is the error of all uses together.
        """
        uses: dict[tuple[str, DType, int], list[int]] = defaultdict(list)
        for index, each in enumerate(singles):
            if each.origin >= 0:
                uses[each.name, each.dtype, each.origin].append(index)
        several = [indices for indices in uses.values() if len(indices) > 1]
        shared = [
            replace(single, guards=frozenset({single.origin}), position=single.origin)
            for single in (singles[indices[0]] for indices in several)
        ]  # each changes a tensor for all of its readers
        found = self._measured([*singles, *shared])
        energies, together = found[: len(singles)], found[len(singles) :]
        for indices, whole in zip(several, together, strict=True):
            alone = energies[indices].sum(axis=0)
            usable = np.isfinite(alone) & np.isfinite(whole) & (alone > 0)
            energies[indices] *= np.divide(whole, alone, out=np.ones_like(alone), where=usable)
        return energies

    def _measured(self, singles: Sequence[TensorRounding]) -> np.ndarray:
        """Return the squared errors of roundings: one walk through the network, stretch by stretch."""
        found = np.zeros((len(singles), len(self.variants.graph.outputs)))
        begun, growing, end = dict(self.example.feeds), list[_Growth](), len(self.variants.graph.nodes)
        for start, stop in pairwise(self._borders()):
            values = dict(begun)
            for position in range(start, stop):
                values |= self.variants.wide(position, values)
            sums = self._at_border(range(start, stop), singles, values, found)
            begun = values
            for position in range(start, stop):  # errors of earlier borders go on; dead values are dropped
                for each in growing:
                    each.values |= self.variants.wide(position, each.values)
                    self.variants.drop(position, each.values)
                self.variants.drop(position, begun)
                self.variants.leave(position)
            growing += [replace(each, values=begun | each.values) for each in sums.values() if each.whole]
        for each in growing:
            grown = self._squares(each.values) / each.whole
            for index, square in each.squares.items():
                found[index] += grown * square
        for index, single in enumerate(singles):
            if single.position == end:
                found[index] = self._squares(
                    {single.name: self._narrow(single, self.example.golden[single.name])}
                )
        return found

    def _at_border(
        self, stretch: range, singles: Sequence[TensorRounding], values: Values, found: np.ndarray
    ) -> dict[str, _Growth]:
        """Measure the roundings of a stretch; return the sums of the errors that are left at its end."""
        sums: dict[str, _Growth] = {}
        is_last = stretch.stop == len(self.variants.graph.nodes)
        for index, single in enumerate(singles):
            if single.position not in stretch:
                continue
            # propagated up to the border
            changed = dict(self._changed(single, values))
            self.variants.drop(single.position, changed)
            for position in range(single.position + 1, stretch.stop):
                if not changed:
                    break
                if any(name in changed for name in self.variants.needed(position)):
                    changed |= differing(self.variants.wide(position, values | changed), values)
                self.variants.drop(position, changed)
            if is_last:
                found[index] = self._squares(changed)
                continue
            for name in filter(self.variants.is_float, changed):
                error = distance(changed[name], values[name])
                if not math.isfinite(error):
                    found[index] = math.inf
                    break
                growth = sums.setdefault(name, _Growth({name: values[name].copy()}))
                growth.values[name] += changed[name] - values[name]
                growth.squares[index] = error**2
        for name, growth in sums.items():
            growth.whole = distance(growth.values[name], values[name]) ** 2
        return sums

    def _borders(self) -> list[int]:
        """Return the borders of the stretches, at places that few values cross."""
        count = len(self.variants.graph.nodes)
        size = max(1, math.ceil(count / self.stretches))
        alive, crossing = dict.fromkeys(filter(self.variants.is_float, self.example.feeds)), [0]
        for position, node in enumerate(self.variants.graph.nodes):
            alive |= dict.fromkeys(filter(self.variants.is_float, node.outputs))
            self.variants.drop(position, alive)
            crossing.append(len(alive))
        borders = [0]
        while self.stretches > 1 and borders[-1] + size < count:
            # in the second half of the stretch, the last of the places that the fewest values cross
            places = range(borders[-1] + size, borders[-1] + size // 2, -1)
            borders.append(min(places, key=lambda each: crossing[each]))
        return [*borders, count]

    def _squares(self, changed: Values) -> np.ndarray:
        golden = self.example.golden
        names = [value.name for value in self.variants.graph.outputs]
        return np.array(
            [distance(changed[name], golden[name]) ** 2 if name in changed else 0.0 for name in names]
        )

    def _changed(self, single: TensorRounding, values: Values) -> Values:
        node, given = self.variants.graph.nodes[single.position], {single.name: values.get(single.name)}
        if not single.name and node.bodies:
            return differing(self.variants.run(single.position, values, is_kept=False), values)
        if not single.name:  # the weights' rounding; its error is the same for every input
            weights = () if self.clipped_only else self.variants.float_weights(single.position)
            given = {name: self.variants.graph.weights[name] for name in weights}
        rounded_ones = {name: self._narrow(single, array) for name, array in given.items()}
        if all(rounded_ones[name] is array for name, array in given.items()):
            return {}
        if single.origin == single.position:  # rounded as it is written, for all readers
            return rounded_ones
        return differing(self.variants.wide(single.position, values | rounded_ones), values)

    def _narrow(self, single: TensorRounding, array: Any) -> Any:
        """Return a rounded tensor, the same object where that changes nothing."""
        if not isinstance(array, np.ndarray):  # an optional input without a value
            return array
        if self.clipped_only and not (single.dtype is FLOAT16 and overflows(array)):
            return array
        narrow = rounded(array, single.dtype, saturates=self.variants.saturates).astype(np.float32)
        return array if np.array_equal(narrow, array, equal_nan=True) else narrow


MOST_EXACT: Final = 16
"""Largest number of candidates for which all sets are tried."""

_ONE_STRETCH: Final = 40  # most runs of the network for measuring in one stretch; above, it is divided
_SEARCHING: Final = 30  # estimated runs of the network until a small set is found
_SHRINKING: Final = 200  # runs of the network after which a set is not shrunk further
_FEWEST: Final = 16  # operators tried side by side; the number grows if none of them can be removed
_SECTIONS: Final = 4  # sets of a series tried side by side


@dataclass(slots=True)
class SetSearch:
    """Searches a small set of operators to keep, again whenever inputs are added."""

    runs: DeviceRuns
    limit: float  # the largest error of any output of any input
    best: frozenset[int] | None = None  # the smallest set so far that held for the inputs of its time
    is_minimal: bool = False  # whether no operator of the set that was found last can go, for its inputs
    last: frozenset[int] = frozenset()  # the set that was found last, from which the next search begins
    _energies: dict[str, np.ndarray] = field(default_factory=dict)
    _wide: np.ndarray | None = None
    _most: float | None = None
    _sizes: Mapping[int, int] = field(init=False)

    def __post_init__(self) -> None:
        """Count the operators of each candidate."""
        candidates = self.runs.variants.candidates
        self._sizes = {position: len(nodes) for position, nodes in candidates.items()}

    def rough(self) -> frozenset[int]:
        """Return a set within the limit that is not shrunk; of few candidates, or where none holds, none."""
        nothing, everything = frozenset[int](), frozenset(self._sizes)
        if sum(self._sizes.values()) > MOST_EXACT and self._first_holding([nothing, everything]):
            self.last = self._thinned(self._measured())
        return self.last

    def smallest(self) -> frozenset[int] | None:
        """Return a small set with measured errors within the limit, None where there is none."""
        self.best, self.is_minimal = None, True
        nothing, everything = frozenset[int](), frozenset(self._sizes)
        found = self._first_holding([nothing, everything])
        if not found:
            return found
        variants, count = self.runs.variants, len(self._sizes)
        if sum(self._sizes.values()) <= MOST_EXACT:
            # the set of fewest operators, of several the one with the smallest error
            sets = [
                frozenset(each) for size in range(1, 1 + count) for each in combinations(self._sizes, size)
            ]
            alike = (group for _, group in groupby(sorted(sets, key=self._size), self._size))
            return next(filter(None, (self._first_holding([*group], by_error=True) for group in alike)))
        roundings = self._measured()
        self._expect(_SEARCHING + count / 8)
        kept = self._thinned(roundings)
        if self._most is None:  # the searches with further inputs share it
            self._most = variants.spent + _SHRINKING * len(variants.graph.nodes)
        self.last = self._shrunk(kept, roundings, self._most)
        return self.last

    def _expect(self, runs: float) -> None:
        """Report the estimated number of runs of the network that are left."""
        variants = self.runs.variants
        variants.progress.expect(variants.spent + runs * len(variants.graph.nodes))

    def _measured(self) -> Roundings:
        """Return the network's roundings with their energies: the largest over the inputs of the search."""
        variants, examples = self.runs.variants, self.runs.examples
        singles = list_roundings(variants)
        is_short = len(singles) / 2 * len(examples) <= _ONE_STRETCH and not variants.heavy
        stretches = 1 if is_short else round(math.sqrt(len(singles)))
        waiting = [example for example in examples if example.name not in self._energies]
        each = 1 + len(singles) / 4 / stretches + (stretches if stretches > 1 else 0)
        self._expect(each * len(waiting) + _SEARCHING + len(self._sizes) / 8)
        for example in waiting:
            variants.progress.say(f"measuring {len(singles)} roundings on {example.name}")
            # large networks: all roundings are measured on the first input, only overflows on the others
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
        """Return the smallest set within the limit when operators are removed in a given order.

        The set of the search before stays: another limit seldom frees many of its operators.
        """
        low, high = 0, len(gone)
        while high - low > 1 + len(gone) // 100:
            step = max(1.0, (high - low) / (_SECTIONS + 1))
            sections = (low + round(number * step) for number in range(1, _SECTIONS + 1))
            tried = {self.last | {*gone[place:]}: place for place in sections if place < high}
            found = self._first_holding([*reversed(tried)])
            low = low if found is None else tried[found]
            high = min((place for place in tried.values() if place > low), default=high)
        return self.last | {*gone[low:]}

    def _thinned(self, roundings: Roundings) -> frozenset[int]:
        """Return the series' set less its least harmful half, quarter or eighth, while the limit holds."""
        kept = self._of_series(roundings.series())
        found: frozenset[int] | None = kept
        while found is not None:
            kept, order = found, roundings.by_harm(found)
            counts = [len(order) >> shift for shift in range(1, _SECTIONS) if len(order) >> shift]
            found = self._first_holding([kept - {*order[:count]} for count in counts])
        return kept

    def _shrunk(self, kept: frozenset[int], roundings: Roundings, most: float) -> frozenset[int]:
        """Return a set from which no operator can be removed, or the set so far once ``most`` operators ran.

        Errors may cancel out, so an operator that a larger set needs may be removable from a smaller one: all
        are tried again after some were removed.
        """
        waiting, costs, width = roundings.by_harm(kept), dict[int, float](), len(kept)
        while waiting and self.runs.variants.spent < most:
            self._expect(len(waiting) / 2)
            tried, waiting = waiting[:width], waiting[width:]
            before, *errors = self._errors([kept, *(kept - {each} for each in tried)])
            costs |= zip(tried, errors, strict=True)
            free = sorted((each for each in tried if costs[each] <= self.limit), key=costs.__getitem__)
            # remove as many at once as the bound allows, the least costly first: squared errors add up
            squares = before**2 + np.cumsum([costs[each] ** 2 - before**2 for each in free])
            count = int(np.sum(squares <= self.limit**2))
            counts = sorted({1, count // 2, *range(count - 1, count + 3)} & {*range(1, 1 + len(free))})
            # an operator that one input needs is no reason to keep the others
            alone = [kept - {each} for each in free[1:]]
            found = self._first_holding([*(kept - {*free[:each]} for each in reversed(counts)), *alone])
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
        """Combine the squared errors (outputs in columns) of each rounding to either type."""
        self._guards = [single.guards for single in singles]
        narrow, wide = (
            np.nan_to_num(side, nan=BROKEN, posinf=BROKEN).clip(0, BROKEN) for side in (narrow, wide)
        )
        # each output is weighted by its share of the whole error
        total = narrow.sum(axis=0)
        self._weighed: list[float] = ((narrow - wide) @ (total / max(total.sum(), 1e-300))).tolist()
        self._sizes = sizes
        self._of: dict[int, list[int]] = defaultdict(list)
        for index, guards in enumerate(self._guards):
            for guard in guards:
                self._of[guard].append(index)

    def added(self, position: int, gone: Collection[int]) -> float:
        """Return the growth of the squared error, weighted over outputs, if an operator is no longer kept."""
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
            neighbours = {guard for index in self._of[position] for guard in self._guards[index]}
            for each in neighbours & gains.keys():
                gains[each] = self.added(each, gone) / self._sizes[each]
        return order

    def by_harm(self, kept: frozenset[int]) -> list[int]:
        """Return the operators of a set by the error that they add when they leave it, the least first."""
        gone = self._sizes.keys() - kept
        return sorted(kept, key=lambda each: (self.added(each, gone) / self._sizes[each], each))
