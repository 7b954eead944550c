"""Constants folded when a graph is compiled: operators that read nothing but constants run once, then.

What they give is computed by the same kernels that would run them, so folding
changes no bit. It is bounded: an operator whose results are larger than what it
reads, and larger than a MiB, runs with the network.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.errors import MsdumpError
from msdump.graph.graph import Graph, Node, Value, ValueType
from msdump.graph.operator_types import RANDOM
from msdump.graph.order import reads

_log = logging.getLogger("msdump.graph")

Compute = Callable[[Graph], Sequence[np.ndarray]]
"""Runs a graph without inputs; returns its outputs in order."""

_LARGEST: Final = 1 << 20

_VARYING: Final = RANDOM | {"Dropout"}
"""Operators that may give other results in the next run."""

_ASKING: Final[Mapping[str, Callable[[tuple[int, ...], Mapping[str, Any]], Any]]] = {
    "Shape": lambda shape, attributes: shape[attributes.get("start", 0) : attributes.get("end")],
    "Size": lambda shape, _attributes: math.prod(shape),
}
"""Operators whose result a static shape tells, and what it is."""


def fold(graph: Graph, compute: Compute) -> Graph:
    """Return the graph with operators of constants replaced by what they give.

    Operators that make graph outputs, or values that branches and loops read, stay, as do
    those that the runtime refuses: they must fail when the network runs, not before.

    Args:
        graph: The graph.
        compute: Runs a part of it.
    """
    search = _Search(graph)
    search.run()
    if not search.found:
        return graph
    try:
        arrays = search.values(compute)
    except MsdumpError as error:
        _log.debug("%s: constants are not folded: %s", graph.source, error)
        return graph
    return _without(graph, search.found, arrays)


@dataclass(slots=True)
class _Search:
    """Finds what can be folded.

    Attributes:
        graph: The graph.
        found: Operators to fold, by name.
        told: Results of those that only ask for a shape.
        known: Values that do not depend on inputs, and their bytes.
    """

    graph: Graph
    found: dict[str, Node] = field(default_factory=dict)
    told: dict[str, np.ndarray] = field(default_factory=dict)
    known: dict[str, int] = field(default_factory=dict)

    def run(self) -> None:
        """Walk the graph in execution order."""
        graph = self.graph
        self.known = {n: a.nbytes for n, a in graph.weights.items() if n not in graph.overridable}
        kept = set(_kept(graph))
        for node in graph.nodes:
            if kept.isdisjoint(node.outputs) and self._folds(node):
                self.found[node.name] = node
                self.known |= {name: _bytes(graph.type_of(name)) or 0 for name in node.outputs if name}

    def values(self, compute: Compute) -> dict[str, np.ndarray]:
        """Return the results that operators read which are not folded."""
        rest = (node for node in self.graph.nodes if node.name not in self.found)
        wanted = set().union(*map(reads, rest))
        made = [name for node in self.found.values() for name in node.outputs if name in wanted]
        part = self._part([name for name in made if name not in self.told])
        computed = zip((value.name for value in part.outputs), compute(part), strict=True)
        return {name: array for name, array in self.told.items() if name in wanted} | dict(computed)

    def _part(self, outputs: Iterable[str]) -> Graph:
        graph = self.graph
        nodes = (node for node in self.found.values() if self.told.keys().isdisjoint(node.outputs))
        return replace(
            graph,
            nodes=tuple(nodes),
            inputs=(),
            outputs=tuple(Value(name, graph.type_of(name)) for name in outputs),
            weights={**graph.weights, **self.told},
            overridable=frozenset(),
        )

    def _folds(self, node: Node) -> bool:
        if node.domain or node.op_type in _VARYING or _has_subgraph(node):
            return False
        if self._is_told(node):
            return True
        if any(name not in self.known for name in reads(node)):
            return False
        sizes = [_bytes(self.graph.type_of(name)) for name in node.outputs if name]
        most = max(_LARGEST, sum(self.known[name] for name in reads(node)))
        return all(size is not None for size in sizes) and sum(filter(None, sizes)) <= most

    def _is_told(self, node: Node) -> bool:
        """Note the result of an operator that only asks for a static shape."""
        if node.op_type not in _ASKING:
            return False
        known = self.graph.type_of(node.inputs[0])
        shape = tuple(size for size in known.shape or () if isinstance(size, int))
        if known.kind != "tensor" or known.shape is None or len(shape) != len(known.shape):
            return False
        self.told[node.outputs[0]] = _frozen(
            np.array(_ASKING[node.op_type](shape, node.attributes), np.int64)
        )
        return True


def _kept(graph: Graph) -> Iterator[str]:
    """Yield the values that must stay values: graph outputs and what branches and loops read."""
    yield from (value.name for value in graph.outputs)
    for node in graph.nodes:
        yield from (name for name in reads(node) if node.bodies or name not in node.inputs)


def _has_subgraph(node: Node) -> bool:
    return any(attribute.HasField("g") or attribute.graphs for attribute in node.proto.attribute)


def _bytes(known: ValueType) -> int | None:
    """Return the size of a tensor, None where it is not known before the run."""
    if known.kind != "tensor" or known.dtype in {None, dtypes.STRING} or known.shape is None:
        return None
    assert known.dtype is not None
    sizes = [size for size in known.shape if isinstance(size, int)]
    return math.prod(sizes) * known.dtype.numpy.itemsize if len(sizes) == len(known.shape) else None


def _frozen(array: np.ndarray) -> np.ndarray:
    array = array.view()
    array.flags.writeable = False
    return array


def _without(graph: Graph, folded: Mapping[str, Node], arrays: Mapping[str, np.ndarray]) -> Graph:
    """Return the graph without folded operators, and without the weights that only they read."""
    nodes = tuple(node for node in graph.nodes if node.name not in folded)
    read = {name for node in folded.values() for name in reads(node)}
    read -= {name for node in nodes for name in reads(node)} | {value.name for value in graph.outputs}
    own = {name: array for name, array in graph.weights.items() if name not in read - graph.overridable}
    new = {name: _frozen(array) for name, array in arrays.items()}
    types = {name: ValueType(dtypes.from_numpy(array.dtype), array.shape) for name, array in new.items()}
    return replace(
        graph,
        nodes=nodes,
        weights={**own, **new},
        constants=(*(name for name in graph.constants if name in own), *new),
        types={**graph.types, **types},
    )
