"""What quantisation made of an operator: groups that stand for one operator of the float graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from msdump.store.read.graphs.operator_graph import GraphOperator, OperatorGraph, SourceKind
from msdump.tools.matching.sides import CAST, canonical_type

_CLAMPS: Final = frozenset({"ReLU", "ReLU6"})
INTEGER: Final = frozenset({"ConvInteger", "MatMulInteger"})
"""Operators that multiply integers, which others scale."""

_QLINEAR: Final = ("QLinear", "QGemm")


@dataclass(frozen=True, slots=True)
class QuantisedGroup:
    """Operators that stand for one operator of the other graph.

    Attributes:
        operator: The one that they become.
        members: The operators, in the order of execution.
    """

    operator: GraphOperator
    members: tuple[GraphOperator, ...]


def groups(graph: OperatorGraph, other: OperatorGraph) -> Iterator[QuantisedGroup]:
    """Yield the groups of a graph beside another one, of which one may be quantised."""
    yield from _integer_chains(graph)
    if _has_ranges(other) and not _has_ranges(graph):
        yield from _clamped(graph, other)


def _has_ranges(graph: OperatorGraph) -> bool:
    """Tell whether operators of a graph write numbers of a range, beyond which they are cut off."""
    return any(each.op_type.startswith(_QLINEAR) for each in graph.operators.values())


def _clamped(graph: OperatorGraph, other: OperatorGraph) -> Iterator[QuantisedGroup]:
    """Yield each operator with what clamps it alone, where the range of a quantised one does that as well."""
    kept = {each.op_type for each in other.operators.values()}
    for operator in graph.operators.values():
        readers = graph.used_by(operator.full_name)
        if len(readers) == 1 and readers[0].op_type in _CLAMPS - kept:
            whole = replace(operator, outputs=readers[0].outputs)
            yield QuantisedGroup(whole, (operator, readers[0]))


def _integer_chains(graph: OperatorGraph) -> Iterator[QuantisedGroup]:
    """Yield integer products with what scales them, and adds the bias of a convolution."""
    for operator in graph.operators.values():
        if operator.op_type not in INTEGER:
            continue
        members = [operator]
        for expected in (CAST, "Mul", "Add"):
            readers = graph.used_by(members[-1].full_name)
            if len(readers) != 1 or canonical_type(readers[0].op_type) != expected:
                break
            if expected == "Add" and not _adds_bias(graph, operator, readers[0]):
                break
            members.append(readers[0])
        if len(members) > 2:  # noqa: PLR2004 - a product that is cast and scaled
            last = members[-1]
            whole = replace(
                last, op_type=canonical_type(operator.op_type), inputs=operator.inputs[:2], onnx_names=()
            )
            yield QuantisedGroup(whole, tuple(members))


def _adds_bias(graph: OperatorGraph, product: GraphOperator, add: GraphOperator) -> bool:
    """Tell whether an operator adds the bias of a convolution, which was brought into form."""
    if product.op_type != "ConvInteger":
        return False
    writers = (graph.operators.get(each.name) for each in add.inputs if each.kind is SourceKind.OPERATOR)
    return any(
        each is not None and each.op_type == "Reshape" and each.inputs[0].kind is SourceKind.WEIGHT
        for each in writers
    )
