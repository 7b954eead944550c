"""A graph as the matching sees it: operators by position, what each one reads and who reads it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
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
        digest: Hash over all of its elements, None where they are not known.
        count: Number of elements.
        norm: Euclidean norm.
        largest: Largest element.
        smallest: Smallest element.
    """

    digest: Hashable | None = None
    count: int = 0
    norm: float = math.nan
    largest: float = math.nan
    smallest: float = math.nan

    @property
    def is_telling(self) -> bool:
        """Whether many tensors cannot have the same content, as all that are zero have."""
        return self.count > 1 and self.largest != self.smallest

    def likeness(self, other: TensorContent) -> float | None:
        """Return 1 for equal elements, 0 for quite other ones, None where nothing can be said."""
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
    """Return the content of a tensor."""
    if array.dtype.kind not in "fiub" or not array.size:
        return TensorContent(digest(array), array.size)
    values = array.astype(np.float64, copy=False)
    norm = math.sqrt(float(np.vdot(values, values)))
    return TensorContent(digest(array), array.size, norm, float(values.max()), float(values.min()))


def digest(array: np.ndarray) -> Hashable:
    """Return a hash over the elements of a tensor that does not depend on their order.

    A weight that one exporter transposes has the digest of the other's; so has one that is rounded from
    float32 to float16, unless the two differ by rounding alone.

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
    """Return the places of equal elements in a shortest way from one sequence to the other, in order.

    Nothing comes back where the sequences have too little in common. (E. W. Myers, An O(ND) Difference
    Algorithm and Its Variations, 1986.)

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
    """Return how far one more change reaches in the first sequence: one element less, or one more."""
    is_added = diagonal == -changes or (
        diagonal != changes and furthest.get(diagonal - 1, -1) < furthest.get(diagonal + 1, -1)
    )
    return furthest[diagonal + 1] if is_added else furthest[diagonal - 1] + 1


def _way_back(steps: Sequence[dict[int, int]], place: int, other: int) -> Iterator[tuple[int, int]]:
    """Yield the places of equal elements on the way that was found, the last ones first."""
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

    A weight is known by its elements where they are telling, else by its name; a graph input by its name, or
    by its place among the inputs with names that the other side lacks.
    """
    return _Labels(mine, golden), _Labels(golden, mine)


class _Labels:
    """Gives the labels of one side."""

    def __init__(self, side: GraphSide, other: GraphSide) -> None:
        self._is_inferred = side.graph.is_inferred
        weights = _Weights(side), _Weights(other)
        self._labels: dict[tuple[SourceKind, str], Hashable] = {
            (SourceKind.WEIGHT, name): _weight_label(name, *weights) for name in side.graph.weights
        }
        others = other.graph.inputs
        own = [name for name in side.graph.inputs if name not in others]
        places = {name: place for place, name in enumerate(own)}
        self._labels |= {
            (SourceKind.INPUT, name): ("input", places.get(name, name)) for name in side.graph.inputs
        }
        self._constants = {
            source.name
            for operator in other.graph.operators.values()
            for source in operator.inputs
            if source.kind is SourceKind.CONSTANT
        }

    def __call__(self, source: ValueSource) -> Hashable:
        if source.kind is SourceKind.ABSENT:
            return UNTOLD if self._is_inferred else source.kind
        if source.kind is SourceKind.CONSTANT and source.name in self._constants:
            return ("constant", source.name)
        return self._labels.get((source.kind, source.name), UNKNOWN)


class _Weights:
    """The weights of a side, and hashes over their elements."""

    def __init__(self, side: GraphSide) -> None:
        self.forms = side.graph.weights
        self.digests = {name: side.digest_of(name) for name in self.forms}
        self.counts = Counter(self.digests.values())


READ_AT: Final = "/input"
"""Stands behind an operator's name, before a number, in what weights are called that no graph names."""


def weight_place(name: str) -> tuple[str, int] | None:
    """Return the operator and the number of its input by which a weight is called; None of other weights.

    >>> weight_place("Default/MatMul-op0/input1")
    ('Default/MatMul-op0', 1)
    """
    reader, mark, slot = name.rpartition(READ_AT)
    return (reader, int(slot)) if mark and slot.isdecimal() else None


def _weight_label(name: str, own: _Weights, other: _Weights) -> Hashable:
    digest = own.digests[name]
    has_name = name in other.forms and weight_place(name) is None  # the same place may be another weight's
    if has_name and digest == other.digests[name]:
        return ("name", name)
    if digest is not None and own.counts[digest] == other.counts[digest] == 1:
        return ("elements", digest)
    if has_name and own.forms[name].shape == other.forms[name].shape:
        return ("name", name)
    return ("elements", digest) if digest is not None and other.counts[digest] else UNKNOWN


def count_shared_weights(mine: GraphSide, golden: GraphSide) -> int:
    """Return how many weights two graphs have in common: with the same elements, or name and shape."""
    own, other = _Weights(mine), _Weights(golden)
    labels = {name: _weight_label(name, own, other) for name in own.forms}
    return sum(
        label != UNKNOWN and (label != ("name", name) or own.forms[name].shape == other.forms[name].shape)
        for name, label in labels.items()
    )


DigestOf = Callable[[str], Hashable | None]
"""Returns a hash over the elements of a weight, by its name; None where they are not known."""

ContentOf = Callable[[str, int], TensorContent | None]
"""Returns the summary of a dumped output, by the operator's full name and the output's number."""

WEIGHTS: Final = frozenset({"name", "elements"})
"""First part of the labels of weights: known by their name, or by their elements."""

CAST: Final = "Cast"


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
    "BiasAdd": "Add",
    "Conv": "Conv2D",
    "Conv1D": "Conv2D",  # elsewhere an image of one row
    "MaxPool1D": "MaxPool",
    "AvgPool1D": "AvgPool",
    "Relu": "ReLU",
    "AddExt": "Add",
}


@dataclass(frozen=True, slots=True)
class GraphSide:
    """One of the two graphs that are matched, and what is known beside it.

    Attributes:
        graph: The graph.
        digest_of: Returns a hash over the elements of a weight.
        content_of: Returns the summary of a dumped output.
        has_views: Whether operators that only give a tensor another shape count: a compiled graph has none.
    """

    graph: OperatorGraph
    digest_of: DigestOf = lambda _name: None
    content_of: ContentOf = lambda _name, _slot: None
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


_OF_MATRICES: Final = frozenset({"MatMul", "Dense", "Gemm"})


def may_be_transposed(op_type: str, io: IO) -> bool:
    """Tell whether one network may hold a tensor transposed beside another one's that computes the same.

    MindSpore's dense layers read their weights transposed, as an argument of the operator says; the operators
    of other exporters have no such argument.
    """
    return op_type == PARAMETER or (io is IO.INPUT and canonical_type(op_type) in _OF_MATRICES)


def kinds(name: str) -> tuple[str, ...]:
    """Return the types of operators in the name of one, of a fused one those of its parts.

    >>> kinds("Default_fc1-Dense_MatMul-op0BiasAdd-op0ReLU-op2")
    ('MatMul', 'BiasAdd', 'ReLU')
    """
    return tuple(part.rpartition("-op")[0].rpartition("-")[2] for part in joined_parts(name))


def part_types(operator: GraphOperator) -> tuple[str, ...]:
    """Return the types of the operators that a fused one was made of, as its name joins theirs.

    >>> part_types(GraphOperator("Default/Cast-op0ReLU-op1", "CastReLU"))
    ('Cast', 'ReLU')
    >>> part_types(GraphOperator("Default/relu-ReLU/ReLU-op1", "ReLU"))
    ('ReLU',)
    """
    types = kinds(operator.full_name)
    if "".join(types) != operator.op_type:  # it is called after one of its parts
        last = re.split(r"[/_]|-(?!op\d)", operator.full_name)[-1]
        types = kinds(last) if "".join(joined_parts(last)) == last else ()
    return types if len(types) > 1 else (operator.op_type,)


def joined_parts(name: str) -> list[str]:
    """Return the components ``{type}-op{number}`` that the name of a fused operator joins.

    Splits in place of a search, which takes time with the square of a name's length.

    >>> joined_parts("Default/relu-ReLU/Maximum-op0Div-op1")
    ['Maximum-op0', 'Div-op1']
    """
    *pieces, _ = _NUMBER.split(name)
    parts = zip(pieces[::2], pieces[1::2], strict=True)
    return [f"{last}{number}" for piece, number in parts if (last := re.split("[/_]", piece)[-1])]


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
    return op_type in ASKING


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


_CLAMPS: Final = frozenset({"ReLU", "ReLU6"})
INTEGER: Final = frozenset({"ConvInteger", "MatMulInteger"})
"""Operators that multiply integers, which others scale."""

_QLINEAR: Final = ("QLinear", "QGemm")


_Group = tuple[GraphOperator, tuple[GraphOperator, ...]]
"""What operators become, and the operators in the order of execution."""


def quantised_groups(graph: OperatorGraph, other: OperatorGraph) -> Iterator[_Group]:
    """Yield operators that stand for one operator of another graph, where one of the two may be quantised."""
    yield from _integer_chains(graph)
    if _has_ranges(other) and not _has_ranges(graph):
        yield from _clamped(graph, other)


def _has_ranges(graph: OperatorGraph) -> bool:
    """Tell whether operators of a graph write numbers of a range, beyond which they are cut off."""
    return any(each.op_type.startswith(_QLINEAR) for each in graph.operators.values())


def _clamped(graph: OperatorGraph, other: OperatorGraph) -> Iterator[_Group]:
    """Yield each operator with what clamps it alone, where the range of a quantised one does that as well."""
    kept = {each.op_type for each in other.operators.values()}
    for operator in graph.operators.values():
        readers = graph.used_by(operator.full_name)
        if len(readers) == 1 and readers[0].op_type in _CLAMPS - kept:
            yield replace(operator, outputs=readers[0].outputs), (operator, readers[0])


def _integer_chains(graph: OperatorGraph) -> Iterator[_Group]:
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
            op_type = canonical_type(operator.op_type)
            whole = replace(members[-1], op_type=op_type, inputs=operator.inputs[:2], onnx_names=())
            scales = (graph.operators.get(each.name) for each in members[2].inputs)
            made = (each for each in scales if each is not None and each.op_type == members[2].op_type)
            yield whole, (*made, *members)


def _adds_bias(graph: OperatorGraph, product: GraphOperator, add: GraphOperator) -> bool:
    """Tell whether an operator adds the bias of a convolution, which was brought into form."""
    if product.op_type != "ConvInteger":
        return False
    writers = (graph.operators.get(each.name) for each in add.inputs if each.kind is SourceKind.OPERATOR)
    return any(
        each is not None and each.op_type == "Reshape" and each.inputs[0].kind is SourceKind.WEIGHT
        for each in writers
    )


RADII: Final = (1, 2, 3)


_Palette = dict[Hashable, int]
"""Numbers of colours by their keys, which both graphs share."""


@dataclass(frozen=True, slots=True)
class Colouring:
    """A colour for each operator of both graphs.

    Attributes:
        mine: Colours by position in the first graph.
        golden: Colours by position in the second one.
        unique: The colours that one operator of either graph has.
    """

    mine: Sequence[int]
    golden: Sequence[int]
    unique: frozenset[int]

    def joins(self, mine: int, golden: int) -> bool:
        """Tell whether an operator of each graph have the same colour."""
        return self.mine[mine] == self.golden[golden]

    def is_unique(self, mine: int) -> bool:
        """Tell whether no other operator of either graph has the colour of an operator of the first one."""
        return self.mine[mine] in self.unique


@dataclass(frozen=True, slots=True)
class Colours:
    """All colourings of two graphs.

    ``before`` covers all operators that lead to one, ``behind`` all that follow it; where one operator was
    dropped, all operators before it keep the first colour and all behind it the second. Colours of a radius
    cover the neighbours alone, so that they stay equal between two changes.

    Attributes:
        before: By all that leads to an operator.
        behind: By all that follows it.
        around: By its neighbours up to each of ``RADII``.
    """

    before: Colouring
    behind: Colouring
    around: tuple[Colouring, ...]


def colours(mine: IndexedGraph, golden: IndexedGraph) -> Colours:
    """Return the colourings of two graphs."""
    palette: _Palette = {}
    around = zip(*(_around(graph, palette) for graph in (mine, golden)), strict=True)
    return Colours(
        _colouring(_before(mine, palette), _before(golden, palette)),
        _colouring(_behind(mine, palette), _behind(golden, palette)),
        tuple(_colouring(*each) for each in around),
    )


def _colouring(mine: Sequence[int], golden: Sequence[int]) -> Colouring:
    counts = Counter(mine), Counter(golden)
    return Colouring(
        mine, golden, frozenset(colour for colour in counts[0] if counts[0][colour] == counts[1][colour] == 1)
    )


def _number(palette: _Palette, *key: Hashable) -> int:
    return palette.setdefault(key, len(palette))


def _before(graph: IndexedGraph, palette: _Palette) -> list[int]:
    colours: list[int] = []
    for position, op_type in enumerate(graph.types):
        colours.append(_number(palette, "before", op_type, _read_colours(graph, position, colours)))
    return colours


def _behind(graph: IndexedGraph, palette: _Palette) -> list[int]:
    colours = [-1] * len(graph.operators)
    for position in reversed(range(len(colours))):
        key = _weight_labels(graph, position), _reader_colours(graph, position, colours)
        colours[position] = _number(palette, "behind", graph.types[position], *key)
    return colours


def _around(graph: IndexedGraph, palette: _Palette) -> list[list[int]]:
    """Return the colours of each radius."""
    colours = [
        _number(palette, "alone", op_type, _weight_labels(graph, position))
        for position, op_type in enumerate(graph.types)
    ]
    rounds = []
    for _ in RADII:
        colours = [
            _number(
                palette,
                "around",
                colour,
                _read_colours(graph, position, colours),
                _reader_colours(graph, position, colours),
            )
            for position, colour in enumerate(colours)
        ]
        rounds.append(colours)
    return rounds


def _read_colours(graph: IndexedGraph, position: int, colours: Sequence[int]) -> tuple[Hashable, ...]:
    """Return the colours of producers, and the labels of inputs that no operator writes."""
    # in a graph without an order a producer may stand behind its reader, and have no colour yet
    parts = [
        (colours[each.position] if each.position < len(colours) else -1, each.slot)
        if each.position >= 0
        else each.label
        for each in graph.producers[position]
    ]
    return _arranged(graph.types[position], parts)


def _reader_colours(graph: IndexedGraph, position: int, colours: Sequence[int]) -> tuple[Hashable, ...]:
    readers = [
        (
            colours[reader.position] if reader.position >= 0 else "output",
            place_of(graph, reader),
            reader.output,
        )
        for reader in graph.readers[position]
    ]
    return tuple(sorted(readers, key=str))


def _weight_labels(graph: IndexedGraph, position: int) -> tuple[Hashable, ...]:
    """Return what an operator reads beside other operators' outputs."""
    labels = [each.label for each in graph.producers[position] if each.position < 0]
    return _arranged(graph.types[position], labels)


def _arranged(op_type: str, parts: Sequence[Hashable]) -> tuple[Hashable, ...]:
    return tuple(sorted(parts, key=str)) if is_commutative(op_type) else tuple(parts)
