"""Which operators of two models belong together: a matching of graphs that need not share a name."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.errors import InputError
from msdump.graph.graph import Graph, Node
from msdump.tools.diff.pairing import GraphPairing, Pairing
from msdump.tools.diff.quantised import Quantisation, is_quantised, quantisations
from msdump.tools.judge.limits import coarser
from msdump.tools.matching import contents
from msdump.tools.matching.matching import Matching, OperatorPair, match
from msdump.tools.matching.model_graph import operator_graphs
from msdump.tools.matching.quantised import INTEGER
from msdump.tools.matching.sides import CAST, DigestOf, GraphSide

_CLAMPS: Final = frozenset({"Relu", "Clip"})
_FLOAT: Final = "f"  # numpy's kind of floating point types


def pair_models(mine: Graph, golden: Graph) -> Pairing:
    """Return what belongs together in two models, as they are before they are compiled.

    Bodies of branches and loops pair as their control flow does, and so do outputs of the networks.

    Args:
        mine: The leading side's graph.
        golden: The other one.
    """
    own, other = operator_graphs(mine), operator_graphs(golden)
    graphs: dict[int, GraphPairing] = {}
    bodies: dict[int, int] = {}
    missing: list[Node] = []
    waiting = [(mine, golden)]
    is_mixed = is_quantised(mine) != is_quantised(golden)  # of two alike, integers are compared
    quantised, golden_quantised = (
        {inner.index: quantisations(inner) if is_mixed else {} for inner in graph.walk()}
        for graph in (mine, golden)
    )
    while waiting:
        first, second = waiting.pop()
        matching = match(
            GraphSide(own[first.index], _digest_of(first)),
            GraphSide(other[second.index], _digest_of(second)),
        )
        known = quantised[first.index], golden_quantised[second.index]
        pairing = _GraphPairing(first, second, matching, known)
        graphs[first.index] = pairing.result()
        missing += pairing.missing
        for body, counterpart in pairing.bodies:
            bodies[body.index] = counterpart.index
            waiting.append((body, counterpart))
    return Pairing(
        graphs,
        bodies,
        tuple(missing),
        is_one_model=False,
        quantised=quantised,
        golden_quantised=golden_quantised,
    )


class _GraphPairing:
    """Turns the matching of two graphs into pairs of nodes and values."""

    def __init__(
        self,
        mine: Graph,
        golden: Graph,
        matching: Matching,
        quantised: tuple[Mapping[str, Quantisation], Mapping[str, Quantisation]],
    ) -> None:
        self._mine, self._golden, self._matching = mine, golden, matching
        self._quantised = {id(graph): each for graph, each in zip((mine, golden), quantised, strict=True)}
        self._nodes, self._golden_nodes = _by_name(mine), _by_name(golden)
        self._makers = {name: node for node in mine.nodes for name in node.outputs if name}
        self._alone = frozenset(matching.mine_alone)
        self._cast_of = {node.outputs[0]: node.inputs[0] for node in mine.nodes if self._is_cast_alone(node)}
        self._partners: dict[str, str] = {}
        self._kernels: dict[str, str] = {}
        self._values: dict[str, str] = {}
        self.bodies: list[tuple[Graph, Graph]] = []
        for pair in matching.pairs:
            self._add(pair)
        for pair in matching.pairs:
            if pair.is_single:
                self._add_inputs(self._nodes[pair.mine[0]], self._golden_nodes[pair.golden[0]])
        self._add_ends()

    @property
    def missing(self) -> list[Node]:
        """The golden operators without a counterpart."""
        nodes = (self._golden_nodes[name] for name in self._matching.golden_alone)
        return [node for node in nodes if not node.is_added]

    def result(self) -> GraphPairing:
        """Return the pairs."""
        names = {name: name for name in self._values.values()}
        weights = frozenset(self._golden.weights)
        casts = {name: self._values.get(self._before_casts(name)) for name in self._cast_of}
        return GraphPairing(
            self._partners,
            self._values,
            names,
            weights,
            self._kernels,
            self._weights(),
            self._retyped(),
            {name: counterpart for name, counterpart in casts.items() if counterpart is not None},
            dict(self._origins()),
        )

    def _origins(self) -> Iterator[tuple[str, str]]:
        """Yield the values inside of quantised products, each with the one that the product was made of."""
        for pair in self._matching.pairs:
            members = [self._nodes[name] for name in pair.mine]
            maker = self._makers.get(members[0].inputs[0]) if members[0].op_type in INTEGER else None
            if maker is not None and maker.op_type == "DynamicQuantizeLinear":
                for node in members[:-1]:
                    yield from ((name, maker.inputs[0]) for name in node.outputs if name)

    def _weights(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        own, other = self._mine.weights, self._golden.weights
        forms = {name: name for name in own}
        forms |= {name: self._before_casts(name) for name in self._cast_of}
        pairs = ((form, name, self._values.get(name, "")) for form, name in forms.items())
        return {
            form: (own[name], other[counterpart])
            for form, name, counterpart in pairs
            if counterpart in other and name in own and (form == name or name not in self._mine.variables)
        }

    def _is_cast_alone(self, node: Node) -> bool:
        """Tell whether an operator brings floating point numbers into another type, where golden does not."""
        if node.op_type != CAST or node.domain or node.operator.full_name not in self._alone:
            return False
        return all(self._kind(name, self._mine) == _FLOAT for name in (*node.inputs, *node.outputs))

    def _before_casts(self, name: str) -> str:
        """Return the value that casts which golden lacks bring into other types."""
        while name in self._cast_of:
            name = self._cast_of[name]
        return name

    def _retyped(self) -> dict[str, str]:
        """Return which operators write another type of floats than golden's, unless most of them do."""
        texts: dict[str, str] = {}
        for pair in self._matching.pairs:
            nodes = [self._nodes[name] for name in pair.mine]
            for node, golden in product(nodes, (self._golden_nodes[name] for name in pair.golden)):
                types = self._written_type(node, self._mine), self._written_type(golden, self._golden)
                if node.op_type == golden.op_type and types[0] != types[1] and all(map(coarser, types)):
                    texts[node.name] = f"writes {types[0]}, in golden {types[1]}"
        if len(texts) * 2 > len(self._matching.pairs):  # it was converted as a whole
            return {}
        return {
            name: text
            for name, text in texts.items()
            if not any(self._makers[value].name in texts for value in self._inputs_of(name))
        }

    def _inputs_of(self, name: str) -> Iterator[str]:
        node = next(node for node in self._mine.nodes if node.name == name)
        return (value for value in node.inputs if value in self._makers)

    @staticmethod
    def _written_type(node: Node, graph: Graph) -> str:
        dtype = graph.type_of(node.outputs[0]).dtype if node.outputs else None
        return "" if dtype is None else dtype.name

    def _add(self, pair: OperatorPair) -> None:
        for (own, slot), (other, other_slot) in pair.outputs:
            golden = self._golden_nodes[other]
            value, counterpart = self._nodes[own].outputs[slot], golden.outputs[other_slot]
            if self._kind(value, self._mine) != self._kind(counterpart, self._golden):
                value = self._rescaled(value)
            if value in self._quantised[id(self._mine)]:
                golden = self._clamped(golden, counterpart)
                counterpart = golden.outputs[0] if golden is not self._golden_nodes[other] else counterpart
            if self._kind(value, self._mine) == self._kind(
                counterpart, self._golden
            ) and self._may_be_shaped_alike(value, counterpart):
                self._values[value] = counterpart
                self._partners[self._makers[value].name] = golden.name
        for name in pair.mine:
            node = self._nodes[name]
            if node.name not in self._partners:
                self._kernels[node.name] = ", ".join(pair.golden)
        if pair.is_single:
            node, golden = self._nodes[pair.mine[0]], self._golden_nodes[pair.golden[0]]
            if node.bodies:
                self._partners.setdefault(node.name, golden.name)
            self.bodies += (
                (body, golden.bodies[name]) for name, body in node.bodies.items() if name in golden.bodies
            )

    def _kind(self, name: str, graph: Graph) -> str:
        """Return the kind of a value's elements, as numpy calls it; "" where it is not known."""
        if name in self._quantised[id(graph)]:
            return _FLOAT
        dtype = graph.type_of(name).dtype
        return "" if dtype is None else dtypes.from_numpy(dtype.saved).numpy.kind

    def _may_be_shaped_alike(self, name: str, other: str) -> bool:
        """Tell whether two values may be one: a bias that was brought into form is no result."""
        shape, golden = self._mine.type_of(name).shape, self._golden.type_of(other).shape
        if shape is None or golden is None or len(shape) != len(golden):
            return True
        sizes = zip(shape, golden, strict=True)
        return all(one == two for one, two in sizes if isinstance(one, int) and isinstance(two, int))

    def _clamped(self, node: Node, name: str) -> Node:
        """Return the golden operator that clamps a value, which the range of quantised numbers does, too."""
        readers = [each for each in self._golden.nodes if name in each.inputs]
        is_alone = len(readers) == 1 and readers[0].operator.full_name in self._matching.golden_alone
        return readers[0] if is_alone and readers[0].op_type in _CLAMPS else node

    def _rescaled(self, name: str) -> str:
        """Return what an integer result becomes where it is scaled: a quantised operator ends there."""
        while True:
            readers = [node for node in self._mine.nodes if name in node.inputs]
            is_alone = len(readers) == 1 and readers[0].operator.full_name in self._alone
            if not is_alone or (self._kind(name, self._mine) == _FLOAT and readers[0].op_type != "Mul"):
                return name
            name = readers[0].outputs[0]

    def _add_inputs(self, node: Node, golden: Node) -> None:
        """Pair what two operators read: weights of the same shape, and values that are in no other pair."""
        taken = set(self._values.values())
        for name, other in zip(map(self._before_casts, node.inputs), golden.inputs, strict=False):
            if not name or not other or name in self._values or other in taken:
                continue
            array, golden_array = self._mine.weights.get(name), self._golden.weights.get(other)
            if (array is None) is not (golden_array is None):
                continue
            if self._kind(name, self._mine) != self._kind(other, self._golden):
                continue
            if array is None or golden_array is None or array.shape == golden_array.shape:
                self._values[name] = other

    def _add_ends(self) -> None:
        """Pair the inputs and the outputs of the graphs, by name or else by position."""
        for name, other in input_names(self._mine, self._golden).items():
            self._values.setdefault(other, name)
        taken = set(self._values.values())
        outputs = [value.name for value in self._golden.outputs if value.name not in taken]
        makers = {name: node for node in self._golden.nodes for name in node.outputs}
        own_makers = {name: node for node in self._mine.nodes for name in node.outputs}
        for value in self._mine.outputs:
            if value.name in self._values or not outputs:
                continue
            other = outputs.pop(outputs.index(value.name) if value.name in outputs else 0)
            self._values[value.name] = other
            if value.name in own_makers and other in makers:
                self._partners.setdefault(own_makers[value.name].name, makers[other].name)


def input_names(mine: Graph, golden: Graph) -> dict[str, str]:
    """Return the input of the examined network that each input of the other one is fed with, by name.

    Inputs of one name belong together, the others by their position.
    """
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
    """Return the output of the other network that belongs to each one of the examined network, by name.

    Outputs that stand for one value belong together, then those of one name, the others by their position.

    Args:
        mine: The examined network.
        golden: The other one.
        values: The other network's value for each value of the examined one.
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
    """Return what the other network is fed, in the types that it declares.

    Raises:
        InputError: It has an input that the examined network lacks.
    """
    names = input_names(mine, golden)
    inputs = {}
    for value in golden.inputs:
        if value.name not in names:
            raise InputError(
                f"{golden.source}: nothing is fed to input {value.name!r}: {mine.source} lacks it"
            )
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
    """Return a graph whose weights are the arrays of another one, wherever their bits are the same."""
    arrays = {digest: mine.weights[name] for name, digest in _bits(mine).items()}
    weights = {name: arrays.get(digest, golden.weights[name]) for name, digest in _bits(golden).items()}
    return replace(golden, weights={**golden.weights, **weights})


def _bits(graph: Graph) -> dict[str, Hashable]:
    """Return what stands for the bits of each weight, by name; texts have none."""
    return {
        name: (array.dtype.str, array.shape, hashlib.blake2b(array.tobytes(), digest_size=16).digest())
        for name, array in graph.weights.items()
        if array.dtype.kind != "O"
    }


def _digest_of(graph: Graph) -> DigestOf:
    """Return the function that gives what both exporters know a weight by, whatever its layout."""

    def digest_of(name: str) -> Hashable | None:
        array = graph.weights.get(name)
        return None if array is None or array.dtype.kind == "O" else contents.digest(array)

    return digest_of


def _by_name(graph: Graph) -> dict[str, Node]:
    return {node.operator.full_name: node for node in graph.nodes}
