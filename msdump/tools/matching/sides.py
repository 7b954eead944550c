"""A graph as the matching sees it: operators by position, what each one reads and who reads it."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from msdump.device.tasks import is_view
from msdump.graph.primitives import GE_TYPES
from msdump.store.read.graphs.operator_graph import GraphOperator, OperatorGraph, SourceKind, ValueSource
from msdump.tools.matching.contents import TensorContent

DigestOf = Callable[[str], Hashable | None]
"""Gives what stands for the elements of a weight, by its name; None where they are not known."""

ContentOf = Callable[[str, int], TensorContent | None]
"""Gives what is known about the elements of a dumped output, by full name and number of the output."""

WEIGHTS: Final = frozenset({"name", "elements"})
"""First part of the labels of weights: known by their name, or by their elements."""

CAST: Final = "Cast"

_PART: Final = re.compile(r"([^/_\-]+?)-op\d+")
_JOINED: Final = re.compile(r"(?:[^/_\-]+?-op\d+)+$")
"""Components of names, as the name of a fused operator joins those of its parts."""

_PASSING: Final = frozenset(
    {
        "Identity",
        CAST,
        "TransData",
        "QuantizeLinear",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "StopGradient",
    }
)
"""Operators that another network may lack without computing something else."""

_ASKING: Final = frozenset({"TensorShape", "Shape", "Size"})
"""Operators that ask for the shape of a value: one exporter computes what another one knows."""

_COMMUTATIVE: Final = frozenset(
    {"Add", "BiasAdd", "Mul", "Maximum", "Minimum", "Equal", "LogicalAnd", "LogicalOr", "AddN"}
)
HOST_NAMES: Final = {other: name for name, other in GE_TYPES.items()}
"""Primitives that bear another name in a compiled graph, by that name."""

_VALUE_SLOTS: Final = {
    "QLinearConv": (0, 3, 8),
    "QLinearMatMul": (0, 3),
    "QLinearAdd": (0, 3),
    "QLinearMul": (0, 3),
    "QGemm": (0, 3, 6),
    "QLinearSigmoid": (0,),
    "QLinearSoftmax": (0,),
    "QLinearLeakyRelu": (0,),
    "QLinearGlobalAveragePool": (0,),
    "QLinearAveragePool": (0,),
}
"""Inputs of quantized operators that are no scales and zero points."""

_QUANTIZED: Final = re.compile(r"^(?:QLinear|Fused|Quant(?=[A-Z]))|(?:Integer|V\d|Ext)$")
_SAME: Final = {
    "QGemm": "Dense",
    "GlobalAveragePool": "AdaptiveAvgPool2D",
    "BatchMatMul": "MatMul",
    "BiasAdd": "Add",
    "Conv": "Conv2D",
    "Relu": "ReLU",
    "AddExt": "Add",
}


def no_digest(_name: str) -> None:
    """Know no elements of weights."""


def no_content(_name: str, _slot: int) -> None:
    """Know no elements of dumped outputs."""


@dataclass(frozen=True, slots=True)
class GraphSide:
    """One of the two graphs that are matched, and what is known beside it.

    Attributes:
        graph: The graph.
        digest_of: Gives what stands for the elements of its weights.
        content_of: Gives what is known about the elements of its dumped outputs.
        has_views: Whether operators that only give a tensor another shape count: a compiled graph has none.
    """

    graph: OperatorGraph
    digest_of: DigestOf = no_digest
    content_of: ContentOf = no_content
    has_views: bool = True


class Producer(NamedTuple):
    """What gives an operator an input, once operators that pass values on are looked through.

    Attributes:
        position: Position of the operator, -1 for everything else.
        slot: Number of its output.
        label: What a weight, graph input or constant is known by; equal on both sides for the same one.
    """

    position: int
    slot: int
    label: Hashable = None


def is_weight(producer: Producer) -> bool:
    """Tell whether an input is a weight that both sides are known to have."""
    return isinstance(producer.label, tuple) and producer.label[0] in WEIGHTS


class Reader(NamedTuple):
    """Who reads an output: position of the operator, number of its input, number of the output."""

    position: int
    slot: int
    output: int


@dataclass(slots=True)
class IndexedGraph:
    """The operators of a side by position.

    Attributes:
        side: The side.
        operators: Its operators.
        types: Their types, names of one operator in other worlds made equal.
        producers: What each one reads, by the number of the input; absent inputs at the end are left out.
        readers: Who reads the elements of its outputs; the graph itself is at position -1, its slot the
            number of the output.
        positions: Positions by full name.
    """

    side: GraphSide
    operators: list[GraphOperator] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    producers: list[tuple[Producer, ...]] = field(default_factory=list)
    readers: list[list[Reader]] = field(default_factory=list)
    positions: dict[str, int] = field(default_factory=dict)
    _ancestors: list[int] = field(default_factory=list)

    def leads_to(self, position: int, other: int) -> bool:
        """Tell whether what another operator reads is made, maybe through others, of this one's outputs.

        What a loop carries into its next pass does not count: whoever reads it stands before who wrote it.
        """
        if position >= other:
            return False
        if not self._ancestors:
            self._ancestors = _ancestors(self.producers)
        return bool(self._ancestors[other] >> position & 1)


def _ancestors(producers: Sequence[Sequence[Producer]]) -> list[int]:
    """Return for each operator a number whose bits are set at the positions of all that it depends on."""
    found: list[int] = []
    for position, sources in enumerate(producers):
        bits = 0
        for source in sources:
            if 0 <= source.position < position:
                bits |= 1 << source.position | found[source.position]
        found.append(bits)
    return found


@lru_cache(maxsize=1024)  # asked of every operator again and again
def canonical_type(op_type: str) -> str:
    """Return the type of an operator under the name that it has in all worlds.

    >>> canonical_type("RealDiv"), canonical_type("QLinearConv"), canonical_type("BatchMatMul")
    ('Div', 'Conv2D', 'MatMul')
    """
    name = _QUANTIZED.sub("", HOST_NAMES.get(op_type, op_type))
    return _SAME.get(name, name)


def kinds(name: str) -> tuple[str, ...]:
    """Return the types of operators in the name of one, of a fused one those of its parts.

    >>> kinds("Default_fc1-Dense_MatMul-op0BiasAdd-op0ReLU-op2")
    ('MatMul', 'BiasAdd', 'ReLU')
    """
    return tuple(_PART.findall(name))


def part_types(operator: GraphOperator) -> tuple[str, ...]:
    """Return the types of the operators that a fused one was made of, as its name joins theirs.

    >>> part_types(GraphOperator("Default/Cast-op0ReLU-op1", "CastReLU"))
    ('Cast', 'ReLU')
    >>> part_types(GraphOperator("Default/relu-ReLU/ReLU-op1", "ReLU"))
    ('ReLU',)
    """
    types = _PART.findall(operator.full_name)
    if "".join(types) != operator.op_type:  # it is called after one of its parts
        joined = _JOINED.search(operator.full_name)
        types = _PART.findall(joined[0]) if joined else []
    return tuple(types) if len(types) > 1 else (operator.op_type,)


def type_of(operator: GraphOperator) -> str:
    """Return the type of an operator under the name that it has in all worlds.

    A fused one may hold casts where another network computes in one type: its type tells of its other parts.

    >>> type_of(GraphOperator("Default/Cast-op0ReLU-op1", "CastReLU"))
    'ReLU'
    """
    types = part_types(operator)
    computing = "".join(each for each in types if each != CAST)
    return canonical_type(computing if computing and "".join(types) == operator.op_type else operator.op_type)


def is_commutative(op_type: str) -> bool:
    """Tell whether the inputs of a type may change places."""
    return op_type in _COMMUTATIVE


def asks(op_type: str) -> bool:
    """Tell whether an operator of this type reads no elements but asks for a shape."""
    return op_type in _ASKING


def passes_on(op_type: str) -> bool:
    """Tell whether an operator of this type is looked through."""
    return op_type in _PASSING


def has_views(graph: OperatorGraph) -> bool:
    """Tell whether a graph has operators that only give a tensor another shape."""
    return any(is_view(operator.op_type) for operator in graph.operators.values())


def place_of(graph: IndexedGraph, reader: Reader) -> int:
    """Return the number of the input that is read, -1 where the reader's inputs may change places."""
    return -1 if reader.position >= 0 and is_commutative(graph.types[reader.position]) else reader.slot


Labels = Callable[[ValueSource], Hashable]
"""Gives what a weight, graph input or constant is known by."""


def indexed(side: GraphSide, label_of: Labels) -> IndexedGraph:
    """Return the operators of a side by position.

    Args:
        side: The side.
        label_of: Gives what both sides know a weight, graph input or constant by.
    """
    graph = IndexedGraph(side)
    for position, operator in enumerate(side.graph.operators.values()):
        graph.operators.append(operator)
        graph.types.append(_type(operator))
        graph.positions[operator.full_name] = position
        graph.readers.append([])
    for position, operator in enumerate(graph.operators):
        sources = _read(operator) if side.graph.is_inferred else _trimmed(_read(operator))
        producers = tuple(_producer(graph, source, label_of) for source in sources)
        graph.producers.append(producers)
        for slot, producer in enumerate(producers):
            if producer.position >= 0 and not asks(graph.types[position]):
                graph.readers[producer.position].append(Reader(position, slot, producer.slot))
    for slot, source in enumerate(side.graph.outputs):
        producer = _producer(graph, source, label_of)
        if producer.position >= 0:
            graph.readers[producer.position].append(Reader(-1, slot, producer.slot))
    return graph


def _type(operator: GraphOperator) -> str:
    # a fused operator is called after one of its parts, and does more than that one
    joined = part_types(operator)
    named = 0 if "".join(joined) == operator.op_type else len([each for each in joined if each != CAST])
    parts = max(len(operator.onnx_names), named)
    return type_of(operator) + (f" of {parts} parts" if parts > 1 else "")


def _read(operator: GraphOperator) -> tuple[ValueSource, ...]:
    """Return the values that an operator computes with."""
    slots = _VALUE_SLOTS.get(operator.op_type)
    inputs = operator.inputs
    return inputs if slots is None else tuple(inputs[slot] for slot in slots if slot < len(inputs))


def _trimmed(inputs: tuple[ValueSource, ...]) -> tuple[ValueSource, ...]:
    """Return inputs without the absent ones at their end."""
    count = len(inputs)
    while count and inputs[count - 1].kind is SourceKind.ABSENT:
        count -= 1
    return inputs[:count]


def _producer(graph: IndexedGraph, source: ValueSource, label_of: Labels) -> Producer:
    for _ in graph.operators:  # a cycle, which no sound graph has, ends here
        position = graph.positions.get(source.name, -1) if source.kind is SourceKind.OPERATOR else -1
        if position < 0:
            return Producer(-1, 0, label_of(source))
        operator = graph.operators[position]
        is_passed = passes_on(operator.op_type) or (not graph.side.has_views and is_view(operator.op_type))
        if not (operator.inputs and is_passed):
            return Producer(position, source.slot)
        source = operator.inputs[0]
    return Producer(-1, 0, label_of(source))
