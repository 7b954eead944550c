"""A graph as the alignment sees it: operators by position, with their producers and readers."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from msdump.device import is_view
from msdump.graph import CONVERTED_TYPES, GE_TYPES
from msdump.read import ASKING, GraphOperator, OperatorGraph, SourceKind, ValueSource
from msdump.record import IO
from msdump.store import PARAMETER

INPUTS: Final = frozenset({PARAMETER, "Data"})
"""Types under which files list the inputs and weights of a graph as operators."""

_NUMBER: Final = re.compile(r"(-op\d+)")
_NEAR: Final = 2e-2
"""Relative difference of two numbers that lower precision explains."""


@dataclass(frozen=True, slots=True)
class TensorContent:
    """Summary of a tensor that distinguishes it from others.

    Attributes:
        digest: Hash over all of its elements, None if they are unknown.
        count: Number of elements.
        norm: Euclidean norm.
    """

    digest: Hashable | None = None
    count: int = 0
    norm: float = math.nan
    largest: float = math.nan
    smallest: float = math.nan

    @property
    def is_telling(self) -> bool:
        """Whether the content is distinctive: more than one element, and not all equal."""
        return self.count > 1 and self.largest != self.smallest

    def likeness(self, other: TensorContent) -> float | None:
        """Return 1 for equal elements, 0 for entirely different ones, None without statistics to compare."""
        if self.digest is not None and self.digest == other.digest:
            return 1.0
        if self.count != other.count:
            return 0.0
        pairs = (
            (self.norm, other.norm),
            (self.largest, other.largest),
            (self.smallest, other.smallest),
        )
        known = [(one, two) for one, two in pairs if math.isfinite(one) and math.isfinite(two)]
        if not known:
            return None
        scale = max(max(abs(one), abs(two)) for one, two in known[-2:])
        near = sum(abs(one - two) <= _NEAR * max(abs(one), abs(two), scale / 10) for one, two in known)
        return near / len(known) * 0.9


def of_array(array: np.ndarray) -> TensorContent:
    """Return the summary of an array's elements."""
    if array.dtype.kind not in "fiub" or not array.size:
        return TensorContent(digest(array), array.size)
    values = array.astype(np.float64, copy=False)
    norm = math.sqrt(float(np.vdot(values, values)))
    return TensorContent(digest(array), array.size, norm, float(values.max()), float(values.min()))


def digest(array: np.ndarray) -> Hashable:
    """Return a hash over the elements of a tensor that does not depend on their order.

    A transposed weight has the same digest, and so has one that is rounded from float32 to float16.

    >>> weight = np.arange(6, dtype=np.float32).reshape(2, 3)
    >>> digest(weight) == digest(weight.T), digest(weight) == digest(weight + 1)
    (True, False)
    """
    if array.dtype.kind not in "fiubV" or array.dtype.names:
        return (array.dtype.str, array.shape, str(array.tolist()) if array.size <= _FEW else "")
    if array.dtype.kind in "fV":
        with np.errstate(over="ignore", invalid="ignore"):
            bits = array.astype(np.float16).view(np.uint16)
    else:
        bits = array
    numbers = np.ascontiguousarray(bits).reshape(-1).astype(np.uint64)
    return (array.size, int(numbers.sum()), int((numbers * (numbers + np.uint64(0x9E3779B97F4A7C15))).sum()))


_FEW: Final = 1024


_MOST_CHANGES: Final = 400
"""Sequences that differ in more elements are not aligned: time and memory grow with its square."""


def aligned(mine: Sequence[Hashable], golden: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return the places of equal elements in a shortest edit script between two sequences, in order.

    Empty where the sequences have too little in common. (E. W. Myers, An O(ND) Difference Algorithm and Its
    Variations, 1986.)

    >>> aligned("conv add relu".split(), "conv relu".split())
    [(0, 0), (2, 1)]
    """
    size = len(mine), len(golden)
    if abs(size[0] - size[1]) > _MOST_CHANGES:
        return []
    furthest = {1: 0}
    steps: list[dict[int, int]] = []
    for changes in range(min(sum(size), _MOST_CHANGES) + 1):
        steps.append(dict(furthest))
        for diagonal in range(-changes, changes + 1, 2):
            place = _start(furthest, diagonal, changes)
            other = place - diagonal
            while place < size[0] and other < size[1] and mine[place] == golden[other]:
                place, other = place + 1, other + 1
            furthest[diagonal] = place
            if place >= size[0] and other >= size[1]:
                return list(_way_back(steps, *size))[::-1]
    return []


def _start(furthest: dict[int, int], diagonal: int, changes: int) -> int:
    """Return the furthest place on a diagonal of Myers' edit graph after one more deletion or insertion."""
    is_added = diagonal == -changes or (
        diagonal != changes and furthest.get(diagonal - 1, -1) < furthest.get(diagonal + 1, -1)
    )
    return furthest[diagonal + 1] if is_added else furthest[diagonal - 1] + 1


def _way_back(steps: Sequence[dict[int, int]], place: int, other: int) -> Iterator[tuple[int, int]]:
    for changes in range(len(steps) - 1, -1, -1):
        furthest, diagonal = steps[changes], place - other
        start = _start(furthest, diagonal, changes) if changes else 0
        begin = start, start - diagonal
        while place > begin[0] and other > begin[1]:
            place, other = place - 1, other - 1
            yield place, other
        is_added = changes and start == furthest.get(diagonal + 1)
        place, other = (begin[0], begin[1] - 1) if is_added else (begin[0] - 1, begin[1])


UNKNOWN: Final = ("value",)
"""Label of a weight or constant of which the other side has none, or none that is known to be the same."""

UNTOLD: Final = ("untold",)
"""Label of an input of unknown origin: an operator may have written it, and it may be a weight."""


def labels(mine: GraphSide, golden: GraphSide) -> tuple[Labels, Labels]:
    """Return the functions that label weights, graph inputs and constants of either side.

    A weight is labelled by its elements if they are distinctive, else by its name; a graph input by its
    name, or by its place among the inputs of which the other side lacks the name.
    """
    own, other = weight_labels(mine, golden)
    return _labels(mine.graph, golden.graph, own), _labels(golden.graph, mine.graph, other)


def _labels(graph: OperatorGraph, other: OperatorGraph, weights: Mapping[str, Hashable]) -> Labels:
    places = {
        name: place for place, name in enumerate(each for each in graph.inputs if each not in other.inputs)
    }
    operators = other.operators.values()
    constants = {
        each.name for operator in operators for each in operator.inputs if each.kind is SourceKind.CONSTANT
    }

    def label(source: ValueSource) -> Hashable:
        name = source.name
        if source.kind is SourceKind.ABSENT:
            return UNTOLD if graph.is_inferred else source.kind
        if source.kind is SourceKind.CONSTANT and name in constants:
            return ("constant", name)
        if source.kind is SourceKind.INPUT and name in graph.inputs:
            return ("input", places.get(name, name))
        return weights.get(name, UNKNOWN) if source.kind is SourceKind.WEIGHT else UNKNOWN

    return label


READ_AT: Final = "/input"
"""Separates operator and input number in the name of a weight that no graph names."""


def weight_place(name: str) -> tuple[str, int] | None:
    """Return operator and input number from the name of an inferred weight; None for any other name.

    >>> weight_place("Default/MatMul-op0/input1")
    ('Default/MatMul-op0', 1)
    """
    reader, mark, slot = name.rpartition(READ_AT)
    return (reader, int(slot)) if mark and slot.isdecimal() else None


def weight_labels(mine: GraphSide, golden: GraphSide) -> tuple[dict[str, Hashable], dict[str, Hashable]]:
    """Return the labels of the weights of both sides, by name; equal on both sides for the same weight."""
    digests, golden_digests = (
        {name: side.digest_of(name) for name in side.graph.weights} for side in (mine, golden)
    )
    counts, golden_counts = Counter(digests.values()), Counter(golden_digests.values())
    forms, golden_forms = mine.graph.weights, golden.graph.weights

    def label(
        name: str, own: Mapping[str, Hashable | None], other: Mapping[str, Hashable | None]
    ) -> Hashable:
        digest = own[name]
        has_name = name in other and weight_place(name) is None  # a place may hold another weight
        if has_name and digest == other[name]:
            return ("name", name)
        if digest is not None and counts[digest] == golden_counts[digest] == 1:
            return ("elements", digest)
        if has_name and forms[name].shape == golden_forms[name].shape:
            return ("name", name)
        is_shared = digest is not None and counts[digest] and golden_counts[digest]
        return ("elements", digest) if is_shared else UNKNOWN

    return (
        {name: label(name, digests, golden_digests) for name in digests},
        {name: label(name, golden_digests, digests) for name in golden_digests},
    )


def count_shared_weights(mine: GraphSide, golden: GraphSide) -> int:
    """Return how many weights two graphs have in common: with the same elements, or name and shape."""
    forms, others = mine.graph.weights, golden.graph.weights
    return sum(
        label != UNKNOWN and (label != ("name", name) or forms[name].shape == others[name].shape)
        for name, label in weight_labels(mine, golden)[0].items()
    )


DigestOf = Callable[[str], Hashable | None]
"""Returns a hash over the elements of a weight, by its name; None if unknown."""

ContentOf = Callable[[str, int], TensorContent | None]
"""Returns the summary of a dumped output, by the operator's full name and the output's number."""

CAST: Final = "Cast"

INTEGER: Final = frozenset({"ConvInteger", "MatMulInteger"})
"""Operators that multiply integers, which others scale."""


_PASSING: Final = frozenset(
    {"Identity", CAST, "TransData", "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"}
    | {"StopGradient"}
)
"""Operators that another network may lack without computing something else."""

_COMMUTATIVE: Final = frozenset(
    {"Add", "BiasAdd", "Mul", "Maximum", "Minimum", "Equal", "LogicalAnd", "LogicalOr", "AddN"}
)
HOST_NAMES: Final = {other: name for name, other in {**GE_TYPES, **CONVERTED_TYPES}.items()}
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
    "MatMulNBits": "MatMul",
    "BiasAdd": "Add",
    "Conv": "Conv2D",
    "Conv1D": "Conv2D",  # other compilers use Conv2D on an image of one row
    "MaxPool1D": "MaxPool",
    "AvgPool1D": "AvgPool",
    "Relu": "ReLU",
    "AddExt": "Add",
}


@dataclass(frozen=True, slots=True)
class GraphSide:
    """A graph to align, and access to the contents of its dumped tensors.

    Attributes:
        graph: The graph.
        digest_of: Returns a hash over the elements of a weight.
        content_of: Returns the summary of a dumped output.
        has_views: Whether reshapes count as operators: a compiled graph has none.
    """

    graph: OperatorGraph
    digest_of: DigestOf = lambda _name: None
    content_of: ContentOf = lambda _name, _slot: None
    has_views: bool = True


class Producer(NamedTuple):
    """The source of an input; operators in between that only pass values on are skipped.

    Attributes:
        position: Position of the operator, -1 for everything else.
        slot: Number of its output.
        label: Label of a weight, graph input or constant; equal on both sides for the same one.
    """

    position: int
    slot: int
    label: Hashable = None


def is_weight(producer: Producer) -> bool:
    """Return whether an input is a weight that both sides have."""
    return isinstance(producer.label, tuple) and producer.label[0] in {"name", "elements"}


class Reader(NamedTuple):
    """A reader of an output: position of the operator, number of its input, number of the output."""

    position: int
    slot: int
    output: int


@dataclass(slots=True)
class IndexedGraph:
    """The operators of a side by position.

    Attributes:
        side: The side.
        operators: Its operators.
        types: Canonical type of each operator, with the number of parts if it is fused.
        producers: Producers of each operator's inputs, without absent inputs at the end.
        readers: Readers of the elements of each operator's outputs. The graph itself as a reader has position
            -1, and the number of the graph output as slot.
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
        """Return whether the second operator depends on the first one, within one pass of a loop."""
        if position >= other:
            return False
        if not self._ancestors:
            self._ancestors = _ancestors(self.producers)
        return bool(self._ancestors[other] >> position & 1)


def _ancestors(producers: Sequence[Sequence[Producer]]) -> list[int]:
    """Return for each operator a bit set of the positions that it depends on."""
    found: list[int] = []
    for position, sources in enumerate(producers):
        bits = 0
        for source in sources:
            if 0 <= source.position < position:
                bits |= 1 << source.position | found[source.position]
        found.append(bits)
    return found


@lru_cache(maxsize=1024)  # called several times for every operator
def canonical_type(op_type: str) -> str:
    """Return an operator type under one name for MindSpore, GE and quantised ONNX.

    >>> canonical_type("RealDiv"), canonical_type("QLinearConv"), canonical_type("BatchMatMul")
    ('Div', 'Conv2D', 'MatMul')
    """
    name = _QUANTIZED.sub("", HOST_NAMES.get(op_type, op_type))
    return _SAME.get(name, name)


_QUANTISED_WORDS: Final = ("quant", "qlinear", "qgemm", "integer", "nbits")
"""Parts of the types of quantised operators, in lower case."""


def is_quantised(op_types: Iterable[str]) -> bool:
    """Return whether one of some operators computes with quantised numbers."""
    return any(word in op_type.lower() for op_type in op_types for word in _QUANTISED_WORDS)


_OF_MATRICES: Final = frozenset({"MatMul", "Dense", "Gemm"})


def may_be_transposed(op_type: str, io: IO) -> bool:
    """Return whether exporters may store a tensor of an operator transposed.

    MindSpore's dense layers have an argument to read a weight transposed; other exporters' operators have
    none, and store the transposed weight.
    """
    return op_type == PARAMETER or (io is IO.INPUT and canonical_type(op_type) in _OF_MATRICES)


def kinds(name: str) -> tuple[str, ...]:
    """Return the operator type in a name, or the types of the parts that a fused operator's name joins.

    >>> kinds("Default_fc1-Dense_MatMul-op0BiasAdd-op0ReLU-op2")
    ('MatMul', 'BiasAdd', 'ReLU')
    """
    return tuple(part.rpartition("-op")[0].rpartition("-")[2] for part in joined_parts(name))


def part_types(operator: GraphOperator) -> tuple[str, ...]:
    """Return the types of a fused operator's parts; of any other operator its own.

    >>> part_types(GraphOperator("Default/Cast-op0ReLU-op1", "CastReLU"))
    ('Cast', 'ReLU')
    >>> part_types(GraphOperator("Default/relu-ReLU/ReLU-op1", "ReLU"))
    ('ReLU',)
    """
    types = kinds(operator.full_name)
    if "".join(types) != operator.op_type:  # the name may have one part, the type several
        last = re.split(r"[/_]|-(?!op\d)", operator.full_name)[-1]
        types = kinds(last) if "".join(joined_parts(last)) == last else ()
    return types if len(types) > 1 else (operator.op_type,)


def joined_parts(name: str) -> list[str]:
    """Return the components ``{type}-op{number}`` that the name of a fused operator joins.

    Splits the name instead of searching a pattern, which would take quadratic time.

    >>> joined_parts("Default/relu-ReLU/Maximum-op0Div-op1")
    ['Maximum-op0', 'Div-op1']
    """
    *pieces, _ = _NUMBER.split(name)
    parts = zip(pieces[::2], pieces[1::2], strict=True)
    return [f"{last}{number}" for piece, number in parts if (last := re.split("[/_]", piece)[-1])]


def type_of(operator: GraphOperator) -> str:
    """Return an operator's canonical type; of a fused one without its casts.

    >>> type_of(GraphOperator("Default/Cast-op0ReLU-op1", "CastReLU"))
    'ReLU'
    """
    types = part_types(operator)
    computing = "".join(each for each in types if each != CAST)
    return canonical_type(computing if computing and "".join(types) == operator.op_type else operator.op_type)


def is_commutative(op_type: str) -> bool:
    """Return whether the inputs of a type may change places."""
    return op_type in _COMMUTATIVE


def passes_on(op_type: str) -> bool:
    """Return whether operators of a type only pass values on, so that the alignment skips them."""
    return op_type in _PASSING


def has_views(graph: OperatorGraph) -> bool:
    """Return whether a graph has operators that only reshape a tensor."""
    return any(is_view(operator.op_type) for operator in graph.operators.values())


def place_of(graph: IndexedGraph, reader: Reader) -> int:
    """Return the number of the input that is read, -1 if the reader is commutative."""
    return -1 if reader.position >= 0 and is_commutative(graph.types[reader.position]) else reader.slot


Labels = Callable[[ValueSource], Hashable]
"""Returns the label of a weight, graph input or constant."""


def indexed(side: GraphSide, label_of: Labels) -> IndexedGraph:
    """Return the operators of a side by position, with labels for the values that no operator writes."""
    graph = IndexedGraph(side)
    for position, operator in enumerate(side.graph.operators.values()):
        graph.operators.append(operator)
        graph.types.append(_type(operator))
        graph.positions[operator.full_name] = position
        graph.readers.append([])
    for position, operator in enumerate(graph.operators):
        sources = _read(operator)
        while sources and not side.graph.is_inferred and sources[-1].kind is SourceKind.ABSENT:
            sources = sources[:-1]
        graph.producers.append(tuple(_producer(graph, source, label_of) for source in sources))
        for slot, producer in enumerate(graph.producers[-1]):
            if producer.position >= 0 and graph.types[position] not in ASKING:
                graph.readers[producer.position].append(Reader(position, slot, producer.slot))
    for slot, source in enumerate(side.graph.outputs):
        producer = _producer(graph, source, label_of)
        if producer.position >= 0:
            graph.readers[producer.position].append(Reader(-1, slot, producer.slot))
    return graph


def _type(operator: GraphOperator) -> str:
    # the number of parts distinguishes a fused operator from the single operator with its type's name
    joined = part_types(operator)
    named = 0 if "".join(joined) == operator.op_type else len([each for each in joined if each != CAST])
    parts = max(len(operator.onnx_names), named)
    return type_of(operator) + (f" of {parts} parts" if parts > 1 else "")


def _read(operator: GraphOperator) -> tuple[ValueSource, ...]:
    """Return the inputs of an operator without scales and zero points."""
    slots = _VALUE_SLOTS.get(operator.op_type)
    inputs = operator.inputs
    return inputs if slots is None else tuple(inputs[slot] for slot in slots if slot < len(inputs))


def _producer(graph: IndexedGraph, source: ValueSource, label_of: Labels) -> Producer:
    for _ in graph.operators:  # bounded, as an invalid graph may have a cycle
        position = graph.positions.get(source.name, -1) if source.kind is SourceKind.OPERATOR else -1
        if position < 0:
            return Producer(-1, 0, label_of(source))
        operator = graph.operators[position]
        is_passed = passes_on(operator.op_type) or (not graph.side.has_views and is_view(operator.op_type))
        if not (operator.inputs and is_passed):
            return Producer(position, source.slot)
        source = operator.inputs[0]
    return Producer(-1, 0, label_of(source))
