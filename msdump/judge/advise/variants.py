"""Operators of a network in two precisions: as the device's mode rounds them, and kept in a wider type."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np

from msdump.device import Ascend, dead_values
from msdump.dtypes import DType
from msdump.errors import InputError, UnsupportedOpError
from msdump.execute import OperatorRunner, Program, RoundingsOf, WeightCopies, compilation, is_repeatable
from msdump.graph import Graph, Node, Value, reads
from msdump.graph.kernel import FLOAT32, Rounding, keeps_types
from msdump.judge import measure
from msdump.plan import OverflowMode, PrecisionMode

_RESIDENT_BYTES: Final = 32 << 20
"""Most bytes of weights with kernels (and packed copies) that stay between walks through the network."""

_LANES: Final = 64  # most runs that go through the network side by side
_LANE_BYTES: Final = 48 << 20  # most bytes of the values of these runs
_SMALL: Final = 1 << 12  # elements; only smaller arrays are measured without blocks

Values = dict[str, Any]
"""Arrays by the names of values; None for an absent optional."""

Truth = Callable[[Values], Values]
"""Computes the true outputs by name."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Functions that a search calls as it goes on."""

    say: Callable[[str], object] = lambda _: None  # shows a line on the state of the search
    ran: Callable[[], object] = lambda: None  # counts an operator that ran
    # sets the estimated number of operators that will have run at the end
    expect: Callable[[float], object] = lambda _: None


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """An input of the network with the true outputs."""

    name: str  # name in messages: a file, or how the input was made up
    feeds: Values
    golden: Values  # the true outputs, by name


def golden(name: str, feeds: Values, truth: Truth) -> Example:
    """Compute the true outputs of an input."""
    outputs = truth(feeds)
    for output, array in outputs.items():
        count = int(np.size(array) - np.isfinite(array).sum()) if _is_float(array) else 0
        if count:
            raise InputError(
                f"{name}: golden's output {output!r} has NaN or infinities at {count} of"
                f" {np.size(array)} elements, and no precision of the other side can agree with them"
            )
    return Example(name, feeds, outputs)


@dataclass(slots=True)
class DeviceRuns:
    """Measures how far the device's outputs are from the truth when some operators are kept.

    The runs of several sets go through the network side by side, and as one as long as the sets agree: each
    operator is compiled once for all of them, and packed weights of a large network are dropped behind them.
    """

    variants: Variants
    examples: list[Example]
    _refuting: Example | None = field(default=None, init=False)
    _known: dict[tuple[frozenset[int], Example], dict[str, float]] = field(default_factory=dict, init=False)
    _live: int = field(default=0, init=False)  # most bytes of live values in one run, 0 before the first

    def worst(self, kept: frozenset[int]) -> float:
        """Return the largest error of any output of any input with some operators kept."""
        return max(self.largest(kept, self.examples), default=0.0)

    def largest(self, kept: frozenset[int], examples: Sequence[Example]) -> list[float]:
        """Return the largest error of any output, for each input, with some operators kept."""
        return [max(each.values(), default=0.0) for each in self.errors([kept], examples)[0]]

    def first_errors(self, sets: Sequence[frozenset[int]]) -> list[float]:
        """Return the largest error of each set on the input that refuted one last: most fail on no other."""
        first = [self._refuting or self.examples[0]]
        return [max(errors.values(), default=0.0) for (errors,) in self.errors(sets, first)]

    def holds(self, kept: frozenset[int], limit: float) -> bool:
        """Return whether the errors of a set stay within a limit on all inputs but the first one."""
        first = self._refuting or self.examples[0]
        others = [each for each in self.examples if each is not first]
        error, number = max(
            ((error, -number) for number, error in enumerate(self.largest(kept, others))), default=(0.0, 0)
        )
        if error <= limit:
            return True
        self._refuting = others[-number]
        return False

    def errors(
        self, sets: Sequence[frozenset[int]], examples: Sequence[Example]
    ) -> list[list[dict[str, float]]]:
        """Return the error of every output, by name, for each set and each input."""
        pairs = [(number, index) for number in range(len(examples)) for index in range(len(sets))]
        pairs = [each for each in pairs if (sets[each[1]], examples[each[0]]) not in self._known]
        while pairs:
            # the first run goes alone: it measures the memory of one run
            width = max(1, min(_LANES, _LANE_BYTES // self._live)) if self._live else 1
            for number, indices, outputs in self._walked(sets, examples, pairs[:width]):
                true = examples[number].golden
                errors = {name: distance(outputs[name], array) for name, array in true.items()}
                self._known |= {(sets[index], examples[number]): errors for index in indices}
            del pairs[:width]
        return [[self._known[each, example] for example in examples] for each in sets]

    def _walked(
        self,
        sets: Sequence[frozenset[int]],
        examples: Sequence[Example],
        pairs: Sequence[tuple[int, int]],
    ) -> Iterator[tuple[int, list[int], Values]]:
        """Run inputs with sets of kept operators side by side; yield input, sets of one result, outputs."""
        variants = self.variants
        lanes = [
            ([index for each, index in pairs if each == number], number, dict(examples[number].feeds))
            for number in dict.fromkeys(number for number, _ in pairs)
        ]
        for position in range(len(variants.graph.nodes)):
            after = []
            for indices, number, values in lanes:
                kept = [index for index in indices if position in sets[index]]
                usual = [index for index in indices if position not in sets[index]]
                parts = {is_kept: part for is_kept, part in ((True, kept), (False, usual)) if part}
                written = {is_kept: variants.run(position, values, is_kept=is_kept) for is_kept in parts}
                if len(parts) > 1 and not differing(written[True], written[False]):
                    parts = {True: indices}
                for is_kept, part in parts.items():
                    own = values | written[is_kept]
                    variants.drop(position, own)
                    after.append((part, number, own))
            lanes = after
            variants.leave(position)
            if len(pairs) == 1:
                arrays = (each for each in lanes[0][2].values() if isinstance(each, np.ndarray))
                self._live = max(self._live, sum(each.nbytes for each in arrays), 1)
        for indices, number, values in lanes:
            # a graph may return weights as outputs
            given = {
                name: variants.graph.weights[name] for name in examples[number].golden.keys() - values.keys()
            }
            yield number, indices, values | given


def differing(written: Values, values: Values) -> Values:
    """Return the arrays that differ in bits from the values of the same names."""
    return {
        name: array
        for name, array in written.items()
        if isinstance(array, np.ndarray)
        and not (array.shape == values[name].shape and array.tobytes() == values[name].tobytes())
    }


def distance(mine: Any, golden: Any) -> float:
    """Return how far an output is from the truth.

    Of floating-point tensors the norm of the difference, divided by the norm of the truth; of others the
    share of elements that differ; infinite where NaN or infinities stand in other places.
    """
    if not isinstance(golden, np.ndarray) or not isinstance(mine, np.ndarray) or mine.shape != golden.shape:
        return 0.0 if mine is golden else math.inf
    if not _is_float(golden):
        return float(np.mean(mine != golden)) if golden.size else 0.0
    if golden.size < _SMALL:
        mine, golden = mine.astype(np.float64), golden.astype(np.float64)
        apart, norm = float(np.linalg.norm(mine - golden)), float(np.linalg.norm(golden))
        if norm:  # the truth is finite
            return apart / norm if math.isfinite(apart) else math.inf
    error = measure(mine, golden)
    return 0.0 if error.is_same else float(error.distance)


def _is_float(array: Any) -> bool:
    return isinstance(array, np.ndarray) and (array.dtype.kind == "f" or "float" in array.dtype.name)


class Variants:
    """Runs the operators of a network, each narrow or kept.

    Attributes:
        graph: The model, operator by operator: no level changes its operators' results.
        to: The type of operators that are kept.
        narrow: How an operator rounds in the device's mode.
        saturates: Whether float16 stays within its range.
        candidates: The operators of each node that can be kept, by its position in the execution order of
            the main graph: one operator, or all of a branch or loop.
        heavy: Positions of operators with kernels that are dropped once all runs have passed them.
        spent: Operators that ran so far.
        progress: Informed of each.
    """

    def __init__(
        self, graph: Graph, mode: PrecisionMode, overflow: OverflowMode, to: DType = FLOAT32
    ) -> None:
        """Compile nothing yet.

        Raises:
            UnsupportedOpError: An operator draws random numbers or talks to other ranks.
        """
        compilation.accelerate_device()
        device = Ascend(graph, mode, overflow)
        self.graph = device.graph
        self.to = to
        self.spent, self.progress = 0, Progress()
        self._dead = dead_values(self.graph)
        for node in self.graph.nodes:
            if not is_repeatable(node):
                raise UnsupportedOpError(
                    f"{graph.source}: {node.operator.full_name} gives other results in every run:"
                    " --advise needs the same results in all runs"
                )
        self.narrow: Final = device.roundings
        self.saturates = overflow is OverflowMode.SATURATION
        copies = WeightCopies()
        self._narrow = _Runner(self.graph, self.narrow, copies)
        self._wide = _Runner(self.graph, partial(self._widened, to=FLOAT32), copies)
        self._kept = self._wide if to is FLOAT32 else _Runner(self.graph, self.kept, copies)
        total, heavy, weights = 0, list[int](), self.graph.weights
        sizes = {
            position: sum(weights[name].nbytes for name in reads(node) if name in weights)
            for position, node in enumerate(self.graph.nodes)
        }
        for position in sorted(sizes, key=lambda each: sizes[each]):
            total += sizes[position]
            heavy += [position] if total > _RESIDENT_BYTES else []
        self.heavy = frozenset(heavy)
        self.candidates = {
            position: nodes
            for position, node in enumerate(self.graph.nodes)
            if (nodes := tuple(inner for inner in _operators(node) if self._narrows(inner)))
        }

    @property
    def rounded(self) -> int:
        """Number of operators that the device rounds."""
        return sum(map(len, self.candidates.values()))

    def kept(self, node: Node) -> tuple[Rounding, ...]:
        """Return the roundings of a kept operator: narrowed types become the wider one."""
        return self._widened(node, self.to)

    def _widened(self, node: Node, to: DType) -> tuple[Rounding, ...]:
        return tuple(
            replace(
                usual,
                reads=FLOAT32 if usual.reads is FLOAT32 else to,
                writes=FLOAT32 if usual.writes is FLOAT32 else to,
            )
            for usual in self.narrow(node)
        )

    def _narrows(self, node: Node) -> bool:
        (usual,) = self.narrow(node)
        inputs, outputs = (any(map(self.is_float, names)) for names in (node.inputs, node.outputs))
        if keeps_types(node):
            return usual.reads is not FLOAT32 and inputs and outputs
        return (usual.reads is not FLOAT32 and inputs) or (usual.writes is not FLOAT32 and outputs)

    def is_float(self, name: str) -> bool:
        """Return whether a value is a float32 tensor; the device rounds no others."""
        return any(graph.type_of(name).dtype is FLOAT32 for graph in self.graph.walk() if name in graph.types)

    def needed(self, position: int) -> tuple[str, ...]:
        """Return the names of an operator's inputs without weights."""
        node = self.graph.nodes[position]
        return tuple(name for name in reads(node) if name not in self.graph.weights)

    def float_weights(self, position: int) -> tuple[str, ...]:
        """Return the names of an operator's float32 weights."""
        weights = self.graph.weights
        return tuple(
            name for name in reads(self.graph.nodes[position]) if name in weights and self.is_float(name)
        )

    def run(self, position: int, values: Values, *, is_kept: bool) -> Values:
        """Return the outputs of an operator, narrow or kept, by name."""
        return self._counted(self._kept if is_kept else self._narrow, position, values)

    def wide(self, position: int, values: Values) -> Values:
        """Return the outputs of an operator in float32, by name."""
        return self._counted(self._wide, position, values)

    def _counted(self, runner: _Runner, position: int, values: Values) -> Values:
        self.spent += 1
        self.progress.ran()
        return runner.run(position, values)

    def drop(self, position: int, values: Values) -> None:
        """Remove the values that no operator behind a position reads."""
        for name in self._dead[position]:
            values.pop(name, None)

    def leave(self, position: int) -> None:
        """Drop the kernels of an operator with large weights, which runs again only in the next walk."""
        if position in self.heavy:
            for runner in (self._narrow, self._wide, self._kept):
                runner.forget(position)


class _Runner:
    """Runs nodes of one precision: operators alone, branches and loops as programs."""

    def __init__(self, graph: Graph, roundings: RoundingsOf, copies: WeightCopies) -> None:
        self._graph = graph
        self._roundings = roundings
        self._operators = OperatorRunner(graph, roundings, copies, is_bounded=False)
        self._programs: dict[int, Program] = {}

    def run(self, position: int, values: Values) -> Values:
        node = self._graph.nodes[position]
        outputs: Sequence[Any]
        if node.bodies:
            needed, graph = self._operators.needed(node), self._graph
            if position not in self._programs:
                part = replace(
                    graph,
                    nodes=(node,),
                    inputs=tuple(Value(name, graph.type_of(name)) for name in needed),
                    outputs=tuple(Value(name, graph.type_of(name)) for name in node.outputs if name),
                )
                self._programs[position] = Program(part, self._roundings)
            from_python = self._operators._value  # noqa: SLF001
            given = {name: from_python(name, values[name]) for name in needed}
            results = iter(self._programs[position].run(given))
            outputs = [next(results) if name else None for name in node.outputs]
        else:
            outputs = self._operators.run(node, values)
        written = {name: array for name, array in zip(node.outputs, outputs, strict=True) if name}
        for name, array in written.items():
            if array is None and self._graph.type_of(name).kind != "optional":
                raise UnsupportedOpError(
                    f"{node.operator.full_name} writes {name!r}, which is not a tensor;"
                    " --advise supports only tensors"
                )
        return written

    def forget(self, position: int) -> None:
        self._operators.forget(self._graph.nodes[position])
        self._programs.pop(position, None)


def _operators(node: Node) -> list[Node]:
    """Return a node, or the operators in its branches and loops."""
    if not node.bodies:
        return [node]
    return [inner for body in node.bodies.values() for each in body.nodes for inner in _operators(each)]
