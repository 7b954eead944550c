"""Recipes of made-up inputs: sizes and elements that the operators behind an input accept."""

from __future__ import annotations

import ast
import logging
import math
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from msdump.dtypes import STRING, DType
from msdump.errors import InputError, name_hint
from msdump.graph import (
    MINDSPORE_DOMAIN,
    Graph,
    Node,
    OperatorKind,
    Value,
    dimension_name,
    fits_sizes,
    operators_of,
)

_MICROSOFT: Final = "com.microsoft"

_SEQUENCES: Final = (8, 64, 512, 4096, 1)
"""Sizes of a sequence or another dimension without a role; the first that fits the model is taken."""

_IMAGES: Final = (64, 224, 256, 320, 336, 384, 448, 512, 640, 32, 1)
"""Heights and widths of images; the first that fits the model is taken."""

_IMAGE_RANK: Final = 4
_SERIES_RANK: Final = 3
_COLOURS: Final = (1, 3)

_PASSED: Final = {
    **dict.fromkeys(operators_of(OperatorKind.VIEW) | {"Cast", "Transpose", "Slice", "Expand"}, (0,)),
    **dict.fromkeys(("Tile", "Split", "Gather", "Clip", "Pad"), (0,)),
    "Where": (1, 2),
    "Concat": None,
}
"""Slots of the inputs with the elements of the outputs, by operator; None: all slots."""

_TABLES: Final[Mapping[tuple[str, str], tuple[tuple[int, int, str], ...]]] = {
    ("", "Gather"): ((1, 0, "axis"),),
    ("", "GatherElements"): ((1, 0, "axis"),),
    ("", "ScatterElements"): ((1, 0, "axis"),),
    (_MICROSOFT, "GatherBlockQuantized"): ((1, 0, "gather_axis"),),
    (_MICROSOFT, "EmbedLayerNormalization"): ((0, 2, ""), (1, 4, "")),
    (_MICROSOFT, "RotaryEmbedding"): ((1, 2, ""),),
}
"""By operator: the slot of the indices, the slot of the table, and the attribute with the table's axis."""

_CLASS_AXES: Final = {
    (MINDSPORE_DOMAIN, "SparseSoftmaxCrossEntropyWithLogits"): -1,
    ("", "SoftmaxCrossEntropyLoss"): 1,
    ("", "NegativeLogLikelihoodLoss"): 1,
}
"""Losses of logits and class indices, and the axis of the logits that counts the classes."""

_MASKS: Final = {
    (_MICROSOFT, "Attention"): 3,
    (_MICROSOFT, "MultiHeadAttention"): 4,
    (_MICROSOFT, "EmbedLayerNormalization"): 7,
}
"""Slots of masks, by operator."""

_ATTENTION: Final = (_MICROSOFT, "GroupQueryAttention")
_RECURRENT: Final = frozenset({("", "LSTM"), ("", "GRU"), ("", "RNN")})
_LENGTHS_SLOT: Final = 4  # of a recurrent operator

Sizes = Mapping[str, int]
Shape = tuple[int, ...]

_log = logging.getLogger("msdump.judge")


@dataclass(frozen=True, slots=True)
class Recipe:
    """The recipe of one made-up input.

    Attributes:
        name: Name of the input.
        type: Type of its elements.
        shape: Its shape.
        how: Its elements in words.
        is_chosen: Whether the model's operators or a dynamic dimension decided about it.
        fill: The value of all elements; None: they differ.
        below: The indices are random from 0 to below this number; None: no indices.
        counts: Whether the elements count from 0 along the last axis.
    """

    name: str
    type: DType
    shape: Shape
    how: str
    is_chosen: bool = False
    fill: int | None = None
    below: int | None = None
    counts: bool = False

    @property
    def dtype(self) -> str:
        """Name of the type of its elements."""
        return self.type.name


MOST_DIMENSIONS: Final = 64
_RANDOM_BYTES: Final = 8  # per element while drawing: numpy draws float64 or int64

FROM_PYTHON: Final = {
    "sequence": "msdump.load(model)(input_name=[array, ...])",
    "map": "msdump.load(model)(input_name={key: value, ...})",
}
"""Calls in Python with inputs that no .npz file holds, by kind."""


def recipes_of(graph: Graph, given: Sizes) -> tuple[Recipe, ...]:
    """Return the recipes of the inputs of a network in their order; optional inputs have none.

    Raises:
        InputError: An input declares no type or shape, or is a sequence or a map; no input has one of the
            dimensions.
    """
    sizes = sizes_of(graph, given)
    roles, made = _Roles(graph, sizes), []
    for value in graph.inputs:
        declared, kind = value.type, value.type.kind
        if kind == "optional":
            continue
        fault = f"{graph.source}: input {value.name!r}"
        if kind != "tensor" or declared.dtype is None or declared.shape is None:
            what = f"is a {kind}" if kind not in {"", "tensor"} else "declares no type and shape"
            remedy = "give it with --inputs, or run the network from Python"
            if kind in FROM_PYTHON:
                remedy = f"run the network from Python: {FROM_PYTHON[kind]}"
            raise InputError(f"{fault} {what} and cannot be made up; {remedy}")
        shape = tuple(
            size if isinstance(size, int) else sizes[dimension_name(value.name, axis, size)]
            for axis, size in enumerate(declared.shape)
        )
        fault += f" of shape {shape!s:.80} cannot be made up"
        if len(shape) > MOST_DIMENSIONS:
            raise InputError(f"{fault}: {len(shape)} dimensions, numpy has at most {MOST_DIMENSIONS}")
        if min(shape, default=0) < 0:
            raise InputError(f"{fault}: sizes begin at 0")
        # Refused here, because Linux grants the memory and kills the process once it is used.
        if not is_array(shape, _RANDOM_BYTES):
            needed = math.prod(shape) * _RANDOM_BYTES
            raise InputError(
                f"{fault}: that takes {needed:,} bytes, the machine has {_memory():,}; give --inputs"
            )
        made.append(roles.recipe(value, shape))
    return tuple(made)


def is_array(shape: Sequence[int], item_bytes: int) -> bool:
    """Return whether this machine can hold an array of a shape, its elements of so many bytes."""
    # numpy refuses too large shapes even if a size of 0 makes the array empty
    count = math.prod(size for size in shape if size)
    return len(shape) <= MOST_DIMENSIONS and count * item_bytes <= _memory()


def _memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def sizes_of(graph: Graph, given: Sizes) -> dict[str, int]:
    """Return the sizes of all dynamic dimensions of a network's inputs, by name.

    Batches are 1, sequences 8 and images 64 x 64, or the next larger size that fits the model.

    Args:
        graph: The network.
        given: Sizes that the user gives, by name.

    Raises:
        InputError: No input has one of the given dimensions.
    """
    named = dict.fromkeys(name for name, _, _ in _dimensions(graph))
    if wrong := next((name for name in given if name not in named), None):
        available = f"they are {', '.join(named)}" if named else "there are none"
        hint = name_hint(wrong, named)
        raise InputError(f"{graph.source}: the inputs have no dynamic dimension {wrong!r}; {available}{hint}")
    trees = {name: _expression(name, named) for name in named if name not in given}
    expressions = {name: tree for name, tree in trees.items() if tree is not None}
    channels = _channels(graph) if named else {}
    fixed = {**_forced(graph, expressions.values(), named, channels), **given}
    free: dict[str, str] = {}  # "batch", "image" or "sequence" for each dimension that nothing else decides
    for name, value, axis in _dimensions(graph):
        if name not in {*fixed, *expressions} and free.get(name) != "batch":
            kind = _kind(value, axis, name, channels)
            free[name] = kind if kind == "batch" else free.get(name, kind)

    def candidate(sequence: int, image: int) -> dict[str, int]:
        sizes = {name: {"sequence": sequence, "image": image}.get(kind, 1) for name, kind in free.items()}
        sizes |= fixed
        return sizes | {name: max(0, _evaluated(tree, sizes, sequence)) for name, tree in expressions.items()}

    if not {"sequence", "image"} & {*free.values()}:
        return candidate(_SEQUENCES[0], _IMAGES[0])
    # the longest kernel of the 1-D convolutions that read an input of the network, 1 without any
    graphs, shortest = [*graph.walk()], 1
    origins, fed = _origins(graphs), {value.name for value in graph.inputs}
    for inner, node in _nodes(graphs):
        shape = inner.type_of(node.inputs[1]).sizes if _has_kernel(node) else None
        is_series = shape is not None and len(shape) == _SERIES_RANK
        if shape is not None and is_series and not fed.isdisjoint(_traced(node, 0, origins)):
            shortest = max(shortest, shape[-1])
    kinds = {*free.values()}
    images = _IMAGES if "image" in kinds else _IMAGES[:1]
    first, *others = [size for size in _SEQUENCES if size >= shortest] or [shortest]
    candidates = [candidate(first, image) for image in images]
    if "sequence" in kinds:
        candidates += [candidate(sequence, images[0]) for sequence in others]
    for sizes in candidates:
        if fits_sizes(graph, sizes):
            return sizes
    shown = ", ".join(f"{name}={size}" for name, size in candidates[0].items() if name not in given)
    _log.warning(
        "%s: the made-up sizes %s do not fit the shapes of the model; give others with --dim NAME=SIZE",
        graph.source,
        shown,
    )
    return candidates[0]


def note_of_sizes(graph: Graph, given: Sizes) -> str:
    """Return a note on a failed run that names the dimensions with made-up sizes, "" without any."""
    names = dict.fromkeys(name for name, _, _ in _dimensions(graph) if name not in given)
    if not names:
        return ""
    return f"note: the sizes of {', '.join(names)} are made up; if they do not fit, give --dim NAME=SIZE"


def _dimensions(graph: Graph) -> Iterator[tuple[str, Value, int]]:
    """Yield the name, the input and the axis of each dynamic dimension."""
    for value in graph.inputs:
        for axis, size in enumerate(value.type.shape or ()):
            if not isinstance(size, int):
                yield dimension_name(value.name, axis, size), value, axis


def _kind(value: Value, axis: int, name: str, channels: Mapping[str, int]) -> str:
    shape = value.type.shape or ()
    dynamic = [place for place, size in enumerate(shape) if not isinstance(size, int)]
    is_float = value.type.dtype is not None and value.type.dtype.name.startswith(("float", "bfloat"))
    lowered = name.lower()
    if "batch" in lowered:
        return "batch"
    if any(word in lowered for word in ("seq", "len", "time", "frame", "token")) and "[" not in name:
        return "sequence"
    if is_float and len(shape) == 1:
        return "sequence"  # a waveform
    # A state of a recurrent network is (layers, batch, size).
    if axis == 0 or (shape[0] != 1 and dynamic[0] == axis and isinstance(shape[0], int)):
        return "batch"
    if is_float and len(shape) == _IMAGE_RANK:
        # A cache of keys is (batch, heads, length, size): one of its last axes is fixed.
        are_free = {2, 3} <= {*dynamic} or value.name in channels
        first = channels.get(value.name, shape[1])
        if (first in _COLOURS and are_free) or (shape[3] in _COLOURS and {1, 2} <= {*dynamic}):
            return "image"
    return "sequence"


def _has_kernel(node: Node) -> bool:
    return node.op_type == "Conv" and len(node.inputs) > 1


def _channels(graph: Graph) -> dict[str, int]:
    """Return the number of channels of each value that a convolution with known weights reads."""
    found = {}
    for node in graph.nodes:
        shape = graph.type_of(node.inputs[1]).sizes if _has_kernel(node) else None
        if shape is not None and len(shape) > 1:
            found[node.inputs[0]] = shape[1] * int(node.attributes.get("group", 1))  # type: ignore[arg-type]
    return found


def _forced(
    graph: Graph, expressions: Iterable[ast.expr], named: Iterable[str], channels: Mapping[str, int]
) -> dict[str, int]:
    """Return the sizes that the model itself decides: channels, and N = 1 of a mask of ``past_N + 1``."""
    forced, names = {}, set(named)
    for name, value, axis in _dimensions(graph):
        if axis == 1 and value.name in channels:
            forced[name] = channels[value.name]
    for tree in expressions:
        match tree:
            case ast.BinOp(ast.Name(past), ast.Add(), ast.Constant(int(number))) if past.startswith("past_"):
                forced |= dict.fromkeys({past.removeprefix("past_")} & names, number)
    # The branch without a cache reads none, and its mask has no past.
    if any("use_cache" in value.name for value in graph.inputs):
        forced |= {name: 0 for name in names if name.startswith("past_") and name.isidentifier()}
    return forced


_ARITHMETIC: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
}


def _expression(name: str, named: Iterable[str]) -> ast.expr | None:
    """Return the arithmetic in the name of a dimension, such as ``past_length + 1``; None: there is none.

    The dimension ``total_N`` is the sum of the dimensions N and ``past_N``.
    """
    names = set(named)
    rest = name.removeprefix("total_")
    if rest != name and {rest, f"past_{rest}"} <= names:
        name = f"past_{rest} + {rest}"
    try:
        tree = ast.parse(name, mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return None
    return tree if isinstance(tree, ast.BinOp) and _is_arithmetic(tree) else None


def _is_arithmetic(tree: ast.expr) -> bool:
    match tree:
        case ast.BinOp(left, operation, right):
            return type(operation) in _ARITHMETIC and _is_arithmetic(left) and _is_arithmetic(right)
        case ast.Constant(value):
            return type(value) is int
    return isinstance(tree, ast.Name)


def _evaluated(tree: ast.expr, sizes: Sizes, unknown: int) -> int:
    match tree:
        case ast.BinOp(left, operation, right):
            low = _evaluated(right, sizes, unknown)
            divides = isinstance(operation, (ast.Div, ast.FloorDiv))
            function = _ARITHMETIC[type(operation)]
            return function(_evaluated(left, sizes, unknown), max(1, low) if divides else low)
        case ast.Name(name):
            return sizes.get(name, unknown)
    assert isinstance(tree, ast.Constant), "the names were checked"
    return int(tree.value)  # type: ignore[arg-type]


class _Roles:
    """The roles of a network's inputs, from the operators that read them."""

    def __init__(self, graph: Graph, sizes: Sizes) -> None:
        self._graph = graph
        self._sizes = {**sizes}
        self._indices: dict[str, tuple[int, str]] = {}  # their bound and noun
        self._masks: set[str] = set()
        self._fills: dict[str, tuple[int, str]] = {}
        graphs = [*graph.walk()]
        self._origins = _origins(graphs)
        for inner, node in _nodes(graphs):
            self._note(inner, node)

    def recipe(self, value: Value, shape: Shape) -> Recipe:  # noqa: PLR0911 - one for each role
        """Return the recipe of an input with a shape."""
        dtype, name, lowered = value.type.dtype, value.name, value.name.lower()
        assert dtype is not None, "the input's type was checked"
        chosen = partial(Recipe, name, dtype, shape, is_chosen=True)
        found = self._indices.get(name)
        if "int" not in dtype.name and dtype.name != "bool":
            pass
        elif "mask" in lowered or name in self._masks:
            return chosen("all ones, as a mask", fill=1)
        elif dtype.name == "bool":
            if "use_cache" in lowered:
                return chosen("false", fill=0)
        elif name in self._fills:
            number, why = self._fills[name]
            return chosen(f"{number:,}, {why}", fill=number)
        elif "len" in lowered and len(shape) <= 1 and found is None:
            sizes = (self._sizes.get(each, 1) for each, _, axis in _dimensions(self._graph) if axis)
            longest = max(sizes, default=1)
            return chosen(f"{longest:,}, as a length", fill=longest)
        elif "position" in lowered and shape:
            return chosen("counted from 0, as positions", counts=True, below=found and found[0])
        elif found is not None:
            return chosen(f"{found[1]} below {found[0]:,}", below=found[0])
        if dtype is STRING:
            words = "random words"
        elif "int" not in dtype.name and dtype.name != "bool":
            words = "normally distributed"
        else:
            is_small = dtype.numpy.itemsize == 1 and dtype.name != "bool"
            words = f"all values of {dtype.name}" if is_small else "0 or 1"
        return Recipe(name, dtype, shape, words, not value.type.is_settled)

    def _note(self, graph: Graph, node: Node) -> None:
        """Note the roles of the inputs that an operator reads."""
        key = (node.domain, node.op_type)
        for slot, table, attribute in _TABLES.get(key, ()):
            axis = int(node.attributes.get(attribute, 0))  # type: ignore[arg-type]
            is_weight = len(node.inputs) > table and node.inputs[table] in graph.weights
            rank = len(graph.type_of(node.inputs[table]).shape or ()) if is_weight else 0
            noun = "token ids" if rank > 1 and axis == 0 else "indices"
            self._note_index(node, slot, self._size(graph, node, table, axis), noun)
        if key in _CLASS_AXES:
            self._note_index(node, 1, self._size(graph, node, 0, _CLASS_AXES[key]), "class indices")
        elif key == ("", "OneHot"):
            self._note_index(node, 0, _single(graph, node, 1), "indices")
        elif key == ("", "Equal"):
            for slot, other in ((0, 1), (1, 0)):
                for name in self._inputs(node, other):
                    array = graph.weights.get(name)
                    if array is not None and array.dtype.kind in "iu" and array.size > 1:
                        self._note_index(node, slot, int(array.max()) + 1, "indices")
                number, shape = _single(graph, node, other), graph.type_of(node.inputs[slot]).shape
                if shape is not None and all(size == 1 for size in shape):
                    self._fill(node, slot, number, "the constant that it is compared with")
        elif key in _MASKS:
            self._masks |= {*self._inputs(node, _MASKS[key])}
        elif key in _RECURRENT:
            steps = self._size(graph, node, 0, 1 if node.attributes.get("layout") else 0)
            self._fill(node, _LENGTHS_SLOT, steps, "the length of the sequence")
        elif key == _ATTENTION:
            total = (self._size(graph, node, 0, 1) or 1) + (self._size(graph, node, 3, 2) or 0)
            self._fill(node, 5, total - 1, "the last position")
            self._fill(node, 6, total, "the total length")

    def _fill(self, node: Node, slot: int, number: int | None, why: str) -> None:
        """Note the value of the inputs of a slot; the first one that is noted counts."""
        for name in self._inputs(node, slot) if number is not None else ():
            self._fills.setdefault(name, (number or 0, why))

    def _note_index(self, node: Node, slot: int, count: int | None, noun: str) -> None:
        """Note indices below a count; of a table with unknown rows, only the first one is sure to exist."""
        for name in self._inputs(node, slot):
            before = self._indices.get(name)
            if before is None or (count or 1) < before[0]:
                self._indices[name] = count or 1, noun

    def _size(self, graph: Graph, node: Node, slot: int, axis: int) -> int | None:
        """Return the size of an axis of an operator's input; None where it is not known."""
        shape = graph.type_of(node.inputs[slot]).shape if slot < len(node.inputs) else None
        if shape is None or not -len(shape) <= axis < len(shape):
            return None
        size = shape[axis]
        name = dimension_name(node.inputs[slot], axis % len(shape), size if isinstance(size, str) else None)
        return size if isinstance(size, int) else self._sizes.get(name)

    def _inputs(self, node: Node, slot: int) -> Iterator[str]:
        return _traced(node, slot, self._origins)


def _nodes(graphs: Iterable[Graph]) -> Iterator[tuple[Graph, Node]]:
    return ((graph, node) for graph in graphs for node in graph.nodes)


def _traced(node: Node, slot: int, origins: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the values from which an operator's input takes its elements."""
    waiting, seen = [*node.inputs[slot : slot + 1]], set()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            yield name
            waiting += origins.get(name, ())


def _origins(graphs: Sequence[Graph]) -> dict[str, tuple[str, ...]]:
    """Return, by value, the values from which an operator passes the elements on."""
    found: dict[str, tuple[str, ...]] = {}
    for _, node in _nodes(graphs):
        if node.op_type in _PASSED and node.inputs:
            slots = _PASSED[node.op_type]
            sources = node.inputs if slots is None else [node.inputs[slot] for slot in slots]
            found |= dict.fromkeys(filter(None, node.outputs), tuple(filter(None, sources)))
    return found


def _single(graph: Graph, node: Node, slot: int) -> int | None:
    """Return the whole number that a constant input holds; None where it is no such constant."""
    array = graph.weights.get(node.inputs[slot])
    return int(array.item()) if array is not None and array.size == 1 and array.dtype.kind in "iu" else None
