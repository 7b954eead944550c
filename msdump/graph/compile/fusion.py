"""O1: chains of elementwise operators become one kernel, as MindSpore's graph kernel fusion makes them.

A chain grows while an elementwise operator's only result goes to one other
elementwise operator and nowhere else. The fused operator runs where the last
of the chain stood; values inside it are never seen. Its name joins the last
components of the original names, which it keeps: ``Default/Add-op0ReLU-op0``;
where another chain already has that name, it joins the whole names.
"""

from __future__ import annotations

import os.path
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from msdump.graph.bodies import with_bodies
from msdump.graph.graph import Graph, Node
from msdump.graph.operator_types import uses_float_status
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


Joins = Callable[[Sequence[Node], Node, str], bool]
"""Tells whether an operator continues a chain through a value that it reads."""


def fuse_elementwise(graph: Graph) -> Graph:
    """Return the graph with its elementwise chains fused, those in branches and loops as well."""
    return _fuse(graph, set())


def _fuse(graph: Graph, taken: set[str]) -> Graph:
    nodes = tuple(
        chain[0] if len(chain) == 1 else _fused(chain, taken) for chain in chains(graph, meet_elementwise)
    )
    return with_bodies(replace(graph, nodes=nodes), lambda body: _fuse(body, taken))


def chains(graph: Graph, joins: Joins) -> list[list[Node]]:
    """Return the operators in chains, each chain at the position of its last operator.

    Inside a chain only values are hidden that one operator alone reads and that are no graph outputs. No
    chain reaches across an operator of the device's overflow status, which tells of what ran before it.

    Args:
        graph: The graph.
        joins: Tells whether an operator may continue a chain through such a value.
    """
    uses = Counter(name for node in graph.nodes for name in reads(node))
    kept = {value.name for value in graph.outputs}
    # Chains by the name of their last node. A chain that grows is put in again behind all others: a dict
    # keeps the order of insertion, so each chain stands where its last operator did.
    open_chains: dict[str, list[Node]] = {}
    ends: dict[str, str] = {}
    for node in graph.nodes:
        chain = [node]
        for name in node.inputs:
            end = ends.get(name, "")
            before = open_chains.get(end, [])
            # one reader, no graph output: nobody misses the value when it has gone
            if before and uses[name] == 1 and name not in kept and joins(before, node, name):
                chain = [*open_chains.pop(end), node]
                break
        open_chains[node.name] = chain
        if uses_float_status(node.domain, node.op_type):
            ends.clear()
        ends |= dict.fromkeys(filter(None, node.outputs), node.name)
    return list(open_chains.values())


def meet_elementwise(chain: Sequence[Node], node: Node, _name: str) -> bool:
    """Tell whether an elementwise operator follows one."""
    return _is_elementwise(chain[-1]) and _is_elementwise(node)


def _is_elementwise(node: Node) -> bool:
    return not node.domain and node.op_type in ELEMENTWISE and len(node.outputs) == 1


def _fused(chain: Sequence[Node], taken: set[str]) -> Node:
    # operators of two scopes may have equal last components, and their chains then equal names
    name = _short_name(chain)
    if name in taken:
        name = "".join(part.operator.full_name for part in chain)
    taken.add(name)
    return joined(chain, OperatorRef("".join(part.operator.op_type for part in chain), name))


def _short_name(chain: Sequence[Node]) -> str:
    names = [part.operator.full_name for part in chain]
    scope = os.path.commonpath([name.rpartition("/")[0] for name in names])
    return f"{scope}/{''.join(name.rpartition('/')[2] for name in names)}"


def joined(chain: Sequence[Node], operator: OperatorRef) -> Node:
    """Return the operators of a chain as one, with the node name of the last one.

    Args:
        chain: The operators.
        operator: Type and full name of the fused operator.
    """
    inner = {name for part in chain for name in part.outputs}
    outside = dict.fromkeys(name for part in chain for name in reads(part) if name not in inner)
    return replace(
        chain[-1],
        op_type="+".join(part.op_type for part in chain),
        inputs=tuple(outside),
        attributes={},
        operator=operator,
        source=tuple(dict.fromkeys(line for part in chain for line in part.source)),
        parts=tuple(chain),
    )
