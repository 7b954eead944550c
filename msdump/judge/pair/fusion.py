"""Fused operators and their parts: groups with the same parts in two graphs become one operator each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from msdump.device import INSERTED_PREFIX
from msdump.judge.pair.sides import CAST, HOST_NAMES, INTEGER, canonical_type, joined_parts
from msdump.read import GraphOperator, OperatorGraph, SourceKind, ValueSource

_SEPARATOR: Final = re.compile("[/_]")  # compiled graphs write "_" where names have slashes

Group = tuple[tuple[GraphOperator, ...], tuple[GraphOperator, ...]]
"""Operators of both graphs that have the same parts."""


@dataclass(frozen=True, slots=True)
class ContractedGraph:
    """A graph with groups of operators contracted to one operator each.

    Attributes:
        graph: The graph.
        parts: Full names of the original operators, by the full name of the contracted one.
    """

    graph: OperatorGraph
    parts: Mapping[str, tuple[str, ...]]

    def parts_of(self, name: str) -> tuple[str, ...]:
        """Return the original operators of a contracted one."""
        return self.parts.get(name, (name,))


def contracted(mine: OperatorGraph, golden: OperatorGraph) -> tuple[ContractedGraph, ContractedGraph]:
    """Return two graphs in which a fused operator and its parts on the other side are one operator each.

    The parts are identified by the ONNX nodes of a fused operator, or by its name, which joins the names of
    the parts (``Default/Add-op0ReLU-op0``). If both graphs have fused operators, the smallest groups of
    operators with equal parts are contracted.
    """
    groups = [group for group in _groups(mine, golden) if any(len(members) > 1 for members in group)]
    own, other = ([_Whole(_whole(group), group[side]) for group in groups] for side in (0, 1))
    own += _quantised(mine, golden, own)
    other += _quantised(golden, mine, other)
    return _replaced(mine, own), _replaced(golden, other)


def _quantised(graph: OperatorGraph, beside: OperatorGraph, wholes: Sequence[_Whole]) -> list[_Whole]:
    taken = {each.full_name for whole in wholes for each in whole.members}
    found = []
    for operator, members in _quantised_groups(graph, beside):
        names = {each.full_name for each in members}
        if not names & taken:
            taken |= names
            found.append(_Whole(operator, members, operator.inputs))
    return found


def _groups(mine: OperatorGraph, golden: OperatorGraph) -> Iterator[Group]:
    taken: set[str] = set()
    numbered = _by_names(mine, golden)
    for group in chain(_by_nodes(mine, golden), numbered, _by_names(mine, golden, _unnumbered)):
        names = {f"{side}{each.full_name}" for side, members in enumerate(group) for each in members}
        if not names & taken:
            taken |= names
            yield group


def _by_nodes(mine: OperatorGraph, golden: OperatorGraph) -> Iterator[Group]:
    nodes = [
        {node: each for each in graph.operators.values() for node in each.onnx_names}
        for graph in (mine, golden)
    ]
    done: set[str] = set()
    fused = (
        each for graph in (mine, golden) for each in graph.operators.values() if len(each.onnx_names) > 1
    )
    for operator in fused:
        if operator.onnx_names[0] not in done:
            found = _closure(operator.onnx_names, nodes)
            done |= found
            if all(found <= each.keys() for each in nodes):
                own, other = ({each[node].full_name: each[node] for node in found} for each in nodes)
                yield _in_order(own, mine), _in_order(other, golden)


def _closure(names: Iterable[str], nodes: Sequence[Mapping[str, GraphOperator]]) -> set[str]:
    closure: set[str] = set()
    pending = [*names]
    while pending:
        name = pending.pop()
        if name not in closure:
            closure.add(name)
            pending += (node for each in nodes if name in each for node in each[name].onnx_names)
    return closure


def _in_order(operators: Mapping[str, GraphOperator], graph: OperatorGraph) -> tuple[GraphOperator, ...]:
    return tuple(each for name, each in graph.operators.items() if name in operators)


def _unnumbered(parts: Sequence[str]) -> list[str]:
    """Return parts without numbers, except for the first one: a missing operator shifts later numbers.

    >>> _unnumbered(["Conv2D-op3", "Elu-op1"])
    ['Conv2D-op3', 'Elu']
    """
    return [*parts[:1], *(part.rpartition("-op")[0] for part in parts[1:])]


def _by_names(
    mine: OperatorGraph, golden: OperatorGraph, key: Callable[[Sequence[str]], Sequence[str]] = list
) -> Iterator[Group]:
    """Yield fused operators with the operators that their names join; parts are compared by ``key``."""
    own, other = _NamedParts(mine), _NamedParts(golden)
    for fused in mine.operators.values():
        rows = _rows(fused, own, other, key)
        if rows and fused.full_name not in golden.operators:
            yield rows
    for fused in golden.operators.values():
        rows = _rows(fused, other, own, key)
        if rows and fused.full_name not in mine.operators:
            yield rows[1], rows[0]


class _NamedParts:
    def __init__(self, graph: OperatorGraph) -> None:
        self.graph = graph
        self._beginning: dict[str, list[GraphOperator]] = {}
        for operator in graph.operators.values():
            self._beginning.setdefault(_parts(operator)[0], []).append(operator)

    def heads(self, part: str, scope: str) -> list[GraphOperator]:
        """Return the operators below a scope with names that begin with a part."""
        below = f"{scope}/" if scope else ""
        return [each for each in self._beginning.get(part, ()) if f"{each.scope}/".startswith(below)]

    def readers(self, operator: GraphOperator) -> Iterator[GraphOperator]:
        """Yield the readers of an operator, looking through transfers that the device inserted."""
        for reader in self.graph.used_by(operator.full_name):
            if reader.full_name.startswith(INSERTED_PREFIX):
                yield from self.readers(reader)
            else:
                yield reader


def _rows(
    fused: GraphOperator,
    own: _NamedParts,
    other: _NamedParts,
    key: Callable[[Sequence[str]], Sequence[str]],
) -> Group | None:
    """Return the one pair of chains with a fused operator's parts, if need be without casts; else None."""
    parts = _parts(fused)
    if len(parts) == 1:
        return None
    computing = [each for each in parts if not each.startswith(f"{CAST}-op")]
    found = _rows_of(parts, fused, (own, other), key)
    if not found and 1 < len(computing) < len(parts):
        found = _rows_of(computing, fused, (own, other), key)
    return found[0] if len(found) == 1 else None


def _rows_of(
    parts: Sequence[str],
    fused: GraphOperator,
    graphs: tuple[_NamedParts, _NamedParts],
    key: Callable[[Sequence[str]], Sequence[str]],
) -> list[Group]:
    """Return the shortest chains of operators of two graphs with the same parts.

    Either graph may have fused parts that are separate in the other one: the search alternates between the
    sides.
    """
    found: list[Group] = []
    pending: list[tuple[Group, Sequence[str], int]] = [(((fused,), ()), parts, 1)]
    while pending:
        rows, left, side = pending.pop()
        if not left:
            found.append(rows)
            continue
        row = rows[side]
        for reader in graphs[side].readers(row[-1]) if row else graphs[1].heads(parts[0], fused.scope):
            own = _parts(reader)
            shared = min(len(own), len(left))
            # compared behind the chain's first part, the only one to keep its number in ``_unnumbered``
            begin = parts[:1] if row else []
            if key([*begin, *own[:shared]]) == key([*begin, *left[:shared]]):
                longer = (*row, reader)
                both = (longer, rows[1]) if side == 0 else (rows[0], longer)
                is_beyond = len(own) > len(left)  # the rest is matched in the other graph
                pending.append((both, own[shared:] or left[shared:], 1 - side if is_beyond else side))
    return found


def _parts(operator: GraphOperator) -> Sequence[str]:
    """Return the parts that an operator's name joins; the name itself for one that is not fused.

    >>> _parts(GraphOperator("Default/Maximum-op0RealDiv-op1", "Maximum"))
    ['Maximum-op0', 'Div-op1']
    """
    last = _SEPARATOR.split(operator.full_name)[-1]
    parts = joined_parts(last)
    split = (each.rpartition("-") for each in (parts if "".join(parts) == last else [last]))
    return [f"{HOST_NAMES.get(op_type, op_type)}{dash}{number}" for op_type, dash, number in split]


def _whole(group: Group) -> GraphOperator:
    single = [members[0] for members in group if len(members) == 1]
    most = max(group, key=len)
    joined = replace(
        most[-1],
        full_name="+".join(each.full_name for each in most),
        op_type="+".join(each.op_type for each in most),
    )
    return replace(
        single[0] if single else joined, onnx_names=tuple(node for each in most for node in each.onnx_names)
    )


@dataclass(frozen=True, slots=True)
class _Whole:
    operator: GraphOperator
    members: tuple[GraphOperator, ...]
    inputs: tuple[ValueSource, ...] | None = None


def _replaced(graph: OperatorGraph, wholes: Sequence[_Whole]) -> ContractedGraph:
    """Return a graph with groups replaced by one operator each, at the place of their last member."""
    whole_of = {each.full_name: whole for whole in wholes for each in whole.members}

    def moved(source: ValueSource) -> ValueSource:
        whole = whole_of.get(source.name) if source.kind is SourceKind.OPERATOR else None
        return source if whole is None else replace(source, name=whole.operator.full_name)

    operators: dict[str, GraphOperator] = {}
    for name, operator in graph.operators.items():
        whole = whole_of.get(name)
        if whole is None:
            operators[name] = replace(operator, inputs=tuple(map(moved, operator.inputs)))
        elif whole.members[-1] is operator:
            operators[whole.operator.full_name] = replace(
                operator,
                full_name=whole.operator.full_name,
                op_type=whole.operator.op_type,
                inputs=tuple(map(moved, whole.inputs))
                if whole.inputs is not None
                else tuple(dict.fromkeys(map(moved, _outside(whole.members)))),
                onnx_names=whole.operator.onnx_names,
            )
    parts = {whole.operator.full_name: tuple(each.full_name for each in whole.members) for whole in wholes}
    return ContractedGraph(
        replace(graph, operators=operators, outputs=tuple(map(moved, graph.outputs))), parts
    )


def _outside(members: Sequence[GraphOperator]) -> Iterator[ValueSource]:
    inside = {each.full_name for each in members}
    for each in members:
        yield from (
            source
            for source in each.inputs
            if source.kind is not SourceKind.OPERATOR or source.name not in inside
        )


_Single = tuple[GraphOperator, tuple[GraphOperator, ...]]
"""The operator that a group becomes, and the group in the order of execution."""

_CLAMPS: Final = frozenset({"ReLU", "ReLU6"})
_QLINEAR: Final = ("QLinear", "QGemm")


def _quantised_groups(graph: OperatorGraph, other: OperatorGraph) -> Iterator[_Single]:
    """Yield groups that are one operator in the other graph if one of the two is quantised."""
    yield from _integer_chains(graph)
    if _has_ranges(other) and not _has_ranges(graph):
        yield from _clamped(graph, other)


def _has_ranges(graph: OperatorGraph) -> bool:
    return any(each.op_type.startswith(_QLINEAR) for each in graph.operators.values())


def _clamped(graph: OperatorGraph, other: OperatorGraph) -> Iterator[_Single]:
    """Yield each operator with its only reader, a clamp that the range of a quantised one replaces."""
    kept = {each.op_type for each in other.operators.values()}
    for operator in graph.operators.values():
        readers = graph.used_by(operator.full_name)
        if len(readers) == 1 and readers[0].op_type in _CLAMPS - kept:
            yield replace(operator, outputs=readers[0].outputs), (operator, readers[0])


def _integer_chains(graph: OperatorGraph) -> Iterator[_Single]:
    """Yield integer products with their scaling, and a convolution's bias."""
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
            op_type = canonical_type(operator.op_type)
            whole = replace(members[-1], op_type=op_type, inputs=operator.inputs[:2], onnx_names=())
            scales = (graph.operators.get(each.name) for each in members[2].inputs)
            made = (each for each in scales if each is not None and each.op_type == members[2].op_type)
            yield whole, (*made, *members)


def _adds_bias(graph: OperatorGraph, product: GraphOperator, add: GraphOperator) -> bool:
    if product.op_type != "ConvInteger":
        return False
    writers = (graph.operators.get(each.name) for each in add.inputs if each.kind is SourceKind.OPERATOR)
    return any(
        each is not None and each.op_type == "Reshape" and each.inputs[0].kind is SourceKind.WEIGHT
        for each in writers
    )
