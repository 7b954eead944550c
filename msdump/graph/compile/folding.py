"""Constant folding: operators that read nothing but constants run once, when the graph is compiled.

Their results are computed by the same kernels that would run them, so folding
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
from msdump.graph.collectives.calls import collective
from msdump.graph.graph import Graph, Node, Value, ValueType
from msdump.graph.operator_types import WITH_MEMORY
from msdump.graph.order import reads

_log = logging.getLogger("msdump.graph")

Compute = Callable[[Graph], Sequence[np.ndarray]]
"""Runs a graph without inputs; returns its outputs in order."""

_LARGEST: Final = 1 << 20  # bytes; a larger result would take memory as long as the network lives

"""Operators that may give other results in the next run."""

_OF_SHAPES: Final[Mapping[str, Callable[[tuple[int, ...], Mapping[str, Any]], Any]]] = {
    "Shape": lambda shape, attributes: shape[attributes.get("start", 0) : attributes.get("end")],
    "Size": lambda shape, _attributes: math.prod(shape),
}
"""Operators whose result follows from a static shape, and the function that computes it."""


def fold(graph: Graph, compute: Compute) -> Graph:
    """Return the graph with operators of constants replaced by their results, as weights.

    Operators that make graph outputs, or values that branches and loops read, stay, as do
    those that the runtime refuses: they must fail when the network runs, not before.

    Args:
        graph: The graph.
        compute: Runs a part of it.
    """
    search = _Search(graph)
    search.run()
    if not search.folded:
        return graph
    try:
        arrays = search.values(compute)
    except MsdumpError as error:
        _log.debug("%s: constants are not folded: %s", graph.source, error)
        return graph
    return _without(graph, search.folded, arrays)


@dataclass(slots=True)
class _Search:
    """Finds the operators of a graph that can be folded.

    Attributes:
        graph: The graph.
        folded: Operators to fold, by name.
        shape_results: Results of those that read only a static shape, by value name.
        constant_bytes: Size of each value that does not depend on inputs, in bytes, by name.
    """

    graph: Graph
    folded: dict[str, Node] = field(default_factory=dict)
    shape_results: dict[str, np.ndarray] = field(default_factory=dict)
    constant_bytes: dict[str, int] = field(default_factory=dict)

    def run(self) -> None:
        """Walk the graph in execution order."""
        graph = self.graph
        self.constant_bytes = {
            name: array.nbytes for name, array in graph.weights.items() if name not in graph.changeable
        }
        kept = set(_needed_values(graph))
        for node in graph.nodes:
            if kept.isdisjoint(node.outputs) and self._folds(node):
                self.folded[node.name] = node
                self.constant_bytes |= {
                    name: _tensor_bytes(graph.type_of(name)) or 0 for name in node.outputs if name
                }

    def values(self, compute: Compute) -> dict[str, np.ndarray]:
        """Return the folded results that the remaining operators read, by name."""
        remaining = (node for node in self.graph.nodes if node.name not in self.folded)
        wanted = set().union(*map(reads, remaining))
        results = [name for node in self.folded.values() for name in node.outputs if name in wanted]
        part = self._part([name for name in results if name not in self.shape_results])
        computed = zip((value.name for value in part.outputs), compute(part), strict=True)
        return {name: array for name, array in self.shape_results.items() if name in wanted} | dict(computed)

    def _part(self, outputs: Iterable[str]) -> Graph:
        graph = self.graph
        nodes = (node for node in self.folded.values() if self.shape_results.keys().isdisjoint(node.outputs))
        return replace(
            graph,
            nodes=tuple(nodes),
            inputs=(),
            outputs=tuple(Value(name, graph.type_of(name)) for name in outputs),
            # nothing can be fed to the part: its weights are constants
            weights={**graph.weights, **self.shape_results},
            overridable=frozenset(),
            variables=frozenset(),
        )

    def _folds(self, node: Node) -> bool:
        # of operators of other domains it is not known whether they give the same in every run
        if node.domain or node.op_type in WITH_MEMORY or _is_collective(node) or _has_subgraph(node):
            return False
        if self._folds_by_shape(node):
            return True
        if any(name not in self.constant_bytes for name in reads(node)):
            return False
        sizes = [_tensor_bytes(self.graph.type_of(name)) for name in node.outputs if name]
        # results may be as large as what is read, which the graph then need not keep
        most = max(_LARGEST, sum(self.constant_bytes[name] for name in reads(node)))
        return all(size is not None for size in sizes) and sum(filter(None, sizes)) <= most

    def _folds_by_shape(self, node: Node) -> bool:
        """Tell whether an operator reads only a static shape; note its result then."""
        if node.op_type not in _OF_SHAPES:
            return False
        data = self.graph.type_of(node.inputs[0])
        shape = tuple(size for size in data.shape or () if isinstance(size, int))
        if data.kind != "tensor" or data.shape is None or len(shape) != len(data.shape):
            return False
        self.shape_results[node.outputs[0]] = _frozen(
            np.array(_OF_SHAPES[node.op_type](shape, node.attributes), np.int64)
        )
        return True


def _needed_values(graph: Graph) -> Iterator[str]:
    """Yield the values that must keep their operators: graph outputs and what branches and loops read."""
    yield from (value.name for value in graph.outputs)
    for node in graph.nodes:
        yield from (name for name in reads(node) if node.bodies or name not in node.inputs)


def _is_collective(node: Node) -> bool:
    return collective(node.domain, node.op_type) is not None


def _has_subgraph(node: Node) -> bool:
    return any(attribute.HasField("g") or attribute.graphs for attribute in node.proto.attribute)


def _tensor_bytes(value_type: ValueType) -> int | None:
    """Return the size of a tensor, None where it is not known before the run."""
    if value_type.kind != "tensor" or value_type.dtype in {None, dtypes.STRING} or value_type.shape is None:
        return None
    assert value_type.dtype is not None
    sizes = [size for size in value_type.shape if isinstance(size, int)]
    return math.prod(sizes) * value_type.dtype.numpy.itemsize if len(sizes) == len(value_type.shape) else None


def _frozen(array: np.ndarray) -> np.ndarray:
    array = array.view()
    array.flags.writeable = False
    return array


def _without(graph: Graph, folded: Mapping[str, Node], arrays: Mapping[str, np.ndarray]) -> Graph:
    """Return the graph without folded operators, and without the weights that only they read."""
    nodes = tuple(node for node in graph.nodes if node.name not in folded)
    read = {name for node in folded.values() for name in reads(node)}
    # a caller may feed an overridable weight, training writes a variable: both stay
    read -= {name for node in nodes for name in reads(node)} | {value.name for value in graph.outputs}
    own = {name: array for name, array in graph.weights.items() if name not in read - graph.changeable}
    new = {name: _frozen(array) for name, array in arrays.items()}
    types = {name: ValueType(dtypes.from_numpy(array.dtype), array.shape) for name, array in new.items()}
    return replace(
        graph,
        nodes=nodes,
        weights={**own, **new},
        constants=(*(name for name in graph.constants if name in own), *new),
        types={**graph.types, **types},
    )
