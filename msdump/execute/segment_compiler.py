"""Sessions of several operators, each with the initializers and casts of its own one-operator session."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from msdump.dtypes import STRING
from msdump.errors import is_final
from msdump.execute import values
from msdump.execute.kernels import RoundingsOf, is_rounded_outside
from msdump.execute.runtime import OrtValue, Run, Runtime, SessionUse
from msdump.execute.variants import LEVELS
from msdump.execute.weights import Initializers, WeightStore, binds_weights, tells_overflow
from msdump.graph import (
    WITH_MEMORY,
    Graph,
    Node,
    ValueType,
    canonical_domain,
    collective_call,
    forget_pages,
    reads,
    subgraphs,
    uses_float_status,
)
from msdump.graph.kernel import (
    FLOAT32,
    HALVES,
    NO_HOOKS,
    Bindings,
    LinkedModel,
    LinkedOperator,
    Rounding,
    SegmentEdges,
    SessionHooks,
    UnlinkableError,
    is_cast,
    keeps_types,
    link,
    type_text,
)
from msdump.plan import Optimization
from msdump.statistics import insession

_MOVING: Final = frozenset({"Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"})
"""Operators that return all elements of their first input, and no others.

Rounding an element and moving it may change places: a weight is rounded once, before it is moved, if
everything that reads the moved elements would round them alike.
"""


def moved_input(node: Node) -> str | None:
    """Return the input that a moving operator moves, None for any other operator."""
    return node.inputs[0] if node.op_type in _MOVING and not node.domain and not node.parts else None


def shared_roundings(
    nodes: Sequence[Node], roundings: Callable[[Node], Sequence[Rounding] | None], hidden: Container[str]
) -> dict[str, Rounding]:
    """Return the roundings of values that all their readers round alike, through moving operators, too.

    ``hidden`` are the float32 values that nothing but these operators reads.
    """
    readers: dict[str, set[Rounding | None]] = {}
    found: dict[str, Rounding] = {}
    # backwards: all readers of an operator's outputs come before it
    for node in reversed(nodes):
        for name in node.outputs:
            kinds = readers.get(name, set())
            kind = next(iter(kinds)) if len(kinds) == 1 else None
            if kind is not None and name in hidden:
                found[name] = kind
        source = moved_input(node)
        for name in reads(node):
            own = {found.get(node.outputs[0])} if name == source else _kinds(node, name, roundings(node))
            readers.setdefault(name, set()).update(own)
    return found


def _kinds(node: Node, name: str, roundings: Sequence[Rounding] | None) -> set[Rounding | None]:
    """Return how an operator's parts round an input; None: a part does not, or has subgraphs."""
    if roundings is None or any(subgraphs(node.proto)):
        return {None}
    return {
        Rounding(each.reads, saturates=each.saturates) if is_cast(part, FLOAT32, each) else None
        for part, each in zip(node.members, roundings, strict=True)
        if name in part.inputs
    }


MOST_BYTES: Final = 16 << 20
"""Bytes of tensors that a segment holds for an observer; an operator whose tensors reach it ends it.

They all live until the last operator of the segment has run.
"""

MOST_SHOWN: Final = 256
"""Operators of one segment that an observer looks at: their results wait for the last of them."""

MOST_WEIGHTS: Final = 128 << 20
"""Bytes of weights that the sessions of a segment pack; an operator with more of them begins one.

While a session is made, each weight is there three times: in the file's pages, as the copy that the runtime
takes of it, and packed. Only the last one stays.
"""

MOST: Final = 2048
"""Operators of one segment: the time to make a session grows faster than the number of its operators."""


def cut(
    operators: range,
    joins: Callable[[int], bool],
    shown: Callable[[int], int | None],
    weights: Callable[[int], int] = lambda _: 0,
    *,
    one_by_one: bool = False,
) -> list[range]:
    """Cut consecutive operators into segments of limited size, limited memory and joinable operators.

    >>> cut(range(5), lambda position: position != 2, lambda _: None)
    [range(0, 2), range(2, 3), range(3, 5)]
    >>> cut(range(4), lambda _: True, {1: 8}.get, one_by_one=True)
    [range(0, 2), range(2, 4)]

    ``shown`` returns how many bytes of tensors an observer gets at a position, None if it observes none, and
    ``weights`` how many the operator packs. With ``one_by_one`` a shown operator ends its segment.
    """
    segments: list[range] = []
    start, held, count, packed = operators.start, 0, 0, 0

    def close(end: int) -> None:
        nonlocal start, held, count, packed
        if end > start:
            segments.append(range(start, end))
        start, held, count, packed = end, 0, 0, 0

    for position in operators:
        size, weight = shown(position), weights(position)
        if packed and weight and packed + weight > MOST_WEIGHTS:
            close(position)
        packed += weight
        if not joins(position):
            close(position)
            close(position + 1)
        elif size is not None:
            held, count = held + size, count + 1
            if one_by_one or held >= MOST_BYTES or count >= MOST_SHOWN:
                close(position + 1)
        if position + 1 - start >= MOST:
            close(position + 1)
    close(operators.stop)
    return segments


_UNKNOWN: Final = MOST_BYTES // 4
"""Bytes that a tensor of unknown shape counts for: a few of them fill a segment."""


def dimensions(graph: Graph, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Return the size of each named dimension, given the shapes of inputs."""
    sizes: dict[str, int] = {}
    for value in graph.inputs:
        declared = value.type.shape or ()
        sizes |= {
            name: size
            for name, size in zip(declared, shapes.get(value.name, ()), strict=False)
            if isinstance(name, str)
        }
    return sizes


def nbytes(graph: Graph, name: str, sizes: Mapping[str, int]) -> int:
    """Return the size of a value in bytes; a guess if its shape or type is unknown."""
    kind = graph.type_of(name)
    if kind.shape is None or kind.dtype is None:
        return _UNKNOWN
    shape = [sizes.get(size, size) if isinstance(size, str) else size for size in kind.shape]
    known = [size for size in shape if isinstance(size, int)]
    return math.prod(known) * kind.dtype.numpy.itemsize if len(known) == len(shape) else _UNKNOWN


def packed_nbytes(graph: Graph, node: Node) -> int:
    """Return the total size in bytes of an operator's weights that its session packs (copies)."""
    read = (name for part in node.members if binds_weights(part) for name in part.inputs)
    names = {name for name in read if name in graph.weights and name not in graph.changeable}
    return sum(graph.weights[name].nbytes for name in names)


_EXACT: Final = frozenset(
    {
        *("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Identity", "Expand", "Tile"),
        *("Concat", "Split", "Slice", "Gather", "GatherElements", "GatherND", "Shape", "Size", "Cast"),
        *("SpaceToDepth", "DepthToSpace", "Compress", "Where"),
    }
)
"""Operators that give the same elements of a half type whether the runtime widens them or not."""

_MAY_BE_TENSORS: Final = frozenset({"tensor", ""})


class Joining:
    """Decides which operators of one graph may share a session with other operators."""

    def __init__(self, graph: Graph, roundings: RoundingsOf, *, has_halves: bool = False) -> None:
        """Set the graph.

        ``has_halves``: graphs around a body have float16 or bfloat16 values.
        """
        self._graph = graph
        self._roundings = roundings
        self._has_halves = has_halves or any(each.dtype in HALVES for each in graph.types.values())
        self._remembering = frozenset(_remembering(graph))

    def joins(self, node: Node) -> bool:
        """Return whether an operator gives the same bits in a shared session as in one of its own.

        Half types can differ: the runtime widens operators without half kernels, and omits the rounding
        between two of them. Operators with state, optional values, the device's overflow status, or inputs
        rounded in numpy do not join either. Control flow joins if all operators in its bodies may join.
        """
        return (
            collective_call(node) is None
            and not uses_float_status(node.domain, node.op_type)
            and all(self._is_plain(part) for part in node.members)
            and any(node.outputs)
            and self._has_plain_types(node)
            # the model's bodies may capture values that only operators folded by msdump produce
            and (not node.bodies or self._values.issuperset(reads(node)))
            and all(self._is_plain_body(body) for body in node.bodies.values())
        )

    @functools.cached_property
    def _values(self) -> frozenset[str]:
        made = (name for node in self._graph.nodes for name in node.outputs)
        return frozenset((*(value.name for value in self._graph.inputs), *self._graph.weights, *made))

    def _is_plain_body(self, body: Graph) -> bool:
        """Return whether a body gives the same bits if the runtime runs it as if msdump does."""
        joining = Joining(body, self._roundings, has_halves=self._has_halves)
        outer_weights = body.outer & body.weights.keys()
        return all(
            joining.joins(node)
            # the runtime runs the body as the model has it, without the device's casts
            and not joining.has_casts(node)
            # the runtime packs other outer weights than a session of the single operator does
            and not any(
                binds_weights(part) and not outer_weights.isdisjoint(part.inputs) for part in node.members
            )
            for node in body.nodes
        )

    def has_casts(self, node: Node) -> bool:
        """Return whether the device may cast inputs or outputs of an operator."""
        roundings = self._roundings(node)
        return roundings is not None and (
            self._has_halves
            or any(each.reads is not FLOAT32 or each.writes is not FLOAT32 for each in roundings)
        )

    def _is_plain(self, part: Node) -> bool:
        key = (canonical_domain(part.domain), part.op_type)
        return (
            part.op_type not in WITH_MEMORY
            and key not in self._remembering
            and (
                bool(part.bodies)
                or not any(attribute.HasField("g") or attribute.graphs for attribute in part.proto.attribute)
            )
        )

    def _has_plain_types(self, node: Node) -> bool:
        types = [self._graph.type_of(name) for name in (*reads(node), *filter(None, node.outputs))]
        if any(each.kind not in _MAY_BE_TENSORS for each in types):
            return False
        roundings = self._roundings(node)
        if roundings is None:
            return not self._may_be_widened(node, types)
        if tells_overflow(roundings) or is_rounded_outside(self._graph, node, roundings):
            return False
        # Cast nodes need the type of their value, which is often unknown behind operators of other domains
        if self.has_casts(node) and any(each.dtype is None for each in types):
            return False
        return all(self._keeps_halves(part) for part in node.members)

    def _keeps_halves(self, part: Node) -> bool:
        """Return whether the device casts around the operator, or it is exact or has no half types."""
        if not self._has_halves or not keeps_types(part):
            return True
        return _is_exact(part) or not any(
            self._graph.type_of(name).dtype in {*HALVES, None}
            for name in (*part.inputs, *part.outputs)
            if name
        )

    def _may_be_widened(self, node: Node, types: list[ValueType]) -> bool:
        if not self._has_halves or all(_is_exact(part) for part in node.members):
            return False
        return any(each.dtype is None or each.dtype in HALVES for each in types)


def _is_exact(part: Node) -> bool:
    return not part.domain and part.op_type in _EXACT


def _remembering(graph: Graph) -> Iterator[tuple[str, str]]:
    """Yield (domain, name) of the functions that call a stateful operator, directly or indirectly."""
    functions = list(graph.proto.functions)
    found: set[tuple[str, str]] = set()
    while True:
        new = {
            key
            for function in functions
            if (key := (canonical_domain(function.domain), function.name)) not in found
            and any(
                node.op_type in WITH_MEMORY or (canonical_domain(node.domain), node.op_type) in found
                for node in function.node
            )
        }
        if not new:
            return (yield from found)
        found |= new


_IN_MODEL: Final = 1 << 14
"""Bytes up to which a weight that no kernel packs is copied into the model: feeding it costs every run."""

_CULPRIT: Final = re.compile(r"""(?:name '|Node \(|Node,? \(["']|Name:'|node:)(\d+)\.\d""")
"""The number of an operator in the runtime's messages: the name of its node begins with it."""


@dataclass(frozen=True, slots=True)
class SegmentSession:
    """The session of several operators."""

    run: Run  # called with (values by feed name, output names, None); returns the outputs in order
    feeds: tuple[tuple[str, str], ...]  # (feed name, value of the graph) for everything that must be fed
    names: Mapping[str, str]  # names in the session's model of the graph's values that it can return
    looks: SessionHooks = NO_HOOKS  # the values that the session measures or writes itself
    # (feed name, weight, its rounding) for weights that are fed only if the caller replaces them
    defaults: tuple[tuple[str, str, Rounding], ...] = ()


class SegmentCompiler:
    """Makes the sessions of a graph's segments."""

    def __init__(
        self,
        graph: Graph,
        weights: WeightStore,
        runtime: Runtime,
        roundings: RoundingsOf,
        distant: Container[str],
        *,
        optimization: Optimization = Optimization.NONE,
    ) -> None:
        """Set the parts that all segments share; see ``KernelFactory``."""
        self._graph = graph
        self._weights = weights
        self._runtime = runtime
        self._roundings = roundings
        self._changeable = graph.changeable
        self._overridable = graph.overridable - graph.variables
        self._checked = frozenset() if graph.index else frozenset(value.name for value in graph.inputs)
        # whether the runtime may fuse operators of a segment
        self.optimizes = optimization is not Optimization.NONE
        self._use = SessionUse(LEVELS[optimization], spins=True)
        self._initializers = Initializers(weights, self._changeable, distant)

    def compile(
        self,
        nodes: Sequence[Node],
        fed: Mapping[str, OrtValue | None],
        outputs: Sequence[str],
        looks: SessionHooks = NO_HOOKS,
    ) -> SegmentSession:
        """Compile operators to one session.

        ``fed`` are inputs from earlier operators; weights that no run changes may be missing.

        Raises:
            UnlinkableError: An operator cannot share a session.
            Exception: Memory or threads ran out, or the runtime does not say which operator it cannot run.
        """
        model = self._linked(nodes, fed, outputs, looks)
        shared = [self._initializers.shared(name, array) for array, name in model.shared]
        try:
            is_settled = all(self._graph.type_of(name).is_settled for _, name in model.feeds)
            is_whole = not self._graph.index and len(nodes) == len(self._graph.nodes)
            use = replace(self._use, spins_on=is_whole, plans=is_settled, looks=bool(looks))
            session = self._runtime.session(model.data, shared, use=use)
        except Exception as error:
            culprit = None if is_final(error) else _CULPRIT.search(str(error))
            if culprit is None or int(culprit[1]) >= len(nodes):
                raise
            raise UnlinkableError(int(culprit[1]), error) from error
        for array in shared:
            forget_pages(array)  # mostly packed
        names = {name: inner for inner, name in model.outputs}
        return SegmentSession(session.run_with_ort_values, model.feeds, names, looks, model.defaults)

    def can_measure(self, name: str) -> bool:
        """Return whether a session can measure a value of the graph."""
        return insession.takes(self._graph.type_of(name).dtype) and self._runtime.can_measure

    def _linked(
        self,
        nodes: Sequence[Node],
        fed: Mapping[str, OrtValue | None],
        outputs: Sequence[str],
        looks: SessionHooks,
    ) -> LinkedModel:
        made = {name for node in nodes for name in node.outputs}
        hidden = {name for name in made.difference(outputs, looks.measured) if self._is_float32(name)}
        early = shared_roundings(nodes, self._roundings, hidden)
        moved: set[str] = set()  # values with the elements of rounded weights
        feeds: dict[str, str] = {}
        defaults: dict[str, np.ndarray] = {}
        parts = []
        for number, node in enumerate(nodes):
            roundings = None if node.bodies else self._roundings(node)
            bound = self._initializers.of(node, roundings)
            if self.optimizes:  # all weights, as the runtime may fold constants
                fixed = {name: self._weights.array(name) for name in reads(node) if self._is_fixed(name)}
                bound = replace(bound, arrays=fixed | {**bound.arrays})
            replaceable = self._initializers.defaults(node, roundings, self._overridable)
            bound = bound.with_rounded({name: array for name, (array, _) in replaceable.items()})
            source = moved_input(node)
            if source is not None and (rounding := early.get(node.outputs[0])) is not None:
                if self._is_fixed(source) and self._is_float32(source):
                    array = self._weights.rounded(source, rounding.reads, saturates=rounding.saturates)
                    bound = bound.with_rounded({source: array})
                moved.update(node.outputs if source in moved or source in bound.rounded else ())
            for name in reads(node):
                if name in bound.arrays or name in made or name in feeds or name in defaults:
                    continue
                weight = self._weights.array(name) if self._is_fixed(name) else None
                # unpacked weights that are copied into the model, not fed in each run
                if weight is not None and (
                    weight.nbytes <= _IN_MODEL or weight.dtype == STRING.numpy or weight.dtype.isbuiltin != 1
                ):
                    defaults[name] = weight
                else:
                    value = fed.get(name)
                    if value is None and name in self._weights:
                        value = self._weights.value(name)
                    if not isinstance(value, values.Native) or not value.is_tensor():
                        raise UnlinkableError(number, f"{name!r} is no tensor of the runtime's")
                    feeds[name] = values.kind_of(value)
            # of an operator's inputs, actual or else declared, for the device's casts
            cast = () if roundings is None else reads(node)
            declared = {name: self._graph.type_of(name).dtype for name in cast}
            types = {name: feeds.get(name) or type_text(dtype) for name, dtype in declared.items() if dtype}
            rounded = {**bound.rounded, **dict.fromkeys(moved.intersection(node.inputs), False)}
            bindings = Bindings(types, {}, bound.embedded, bound.shared, rounded=rounded)
            ways = {name: rounding for name, (_, rounding) in replaceable.items()}
            parts.append(LinkedOperator(node, bindings, roundings, ways))
        # Shapes let the runtime reuse memory of dead values. Shapes of inputs and weights are certain in
        # every run; declared shapes of other values are added for optimised sessions only.
        shapes = {}
        for name in feeds:
            kind = self._graph.type_of(name)
            is_checked = name in self._checked or name in self._weights
            if kind.shape is not None and (is_checked or (self.optimizes and kind.is_settled)):
                shapes[name] = kind.shape
        around = SegmentEdges(feeds, defaults, outputs, shapes, looks)
        return link(self._graph, parts, around, self._runtime.limits)

    def _is_fixed(self, name: str) -> bool:
        return name in self._weights and name not in self._changeable

    def _is_float32(self, name: str) -> bool:
        return self._graph.type_of(name).dtype is FLOAT32
