"""Which operators of a model nothing here can run, told before anything runs.

Each kind of operator is compiled once, for the types of its inputs and without its weights: an
operator that has no kernel needs no values to show it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, Final

import numpy as np

from msdump.dtypes import STRING
from msdump.errors import UnsupportedOpError
from msdump.execute import values
from msdump.execute.kernels import KernelFactory
from msdump.execute.runtime import runtime
from msdump.execute.weights import WeightStore
from msdump.graph.graph import Graph, Node
from msdump.graph.order import reads

_MOST: Final = 1 << 16  # elements of a stand-in; a larger tensor is stood in for by one of ones


def unrunnable(graph: Graph) -> Iterator[tuple[Node, str]]:
    """Yield the operators that neither the runtime nor ONNX's reference can run, and why.

    Operators whose inputs have unknown types, or are no tensors, are left out: they may well run.

    Args:
        graph: The model, with its branches and loops.
    """
    known: dict[Hashable, str] = {}
    for inner in graph.walk():
        for node in inner.operators:
            fed = _stand_ins(inner, node)
            if fed is None:
                continue
            key = (node.domain, node.op_type, repr(sorted(node.attributes.items())), _types(node, fed))
            if key not in known:
                known[key] = _refusal(inner, node, fed)
            if known[key]:
                yield node, known[key]


def _refusal(graph: Graph, node: Node, fed: dict[str, Any]) -> str:
    """Return why an operator cannot be compiled, "" where it can."""
    weightless = KernelFactory(graph, WeightStore({}), runtime(), _as_the_model_says)
    weights = WeightStore(graph.weights)
    try:
        weightless.make(node, fed)
    except UnsupportedOpError:  # it may need its weights
        try:
            factory = KernelFactory(graph, weights, runtime(), _as_the_model_says)
            factory.make(node, {name: value for name, value in fed.items() if name not in weights})
        except UnsupportedOpError as error:
            return str(error).partition(f"node {node.name!r}: ")[2] or str(error)
    return ""


def _as_the_model_says(_node: Node) -> None:
    """Round nothing."""


def _stand_ins(graph: Graph, node: Node) -> dict[str, Any] | None:
    """Return values of the types that an operator reads; None where one is not known."""
    fed = {name: _stand_in(graph, name) for name in reads(node)}
    return None if any(value is None for value in fed.values()) else fed


def _stand_in(graph: Graph, name: str) -> Any:
    known = graph.type_of(name)
    if known.dtype is None or known.kind != "tensor":
        return None
    if known.dtype is STRING:
        return values.from_array(np.array([""], known.dtype.numpy))
    shape = [dim if isinstance(dim, int) else 1 for dim in known.shape or ()]
    small = shape if np.prod(shape, dtype=float) <= _MOST else [1] * len(shape)
    return values.owned(np.zeros(small, known.dtype.numpy))


def _types(node: Node, fed: dict[str, Any]) -> Hashable:
    return tuple(values.kind_of(fed[name]) if name in fed else "" for name in node.inputs)
