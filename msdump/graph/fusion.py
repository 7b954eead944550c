"""O1: chains of elementwise operators become one kernel, as MindSpore's graph kernel fusion makes them.

A chain grows while an elementwise operator's only result goes to one other
elementwise operator and nowhere else. The fused operator runs where the last
of the chain stood; values inside it are never seen. Its name joins the last
components of the original names, which it keeps: ``Default/Add-op0ReLU-op0``.
"""

from __future__ import annotations

import os.path
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from msdump.graph.bodies import with_bodies
from msdump.graph.graph import Graph, Node
from msdump.graph.order import reads
from msdump.record import OperatorRef

ELEMENTWISE: Final = frozenset(
    {
        *("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Max", "Min", "PRelu", "Where"),
        *("Abs", "Neg", "Exp", "Log", "Sqrt", "Reciprocal", "Sign", "Floor", "Ceil", "Round", "Erf"),
        *("Relu", "LeakyRelu", "Elu", "Selu", "Celu", "Clip", "Sigmoid", "HardSigmoid", "HardSwish", "Mish"),
        *("Tanh", "Softplus", "Softsign", "Gelu", "ThresholdedRelu", "Swish"),
        *("Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh"),
        *("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor", "Not"),
        *("IsNaN", "IsInf", "Cast", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"),
    }
)
"""ONNX operators whose every element depends on one element of each input."""


def fuse_elementwise(graph: Graph) -> Graph:
    """Return the graph with its elementwise chains fused, those in branches and loops as well."""
    uses = Counter(name for node in graph.nodes for name in reads(node))
    kept = {value.name for value in graph.outputs}
    makers = {name: node for node in graph.nodes for name in node.outputs if name}
    chains: dict[str, list[Node]] = {}
    for node in graph.nodes:
        chain = [node]
        if _is_elementwise(node):
            chain = [*_open_chain(node, makers, chains, uses, kept), node]
        chains[node.name] = chain
    nodes = tuple(_fused(chain) for chain in chains.values())
    return with_bodies(replace(graph, nodes=nodes), fuse_elementwise)


def _open_chain(
    node: Node,
    makers: Mapping[str, Node],
    chains: dict[str, list[Node]],
    uses: Counter[str],
    kept: set[str],
) -> list[Node]:
    """Take the chain that ends in one of the node's inputs and nowhere else, if there is one."""
    for name in node.inputs:
        maker = makers.get(name)
        if maker is None or not _is_elementwise(maker) or uses[name] > 1 or name in kept:
            continue
        if maker.name in chains:
            return chains.pop(maker.name)
    return []


def _is_elementwise(node: Node) -> bool:
    return not node.domain and node.op_type in ELEMENTWISE and len(node.outputs) == 1


def _fused(chain: list[Node]) -> Node:
    if len(chain) == 1:
        return chain[0]
    last = chain[-1]
    names = [part.operator.full_name for part in chain]
    scope = os.path.commonpath([name.rpartition("/")[0] for name in names])
    made = {name for part in chain for name in part.outputs}
    outside = dict.fromkeys(name for part in chain for name in reads(part) if name not in made)
    return replace(
        last,
        op_type="+".join(part.op_type for part in chain),
        inputs=tuple(outside),
        attributes={},
        operator=OperatorRef(
            "".join(part.operator.op_type for part in chain),
            f"{scope}/{''.join(name.rpartition('/')[2] for name in names)}",
        ),
        source=tuple(dict.fromkeys(line for part in chain for line in part.source)),
        parts=tuple(chain),
    )
