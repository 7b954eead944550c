"""Operators of a network in two precisions: as the device's mode rounds them, and kept in a wider type."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from msdump.analysis import measure
from msdump.device import Ascend, lifetimes
from msdump.dtypes import DType
from msdump.errors import InputError, UnsupportedOpError
from msdump.execute import OperatorRunner, Program, RoundingsOf, WeightCopies, compilation, is_repeatable
from msdump.graph import Graph, Node, Value, reads
from msdump.graph.kernel import FLOAT32, Rounding, keeps_types
from msdump.plan import OverflowMode, PrecisionMode

_CUTS: Final = 24  # places of a network at which a run can be taken up again
_CUT_BYTES: Final = 256 << 20  # of values that are kept at them, for all inputs


Values = dict[str, Any]
"""Arrays by the names of values; None for an absent optional."""

Truth = Callable[[Values], Values]
"""Returns the outputs, by name, that are right for inputs."""


@dataclass(frozen=True, slots=True)
class Example:
    """One input of the network, and the truth for it.

    Attributes:
        name: What messages call it: a file, or how it was made up.
        feeds: The inputs by name, as they are fed.
        golden: The true outputs, by name.
    """

    name: str
    feeds: Values
    golden: Values


@dataclass(slots=True)
class DeviceRuns:
    """Measures how far the device's outputs are from the truth when some operators are kept.

    A run is taken up again at a cut before which the same operators were kept.

    Attributes:
        variants: The network.
        examples: The inputs.
        cuts: Positions before which runs are taken up again.
        spent: Operators that ran so far.
    """

    variants: Variants
    examples: list[Example]
    cuts: tuple[int, ...] = ()
    spent: int = 0
    _saved: dict[tuple[int, int], tuple[frozenset[int], Values]] = field(default_factory=dict)
    _saved_bytes: int = 0

    def __post_init__(self) -> None:
        """Spread the places at which runs are taken up again over the network."""
        count = len(self.variants.graph.nodes)
        step = max(1, count // _CUTS)
        self.cuts = self.cuts or tuple(range(step, count, step))

    def errors(self, example: int, kept: frozenset[int]) -> dict[str, float]:
        """Return the error of every output of one input.

        Args:
            example: Index of the input.
            kept: Positions of the operators that are kept.
        """
        golden = self.examples[example].golden
        outputs = self._outputs(example, kept)
        return {name: distance(outputs[name], array) for name, array in golden.items()}

    def worst(self, kept: frozenset[int], enough: float = math.inf) -> float:
        """Return the largest error of any output of any input; stop at the first one above a bound."""
        worst = 0.0
        for example in range(len(self.examples)):
            worst = max(worst, *self.errors(example, kept).values())
            if not worst <= enough:
                break
        return worst

    def _outputs(self, example: int, kept: frozenset[int]) -> Values:
        start, values = self._begin(example, kept)
        outputs = {value.name for value in self.variants.graph.outputs}
        for position in range(start, len(self.variants.graph.nodes)):
            if position in self.cuts:
                self._save(example, position, kept, values)
            values |= self.variants.run(position, values, is_kept=position in kept)
            self.spent += 1
            for name in self.variants.dead[position]:
                if name not in outputs:
                    values.pop(name, None)
        return values_of(self.variants, outputs, values)

    def _begin(self, example: int, kept: frozenset[int]) -> tuple[int, Values]:
        for position in reversed(self.cuts):
            cut = self._saved.get((example, position))
            if cut is not None and cut[0] == _before(kept, position):
                return position, dict(cut[1])
        return 0, dict(self.examples[example].feeds)

    def _save(self, example: int, position: int, kept: frozenset[int], values: Values) -> None:
        _, replaced = self._saved.pop((example, position), (None, {}))
        self._saved_bytes -= nbytes(replaced)
        size = nbytes(values)
        if self._saved_bytes + size <= _CUT_BYTES:
            self._saved[example, position] = _before(kept, position), dict(values)
            self._saved_bytes += size


def golden(name: str, feeds: Values, truth: Truth) -> Example:
    """Return an input with the true outputs for it.

    Raises:
        InputError: They are not finite: nothing can be near them.
    """
    outputs = truth(feeds)
    for output, array in outputs.items():
        count = int(np.size(array) - np.isfinite(array).sum()) if _is_float(array) else 0
        if count:
            raise InputError(
                f"{name}: on the golden side, output {output!r} has NaN or infinity in {count} of"
                f" {np.size(array)} elements: no precision of the other side brings anything near them"
            )
    return Example(name, feeds, outputs)


def values_of(variants: Variants, names: Collection[str], values: Mapping[str, Any]) -> Values:
    """Return some values of a run; a graph may hand its weights and inputs on as outputs."""
    weights = variants.graph.weights
    return {name: values[name] if name in values else weights[name] for name in names}


def distance(mine: Any, golden: Any) -> float:
    """Return how far an output is from the truth.

    Of floating-point tensors the norm of the difference, divided by the norm of the truth; of others the
    share of elements that differ; infinite where NaN or infinities stand in other places.
    """
    if not isinstance(golden, np.ndarray) or not isinstance(mine, np.ndarray) or mine.shape != golden.shape:
        return 0.0 if mine is golden else math.inf
    if not _is_float(golden):
        return float(np.mean(mine != golden)) if golden.size else 0.0
    error = measure(mine, golden)
    return 0.0 if error.is_same else float(error.distance)


def nbytes(values: Mapping[str, Any]) -> int:
    """Return the bytes of the arrays among some values."""
    return sum(array.nbytes for array in values.values() if isinstance(array, np.ndarray))


def _before(kept: frozenset[int], position: int) -> frozenset[int]:
    return frozenset(each for each in kept if each < position)


def _is_float(array: Any) -> bool:
    return isinstance(array, np.ndarray) and (array.dtype.kind == "f" or "float" in array.dtype.name)


_MATRIX_OPS: Final = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose"})


class Variants:
    """Runs the operators of a network, each narrow or kept.

    Attributes:
        graph: The model, operator by operator: no level changes what its operators compute.
        to: The type of operators that are kept.
        narrow: How an operator rounds in the device's mode.
        saturates: Whether float16 stays within its range.
        candidates: The operators of each node that can be kept, by its position in the execution order of
            the main graph: one operator, or all of a branch or loop.
        dead: Names of the values that nobody reads after each operator.
    """

    def __init__(
        self, graph: Graph, mode: PrecisionMode, overflow: OverflowMode, to: DType = FLOAT32
    ) -> None:
        """Compile nothing yet.

        Args:
            graph: The model.
            mode: The device's precision mode.
            overflow: What float16 results beyond the range become.
            to: float32 or bfloat16.

        Raises:
            UnsupportedOpError: An operator draws random numbers or talks to other ranks.
        """
        compilation.accelerate_device()
        device = Ascend(graph, mode, overflow)
        self.graph = device.graph
        self.to = to
        self.dead = lifetimes(self.graph).dead
        for node in self.graph.nodes:
            if not is_repeatable(node):
                raise UnsupportedOpError(
                    f"{graph.source}: {node.operator.full_name} gives other results in every run:"
                    " nothing can be advised about such a network"
                )
        self.narrow: Final = device.roundings
        self.saturates = overflow is OverflowMode.SATURATION
        copies = WeightCopies()
        self._narrow = _Runner(self.graph, self.narrow, copies)
        self._wide = _Runner(self.graph, self._all_wide, copies)
        self._kept = self._wide if to is FLOAT32 else _Runner(self.graph, self.kept, copies)
        self._reading: dict[DType, OperatorRunner] = {}
        self._copies = copies
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
        """Return how an operator rounds that is kept: what the mode narrows becomes the wider type."""
        return tuple(
            replace(
                usual,
                reads=FLOAT32 if usual.reads is FLOAT32 else self.to,
                writes=FLOAT32 if usual.writes is FLOAT32 else self.to,
            )
            for usual in self.narrow(node)
        )

    def _all_wide(self, node: Node) -> tuple[Rounding, ...]:
        return tuple(replace(usual, reads=FLOAT32, writes=FLOAT32) for usual in self.narrow(node))

    def _narrows(self, node: Node) -> bool:
        """Tell whether the device rounds anything that an operator reads or writes."""
        (usual,) = self.narrow(node)
        inputs, outputs = (any(map(self.is_float, names)) for names in (node.inputs, node.outputs))
        if keeps_types(node):
            return usual.reads is not FLOAT32 and inputs and outputs
        return (usual.reads is not FLOAT32 and inputs) or (usual.writes is not FLOAT32 and outputs)

    def is_float(self, name: str) -> bool:
        """Tell whether a value is a float32 tensor, which alone is rounded."""
        return any(graph.type_of(name).dtype is FLOAT32 for graph in self.graph.walk() if name in graph.types)

    def needed(self, position: int) -> tuple[str, ...]:
        """Return the names of the values that an operator reads, weights aside."""
        node = self.graph.nodes[position]
        return tuple(name for name in reads(node) if name not in self.graph.weights)

    def run(self, position: int, values: Values, *, is_kept: bool) -> Values:
        """Return what an operator writes, narrow or kept, by name."""
        return (self._kept if is_kept else self._narrow).run(position, values)

    def wide(self, position: int, values: Values) -> Values:
        """Return what an operator writes in float32."""
        return self._wide.run(position, values)

    def reading(self, position: int, values: Values, dtype: DType) -> Values:
        """Return what an operator writes that reads a smaller type, and rounds no result."""
        node = self.graph.nodes[position]
        if dtype not in self._reading:

            def reads(node: Node) -> tuple[Rounding, ...]:
                return tuple(replace(usual, reads=dtype, writes=FLOAT32) for usual in self.narrow(node))

            self._reading[dtype] = OperatorRunner(self.graph, reads, self._copies)
        outputs = self._reading[dtype].run(node, values)
        self._reading[dtype].forget(node)  # it runs seldom: its packed weights cost more than they save
        return {name: array for name, array in zip(node.outputs, outputs, strict=True) if name}

    def cost(self, position: int, values: Mapping[str, Any]) -> int:
        """Return the multiplications and results of an operator, by the shapes of a run."""
        node = self.graph.nodes[position]
        written = sum(_size(values.get(name)) for name in node.outputs)
        if node.op_type in _MATRIX_OPS and len(node.inputs) > 1:
            weight = values.get(node.inputs[1], self.graph.weights.get(node.inputs[1]))
            columns = np.shape(weight)[0 if node.op_type == "Conv" else -1] if np.ndim(weight) else 1
            first = _size(values.get(node.inputs[0], self.graph.weights.get(node.inputs[0])))
            return max(written, first * max(1, columns))
        return written


class _Runner:
    """Runs nodes of one precision: operators alone, branches and loops as programs."""

    def __init__(self, graph: Graph, roundings: RoundingsOf, copies: WeightCopies) -> None:
        self._graph = graph
        self._roundings = roundings
        self._operators = OperatorRunner(graph, roundings, copies)
        self._programs: dict[int, Program] = {}

    def run(self, position: int, values: Values) -> Values:
        node = self._graph.nodes[position]
        if node.bodies:
            outputs: Sequence[Any] = self._controlled(position, node, values)
        else:
            outputs = self._operators.run(node, values)
        written = {name: array for name, array in zip(node.outputs, outputs, strict=True) if name}
        for name, array in written.items():
            if array is None and self._graph.type_of(name).kind != "optional":
                raise UnsupportedOpError(
                    f"{node.operator.full_name} writes {name!r}, which is no tensor:"
                    " only networks of tensors can be advised about"
                )
        return written

    def _controlled(self, position: int, node: Node, values: Values) -> list[Any]:
        needed = self._operators.needed(node)
        if position not in self._programs:
            graph = self._graph
            part = replace(
                graph,
                nodes=(node,),
                inputs=tuple(Value(name, graph.type_of(name)) for name in needed),
                outputs=tuple(Value(name, graph.type_of(name)) for name in node.outputs if name),
            )
            self._programs[position] = Program(part, self._roundings)
        from_python = self._operators._value  # noqa: SLF001
        results = iter(
            self._programs[position].run({name: from_python(name, values[name]) for name in needed})
        )
        return [next(results) if name else None for name in node.outputs]


def _operators(node: Node) -> list[Node]:
    """Return a node, or the operators in its branches and loops."""
    if not node.bodies:
        return [node]
    return [inner for body in node.bodies.values() for each in body.nodes for inner in _operators(each)]


def _size(array: Any) -> int:
    return math.prod(np.shape(array))


_CACHE_BYTES: Final = 256 << 20


@dataclass(frozen=True, slots=True, order=True)
class KeptSet:
    """Operators that are kept behind some position.

    Attributes:
        size: Number of operators.
        cost: What they compute, for ties.
        kept: Their positions.
    """

    size: int
    cost: int
    kept: tuple[int, ...] = field(compare=False)


@dataclass(slots=True)
class _Exhaustive:
    """The search at one bound; it remembers which operators gave what, and which ends have no solution.

    Operators are decided on in execution order. What follows depends on the values alone that are still
    needed, so two beginnings that give the same bits are continued once.
    """

    runs: DeviceRuns
    bound: float
    costs: Mapping[int, int]
    outputs: dict[tuple[Any, ...], list[Values]] = field(default_factory=dict)
    cached: int = 0
    ends: dict[tuple[Any, ...], KeptSet | None] = field(default_factory=dict)

    def best(self, most: int) -> KeptSet | None:
        """Return the cheapest of the smallest sets of at most so many operators, None where there is none."""
        feeds = [dict(example.feeds) for example in self.runs.examples]
        marks = {name: _mark([each.get(name) for each in feeds]) for each in feeds[:1] for name in each}
        return self._continued(0, feeds, marks, most)

    def _continued(
        self, position: int, values: list[Values], marks: dict[str, bytes], most: int
    ) -> KeptSet | None:
        """Return the best end of a run that stands before a position."""
        variants = self.runs.variants
        count = len(variants.graph.nodes)
        while position < count and position not in variants.candidates:
            values, marks = self._stepped(position, values, marks, is_kept=False)
            position += 1
        if position == count:
            return KeptSet(0, 0, ()) if self._is_near(values) else None
        key = (position, most, *sorted(marks.items()))
        if key not in self.ends:
            self.ends[key] = self._decided(position, values, marks, most)
        return self.ends[key]

    def _decided(
        self, position: int, values: list[Values], marks: dict[str, bytes], most: int
    ) -> KeptSet | None:
        narrow = self._stepped(position, values, marks, is_kept=False)
        best = self._continued(position + 1, *narrow, most)
        size = len(self.runs.variants.candidates[position])
        if size > most:
            return best
        wide = self._stepped(position, values, marks, is_kept=True)
        if wide[1] == narrow[1]:  # the same bits: keeping it gains nothing
            return best
        rest = self._continued(position + 1, *wide, most - size)
        if rest is None:
            return best
        kept = KeptSet(rest.size + size, rest.cost + self.costs[position], (position, *rest.kept))
        return kept if best is None else min(best, kept)

    def _stepped(
        self, position: int, values: list[Values], marks: dict[str, bytes], *, is_kept: bool
    ) -> tuple[list[Values], dict[str, bytes]]:
        """Return the values behind an operator, and what tells them apart."""
        variants = self.runs.variants
        node = variants.graph.nodes[position]
        read = tuple(marks.get(name, b"") for name in variants.needed(position))
        key = (position, is_kept, read)
        if key not in self.outputs:
            written = [variants.run(position, each, is_kept=is_kept) for each in values]
            self.runs.spent += len(written)
            self.cached += sum(map(nbytes, written))
            if self.cached > _CACHE_BYTES:
                self.outputs.clear()
                self.cached = 0
            self.outputs[key] = written
        written = self.outputs[key]
        after = [each | more for each, more in zip(values, written, strict=True)]
        marked = marks | {name: _mark([each.get(name) for each in written]) for name in node.outputs if name}
        outputs = {value.name for value in variants.graph.outputs}
        for name in variants.dead[position]:
            if name not in outputs:
                marked.pop(name, None)
                for each in after:
                    each.pop(name, None)
        return after, marked

    def _is_near(self, values: list[Values]) -> bool:
        for example, each in zip(self.runs.examples, values, strict=True):
            outputs = values_of(self.runs.variants, tuple(example.golden), each)
            if any(not distance(outputs[name], a) <= self.bound for name, a in example.golden.items()):
                return False
        return True


def smallest(
    runs: DeviceRuns, bound: float, costs: Mapping[int, int], progress: Callable[[str], None]
) -> frozenset[int] | None:
    """Return the smallest set of kept operators whose errors stay within a bound, None where there is none.

    Args:
        runs: The network and its inputs.
        bound: The largest error of any output of any input.
        costs: What each operator computes; of equally small sets the cheapest is taken.
        progress: Told what goes on.
    """
    search = _Exhaustive(runs, bound, costs)
    whole = runs.variants.rounded
    for most in range(whole + 1):
        progress(f"trying every set of {most} operators")
        found = search.best(most)
        if found is not None:
            return frozenset(found.kept)
    return None


def _mark(arrays: list[Any]) -> bytes:
    """Return a digest of the same value of all inputs."""
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        if isinstance(array, np.ndarray) and array.dtype != object:
            digest.update(repr((array.dtype.str, array.shape)).encode())
            digest.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
        else:
            digest.update(repr(array).encode())
    return digest.digest()
