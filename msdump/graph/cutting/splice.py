"""A network in which some values are computed as another network of the same task computes them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np
import onnx
from onnx import defs, helper

from msdump import dtypes
from msdump.dtypes import DType
from msdump.graph.compile import rewiring
from msdump.graph.cutting.renaming import with_names, with_prefix
from msdump.graph.graph import Graph, Node, ValueType
from msdump.graph.order import subgraphs, used_values

_PREFIX: Final = "other:"
"""Begins the names of values and nodes of the other network, unless both have the value."""

CAST: Final = f"{_PREFIX}cast:"
"""Begins the names of the casts where the two networks hold a value in different element types."""

Scales = Mapping[str, tuple[float, int]]
"""Scale and zero point of the values that hold integers in the place of real numbers, by name."""

_FLOAT32: Final = dtypes.from_name("float32")


@dataclass(frozen=True, slots=True)
class Spliced:
    """A network with parts of another one.

    Attributes:
        graph: The network.
        taken: Its operators that are the other network's, with the casts around them, in order.
        given: The operators of the first network in whose place they stand.
    """

    graph: Graph
    taken: tuple[Node, ...]
    given: tuple[Node, ...]


def splice(
    graph: Graph,
    other: Graph,
    values: Mapping[str, str],
    chosen: Collection[str],
    scales: tuple[Scales, Scales] = ({}, {}),
) -> Spliced:
    """Return a network in which some values are computed as another one computes them.

    The other network's operators read the values of this one wherever both have them; those that it
    alone has come along. Casts stand where the two hold a value in different element types, and operators
    that quantise, or undo it, where one of them holds integers in the place of real numbers.

    Args:
        graph: The network.
        other: The other network.
        values: The value of the network that each value of the other one stands for; of several the last one
            that is written.
        chosen: Values of the network that are to be computed by the other one.
        scales: How values of the network, and of the other one, stand for real numbers.
    """
    splicer = _Splicer(graph, other, values, frozenset(chosen), scales)
    for node in graph.nodes:  # in order, so that what a value is computed from is mostly there
        for name in filter(None, node.outputs):
            splicer.add(name)
    return splicer.result()


def exchangeable(graph: Graph, other: Graph, node: Node) -> bool:
    """Tell whether an operator of another network means the same under the network's versions of domains.

    Args:
        graph: The network.
        other: The other network.
        node: Its operator.
    """
    own, theirs = graph.opsets.get(node.domain), other.opsets.get(node.domain)
    if own == theirs:
        return True
    if theirs is None or any(True for _ in subgraphs(node.proto)):
        return False
    if own is None:  # it comes with its domain
        return True
    try:
        versions = {
            defs.get_schema(node.op_type, version, node.domain).since_version for version in (own, theirs)
        }
    except defs.SchemaError:
        return False
    return len(versions) == 1


def is_taken(node: Node) -> bool:
    """Tell whether an operator of a spliced network, or of a body in it, is the other one's, and no cast."""
    return node.name.startswith(_PREFIX) and not node.name.startswith(CAST)


def forms(other: Graph, values: Mapping[str, str]) -> dict[str, str]:
    """Return the value by which another network computes each value of this one: the last one written.

    Args:
        other: The other network.
        values: The value of the network that each value of the other one stands for.
    """
    written = (name for node in other.nodes for name in node.outputs if name)
    return {values[name]: name for name in written if name in values}


class _Form(NamedTuple):
    """What a value is held as: its type, and how its integers stand for real numbers, None: as they are."""

    type: ValueType
    scale: tuple[float, int] | None


@dataclass(slots=True)
class _Splicer:
    graph: Graph
    other: Graph
    values: Mapping[str, str]
    chosen: frozenset[str]
    scales: tuple[Scales, Scales]
    nodes: list[Node] = field(default_factory=list)
    taken: list[Node] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    types: dict[str, ValueType] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    makers: dict[str, Node] = field(init=False)
    other_makers: dict[str, Node] = field(init=False)
    forms: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.makers = {name: node for node in self.graph.nodes for name in node.outputs if name}
        self.other_makers = {name: node for node in self.other.nodes for name in node.outputs if name}
        self.forms = forms(self.other, self.values)

    def add(self, name: str) -> None:
        """Add what computes a value of the network, and before it what that reads."""
        if name in self.chosen and name in self.forms:
            self._add_other(self.forms[name])
            return
        node = self.makers.get(name)
        if node is None or node.name in self.done:
            return
        self.done.add(node.name)
        for read in _reads(node):
            self.add(read)
        renamed = {output: f"{_PREFIX}unused:{output}" for output in node.outputs if output in self.chosen}
        self.nodes.append(with_names(node, renamed) if renamed else node)

    def _add_other(self, name: str) -> None:
        """Add the operator of the other network that computes one of its values."""
        node = self.other_makers[name]
        if f"{_PREFIX}{node.name}" in self.done:
            return
        self.done.add(f"{_PREFIX}{node.name}")
        names: dict[str, str] = {}
        for read in _reads(node):
            names[read] = self._input(read)
        results: list[Node] = []
        for output in filter(None, node.outputs):
            names[output] = self._output(output, results)
        own = with_prefix(with_names(node, names), _PREFIX)
        self.nodes += (own, *results)
        self.taken += (own, *results)

    def _input(self, name: str) -> str:
        """Return the value that an operator of the other network reads for one of its own."""
        if name in self.other.weights:
            self.weights[f"{_PREFIX}{name}"] = self.other.weights[name]
            self.types[f"{_PREFIX}{name}"] = self.other.type_of(name)
            return f"{_PREFIX}{name}"
        common = self.values.get(name)
        if common is None or self._is_private(name, common):
            if name in self.other_makers:
                self._add_other(name)
            self.types[f"{_PREFIX}{name}"] = self.other.type_of(name)
            return f"{_PREFIX}{name}"
        self.add(common)
        own, theirs = self._form_of(common), self._other_form_of(name)
        if not _differs(own, theirs):
            return common
        target = f"{_PREFIX}read:{name}"
        if target not in self.done:
            self.done.add(target)
            converting = self._converted(common, target, own, theirs)
            self.nodes += converting
            self.taken += converting
        return target

    def _is_private(self, name: str, common: str) -> bool:
        """Tell whether the other network computes a value on from one of its own that stands for the same."""
        return common in self.chosen and self.forms.get(common, name) != name and name in self.other_makers

    def _output(self, name: str, results: list[Node]) -> str:
        """Return the value that an operator of the other network writes for one of its own."""
        common = self.values.get(name)
        if common is None or common not in self.chosen or self._is_private(name, common):
            self.types[f"{_PREFIX}{name}"] = self.other.type_of(name)
            return f"{_PREFIX}{name}"
        theirs, own = self._other_form_of(name), self._form_of(common)
        if not _differs(theirs, own):
            return common
        written = f"{_PREFIX}{name}"
        self.types[written] = theirs.type
        results += self._converted(written, common, theirs, own)
        return written

    def _form_of(self, name: str) -> _Form:
        return _Form(self.graph.type_of(name), self.scales[0].get(name))

    def _other_form_of(self, name: str) -> _Form:
        return _Form(self.other.type_of(name), self.scales[1].get(name))

    def _converted(self, source: str, target: str, before: _Form, after: _Form) -> list[Node]:
        """Return the operators that bring a value from the form of one network into that of the other one."""
        steps: list[tuple[str, DType | None, _Form]] = []
        held = before.type.dtype
        if before.scale is not None:
            steps.append(("DequantizeLinear", held := _FLOAT32, before))
        wanted = after.type.dtype if after.scale is None else _FLOAT32
        if held is not wanted:
            steps.append(("Cast", wanted, after))
        if after.scale is not None:
            steps.append(("QuantizeLinear", after.type.dtype, after))
        nodes = []
        for number, (op_type, dtype, form) in enumerate(steps, 1):
            made = target if number == len(steps) else f"{target}:{number}"
            nodes.append(self._step(op_type, source, made, dtype, form))
            self.types[made] = replace(after.type, dtype=dtype)
            source = made
        return nodes

    def _step(self, op_type: str, source: str, target: str, dtype: DType | None, form: _Form) -> Node:
        name = f"{CAST}{target}"
        if form.scale is None or op_type == "Cast":
            return replace(rewiring.cast(name, source, target, dtype), is_added=False)
        scale, zero = form.scale
        integers = form.type.dtype or dtype or _FLOAT32
        for suffix, array in (
            ("scale", np.array(scale, np.float32)),
            ("zero", np.array(zero).astype(integers.numpy)),
        ):
            self.weights[f"{name}:{suffix}"] = array
            self.types[f"{name}:{suffix}"] = replace(
                form.type, dtype=dtypes.from_numpy(array.dtype), shape=()
            )
        proto = helper.make_node(op_type, [source, f"{name}:scale", f"{name}:zero"], [target], name=name)
        return replace(rewiring.added(proto, op_type, {}), is_added=False)

    def result(self) -> Spliced:
        """Return the network without the operators that nobody reads any more."""
        nodes = _live(self.nodes, {value.name for value in self.graph.outputs})
        graph = replace(
            self.graph,
            nodes=nodes,
            weights={**self.graph.weights, **self.weights},
            opsets={**self.other.opsets, **self.graph.opsets},
            types={**self.graph.types, **self.types},
            proto=_with_functions(self.graph.proto, self.other.proto),
        )
        kept = {node.name for node in nodes}
        taken = tuple(node for node in self.taken if node.name in kept)
        return Spliced(graph, taken, tuple(node for node in self.graph.nodes if node.name not in kept))


def _live(nodes: list[Node], needed: set[str]) -> tuple[Node, ...]:
    live: list[Node] = []
    for node in reversed(nodes):
        if not needed.isdisjoint(node.outputs):
            live.append(node)
            needed.update(_reads(node))
    return tuple(reversed(live))


def _differs(before: _Form, after: _Form) -> bool:
    """Tell whether a value has to be brought into another form; an unknown element type stays."""
    types = before.type.dtype, after.type.dtype
    return before.scale != after.scale or (types[0] is not types[1] and None not in types)


def _reads(node: Node) -> Iterator[str]:
    yield from used_values(node.proto)


def _with_functions(proto: onnx.ModelProto, other: onnx.ModelProto) -> onnx.ModelProto:
    """Return a message that has the functions of both models."""
    keys = {(function.domain, function.name, function.overload) for function in proto.functions}
    more = [
        function
        for function in other.functions
        if (function.domain, function.name, function.overload) not in keys
    ]
    if not more:
        return proto
    joined = onnx.ModelProto()
    joined.CopyFrom(proto)
    joined.functions.extend(more)
    return joined
