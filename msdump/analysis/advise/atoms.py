"""The single roundings of a network, each with the operators that cause it and the error that it makes.

A tensor between two operators is rounded where one of the two is narrow, so that keeping one of them alone
changes nothing: each use of a tensor is one rounding, which is gone only where all its guards are kept - the
operator that writes it, the one that reads it, and what moves elements between them. The weights of an
operator are another, guarded by it alone.

An error is measured with everything else kept: the rounded tensor runs to the end of its stretch of the
network, through the operators that it changes. From there to the outputs errors grow as those of the whole
stretch do, which is measured for each tensor that crosses the border. With one stretch all is measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from msdump.analysis.advise.variants import Example, Values, Variants, distance, values_of
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


class RoundingMeter:
    """Measures the errors of the roundings of a network on one input.

    Attributes:
        spent: Operators that ran so far.
    """

    def __init__(self, variants: Variants, example: Example, stretches: int) -> None:
        """Run the network once with everything kept.

        Args:
            variants: The network.
            example: The input.
            stretches: Into how many parts the network is divided.
        """
        self._variants = variants
        self._example = example
        self._outputs = {value.name: index for index, value in enumerate(variants.graph.outputs)}
        self.spent = 0
        self._borders, self._saved = self._run_once(stretches)
        self._clipped_only = False

    def _run_once(self, stretches: int) -> tuple[list[int], list[Values]]:
        """Return the borders of the stretches and the values at the beginning of each."""
        count = len(self._variants.graph.nodes)
        size = max(1, math.ceil(count / stretches))
        borders, saved, values = [0], [dict(self._example.feeds)], dict(self._example.feeds)
        begun, narrowest = 0, math.inf
        for position in range(count):
            values |= self._kept(position, values)
            self._drop(position, values)
            # the border goes where the fewest values cross it, in the second half of the stretch
            crossing = sum(1 for name in values if self._variants.is_float(name))
            after = position + 1
            if begun + size // 2 < after <= begun + size and crossing <= narrowest:
                narrowest, best = crossing, (after, dict(values))
            if after == begun + size and after < count and stretches > 1:
                borders.append(best[0])
                saved.append(best[1])
                begun, narrowest = best[0], math.inf
        return [*borders, count], saved

    def _kept(self, position: int, values: Values) -> Values:
        self.spent += 1
        return self._variants.wide(position, values)

    def _drop(self, position: int, values: Values) -> None:
        for name in self._variants.dead[position]:
            if name not in self._outputs:
                values.pop(name, None)

    def energies(self, atoms: Sequence[Atom], *, clipped_only: bool = False) -> np.ndarray:
        """Return the squared error of each output (columns) for each rounding; infinite where one breaks.

        Args:
            atoms: The roundings.
            clipped_only: Measure those that leave the type's range, and return 0 for the others.
        """
        self._clipped_only = clipped_only
        events = [*enumerate(atoms), *((-1 - index, atom) for index, atom in enumerate(_shared(atoms)))]
        found: dict[int, np.ndarray] = {}
        for stretch, (start, stop) in enumerate(zip(self._borders, self._borders[1:], strict=False)):
            inside = {index: atom for index, atom in events if start <= atom.position < stop}
            found |= self._of_stretch(stretch, start, stop, inside)
        for index, atom in events:
            if atom.position == self._borders[-1]:
                found[index] = self._of_output(atom)
        return self._together(atoms, found)

    def _together(self, atoms: Sequence[Atom], found: Mapping[int, np.ndarray]) -> np.ndarray:
        """Return the energies of the roundings, those of one tensor scaled to what they make together.

        The uses of a tensor have one and the same error, which does not add up as independent ones do.
        """
        energies = np.array([found[index] for index in range(len(atoms))]).reshape(len(atoms), -1)
        for index, shared in enumerate(_shared(atoms)):
            uses = [each for each, atom in enumerate(atoms) if _is_use(atom, shared)]
            alone, together = energies[uses].sum(axis=0), found[-1 - index]
            usable = np.isfinite(alone) & np.isfinite(together) & (alone > 0)
            scales = np.divide(together, alone, out=np.ones_like(alone), where=usable)
            energies[uses] *= scales
        return energies

    def _of_stretch(
        self, stretch: int, start: int, stop: int, atoms: Mapping[int, Atom]
    ) -> dict[int, np.ndarray]:
        values = dict(self._saved[stretch])
        for position in range(start, stop):
            values |= self._kept(position, values)
        # all values of the stretch stay: each rounding changes some of them
        ends = {
            index: self._spread(self._changed(atom, values), values, atom.position + 1, stop)
            for index, atom in atoms.items()
        }
        if stop == self._borders[-1]:
            return {index: self._at_the_end(changed) for index, changed in ends.items()}
        kinds = {index: not atom.name for index, atom in atoms.items()}
        return self._behind(stop, ends, kinds, values)

    def _at_the_end(self, changed: Values) -> np.ndarray:
        """Return the squared errors of the outputs that changed."""
        energy = np.zeros(len(self._outputs))
        for name in changed.keys() & self._outputs.keys():
            energy[self._outputs[name]] = distance(changed[name], self._example.golden[name]) ** 2
        return energy

    def _behind(
        self, border: int, ends: Mapping[int, Values], kinds: Mapping[int, bool], values: Values
    ) -> dict[int, np.ndarray]:
        """Return the squared errors of the outputs that changed values at a border become.

        Errors of weights are alike in all rows of a tensor, those of tensors are not, and grow otherwise: the
        growth of each kind is that of all errors of the kind together.
        """
        found = {index: np.zeros(len(self._outputs)) for index in ends}
        for kind in (False, True):
            alike = {index: changed for index, changed in ends.items() if kinds[index] == kind}
            names = {name for changed in alike.values() for name in changed if self._variants.is_float(name)}
            for name in sorted(names):
                arrays = {index: changed[name] for index, changed in alike.items() if name in changed}
                for index, energy in self._grown(border, values[name], name, arrays).items():
                    found[index] = found[index] + energy
        return found

    def _grown(
        self, border: int, base: np.ndarray, name: str, arrays: Mapping[int, np.ndarray]
    ) -> dict[int, np.ndarray]:
        """Return what the errors of one value at a border become."""
        errors = {index: distance(array, base) for index, array in arrays.items()}
        sound = [index for index, error in errors.items() if math.isfinite(error)]
        together = base + sum((arrays[index] - base for index in sound), np.zeros_like(base))
        error = distance(together, base)
        growth = (
            (self._run_on({name: together}, border) / error) ** 2 if error else np.zeros(len(self._outputs))
        )
        return {
            index: growth * error**2 if index in sound else np.full(len(self._outputs), math.inf)
            for index, error in errors.items()
        }

    def _changed(self, atom: Atom, values: Values) -> Values:
        """Return what the operator of a rounding writes differently for it."""
        node = self._variants.graph.nodes[atom.position]
        if atom.name:
            narrow = self._narrow(atom, values[atom.name])
            if narrow is values[atom.name]:
                return {}
            if atom.origin == atom.position:  # the tensor itself, for all that read it
                return {atom.name: narrow}
            return self._differing(self._kept(atom.position, values | {atom.name: narrow}), values)
        if node.bodies:
            return self._differing(self._variants.run(atom.position, values, is_kept=False), values)
        if self._clipped_only:
            return {}  # weights are the same for every input
        return self._differing(self._of_weights(atom, node, values), values)

    def _of_weights(self, atom: Atom, node: Node, values: Values) -> Values:
        """Return what an operator writes when its weights alone are rounded, to first order."""
        inputs = {
            name: self._narrow(atom, values[name])
            for name in self._variants.needed(atom.position)
            if self._variants.is_float(name)
        }
        rounded_inputs = values | inputs
        both = self._variants.reading(atom.position, rounded_inputs, atom.dtype)
        alone = self._kept(atom.position, rounded_inputs)
        self.spent += 1
        with np.errstate(all="ignore"):
            return {
                name: values[name] + (both[name] - alone[name])
                if self._variants.is_float(name)
                else both[name]
                for name in filter(None, node.outputs)
            }

    def _narrow(self, atom: Atom, array: Any) -> Any:
        """Return a tensor after a rounding, the same object where that changes nothing."""
        if not isinstance(array, np.ndarray):  # an optional without a value
            return array
        if self._clipped_only and not (atom.dtype is FLOAT16 and overflows(array)):
            return array
        narrow = rounded(array, atom.dtype, saturates=self._variants.saturates).astype(np.float32)
        return array if np.array_equal(narrow, array, equal_nan=True) else narrow

    @staticmethod
    def _differing(written: Values, values: Values) -> Values:
        return {
            name: array
            for name, array in written.items()
            if isinstance(array, np.ndarray)
            and not (array.shape == values[name].shape and array.tobytes() == values[name].tobytes())
        }

    def _spread(self, changed: Values, values: Values, start: int, stop: int) -> Values:
        """Return what changed values change behind them, up to a border, and what of them lives on."""
        changed = dict(changed)
        for position in range(start, stop):
            if not changed:
                break
            if any(name in changed for name in self._variants.needed(position)):
                changed |= self._differing(self._kept(position, values | changed), values)
            self._drop(position, changed)
        return changed

    def _run_on(self, changed: Values, start: int) -> np.ndarray:
        """Return the errors of the outputs for changed values at a border."""
        values = self._saved[self._borders.index(start)] | changed
        for position in range(start, self._borders[-1]):
            values |= self._kept(position, values)
            self._drop(position, values)
        ends = values_of(self._variants, self._outputs, values)
        return np.array([distance(ends[name], self._example.golden[name]) for name in self._outputs])

    def _of_output(self, atom: Atom) -> np.ndarray:
        energy = np.zeros(len(self._outputs))
        golden = self._example.golden[atom.name]
        energy[self._outputs[atom.name]] = distance(self._narrow(atom, golden), golden) ** 2
        return energy


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


def _is_use(atom: Atom, shared: Atom) -> bool:
    return (atom.name, atom.dtype, atom.origin) == (shared.name, shared.dtype, shared.origin)
