"""The single roundings of a network, each with the operators that cause it and the error that it makes.

A tensor between two operators is rounded where one of the two is narrow, so that keeping one of them alone
changes nothing: each use of a tensor is one rounding, which is gone only where all its guards are kept - the
operator that writes it, the one that reads it, and the moving operators between them. The weights of an
operator are another, guarded by it alone.

An error is measured with everything else kept: the rounded tensor runs to the end of its stretch of the
network, through the operators that it changes. From there to the outputs errors grow as errors of the whole
stretch do, which is measured for each tensor that crosses the border. With one stretch all is measured. All
of it is one walk through the network: operators with large weights are compiled once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from msdump.analysis.advise.variants import Example, Values, Variants, differing, distance
from msdump.device import overflows, rounded
from msdump.dtypes import DType
from msdump.graph import Node
from msdump.graph.kernel import FLOAT16, FLOAT32, keeps_types


@dataclass(frozen=True, slots=True)
class TensorRounding:
    """One rounding.

    Attributes:
        guards: Positions of the candidates of which a narrow one causes it.
        position: The operator that reads the rounded tensor; the number of operators for an output.
        name: The tensor, "" for the weights of the operator, or for all roundings inside.
        dtype: The type that it is rounded to.
        origin: The operator that writes the tensor, -1 for inputs and moved tensors.
    """

    guards: frozenset[int]
    position: int
    name: str
    dtype: DType
    origin: int = -1


def list_roundings(variants: Variants) -> list[TensorRounding]:
    """Return the roundings of a network, by position."""
    singles: list[TensorRounding] = []
    written: dict[str, TensorRounding] = {}
    for position, node in enumerate(variants.graph.nodes):
        singles += _of_operator(variants, written, position, node)
        written |= _of_outputs(variants, written, position, node)
    end = len(variants.graph.nodes)
    outputs = (value.name for value in variants.graph.outputs if value.name in written)
    return singles + [replace(written[name], position=end) for name in outputs]


def _of_outputs(
    variants: Variants, written: Mapping[str, TensorRounding], position: int, node: Node
) -> dict[str, TensorRounding]:
    """Return the roundings of an operator's outputs before they are read."""
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
    return {name: TensorRounding(guards, position, name, dtype, origin) for name in names}


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
    """Errors of one value at a border, added up, on their way to the outputs.

    Attributes:
        values: The value with these errors in it; behind the border, the values that follow from it.
        squares: Square of the error of each rounding at the border, by its index.
        whole: Square of the error that they make there together.
    """

    values: Values
    squares: dict[int, float] = field(default_factory=dict)
    whole: float = 0.0


@dataclass(slots=True)
class RoundingMeter:
    """Measures the errors of the roundings of a network on one input.

    Attributes:
        variants: The network.
        example: The input.
        stretches: Number of parts that the network is divided into.
        clipped_only: Whether roundings within the type's range, and of weights, count as 0.
    """

    variants: Variants
    example: Example
    stretches: int
    clipped_only: bool = False

    def energies(self, singles: Sequence[TensorRounding]) -> np.ndarray:
        """Return the squared error of each output (columns) for each rounding; infinite where one breaks.

        The uses of a tensor have one and the same error, which does not add up as independent ones do: theirs
        are scaled to the error that they make together.
        """
        shared = _shared(singles)
        found = self._measured([*singles, *shared])
        energies, together = found[: len(singles)], found[len(singles) :]
        for single, whole in zip(shared, together, strict=True):
            uses = [index for index, each in enumerate(singles) if _key(each) == _key(single)]
            alone = energies[uses].sum(axis=0)
            usable = np.isfinite(alone) & np.isfinite(whole) & (alone > 0)
            energies[uses] *= np.divide(whole, alone, out=np.ones_like(alone), where=usable)
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
            self._pass(range(start, stop), begun, [each.values for each in growing])
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
            if single.position in stretch:
                changed = self._spread(
                    self._changed(single, values), values, single.position + 1, stretch.stop
                )
                if is_last:
                    found[index] = self._squares(changed)
                elif not self._add(sums, index, changed, values):
                    found[index] = math.inf
        for name, growth in sums.items():
            growth.whole = distance(growth.values[name], values[name]) ** 2
        return sums

    def _add(self, sums: dict[str, _Growth], index: int, changed: Values, values: Values) -> bool:
        """Add a rounding's errors at a border to the sums; return whether they are finite."""
        for name in filter(self.variants.is_float, changed):
            error = distance(changed[name], values[name])
            if not math.isfinite(error):
                return False
            growth = sums.setdefault(name, _Growth({name: values[name].copy()}))
            growth.values[name] += changed[name] - values[name]
            growth.squares[index] = error**2
        return True

    def _pass(self, stretch: range, begun: Values, growing: Sequence[Values]) -> None:
        """Propagate the errors of earlier borders through a stretch; drop dead values."""
        for position in stretch:
            for values in growing:
                values.update(self.variants.wide(position, values))
                self.variants.drop(position, values)
            self.variants.drop(position, begun)
            self.variants.leave(position)

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
            # in the second half of the stretch, the last one of the best
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
        if not single.name:  # of weights, which are the same for every input
            weights = () if self.clipped_only else self.variants.float_weights(single.position)
            given = {name: self.variants.graph.weights[name] for name in weights}
        rounded_ones = {name: self._narrow(single, array) for name, array in given.items()}
        if all(rounded_ones[name] is array for name, array in given.items()):
            return {}
        if single.origin == single.position:  # the tensor itself, for all that read it
            return rounded_ones
        return differing(self.variants.wide(single.position, values | rounded_ones), values)

    def _narrow(self, single: TensorRounding, array: Any) -> Any:
        """Return a rounded tensor, the same object where that changes nothing."""
        if not isinstance(array, np.ndarray):  # an optional without a value
            return array
        if self.clipped_only and not (single.dtype is FLOAT16 and overflows(array)):
            return array
        narrow = rounded(array, single.dtype, saturates=self.variants.saturates).astype(np.float32)
        return array if np.array_equal(narrow, array, equal_nan=True) else narrow

    def _spread(self, changed: Values, values: Values, start: int, stop: int) -> Values:
        """Propagate changed values up to a border; return the changed ones that are read behind it."""
        changed = dict(changed)
        self.variants.drop(start - 1, changed)
        for position in range(start, stop):
            if not changed:
                break
            if any(name in changed for name in self.variants.needed(position)):
                changed |= differing(self.variants.wide(position, values | changed), values)
            self.variants.drop(position, changed)
        return changed


def _shared(singles: Sequence[TensorRounding]) -> list[TensorRounding]:
    """Return one rounding for each tensor with several readers, which changes it for all of them."""
    uses: dict[tuple[str, DType], list[TensorRounding]] = {}
    for single in singles:
        if single.origin >= 0:
            uses.setdefault((single.name, single.dtype), []).append(single)
    return [
        replace(found[0], guards=frozenset({found[0].origin}), position=found[0].origin)
        for found in uses.values()
        if len(found) > 1
    ]


def _key(single: TensorRounding) -> tuple[str, DType, int]:
    return single.name, single.dtype, single.origin
