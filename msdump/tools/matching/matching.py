"""Which operators of two graphs belong together, how that was found, and how sure it is."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from msdump.store.read.graphs.operator_graph import GraphOperator, OperatorGraph
from msdump.tools.matching import cuts, regions
from msdump.tools.matching.colours import colours
from msdump.tools.matching.evidence import PairEvidence
from msdump.tools.matching.fusions import ContractedGraph, contracted
from msdump.tools.matching.labels import labels
from msdump.tools.matching.namesakes import namesakes
from msdump.tools.matching.regions import RegionPair
from msdump.tools.matching.search import Search
from msdump.tools.matching.sides import GraphSide, has_views, indexed

Output = tuple[str, int]
"""Full name of an operator, and the number of its output."""


class Means(enum.StrEnum):
    """What tells that operators belong together."""

    NAME = "name"
    NODE = "node"
    STRUCTURE = "structure"
    CONTENT = "content"


@dataclass(frozen=True, slots=True)
class OperatorPair:
    """Operators of two graphs that belong together: one and one, or several that do the same.

    Attributes:
        mine: Full names in the first graph, in order.
        golden: Full names in the second graph, in order.
        means: What tells that they belong together.
        certainty: How sure it is, 0 to 1.
        outputs: Outputs that hold the same values.
    """

    mine: tuple[str, ...]
    golden: tuple[str, ...]
    means: Means
    certainty: float
    outputs: tuple[tuple[Output, Output], ...] = ()

    @property
    def is_single(self) -> bool:
        """Whether one operator belongs to one operator."""
        return len(self.mine) == len(self.golden) == 1


@dataclass(frozen=True)
class Matching:
    """The operators of two graphs that belong together, and those without a partner.

    Attributes:
        pairs: Those that belong together, in the order of the first graph.
        mine_alone: Operators of the first graph without a partner, in its order.
        golden_alone: Operators of the second graph without a partner, in its order.
    """

    pairs: tuple[OperatorPair, ...]
    mine_alone: tuple[str, ...] = ()
    golden_alone: tuple[str, ...] = ()

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


def match(mine: GraphSide, golden: GraphSide) -> Matching:
    """Return which operators of two graphs belong together.

    Names count where what is around the operators agrees with them; else what an operator does, reads and
    is read by tells its partner, and where that leaves operators over, the elements that they wrote. Those of
    one name that are left by all of it belong together, too: one side has wired them otherwise.

    Args:
        mine: The first graph, and what is known beside it.
        golden: The second graph.
    """
    if _is_same(mine.graph, golden.graph):
        return _alike(mine.graph)
    contractions = contracted(mine.graph, golden.graph)
    both_have_views = has_views(mine.graph) and has_views(golden.graph)
    sides = (
        replace(mine, graph=contractions[0].graph, has_views=both_have_views),
        replace(golden, graph=contractions[1].graph, has_views=both_have_views),
    )
    own_labels, other_labels = labels(*sides)
    own, other = indexed(sides[0], own_labels), indexed(sides[1], other_labels)
    shades = colours(own, other)
    evidence = PairEvidence(own, other, shades)
    search = Search(evidence)
    search.add_all(shades)
    search.run(is_sure=True)
    structural = [*evidence.golden_of]
    search.add_contents()
    search.run()
    while pairs := list(regions.single_pairs(evidence)):
        for pair in pairs:
            evidence.pair(*pair)
    for pair in list(namesakes(evidence)):
        evidence.pair(*pair)
    return _Result(evidence, structural, contractions).matching()


def _is_same(mine: OperatorGraph, golden: OperatorGraph) -> bool:
    """Tell whether two graphs have operators of the same names that read the same."""
    if mine.operators.keys() != golden.operators.keys():
        return False
    return all(_does_same(operator, golden.operators[name]) for name, operator in mine.operators.items())


def _does_same(mine: GraphOperator, golden: GraphOperator) -> bool:
    return mine.op_type == golden.op_type and mine.inputs == golden.inputs


def _alike(graph: OperatorGraph) -> Matching:
    return Matching(
        tuple(
            OperatorPair((name,), (name,), Means.NAME, 1.0, tuple(_outputs(operator, operator)))
            for name, operator in graph.operators.items()
        )
    )


def _outputs(mine: GraphOperator, golden: GraphOperator) -> Iterator[tuple[Output, Output]]:
    count = max(len(mine.outputs), len(golden.outputs), 1)
    return (((mine.full_name, slot), (golden.full_name, slot)) for slot in range(count))


class _Result:
    """Turns what was found into pairs of the original graphs' operators."""

    def __init__(
        self,
        evidence: PairEvidence,
        structural: list[int | None],
        contractions: tuple[ContractedGraph, ContractedGraph],
    ) -> None:
        self._evidence = evidence
        self._structural = structural
        self._contractions = contractions

    def matching(self) -> Matching:
        evidence = self._evidence
        places = {
            place: self._pair(place, partner)
            for place, partner in enumerate(evidence.golden_of)
            if partner is not None
        }
        for whole in regions.region_pairs(evidence):
            for region in cuts.cut(whole, evidence):
                if not regions.is_of_idle_transfers(region, evidence):
                    places[region.mine[0]] = self._of_region(region)
        pairs = tuple(places[place] for place in sorted(places))
        return Matching(
            pairs,
            self._alone(0, {name for pair in pairs for name in pair.mine}),
            self._alone(1, {name for pair in pairs for name in pair.golden}),
        )

    def _alone(self, side: int, paired: set[str]) -> tuple[str, ...]:
        graph = self._contractions[side]
        every = (part for name in graph.graph.operators for part in graph.parts_of(name))
        return tuple(name for name in every if name not in paired)

    def _pair(self, place: int, partner: int) -> OperatorPair:
        evidence = self._evidence
        mine, golden = evidence.mine.operators[place], evidence.golden.operators[partner]
        outputs = _outputs(mine, golden)
        return OperatorPair(
            self._contractions[0].parts_of(mine.full_name),
            self._contractions[1].parts_of(golden.full_name),
            self._means(place, partner),
            round(max(evidence.certainty(place, partner), regions.LEAST), 3),
            tuple((self._original(0, own), self._original(1, other)) for own, other in outputs),
        )

    def _means(self, place: int, partner: int) -> Means:
        evidence = self._evidence
        mine, golden = evidence.mine.operators[place], evidence.golden.operators[partner]
        if mine.full_name == golden.full_name:
            return Means.NAME
        likeness = None if self._structural[place] is not None else evidence.likeness(place, partner)
        if likeness is not None and evidence.may_be_alike(place, partner):
            return Means.CONTENT
        is_node = bool(mine.onnx_names) and mine.onnx_names == golden.onnx_names
        return Means.NODE if is_node else Means.STRUCTURE

    def _of_region(self, region: RegionPair) -> OperatorPair:
        names = (
            tuple(part for place in places for part in contraction.parts_of(graph.operators[place].full_name))
            for graph, contraction, places in (
                (self._evidence.mine, self._contractions[0], region.mine),
                (self._evidence.golden, self._contractions[1], region.golden),
            )
        )
        outputs = (
            (
                self._original(0, (self._evidence.mine.operators[own].full_name, own_slot)),
                self._original(1, (self._evidence.golden.operators[other].full_name, other_slot)),
            )
            for (own, own_slot), (other, other_slot) in region.results
        )
        mine, golden = names
        return OperatorPair(mine, golden, Means.STRUCTURE, round(region.certainty, 3), tuple(outputs))

    def _original(self, side: int, output: Output) -> Output:
        """Return an output by the operator of the original graph: of parts put together, the last one."""
        name, slot = output
        return self._contractions[side].parts_of(name)[-1], slot
