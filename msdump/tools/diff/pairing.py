"""Which operators of two networks of one model belong together: those that write the same value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msdump.graph.compile.forms import model_names
from msdump.graph.graph import Graph, Node


@dataclass(frozen=True, slots=True)
class GraphPairing:
    """What belongs together in a graph, or a body, of the leading side and in its counterpart.

    Attributes:
        partners: Name of the counterpart of each operator and control flow node that has one, by name.
        values: The common name of each value of the leading side.
        golden_values: The common name of each value of the other side.
        golden_weights: Common names of the other side's weights.
        kernels: Full name of the golden kernel that hides the results of an operator without counterpart.
    """

    partners: Mapping[str, str]
    values: Mapping[str, str]
    golden_values: Mapping[str, str]
    golden_weights: frozenset[str]
    kernels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pairing:
    """What belongs together in two networks.

    Attributes:
        graphs: The graph and the bodies that have a counterpart, by the leading side's index.
        bodies: Index of the golden body that belongs to each body.
        missing: Golden operators that have no counterpart, and are no part of one.
        is_one_model: Whether both sides are forms of one model: weights of one name are one array, and
            operators without a counterpart were fused, folded or added.
    """

    graphs: Mapping[int, GraphPairing]
    bodies: Mapping[int, int]
    missing: tuple[Node, ...] = ()
    is_one_model: bool = True

    @property
    def wanted(self) -> frozenset[str]:
        """Names of the golden operators that are the counterpart of one."""
        return frozenset(name for graph in self.graphs.values() for name in graph.partners.values())


def pair_variants(mine: Graph, golden: Graph) -> Pairing:
    """Return what belongs together in two compiled forms of one model.

    A value keeps its name wherever it still is: operators pair that write one. What compilation hides
    inside a kernel, or computed beforehand, has no counterpart, and is no fault.

    Args:
        mine: The leading side's graph.
        golden: The other one.
    """
    graphs: dict[int, GraphPairing] = {}
    bodies: dict[int, int] = {}
    _pair_graphs(mine, golden, graphs, bodies)
    return Pairing(graphs, bodies)


def _pair_graphs(mine: Graph, golden: Graph, graphs: dict[int, GraphPairing], bodies: dict[int, int]) -> None:
    """Pair two graphs, and the bodies of the control flow nodes that belong together in them."""
    names, golden_names = model_names(mine), model_names(golden)
    own = [node for node in golden.nodes if not node.is_added]
    makers = {golden_names[name]: node for node in own for name in node.outputs if name}
    hidden = {name: node for node in own for part in node.parts for name in part.outputs}
    partners, kernels = {}, {}
    for node in mine.nodes:
        written = [names[name] for name in node.outputs if name and not node.is_added]
        partner = next((makers[name] for name in written if name in makers), None)
        kernel = next((hidden[name] for name in written if name in hidden), None)
        if partner is not None and partner.bodies.keys() == node.bodies.keys():
            partners[node.name] = partner.name
            for name, body in node.bodies.items():
                bodies[body.index] = partner.bodies[name].index
                _pair_graphs(body, partner.bodies[name], graphs, bodies)
        elif kernel is not None:
            kernels[node.name] = kernel.operator.full_name
    weights = frozenset(golden_names[name] for name in golden.weights)
    graphs[mine.index] = GraphPairing(partners, names, golden_names, weights, kernels)
