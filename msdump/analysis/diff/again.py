"""Own errors: the golden operator runs once more, on the inputs of the leading side's operator."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np

from msdump import dtypes
from msdump.analysis import TensorError
from msdump.analysis.diff.evidence import ArrayPair, measure_pair, measure_pairs
from msdump.analysis.diff.lockstep import Ran
from msdump.analysis.diff.models import Engine, Side
from msdump.analysis.diff.pairing import GraphPairing, Pairing
from msdump.analysis.judge import Limits, OwnError, TensorEvidence
from msdump.analysis.rerun import overflowed_part
from msdump.errors import MsdumpError
from msdump.execute import Float64Runner, OperatorRunner, Values, is_repeatable
from msdump.graph import Graph, Node, reads
from msdump.graph.kernel import FLOAT32, HALVES
from msdump.observer import Array

_MOST_PACKED: Final = 16 << 20
"""Bytes of weights that kernels which are kept may have packed, beside those of the golden network itself."""

_MOST_KEPT: Final = 1024
"""Operators whose kernels are kept; a session without weights takes some tens of kilobytes."""


@dataclass(slots=True)
class OperatorRunners:
    """Runs operators of any graph as one side computes them.

    Operators that ran again in one run of the networks do so in the next one as a rule. So their kernels
    stay, up to a bound: those of the first ones, since each run asks for them in the same order.

    Attributes:
        side: The side.
    """

    side: Side
    _singles: dict[int, OperatorRunner] = field(default_factory=dict)
    _doubles: dict[int, Float64Runner] = field(default_factory=dict)
    _kept: set[tuple[int, str]] = field(default_factory=set)
    _bytes: int = 0

    def outputs(self, graph: Graph, node: Node, given: Mapping[str, np.ndarray]) -> tuple[Array, ...]:
        """Run an operator once; return an array for each of its outputs, None for an unused one.

        Args:
            graph: The graph of the operator, of either side.
            node: The operator.
            given: What it reads, by the names of values; weights that are not given are the graph's.

        Raises:
            MsdumpError: It refuses its inputs.
        """
        if self.side.variant.engine is Engine.FLOAT64:
            return self._doubles.setdefault(id(graph), Float64Runner(graph)).run(node, given)
        runner = self._singles.get(id(graph))
        if runner is None:  # it keeps the graph, so that no other one gets its identity
            runner = OperatorRunner(graph, self.side.arithmetic, self.side.copies, on=self.side.runtime)
            self._singles[id(graph)] = runner
        try:
            return runner.run(node, given)
        finally:
            if not self._keeps(graph, node):
                runner.forget(node)

    def _keeps(self, graph: Graph, node: Node) -> bool:
        """Tell whether the kernels of an operator stay."""
        key = (id(graph), node.name)
        if key in self._kept:
            return True
        packed = sum(graph.weights[name].nbytes for name in reads(node) if name in graph.weights)
        if len(self._kept) >= _MOST_KEPT or self._bytes + packed > _MOST_PACKED:
            return False
        self._kept.add(key)
        self._bytes += packed
        return True


@dataclass(frozen=True, slots=True)
class OwnErrors:
    """The own errors of an operator.

    Attributes:
        own: Its own error, by output; none where it cannot run again.
        propagated: Relative distance from the golden output to that of the golden operator on the leading
            side's inputs, None where it cannot run again.
    """

    own: tuple[OwnError, ...] = ()
    propagated: float | None = None


class Suspect(NamedTuple):
    """An operator with an output that differs.

    Attributes:
        mine: The operator.
        golden: Its counterpart.
        pair: What belongs together in their graphs.
        outputs: The evidence of its outputs.
    """

    mine: Ran
    golden: Ran
    pair: GraphPairing
    outputs: Sequence[TensorEvidence]


class _OwnPair(NamedTuple):
    """An output of an operator, and the same output of the operator that ran again.

    Attributes:
        tensor: The evidence of the output.
        arrays: Both.
        floor: Largest difference of elements that is no error.
    """

    tensor: TensorEvidence
    arrays: ArrayPair
    floor: float


@dataclass(frozen=True, slots=True)
class _Again:
    """An operator that has run again.

    Attributes:
        mine: The operator.
        ran: What ran again.
        given: What it read.
        own: Its outputs, each beside what was written again.
        propagated: What was written again, beside what golden wrote.
    """

    mine: Ran
    ran: Ran
    given: Mapping[str, np.ndarray]
    own: Sequence[_OwnPair]
    propagated: Sequence[ArrayPair]


@dataclass(slots=True)
class GoldenOperators:
    """Runs golden operators on the inputs of the leading side, in a run that has not begun yet.

    Attributes:
        mine: Run operators with the arithmetic of the leading side, kept over the runs.
        golden: Run operators with the arithmetic and weights of the golden side.
        limits: What counts as agreement.
        pairing: What belongs together in their graphs.
    """

    mine: OperatorRunners
    golden: OperatorRunners
    limits: Limits
    pairing: Pairing
    _before: Values = field(init=False)
    _variables: Mapping[str, np.ndarray] = field(init=False)

    def __post_init__(self) -> None:
        """Keep what the variables hold: operators of a step run again when the step may have ended."""
        state = self.mine.side.state
        self._before, self._variables = state.values, state.arrays()

    def of(self, suspects: Sequence[Suspect]) -> list[OwnErrors]:
        """Return the own errors of operators, which are measured together once all have run again."""
        again = [self._again(suspect) for suspect in suspects]
        pairs = [
            pair for each in again if each for pair in (*(own.arrays for own in each.own), *each.propagated)
        ]
        measured = iter(measure_pairs(pairs))
        return [OwnErrors() if each is None else self._own(each, measured) for each in again]

    def _again(self, suspect: Suspect) -> _Again | None:
        """Run an operator once more; return what it wrote then, None where it cannot."""
        mine, golden, pair = suspect.mine, suspect.golden, suspect.pair
        ran, theirs = self._runs_again(mine, golden, pair)
        given = self._given(mine, ran, theirs)
        if given is None and ran is not mine and self.pairing.is_one_model:
            # onnxruntime gives a fused operator the name of one in it: it reads other values than that one
            ran, given = mine, self._given(mine, mine, pair)
        if given is None or not is_repeatable(ran.node):
            return None
        try:
            results = self._run(suspect, ran, given)
        except MsdumpError:  # it refuses these inputs, which says nothing of what it did with its own
            return None
        own = [
            self._own_pair(tensor, array, result, ran.node.op_type)
            for tensor in suspect.outputs
            if (array := mine.outputs[tensor.slot]) is not None
            and (result := _result(results, tensor.slot)) is not None
            and array.shape == result.shape
        ]
        return _Again(mine, ran, given, own, _written_again(golden, pair, suspect.outputs, results))

    def _run(self, suspect: Suspect, ran: Ran, given: Mapping[str, np.ndarray]) -> tuple[Array, ...]:
        """Return what an operator writes again, integers and truth values as either side computes them.

        A scale, a threshold or an input that one side rounds moves elements to the next integer, by all of a
        step. They are golden's unless all of them are what the leading side's arithmetic gives.
        """
        results = self.golden.outputs(ran.graph, ran.node, given)
        discrete = {
            tensor.slot: array
            for tensor in suspect.outputs
            if (array := suspect.mine.outputs[tensor.slot]) is not None and array.dtype.kind in "iub"
        }

        def are_same(others: Sequence[Array]) -> bool:
            pairs = ((array, _result(others, slot)) for slot, array in discrete.items())
            return all(again is not None and np.array_equal(array, again) for array, again in pairs)

        if not are_same(results):
            as_mine = self.mine.outputs(ran.graph, ran.node, given)
            return as_mine if are_same(as_mine) else results
        return results

    def _own_pair(self, tensor: TensorEvidence, own: np.ndarray, again: np.ndarray, op_type: str) -> _OwnPair:
        types = (tensor.dtype, dtypes.from_numpy(again.dtype).name)
        allowed = self.limits.allowed(types, self.limits.precision) or 0.0
        floor = self.limits.floor((*types, self.limits.precision), op_type if types[0] != types[1] else "")
        return _OwnPair(tensor, ArrayPair(own, again, allowed), floor)

    def _own(self, again: _Again, measured: Iterator[TensorError]) -> OwnErrors:
        """Return the own errors of an operator that has run again; its pairs were measured in their order."""
        own = tuple(self._own_error(again, pair, next(measured)) for pair in again.own)
        return OwnErrors(own, max((next(measured).distance for _ in again.propagated), default=None))

    def _own_error(self, again: _Again, pair: _OwnPair, error: TensorError) -> OwnError:
        allowed = pair.arrays.limit or 0.0
        is_explained = error.is_same or error.distance <= allowed or 0 < error.largest <= pair.floor
        own = OwnError(
            pair.tensor.slot,
            error,
            allowed,
            is_explained,
            self.golden.side.variant.text,
            explanation=self.limits.explained,
        )
        is_hidden = not is_explained and np.isfinite(pair.arrays.mine).all()
        return self._with_overflow(again, own, pair.arrays.mine) if is_hidden else own

    def _with_overflow(self, again: _Again, own: OwnError, output: np.ndarray) -> OwnError:
        """Return an own error with the part of a fused kernel that overflowed, where that explains it."""
        ran, exact = again.ran, Float64Runner(again.ran.graph)
        try:
            part = overflowed_part(
                ran.node, lambda change: exact.run(ran.node, again.given, change=change), own.slot, output
            )
        except MsdumpError:  # a part of it has no arithmetic in float64
            return own
        return replace(own, overflow=part)

    def _runs_again(self, mine: Ran, golden: Ran, pair: GraphPairing) -> tuple[Ran, GraphPairing]:
        """Return the operator that runs again, and what belongs together in its graph and the leading one.

        Where the counterpart does more or less, as kernels are fused, it is the operator itself of one model,
        and of two the golden one that is compiled as it is.
        """
        if self.pairing.is_one_model:
            members = ([part.name for part in ran.node.members] for ran in (mine, golden))
            return (golden if next(members) == next(members) else mine), pair
        if self.pairing.alike is None or not mine.node.parts:
            return golden, pair
        graph, pairing = self.pairing.alike
        alike = pairing.graphs.get(mine.graph.index)
        name = None if alike is None else alike.partners.get(mine.node.name)
        for inner in graph.walk():
            for node in inner.nodes:
                if alike is not None and node.name == name and _types(node) == _types(mine.node):
                    return replace(golden, graph=inner, node=node), alike
        return golden, pair

    def _given(self, mine: Ran, ran: Ran, pair: GraphPairing) -> dict[str, np.ndarray] | None:
        """Return what the operator reads, by its own names of values; None where that is not known."""
        graph, arrays = ran.graph, self._read(mine)
        sources = _sources(mine.node, ran.node, pair) if ran is not mine else {name: name for name in arrays}
        common = pair.values if ran is mine else pair.golden_values
        given = {}
        for name in reads(ran.node):
            source = sources.get(name, "")
            array, is_weight = arrays.get(source), name in graph.weights and name not in graph.variables
            if is_weight and (source in pair.weights or not self._agrees(array, graph.weights[name])):
                continue
            if array is None and name in graph.weights:
                continue
            declared = graph.type_of(common.get(name, name)).dtype
            if array is None or not _fits(array, declared):
                return None
            is_held = declared is FLOAT32 and dtypes.from_numpy(array.dtype) in HALVES
            given[name] = array.astype(np.float32) if is_held else array
        return given

    def _agrees(self, array: Array, weight: np.ndarray) -> bool:
        """Return whether operators gave a weight, as they do of integers, that golden has as it is."""
        if array is None or array.shape != weight.shape or array.dtype != weight.dtype:
            return False
        allowed = self.limits.allowed((dtypes.from_numpy(array.dtype).name,), self.limits.precision)
        return allowed is not None and measure_pair(array, weight, allowed).distance <= allowed

    def _read(self, mine: Ran) -> dict[str, np.ndarray]:
        """Return what an operator read, before it wrote any of it."""
        node, graph = mine.node, mine.graph
        variables = self._variables if graph.variables else {}
        arrays: dict[str, np.ndarray] = {}
        for name, after, array in zip(node.inputs, node.inputs_after_run, mine.inputs, strict=True):
            if name in variables:
                arrays[name] = variables[name]
            elif name and name == after and array is not None:
                arrays[name] = array
        return arrays


def _types(node: Node) -> list[str]:
    return [part.op_type for part in node.members]


def _result(results: Sequence[Array], slot: int) -> Array:
    """Return an output of an operator that ran again, None where it has no such output."""
    return results[slot] if slot < len(results) else None


def _fits(array: np.ndarray, declared: dtypes.DType | None) -> bool:
    """Return whether an operator takes an array: a quantised one reads integers where golden's does not."""
    return declared is None or (array.dtype.kind in "iu") == (declared.saved.kind in "iu")


def _sources(node: Node, golden: Node, pair: GraphPairing) -> dict[str, str]:
    """Return the value that an operator reads for each one that the golden operator reads."""
    theirs = {pair.golden_values.get(name, name): name for name in reads(golden)}
    own = {name: pair.values.get(name, name) for name in node.inputs if name}
    sources = {theirs[common]: name for name, common in own.items() if common in theirs}
    if len(node.inputs) == len(golden.inputs) and _types(node) == _types(golden):
        # it reads another value than golden's does, as behind an operator that was left out
        for name, other in zip(node.inputs, golden.inputs, strict=True):
            sources.setdefault(other, name)
    return sources


def _written_again(
    golden: Ran, pair: GraphPairing, outputs: Sequence[TensorEvidence], results: Sequence[Array]
) -> list[ArrayPair]:
    """Return what the golden operator wrote on the leading side's inputs, beside what it wrote on its own."""
    names = (pair.golden_values.get(name, name) for name in golden.node.declared_outputs)
    written = dict(zip(names, golden.outputs, strict=True))
    pairs = (
        (_result(results, tensor.slot), written.get(pair.values.get(tensor.name, tensor.name)))
        for tensor in outputs
    )
    return [
        ArrayPair(again, array, math.inf)
        for again, array in pairs
        if again is not None and array is not None and again.shape == array.shape
    ]
