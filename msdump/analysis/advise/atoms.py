"""The single roundings of a network, each with the operators that cause it and the error that it makes.

A tensor between two operators is rounded where one of the two is narrow, so that keeping one of them alone
changes nothing: each use of a tensor is one rounding, which is gone only where all its guards are kept - the
operator that writes it, the one that reads it, and what moves elements between them. The weights of an
operator are another, guarded by it alone.

An error is measured with everything else kept: the rounded tensor runs to the end of its stretch of the
network, through the operators that it changes. From there to the outputs errors grow as those of the whole
stretch do, which is measured for each tensor that crosses the border. With one stretch all is measured. All
of it is one walk through the network: operators with large weights are compiled once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
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
class Atom:
    """One rounding.

    Attributes:
        guards: Positions of the candidates of which one that is narrow causes it.
        position: The operator that reads what is rounded; the number of operators for an output.
        name: The tensor, "" for the weights of the operator, or all that it does inside.
        dtype: The type that it is rounded to.
        origin: The operator that writes the tensor, -1 for inputs and where something moves it.
    """

    guards: frozenset[int]
    position: int
    name: str
    dtype: DType
    origin: int = -1


def atoms_of(variants: Variants) -> list[Atom]:
    """Return the roundings of a network, by position."""
    origins = _Origins(variants)
    atoms: list[Atom] = []
    for position, node in enumerate(variants.graph.nodes):
        atoms += _of_operator(variants, origins, position, node)
        origins.pass_on(position, node)
    end = len(variants.graph.nodes)
    atoms += [
        Atom(guards, end, name, origins.dtypes[name], origins.positions[name])
        for name in (value.name for value in variants.graph.outputs)
        if (guards := origins.guards.get(name))
    ]
    return atoms


class _Origins:
    """Who rounds each value before it is read: the operator that writes it, and those that move it."""

    def __init__(self, variants: Variants) -> None:
        self._variants = variants
        self.guards: dict[str, frozenset[int]] = {}
        self.positions: dict[str, int] = {}
        self.dtypes: dict[str, DType] = {}

    def pass_on(self, position: int, node: Node) -> None:
        """Note who rounds what an operator writes."""
        usual = self._variants.narrow(node)[-1]
        guards, dtype = frozenset[int](), usual.writes
        is_candidate = position in self._variants.candidates
        if keeps_types(node) and not node.bodies:
            read = [name for name in node.inputs if self._variants.is_float(name)]
            guards = frozenset[int]().union(*(self.guards.get(name, ()) for name in read))
            dtype = next((self.dtypes[name] for name in read if name in self.dtypes), usual.reads)
            if is_candidate:
                guards, dtype = guards | {position}, usual.reads
        elif is_candidate and (usual.writes is not FLOAT32 or node.bodies):
            guards = frozenset({position})
        for name in node.outputs:
            if guards and self._variants.is_float(name):
                self.guards[name], self.dtypes[name] = guards, dtype if dtype is not FLOAT32 else FLOAT16
                self.positions[name] = position if len(guards) == 1 and not keeps_types(node) else -1


def _of_operator(variants: Variants, origins: _Origins, position: int, node: Node) -> Iterator[Atom]:
    usual = variants.narrow(node)[0]
    is_candidate = position in variants.candidates
    if node.bodies and is_candidate:
        yield Atom(frozenset({position}), position, "", FLOAT16)
    if keeps_types(node) and not node.bodies:
        return
    reads = is_candidate and usual.reads is not FLOAT32
    own = frozenset({position}) if reads else frozenset[int]()
    for name in dict.fromkeys(variants.needed(position)):
        guards = origins.guards.get(name, frozenset[int]()) | own
        if guards and variants.is_float(name):
            dtype = usual.reads if reads else origins.dtypes[name]
            yield Atom(guards, position, name, dtype, origins.positions.get(name, -1))
    weights = [name for name in node.inputs if name in variants.graph.weights and variants.is_float(name)]
    if reads and weights and not node.bodies:
        yield Atom(own, position, "", usual.reads)


@dataclass(slots=True)
class _Growth:
    """Errors of one value at a border, all together, on their way to the outputs.

    Attributes:
        values: The values with these errors in them.
        shares: Share of each rounding in the square of the error, by its index.
    """

    values: Values
    shares: dict[int, float]


class _Joint:
    """The errors that roundings of a stretch make at its end, added up.

    Errors of weights are alike in all rows of a tensor, those of tensors are not, and grow otherwise: the
    growth of each kind is that of all errors of the kind together.
    """

    def __init__(self, variants: Variants, values: Values) -> None:
        self._variants, self._values = variants, values
        self._sums: dict[tuple[str, bool], _Growth] = {}

    def add(self, index: int, atom: Atom, changed: Values) -> float:
        """Add the values that a rounding changes; return infinity where it breaks one, else 0."""
        for name in filter(self._variants.is_float, changed):
            error = distance(changed[name], self._values[name])
            if not math.isfinite(error):
                return math.inf
            base, key = self._values[name], (name, not atom.name)
            growth = self._sums.setdefault(key, _Growth({name: base.copy()}, {}))
            growth.values[name] += changed[name] - base
            growth.shares[index] = error**2
        return 0.0

    def growths(self, begun: Values) -> Iterator[_Growth]:
        """Yield the sums of errors, with the values at the border."""
        for (name, _), growth in self._sums.items():
            whole = distance(growth.values[name], self._values[name]) ** 2
            if whole:
                shares = {index: square / whole for index, square in growth.shares.items() if square}
                yield _Growth(begun | growth.values, shares)


@dataclass(slots=True)
class RoundingMeter:
    """Measures the errors of the roundings of a network on one input.

    Attributes:
        variants: The network.
        example: The input.
        stretches: Number of parts that the network is divided into.
        clipped_only: Whether roundings within the type's range, and those of weights, count as 0.
    """

    variants: Variants
    example: Example
    stretches: int
    clipped_only: bool = False
    _outputs: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        """Number the outputs."""
        self._outputs = {value.name: index for index, value in enumerate(self.variants.graph.outputs)}

    def energies(self, atoms: Sequence[Atom]) -> np.ndarray:
        """Return the squared error of each output (columns) for each rounding; infinite where one breaks.

        The uses of a tensor have one and the same error, which does not add up as independent ones do: theirs
        are scaled to the error that they make together.
        """
        shared = _shared(atoms)
        found = self._measured([*atoms, *shared])
        energies, together = found[: len(atoms)], found[len(atoms) :]
        for atom, whole in zip(shared, together, strict=True):
            uses = [index for index, each in enumerate(atoms) if _key(each) == _key(atom)]
            alone = energies[uses].sum(axis=0)
            usable = np.isfinite(alone) & np.isfinite(whole) & (alone > 0)
            energies[uses] *= np.divide(whole, alone, out=np.ones_like(alone), where=usable)
        return energies

    def _measured(self, atoms: Sequence[Atom]) -> np.ndarray:
        """Return the squared errors of roundings: a walk through the network, stretch by stretch."""
        found = np.zeros((len(atoms), len(self._outputs)))
        begun, growing, end = dict(self.example.feeds), list[_Growth](), len(self.variants.graph.nodes)
        for start, stop in pairwise(self._borders()):
            values = dict(begun)
            for position in range(start, stop):
                values |= self.variants.wide(position, values)
            # all values of the stretch stay: each rounding changes some of them
            joint = _Joint(self.variants, values)
            for index, atom in enumerate(atoms):
                if start <= atom.position < stop:
                    changed = self._spread(self._changed(atom, values), values, atom.position + 1, stop)
                    found[index] = self._squares(changed) if stop == end else joint.add(index, atom, changed)
            begun = values
            self._pass(range(start, stop), begun, [each.values for each in growing])
            growing += joint.growths(begun)
        for each in growing:
            grown = self._squares(each.values)
            for index, share in each.shares.items():
                found[index] += grown * share
        for index, atom in enumerate(atoms):
            if atom.position == end:
                found[index] = self._squares({atom.name: self._narrow(atom, self.example.golden[atom.name])})
        return found

    def _pass(self, stretch: range, begun: Values, growing: Sequence[Values]) -> None:
        """Run errors at earlier borders through a stretch, and drop what ends in it."""
        for position in stretch:
            for values in growing:
                values.update(self.variants.wide(position, values))
                self.variants.drop(position, values)
            self.variants.drop(position, begun)
            self.variants.leave(position)

    def _borders(self) -> list[int]:
        """Return the positions at which stretches begin, and the end: few values cross them."""
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
        """Return the squared errors of the outputs among changed values."""
        squares = np.zeros(len(self._outputs))
        for name in changed.keys() & self._outputs.keys():
            squares[self._outputs[name]] = distance(changed[name], self.example.golden[name]) ** 2
        return squares

    def _changed(self, atom: Atom, values: Values) -> Values:
        """Return what the operator of a rounding writes differently for it."""
        node = self.variants.graph.nodes[atom.position]
        if atom.name:
            narrow = self._narrow(atom, values[atom.name])
            if narrow is values[atom.name]:
                return {}
            if atom.origin == atom.position:  # the tensor itself, for all that read it
                return {atom.name: narrow}
            return differing(self.variants.wide(atom.position, values | {atom.name: narrow}), values)
        if node.bodies:
            return differing(self.variants.run(atom.position, values, is_kept=False), values)
        if self.clipped_only:
            return {}  # weights are the same for every input
        return differing(self._of_weights(atom, node, values), values)

    def _of_weights(self, atom: Atom, node: Node, values: Values) -> Values:
        """Return what an operator writes when its weights alone are rounded, to first order."""
        inputs = {
            name: self._narrow(atom, values[name])
            for name in self.variants.needed(atom.position)
            if self.variants.is_float(name)
        }
        rounded_inputs = values | inputs
        both = self.variants.reading(atom.position, rounded_inputs, atom.dtype)
        alone = self.variants.wide(atom.position, rounded_inputs)
        with np.errstate(all="ignore"):
            return {
                name: values[name] + (both[name] - alone[name])
                if self.variants.is_float(name)
                else both[name]
                for name in filter(None, node.outputs)
            }

    def _narrow(self, atom: Atom, array: Any) -> Any:
        """Return a tensor after a rounding, the same object where that changes nothing."""
        if not isinstance(array, np.ndarray):  # an optional without a value
            return array
        if self.clipped_only and not (atom.dtype is FLOAT16 and overflows(array)):
            return array
        narrow = rounded(array, atom.dtype, saturates=self.variants.saturates).astype(np.float32)
        return array if np.array_equal(narrow, array, equal_nan=True) else narrow

    def _spread(self, changed: Values, values: Values, start: int, stop: int) -> Values:
        """Return what changed values change behind them, up to a border, and what of them lives on."""
        changed = dict(changed)
        self.variants.drop(start - 1, changed)
        for position in range(start, stop):
            if not changed:
                break
            if any(name in changed for name in self.variants.needed(position)):
                changed |= differing(self.variants.wide(position, values | changed), values)
            self.variants.drop(position, changed)
        return changed


def _shared(atoms: Sequence[Atom]) -> list[Atom]:
    """Return the roundings of tensors that are read several times, for all that read them."""
    uses: dict[tuple[str, DType], list[Atom]] = {}
    for atom in atoms:
        if atom.origin >= 0:
            uses.setdefault((atom.name, atom.dtype), []).append(atom)
    return [
        replace(found[0], guards=frozenset({found[0].origin}), position=found[0].origin)
        for found in uses.values()
        if len(found) > 1
    ]


def _key(atom: Atom) -> tuple[str, DType, int]:
    return atom.name, atom.dtype, atom.origin
