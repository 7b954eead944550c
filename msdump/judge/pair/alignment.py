"""The alignment of two graphs: pairs of operators, the strategy that found each, and its certainty."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from msdump.graph.files import arguments, ir_text
from msdump.judge.pair import regions
from msdump.judge.pair.fusion import ContractedGraph, contracted
from msdump.judge.pair.pairing import LIKE, Means, PartialAlignment
from msdump.judge.pair.sides import (
    GraphSide,
    count_shared_weights,
    has_views,
    indexed,
    labels,
    passes_on,
)
from msdump.judge.pair.strategies import pair_operators, strategies
from msdump.read import ABSENT, GraphOperator, OperatorGraph, SourceKind, ValueForm, ValueSource, connected

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from msdump.graph import Graph, ValueType


def operator_graphs(
    graph: Graph, first: int = 0, *, shows_arguments: bool = True
) -> dict[int, OperatorGraph]:
    """Return the operator graphs of a model and of its branches and bodies, by number.

    Args:
        graph: The model, as it is or compiled; of fused operators the names of all their nodes are kept.
        first: Number of the main graph; branches and bodies are numbered from it on.
        shows_arguments: Whether the operators get their arguments, which doubles the time.
    """
    return connected(
        _operator_graph(inner, first + inner.index, shows_arguments=shows_arguments) for inner in graph.walk()
    )


def _operator_graph(model: Graph, number: int, *, shows_arguments: bool) -> OperatorGraph:
    sources = {
        name: ValueSource(SourceKind.CONSTANT, arguments.tensor_text(model.weights[name]))
        for name in model.constants
    }
    forms: dict[bool, dict[str, ValueForm]] = {True: {}, False: {}}
    for parameter in ir_text.parameters(model):
        kind = SourceKind.WEIGHT if parameter.is_weight else SourceKind.INPUT
        sources.setdefault(parameter.name, ValueSource(kind, parameter.name))
        forms[parameter.is_weight][parameter.name] = _form(parameter.type)
    operators = {}
    for node in model.nodes:
        name, outputs = node.operator.full_name, ir_text.outputs_of(node)
        operators[name] = GraphOperator(
            full_name=name,
            op_type=node.operator.op_type,
            inputs=tuple(sources.get(value, ABSENT) for value in ir_text.operand_names(node)),
            outputs=tuple(_form(model.type_of(value)) if value else ValueForm() for value in outputs),
            onnx_names=tuple(part.name for part in node.members),
            label=next(filter(None, outputs), ""),
            attributes=ir_text.shown_arguments(node, model, number) if shows_arguments else "",
            source=node.source,
            bodies={attribute: number - model.index + body.index for attribute, body in node.bodies.items()},
        )
        for value, written in node.undeclared_outputs.items():
            sources[value] = sources.get(written, ABSENT)
        for slot, value in enumerate(outputs):
            if value:
                sources[value] = ValueSource(SourceKind.OPERATOR, name, slot)
    results = tuple(sources.get(value.name, ABSENT) for value in model.results)
    return OperatorGraph(operators, forms[False], forms[True], results, number)


def _form(value_type: ValueType) -> ValueForm:
    if value_type.kind != "tensor":
        return ValueForm()
    dtype = value_type.dtype.title.lower() if value_type.dtype else ""
    shape = value_type.shape
    known = None if shape is None else tuple(size if isinstance(size, int) else -1 for size in shape)
    return ValueForm(dtype, known)


Output = tuple[str, int]
"""Full name of an operator, and the number of its output."""


@dataclass(frozen=True, slots=True)
class OperatorPair:
    """Operators of two graphs that compute the same values: one to one, or group to group.

    Attributes:
        mine: Full names in the first graph, in order.
        golden: Full names in the second graph, in order.
        means: Strategy that found the pair.
        certainty: 0 to 1.
        outputs: Outputs that hold the same values.
    """

    mine: tuple[str, ...]
    golden: tuple[str, ...]
    means: Means
    certainty: float
    outputs: tuple[tuple[Output, Output], ...] = ()

    @property
    def is_single(self) -> bool:
        """Whether the pair is one operator of each graph, not groups of operators."""
        return len(self.mine) == len(self.golden) == 1


@dataclass(frozen=True)
class Alignment:
    """The pairs of operators of two graphs, and the operators without a partner.

    Attributes:
        pairs: In the order of the first graph.
        mine_alone: Operators of the first graph without a partner, in its order.
        golden_alone: Operators of the second graph without a partner, in its order.
        is_one_network: Whether the graphs are forms of one network; if False, the pairs are coincidental.
    """

    pairs: tuple[OperatorPair, ...]
    mine_alone: tuple[str, ...] = ()
    golden_alone: tuple[str, ...] = ()
    is_one_network: bool = True

    def describe_networks(self) -> str:
        """Return the sentence that the graphs are of two networks, with the numbers of paired operators."""
        single = [pair for pair in self.pairs if 1 in {len(pair.mine), len(pair.golden)}]
        own = {name for pair in single for name in pair.mine}
        other = {name for pair in single for name in pair.golden}
        count = len(self.of_mine) + len(self.mine_alone)
        golden_count = len(self.of_golden) + len(self.golden_alone)
        return (
            f"they are two networks: {len(own)} of {count} operators of mine are paired with"
            f" {len(other)} of {golden_count} of golden"
        )

    @cached_property
    def of_mine(self) -> Mapping[str, OperatorPair]:
        """The pair of each operator of the first graph that is in one."""
        return {name: pair for pair in self.pairs for name in pair.mine}

    @cached_property
    def of_golden(self) -> Mapping[str, OperatorPair]:
        """The pair of each operator of the second graph that is in one."""
        return {name: pair for pair in self.pairs for name in pair.golden}

    @property
    def is_by_name(self) -> bool:
        """Whether all operators have a partner of the same name."""
        is_whole = not (self.mine_alone or self.golden_alone)
        return is_whole and all(pair.mine == pair.golden for pair in self.pairs)


def align(mine: GraphSide, golden: GraphSide) -> Alignment:
    """Return the pairs of operators of two graphs that compute the same values.

    Names count where the neighbourhoods of the operators agree with them; else type, inputs and readers
    identify the partner, then the elements of dumped outputs. Unpaired operators with the same name are
    paired last: they have different inputs, as one side is wired differently.
    """
    if _is_same(mine.graph, golden.graph):
        return _alike(mine.graph)
    contractions = contracted(mine.graph, golden.graph)
    both_have_views = has_views(mine.graph) and has_views(golden.graph)
    sides = (
        replace(mine, graph=contractions[0].graph, has_views=both_have_views),
        replace(golden, graph=contractions[1].graph, has_views=both_have_views),
    )
    own, other = (indexed(*each) for each in zip(sides, labels(*sides), strict=True))
    pairs = PartialAlignment(own, other)
    pair_operators(pairs, strategies(own, other))
    found = _Result(pairs, contractions).alignment()
    is_body = bool(mine.graph.caller and golden.graph.caller)  # the calling operators are paired already
    return replace(found, is_one_network=is_body or _is_one_network(found, mine, golden))


_ANCHORED: Final = 0.25
"""Share of the smaller side's operators that are one operator on either side, in forms of one network."""


def _is_one_network(found: Alignment, mine: GraphSide, golden: GraphSide) -> bool:
    """Return whether two graphs are forms of one network.

    They are if enough operators are paired one to one, if they share weights, or if the results of paired
    regions (groups of unlike operators between the same neighbours) have the same values. A pair of regions
    alone proves nothing: two unrelated networks, from inputs to outputs, form such a pair.
    """
    sides = mine, golden
    counts = [sum(not passes_on(each.op_type) for each in side.graph.operators.values()) for side in sides]
    anchors = sum(1 in {len(pair.mine), len(pair.golden)} for pair in found.pairs)
    if anchors >= _ANCHORED * min(counts):
        return True
    weights = [side.graph.weights for side in sides]
    shared = count_shared_weights(mine, golden)
    if min(map(len, weights)) <= 2 * shared > 0:
        return True
    results = (output for pair in found.pairs for output in pair.outputs)
    contents = ((mine.content_of(*own), golden.content_of(*other)) for own, other in results)
    return any(
        own is not None and other is not None and other.is_telling and (own.likeness(other) or 0) >= LIKE
        for own, other in contents
    )


def _is_same(mine: OperatorGraph, golden: OperatorGraph) -> bool:
    if mine.operators.keys() != golden.operators.keys():
        return False
    pairs = ((operator, golden.operators[name]) for name, operator in mine.operators.items())
    return all((own.op_type, own.inputs) == (other.op_type, other.inputs) for own, other in pairs)


def _alike(graph: OperatorGraph) -> Alignment:
    return Alignment(
        tuple(
            OperatorPair((name,), (name,), Means.NAME, 1.0, tuple(_outputs(operator, operator)))
            for name, operator in graph.operators.items()
        )
    )


def _outputs(mine: GraphOperator, golden: GraphOperator) -> Iterator[tuple[Output, Output]]:
    count = max(len(mine.outputs), len(golden.outputs), 1)
    return (((mine.full_name, slot), (golden.full_name, slot)) for slot in range(count))


@dataclass(frozen=True, slots=True)
class _Result:
    pairs: PartialAlignment
    contractions: tuple[ContractedGraph, ContractedGraph]

    def alignment(self) -> Alignment:
        found = {place: self._pair(place, *partner) for place, partner in self.pairs.found.items()}
        for whole in regions.region_pairs(self.pairs):
            for region in regions.cut(whole, self.pairs):
                if not regions.is_of_idle_transfers(region, self.pairs):
                    found[region.mine[0]] = self._region(region)
        pairs = tuple(found[place] for place in sorted(found))
        return Alignment(
            pairs,
            self._alone(0, {name for pair in pairs for name in pair.mine}),
            self._alone(1, {name for pair in pairs for name in pair.golden}),
        )

    def _alone(self, side: int, paired: set[str]) -> tuple[str, ...]:
        graph = self.contractions[side]
        every = (part for name in graph.graph.operators for part in graph.parts_of(name))
        return tuple(name for name in every if name not in paired)

    def _pair(self, place: int, partner: int, means: Means, certainty: float) -> OperatorPair:
        mine, golden = self.pairs.mine.operators[place], self.pairs.golden.operators[partner]
        return OperatorPair(
            self.contractions[0].parts_of(mine.full_name),
            self.contractions[1].parts_of(golden.full_name),
            means,
            certainty,
            tuple(
                (self._original(0, own), self._original(1, other)) for own, other in _outputs(mine, golden)
            ),
        )

    def _region(self, region: regions.RegionPair) -> OperatorPair:
        graphs = self.pairs.mine, self.pairs.golden
        mine, golden = (
            tuple(part for place in places for part in contraction.parts_of(graph.operators[place].full_name))
            for graph, contraction, places in zip(
                graphs, self.contractions, (region.mine, region.golden), strict=True
            )
        )
        outputs = (
            (
                self._original(0, (graphs[0].operators[own].full_name, own_slot)),
                self._original(1, (graphs[1].operators[other].full_name, other_slot)),
            )
            for (own, own_slot), (other, other_slot) in region.results
        )
        return OperatorPair(mine, golden, Means.STRUCTURE, round(region.certainty, 3), tuple(outputs))

    def _original(self, side: int, output: Output) -> Output:
        """Return an output in the original graph; a contracted operator has the outputs of its last part."""
        name, slot = output
        return self.contractions[side].parts_of(name)[-1], slot
