"""Pairs of the operators and values of two networks: models are aligned, compilation is undone.

Integers of a quantised model are compared as the real numbers that they stand for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import ml_dtypes
import numpy as np

from msdump import dtypes
from msdump.errors import InputError
from msdump.graph import Graph, Node, model_names
from msdump.judge import SHORTER, Fact, WeightDifference, errors, list_facts
from msdump.judge.pair import (
    CAST,
    Alignment,
    DigestOf,
    GraphSide,
    align,
    lost_clamps,
    operator_graphs,
)
from msdump.judge.pair import is_quantised as are_quantised
from msdump.judge.pair import sides as graph_sides
from msdump.judge.verdict import MOVING, SCALED, ScaledOperator, unlike_numbers
from msdump.observer import Array, Arrays
from msdump.read import OperatorGraph

SideGraphs = tuple[Graph, Graph]
"""The model of a side, and the graph that it is compiled to."""

_FLOAT: Final = "f"  # numpy's kind of floating point types


@dataclass(frozen=True, slots=True)
class ModelValues:
    """Paired values of a graph, or body, of two models before compilation."""

    values: Mapping[str, str]  # the golden value of each paired value of the examined model
    casts: Mapping[str, str]  # the golden value of each output of a cast that golden lacks
    # the arrays of paired weights, by the examined model's name of the weight or of its cast
    weights: Mapping[str, tuple[np.ndarray, np.ndarray]]
    # the input of a quantised product, by the names of its integers and scaled results
    origins: Mapping[str, str]
    # by operator: full names of the fused golden operators that compute its results internally
    kernels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ModelPairs:
    """Paired graphs of two models; empty for one model."""

    # the graph and the bodies that have a counterpart, by the examined model's index
    graphs: Mapping[int, ModelValues] = field(default_factory=dict)
    missing: tuple[Node, ...] = ()  # golden operators without counterpart
    # scales of the examined model's quantised values, by graph index and name
    quantised: Mapping[int, Mapping[str, Quantisation]] = field(default_factory=dict)
    # the same of the other model
    golden_quantised: Mapping[int, Mapping[str, Quantisation]] = field(default_factory=dict)
    facts: tuple[Fact, ...] = ()  # differences of the graphs
    networks: str = ""  # sentence that they are two networks, of which only outputs are compared; "" for one


@dataclass(frozen=True, slots=True)
class GraphPairing:
    """A compiled graph, or body, of the leading side paired with its counterpart."""

    # name of the counterpart of each operator and control flow node that has one, by name
    partners: Mapping[str, str]
    values: Mapping[str, str]  # the name that both sides share for a value, by the leading side's name
    golden_values: Mapping[str, str]  # the name that both sides share for a value, by golden's name
    # by operator: full name of the fused golden kernel that computes its results internally
    kernels: Mapping[str, str]
    # the arrays of paired weights in the models, by the leading side's names; no folded constants
    weights: Mapping[str, tuple[np.ndarray, np.ndarray]]
    origins: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Pairing:
    """Two paired networks."""

    # the graph and the bodies that have a counterpart, by the leading side's index
    graphs: Mapping[int, GraphPairing]
    bodies: Mapping[int, int]  # index of the golden body of each body
    models: ModelPairs
    # whether both sides are compiled from one model: weights of one name are one array, and operators
    # without counterpart were fused, folded or added
    is_one_model: bool
    # the golden model compiled as the leading side is, and its pairing; None for one model, or if the
    # leading side has no fused kernels
    alike: tuple[Graph, Pairing] | None = None

    @property
    def wanted(self) -> frozenset[str]:
        """Names of the golden operators that are the counterpart of an operator."""
        return frozenset(name for graph in self.graphs.values() for name in graph.partners.values())


def pair_graphs(mine: SideGraphs, golden: SideGraphs, models: ModelPairs | None) -> Pairing:
    """Return the pairing of two compiled graphs.

    A value keeps its name through compilation: operators that write the same value are a pair. Values that
    fusion hides or folding computes beforehand have no counterpart, and are no fault.

    ``mine`` and ``golden`` are models and their compiled graphs; ``models`` is None if they are one
    model.
    """
    weights = {graph.index: graph.weights for graph in mine[0].walk()}
    graphs: dict[int, GraphPairing] = {}
    bodies: dict[int, int] = {}
    waiting = [(mine[1], golden[1])]
    while waiting:
        first, second = waiting.pop()
        model = None if models is None else models.graphs.get(first.index)
        pair = graphs[first.index] = _pair_compiled(model, first, second, weights.get(first.index, {}))
        others = {node.name: node for node in second.nodes}
        controls = (
            (node, others[pair.partners[node.name]]) for node in first.nodes if node.name in pair.partners
        )
        for body, other in _common_bodies(controls):
            bodies[body.index] = other.index
            waiting.append((body, other))
    return Pairing(graphs, bodies, models or ModelPairs(), is_one_model=models is None)


def _pair_compiled(
    model: ModelValues | None, mine: Graph, golden: Graph, weights: Mapping[str, np.ndarray]
) -> GraphPairing:
    names, golden_names = model_names(mine), model_names(golden)
    known = names if model is None else {**model.values, **model.casts}
    common = {form: known.get(name, name) for form, name in names.items()}
    writers: dict[str, Node] = {}
    hidden: dict[str, Node] = {}
    for node in golden.nodes:
        if not node.is_added:
            writers |= {golden_names[name]: node for name in node.outputs if name}
            hidden |= {name: node for part in node.parts for name in part.outputs}
    partners, kernels = {}, {} if model is None else dict(model.kernels)
    for node in mine.nodes:
        if node.is_added or (
            model is not None and all(model.casts.keys() >= set(part.outputs) for part in node.members)
        ):
            continue
        written = [common[name] for name in node.outputs if name and names[name] in known]
        partner = next((writers[name] for name in written if name in writers), None)
        if partner is not None and (model is not None or partner.bodies.keys() == node.bodies.keys()):
            partners[node.name] = partner.name
        kernel = next((hidden[name] for name in written if name in hidden), None)
        if kernel is not None:
            kernels[node.name] = kernel.operator.full_name
    if model is None:
        arrays = {form: (weights[name],) * 2 for form, name in names.items() if name in weights}
        return GraphPairing(partners, common, golden_names, kernels, arrays, {})
    arrays = {form: model.weights[name] for form, name in names.items() if name in model.weights}
    return GraphPairing(partners, common, golden_names, kernels, arrays, model.origins)


def _common_bodies(pairs: Iterable[tuple[Node, Node]]) -> Iterator[tuple[Graph, Graph]]:
    for node, golden in pairs:
        for name in node.bodies.keys() & golden.bodies.keys():
            yield node.bodies[name], golden.bodies[name]


def pair_models(mine: Graph, golden: Graph) -> ModelPairs:
    """Return the pairs of two models before compilation.

    Bodies of branches and loops pair as their control flow does, and so do outputs of the networks.
    """
    own, other = operator_graphs(mine), operator_graphs(golden)
    graphs: dict[int, ModelValues] = {}
    missing: list[Node] = []
    facts: list[Fact] = []
    networks = ""
    is_mixed = bool(apart(mine, golden))  # else integers are compared
    quantised, golden_quantised = (
        {inner.index: quantisations(inner) for inner in graph.walk()} if is_mixed else {}
        for graph in (mine, golden)
    )
    waiting = [(mine, golden)]
    while waiting:
        first, second = waiting.pop()
        sides = (
            GraphSide(own[first.index], _digest_of(first)),
            GraphSide(other[second.index], _digest_of(second)),
        )
        alignment = align(*sides)
        if not alignment.is_one_network:
            networks = f"{mine.source} and {golden.source}: {alignment.describe_networks()}"
            alignment = Alignment((), is_one_network=False)
        facts += list_facts(*sides, alignment, _difference_of(first, second))
        scales = quantised.get(first.index, {}), golden_quantised.get(second.index, {})
        pairs = _AlignedModels(first, second, alignment, scales, other[second.index])
        graphs[first.index] = pairs.result()
        missing += pairs.missing()
        waiting += _common_bodies(pairs.singles)
    return ModelPairs(graphs, tuple(missing), quantised, golden_quantised, tuple(facts), networks)


class _AlignedModels:
    def __init__(
        self,
        mine: Graph,
        golden: Graph,
        alignment: Alignment,
        scales: tuple[Mapping[str, Quantisation], Mapping[str, Quantisation]],
        golden_operators: OperatorGraph,
    ) -> None:
        self._golden_operators = golden_operators
        self._mine, self._golden, self._alignment = mine, golden, alignment
        self._scales = {id(mine): scales[0], id(golden): scales[1]}
        self._nodes, self._golden_nodes = _by_full_name(mine), _by_full_name(golden)
        self.singles = [
            (self._nodes[pair.mine[0]], self._golden_nodes[pair.golden[0]])
            for pair in alignment.pairs
            if pair.is_single
        ]
        alone = (self._nodes[name] for name in alignment.mine_alone)
        self._cast_of = {node.outputs[0]: node.inputs[0] for node in alone if self._is_float_cast(node)}
        self._values: dict[str, str] = {}
        for pair in alignment.pairs:
            for (own, slot), (other, other_slot) in pair.outputs:
                value = _output(self._nodes[own], slot)
                counterpart = _output(self._golden_nodes[other], other_slot)
                if value and counterpart and self._may_be_same(value, counterpart):
                    self._values[value] = counterpart
        for node, partner in self.singles:
            taken = set(self._values.values())
            for name, other in zip(map(self._before_casts, node.inputs), partner.inputs, strict=False):
                if not name or not other or name in self._values or other in taken:
                    continue
                array, golden_array = self._mine.weights.get(name), self._golden.weights.get(other)
                if (array is None) is not (golden_array is None):
                    continue
                if self._kind(name, self._mine) != self._kind(other, self._golden):
                    continue
                if (
                    array is None
                    or golden_array is None
                    or np.squeeze(array).shape == np.squeeze(golden_array).shape
                ):
                    self._values[name] = other
        for other, name in input_names(mine, golden).items():
            self._values.setdefault(name, other)
        if alignment.is_one_network:
            for name, other in output_names(mine, golden, self._values).items():
                self._values.setdefault(name, other)

    def missing(self) -> list[Node]:
        """Return golden's nodes without counterpart; exporters fold the ones that read constants alone."""
        alone = (name for name in self._alignment.golden_alone if not self._golden_operators.is_fixed(name))
        kinds = ((node.operator.op_type for node in each.nodes) for each in (self._golden, self._mine))
        clamps, nodes = lost_clamps(*kinds), map(self._golden_nodes.__getitem__, alone)
        return [node for node in nodes if not (node.is_added or node.operator.op_type in clamps)]

    def result(self) -> ModelValues:
        values = self._values
        before = {name: self._before_casts(name) for name in self._cast_of}
        casts = {name: values[source] for name, source in before.items() if source in values}
        own, other = self._mine.weights, self._golden.weights
        weights = {
            name: (own[source], _in_shape(other[values[source]], own[source]))
            for name, source in [*zip(own, own, strict=True), *before.items()]
            if source in own and values.get(source) in other
            if name == source or source not in self._mine.variables
        }
        kernels = {
            self._nodes[name].name: ", ".join(pair.golden)
            for pair in self._alignment.pairs
            for name in pair.mine
        }
        return ModelValues(values, casts, weights, dict(self._origins()), kernels)

    def _origins(self) -> Iterator[tuple[str, str]]:
        """Yield the values inside products that quantise an input themselves, each with that input."""
        makers = {name: node for node in self._mine.nodes for name in node.outputs}
        for pair in self._alignment.pairs:
            members = [self._nodes[name] for name in pair.mine]
            maker = makers.get(members[0].inputs[0]) if len(members) > 1 and members[0].inputs else None
            if maker is not None and maker.op_type == "DynamicQuantizeLinear":
                for node in members[:-1]:
                    yield from ((name, maker.inputs[0]) for name in node.outputs if name)

    def _is_float_cast(self, node: Node) -> bool:
        is_cast = node.op_type == CAST and not node.domain
        return is_cast and all(
            self._kind(name, self._mine) == _FLOAT for name in (*node.inputs, *node.outputs)
        )

    def _before_casts(self, name: str) -> str:
        """Return the value in front of casts that golden lacks."""
        while name in self._cast_of:
            name = self._cast_of[name]
        return name

    def _kind(self, name: str, graph: Graph) -> str:
        """Return numpy's kind of a value's elements (float for quantised ones); "" for an unknown type."""
        if name in self._scales[id(graph)]:
            return _FLOAT
        dtype = graph.type_of(name).dtype
        return "" if dtype is None else dtypes.from_numpy(dtype.saved).numpy.kind

    def _may_be_same(self, name: str, other: str) -> bool:
        """Return whether kinds of element types and shapes of two values allow to pair them."""
        if self._kind(name, self._mine) != self._kind(other, self._golden):
            return False
        shape, golden = self._mine.type_of(name).shape, self._golden.type_of(other).shape
        if shape is None or golden is None or len(shape) != len(golden):
            return True
        sizes = zip(shape, golden, strict=True)
        return all(one == two for one, two in sizes if isinstance(one, int) and isinstance(two, int))


def _in_shape(golden: np.ndarray, mine: np.ndarray) -> np.ndarray:
    is_same = golden.shape == mine.shape or golden.size != mine.size
    return golden if is_same else golden.reshape(mine.shape)


def _by_full_name(graph: Graph) -> dict[str, Node]:
    return {node.operator.full_name: node for node in graph.nodes}


def _output(node: Node, slot: int) -> str:
    return node.outputs[slot] if slot < len(node.outputs) else ""


def _difference_of(mine: Graph, golden: Graph) -> WeightDifference:
    """Return a function that compares two weights by their bits, or as rounded."""

    def difference(name: str, other: str) -> str | None:
        own, array = mine.weights.get(name), golden.weights.get(other)
        if own is None or array is None or own.dtype.kind != array.dtype.kind:
            return None
        if own.shape == array.shape and own.dtype == array.dtype and own.tobytes() == array.tobytes():
            return ""
        if own.shape != array.shape:
            return None
        if np.array_equal(own.T, array):
            return "is golden's weight transposed"
        return "" if errors.is_rounding(own, array) else "differs from golden's weight"

    return difference


def rounded_to(pairing: ModelPairs) -> str:
    """Return the element type that most of one model's differing weights are rounded to; "" for none."""
    pairs = [each for graph in pairing.graphs.values() for each in graph.weights.values()]
    # Equal weights say nothing: many constants, such as 0.5, are numbers of every type.
    other = [
        (a, b)
        for a, b in pairs
        if a is not b and a.shape == b.shape and not np.array_equal(a, b, equal_nan=True)
    ]
    for name in SHORTER:
        if 2 * sum(errors.is_rounding(*each, (name,)) for each in other) > len(other):
            return name
    return ""


def input_names(mine: Graph, golden: Graph) -> dict[str, str]:
    """Return the examined network's input for each one of the other: by name, the rest by position."""
    own = {value.name for value in mine.inputs}
    others = {value.name for value in golden.inputs}
    left = iter([value.name for value in mine.inputs if value.name not in others])
    pairs = {}
    for value in golden.inputs:
        name = value.name if value.name in own else next(left, None)
        if name is not None:
            pairs[value.name] = name
    return pairs


def output_names(mine: Graph, golden: Graph, values: Mapping[str, str]) -> dict[str, str]:
    """Return the other network's output for each output of the examined one.

    Outputs that stand for one value by ``values`` are paired first, then outputs of one name, the others by
    position.
    """
    left = [value.name for value in golden.outputs]
    pairs: dict[str, str] = {}
    for name_of in (values.get, str, lambda _: next(iter(left), None)):
        for value in mine.outputs:
            other = name_of(value.name)
            if value.name not in pairs and other in left:
                pairs[value.name] = other
                left.remove(other)
    return pairs


def golden_inputs(mine: Graph, golden: Graph, fed: Mapping[str, Any]) -> dict[str, Any]:
    """Return golden's inputs, made from the examined network's, in the types that golden declares.

    Raises:
        InputError: Golden has an input that the examined network lacks.
    """
    names = input_names(mine, golden)
    inputs = {}
    for value in golden.inputs:
        if value.name not in names:
            raise InputError(f"{golden.source}: input {value.name!r} has no value: {mine.source} lacks it")
        array = fed[names[value.name]]
        dtype = value.type.dtype
        if (
            isinstance(array, np.ndarray)
            and dtype is not None
            and dtypes.from_numpy(array.dtype) is not dtype
        ):
            array = array.astype(dtype.numpy)
        inputs[value.name] = array
    return inputs


def sharing_weights(golden: Graph, mine: Graph) -> Graph:
    """Return golden's graph with its weights replaced by the examined graph's arrays of the same bits."""
    arrays = {digest: mine.weights[name] for name, digest in _bits(mine).items()}
    weights = {name: arrays.get(digest, golden.weights[name]) for name, digest in _bits(golden).items()}
    return replace(golden, weights={**golden.weights, **weights})


def _bits(graph: Graph) -> dict[str, Hashable]:
    return {
        name: (array.dtype.str, array.shape, hashlib.blake2b(array.tobytes(), digest_size=16).digest())
        for name, array in graph.weights.items()
        if array.dtype.kind != "O"
    }


def _digest_of(graph: Graph) -> DigestOf:
    def digest_of(name: str) -> Hashable | None:
        array = graph.weights.get(name)
        return None if array is None or array.dtype.kind == "O" else graph_sides.digest(array)

    return digest_of


@dataclass(frozen=True, slots=True)
class Quantisation:
    """Scale and zero point of a quantised tensor."""

    scale: float
    zero: int

    def real(self, array: np.ndarray) -> np.ndarray:
        """Return the real numbers that integers stand for, as float32.

        >>> Quantisation(0.5, 128).real(np.uint8([128, 129, 126])).tolist()
        [0.0, 0.5, -1.0]
        """
        return (array.astype(np.float32) - np.float32(self.zero)) * np.float32(self.scale)


def is_quantised(graph: Graph) -> bool:
    """Return whether a model, or a branch or body in it, computes with quantised numbers."""
    return are_quantised(node.op_type for inner in graph.walk() for node in inner.nodes)


def apart(mine: Graph, golden: Graph) -> str:
    """Return why the integers of two models are not the same numbers, in words; "" where they may be."""
    sides = [[(graph, node) for graph in model.walk() for node in graph.nodes] for model in (mine, golden)]
    several = [{_scale(*each).size > 1 for each in side if _is_weight(*each)} for side in sides]
    return unlike_numbers([is_quantised(graph) for graph in (mine, golden)], several)


def fewest_bits(*models: Graph) -> int:
    """Return the fewest bits of the numbers that models are quantised to."""
    nodes = [(graph, node) for model in models for graph in model.walk() for node in graph.nodes]
    types = [graph.weights[node.inputs[0]].dtype for graph, node in nodes if _is_weight(graph, node)]
    packed = [node.attributes.get("bits", _BITS) for _, node in nodes if node.op_type == _PACKED]
    return min([_BITS, *(ml_dtypes.iinfo(each).bits for each in types), *map(int, packed)])  # type: ignore[arg-type, no-untyped-call]


def steps(graph: Graph, node: Node, name: str) -> float | None:
    """Return the mean step of a quantised weight that an operator reads; None of other inputs.

    ``name`` is a weight that was converted to real numbers before, or is in the operator.
    """
    maker: Node | None = node if node.op_type == _PACKED else None
    if maker is None:
        maker = next((each for each in graph.nodes if name in each.outputs and _is_weight(graph, each)), None)
    if maker is None:
        return None
    scales = graph.weights.get(maker.inputs[2]) if maker.op_type == _PACKED else _scale(graph, maker)
    return None if scales is None else float(np.sqrt(np.mean(np.square(scales, dtype=np.float64))))


_BITS: Final = 8
_PACKED: Final = "MatMulNBits"
_NONE: Final = np.zeros(0)


def _scale(graph: Graph, node: Node) -> np.ndarray:
    return np.asarray(graph.weights.get(node.inputs[1], _NONE))


def _is_weight(graph: Graph, node: Node) -> bool:
    return node.op_type == "DequantizeLinear" and node.inputs[0] in graph.weights


def scaled_operators(graph: Graph) -> Iterator[ScaledOperator]:
    """Yield the operators of a graph, with the values of their scales."""
    for node in graph.nodes:
        weights = [graph.weights.get(name) for name in node.inputs]
        operator = node.operator.full_name, node.op_type
        yield ScaledOperator(node.name, *operator, node.inputs, node.outputs, weights.__getitem__)


def quantisations(graph: Graph) -> dict[str, Quantisation]:
    """Return the scales of a graph's quantised values, by name, if they are weights of one element."""
    known: dict[str, Quantisation] = {}
    for node in graph.nodes:
        found = known.get(node.inputs[0]) if node.op_type in MOVING else None
        if node.op_type in SCALED and node.op_type not in MOVING:
            scale, zero = (
                graph.weights.get(node.inputs[slot]) if slot < len(node.inputs) else None
                for slot in SCALED[node.op_type]
            )
            if scale is not None and scale.size == 1 and (zero is None or zero.size == 1):
                numbers = float(scale.reshape(-1)[0]), 0 if zero is None else int(zero.reshape(-1)[0])
                found = Quantisation(*numbers)
        if found is not None:
            known |= {name: found for name in node.outputs if name}
    return known


def as_real(names: Sequence[str], arrays: Arrays, known: Mapping[str, Quantisation]) -> list[Array]:
    """Return tensors; quantised ones as real numbers.

    Args:
        names: Names of the tensors.
        arrays: The tensors, None for an absent one.
        known: Scales of quantised values, by name.
    """
    return [
        known[name].real(array) if array is not None and name in known and array.dtype.kind in "iu" else array
        for name, array in zip(names, arrays, strict=True)
    ]
