"""The sides of an alignment: graphs, contents of their tensors, labels of values, families of types.

A graph is united with the branches and loops that it runs, and directories are joined likewise.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Final

import numpy as np

from msdump.graph import CONVERTED_TYPES, GE_TYPES
from msdump.read import ABSENT, Folder, GraphOperator, OperatorGraph, SourceKind, ValueSource
from msdump.record import IO
from msdump.store import PARAMETER

INPUTS: Final = frozenset({PARAMETER, "Data"})
"""Types under which files list the inputs and weights of a graph as operators."""

_NUMBER: Final = re.compile(r"(-op\d+)")

LIKE: Final = 0.85
"""Likeness of two tensors from which on they may hold the same values, computed in other types."""
_NEAR: Final = 2e-2
"""Relative difference of two numbers that lower precision explains."""


@dataclass(frozen=True, slots=True)
class TensorContent:
    """Summary of a tensor that distinguishes it from others."""

    digest: Hashable | None = None  # hash over all of its elements, None if they are unknown
    count: int = 0  # number of elements
    norm: float = math.nan  # euclidean norm
    largest: float = math.nan
    smallest: float = math.nan

    @property
    def is_distinctive(self) -> bool:
        """Whether the content is distinctive: more than one element, and not all equal."""
        return self.count > 1 and self.largest != self.smallest

    def in_pairs(self, other: TensorContent) -> tuple[tuple[float, float], ...]:
        """Return (own, other) pairs of norm, maximum and minimum of two tensors."""
        return (self.norm, other.norm), (self.largest, other.largest), (self.smallest, other.smallest)

    def likeness(self, other: TensorContent) -> float | None:
        """Return 1 for equal elements, 0 for entirely different ones, None without statistics to compare."""
        if self.digest is not None and self.digest == other.digest:
            return 1.0
        if self.count != other.count:
            return 0.0
        known = [(one, two) for one, two in self.in_pairs(other) if math.isfinite(one) and math.isfinite(two)]
        if not known:
            return None
        scale = max(max(abs(one), abs(two)) for one, two in known[-2:])
        near = sum(abs(one - two) <= _NEAR * max(abs(one), abs(two), scale / 10) for one, two in known)
        return near / len(known) * 0.9


def of_statistics(
    cells: Mapping[str, object], shape: Sequence[int], digest: Hashable = None
) -> TensorContent:
    """Return the summary of a tensor by the norm and the extremes of a row of statistics."""
    found = (cells.get(each) for each in ("l2norm", "max", "min"))
    numbers = (float(each) if isinstance(each, int | float) else math.nan for each in found)
    return TensorContent(digest, math.prod(shape), *numbers)


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


def labels(mine: GraphSide, golden: GraphSide) -> tuple[LabelOf, LabelOf]:
    """Return the functions that label weights, graph inputs and constants of either side, None for unknown.

    Equal labels stand for the same thing. A weight is labelled by its elements where both sides know them,
    else by its name; a graph input by its name, or by its place among the inputs that the other side lacks.
    """
    return _labels(mine, golden), _labels(golden, mine)


def _labels(side: GraphSide, other: GraphSide) -> LabelOf:
    graph, beside = side.graph, other.graph
    places = {
        name: place for place, name in enumerate(each for each in graph.inputs if each not in beside.inputs)
    }
    are_weights = not (graph.separates_weights and beside.separates_weights)

    @cache
    def label(source: ValueSource) -> Hashable | None:
        name = source.name
        if source.kind is SourceKind.ABSENT:
            return "absent"
        if source.kind is SourceKind.CONSTANT:
            return _constant(name)
        is_input = source.kind is SourceKind.INPUT and name in graph.inputs
        if source.kind is SourceKind.WEIGHT or (is_input and are_weights):
            digest = side.digest_of(name)
            is_common = name in beside.weights or name in beside.inputs
            if digest is not None and not (is_common and other.digest_of(name) is None):
                return ("weight", digest)
            return ("name", name) if is_common else None
        return ("input", places.get(name, name)) if is_input else None

    return label


_TYPE: Final = re.compile(r"\b(?:Tensor\(shape=.*?\bvalue=|[A-Z][A-Za-z]*\d*(?=\())", re.DOTALL)
_BETWEEN: Final = re.compile(r"[\s(),\[\]]+")


def _constant(text: str) -> Hashable | None:
    """Return the label of a constant: its numbers, which systems write in several ways; None if not shown.

    >>> _constant("(I64(2), I64(3))") == _constant("Tensor(shape=[2], dtype=Int64, value=[2 3])")
    True
    """
    if "..." in text or text.endswith("value="):  # the elements are left out, or stand in further lines
        return None
    plain = _TYPE.sub(" ", text).lower().replace("true", "1").replace("false", "0")
    try:
        # graph files round floats to about six digits
        return ("constant", *(f"{float(each):.5g}" for each in _BETWEEN.split(plain) if each))
    except ValueError:
        return ("constant", text)


LabelOf = Callable[[ValueSource], Hashable | None]
"""Returns the label of a weight, graph input or constant."""

DigestOf = Callable[[str], Hashable | None]
"""Returns a hash over the elements of a weight, by its name; None if unknown."""

ContentOf = Callable[[str, int], TensorContent | None]
"""Returns the summary of a dumped output, by the operator's full name and the output's number."""

CAST: Final = "Cast"

FLOATS: Final = frozenset({"float16", "bfloat16", "float32", "float64"})
"""Types of real numbers in graph files."""

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
    """A graph to align, and access to the contents of its dumped tensors."""

    graph: OperatorGraph
    digest_of: DigestOf = lambda _name: None
    content_of: ContentOf = lambda _name, _slot: None


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


CLAMPS: Final = frozenset({"ReLU", "ReLU6"})
"""Operators that the range of quantised numbers may stand for."""


def lost_clamps(op_types: Iterable[str], beside: Iterable[str]) -> frozenset[str]:
    """Return the clamps among operators that a quantised graph beside them has as ranges of its integers."""
    kinds, others = {*op_types}, {*beside}
    is_clamped = is_quantised(others) and not is_quantised(kinds)
    return (CLAMPS & kinds) - others if is_clamped else frozenset()


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


_LOOP: Final = "Loop"


def graphs_run_by(graph: OperatorGraph, others: Mapping[str, OperatorGraph]) -> dict[str, OperatorGraph]:
    """Return the other graphs that are branches and loops of a graph, nested ones too, by their keys."""
    found: dict[str, OperatorGraph] = {}
    around = [graph]
    while around:
        callers = around.pop().operators
        inside = {name: each for name, each in others.items() if each.caller in callers and name not in found}
        found |= inside
        around += inside.values()
    return found


def join_folders(folder: Folder, inner: Iterable[Folder]) -> Folder:
    """Return a directory with the files of others added, in the order in which the operators ran."""
    operators = dict(folder.operators)
    for each in inner:
        # inputs and weights have a file in the directory of each graph that reads them
        operators |= {name: files for name, files in each.operators.items() if name not in operators}
    ordered = sorted(operators.items(), key=lambda item: item[1][-1].timestamp)
    return replace(folder, operators=dict(ordered))


def unite_graphs(graphs: Sequence[OperatorGraph], *, has_calls: bool = True) -> OperatorGraph:
    """Merge the graphs of a network into one, with branches and loop bodies inlined for their operators.

    An inlined input has its source in the first pass of the loop, and a result its source in the last pass;
    both are marked ``varies``, since other passes read other values. MindSpore's own files do not record the
    caller of a graph: the inputs of the graph are unknown then.

    Args:
        graphs: The graphs in the order of their numbers; the first one is a main graph.
        has_calls: Whether control flow operators are followed. If not, they are dropped, and values that pass
            between graphs are unknown: one network divided into graphs in two ways then looks alike.
    """
    first, *others = graphs if has_calls else map(_without_calls, graphs)
    inside = graphs_run_by(first, {str(each.number): each for each in others})
    beside = (_without_borders(each) for each in others if str(each.number) not in inside)
    return _merged([_inlined(first, inside.values()) if inside else first, *beside])


def _inlined(graph: OperatorGraph, inner: Iterable[OperatorGraph]) -> OperatorGraph:
    inlining = _Inlining({each.number: each for each in (graph, *inner)})
    operators = {each.full_name: each for each in inlining.operators(graph)}
    weights = {name: form for each in inlining.graphs.values() for name, form in each.weights.items()}
    outputs = tuple(inlining.source(graph, each) for each in graph.outputs)
    return replace(graph, operators=operators, weights=weights, outputs=outputs)


def _without_calls(graph: OperatorGraph) -> OperatorGraph:
    calls = frozenset(name for name, each in graph.operators.items() if each.bodies)
    operators = {name: each for name, each in graph.operators.items() if name not in calls}
    return _untold(
        replace(graph, operators=operators),
        lambda source: source.kind is SourceKind.OPERATOR and source.name in calls,
    )


def _without_borders(graph: OperatorGraph) -> OperatorGraph:
    """Return a graph without its inputs, with unknown sources instead: their names are local to the graph."""
    return _untold(replace(graph, inputs={}), lambda source: source.kind is SourceKind.INPUT)


def _untold(graph: OperatorGraph, is_untold: Callable[[ValueSource], bool]) -> OperatorGraph:
    return graph.with_sources(lambda source: replace(ABSENT, varies=True) if is_untold(source) else source)


def _merged(graphs: Sequence[OperatorGraph]) -> OperatorGraph:
    first, *others = graphs
    return replace(
        first,
        operators={name: each for graph in graphs for name, each in graph.operators.items()},
        inputs={name: form for graph in (*others, first) for name, form in graph.inputs.items()},
        weights={name: form for graph in (*others, first) for name, form in graph.weights.items()},
        outputs=tuple(source for graph in graphs for source in graph.outputs),
    )


@dataclass(frozen=True, slots=True)
class _Inlining:
    graphs: Mapping[int, OperatorGraph]

    def operators(self, graph: OperatorGraph) -> Iterator[GraphOperator]:
        for operator in graph.operators.values():
            bodies = self._bodies(operator)
            for body in bodies:
                yield from self.operators(body)
            if not bodies:
                yield replace(operator, inputs=tuple(self.source(graph, each) for each in operator.inputs))

    def source(self, graph: OperatorGraph, source: ValueSource) -> ValueSource:
        """Return the source of a value that an operator reads, followed through control flow."""
        if source.kind is SourceKind.INPUT and graph.caller:
            return self._from_outside(graph, source)
        operator = graph.operators.get(source.name) if source.kind is SourceKind.OPERATOR else None
        bodies = [] if operator is None else self._bodies(operator)
        if operator is None or not bodies:
            return source
        slot = source.slot + (operator.op_type == _LOOP)  # output 0 of a body is the loop's condition
        if len(bodies) > 1 or slot >= len(bodies[0].outputs):
            return replace(ABSENT, varies=True)
        return replace(self.source(bodies[0], bodies[0].outputs[slot]), varies=True)

    def _from_outside(self, graph: OperatorGraph, source: ValueSource) -> ValueSource:
        """Return the source of a value that a branch or body reads from the graph around it."""
        outer = next(each for each in self.graphs.values() if graph.caller in each.operators)
        caller = outer.operators[graph.caller]
        place = [*graph.inputs].index(source.name) if source.name in graph.inputs else 0
        captured = (each for each in caller.inputs if _is_called(each, outer, source.name))
        found = next(captured, None)
        if found is None and caller.op_type == _LOOP and 0 < place < len(caller.inputs):
            found = caller.inputs[place]
        return replace(ABSENT if found is None else self.source(outer, found), varies=True)

    def _bodies(self, operator: GraphOperator) -> list[OperatorGraph]:
        return [self.graphs[number] for number in operator.bodies.values() if number in self.graphs]


def _is_called(source: ValueSource, graph: OperatorGraph, name: str) -> bool:
    operator = graph.operators.get(source.name) if source.kind is SourceKind.OPERATOR else None
    called = source.name if operator is None else operator.label
    return called == name and not source.slot
