"""Finds the operators of a model that have no kernel, before anything runs.

Each kind of operator is compiled once, for the types of its inputs and without its weights: whether
there is a kernel does not depend on values.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, Final

import numpy as np

from msdump.dtypes import STRING
from msdump.errors import UnsupportedOpError
from msdump.execute import values
from msdump.execute.kernels import KernelFactory, as_the_model_says
from msdump.execute.runtime import Runtime, runtime
from msdump.execute.weights import WeightStore
from msdump.graph.collectives.calls import collective
from msdump.graph.graph import Graph, Node
from msdump.graph.operator_types import uses_float_status
from msdump.graph.order import reads

_MOST: Final = 1 << 16  # elements of a stand-in; a larger tensor is stood in for by one of ones


def unrunnable(graph: Graph) -> Iterator[tuple[Node, str]]:
    """Yield the operators that neither onnxruntime nor ONNX's reference can run, and the reason.

    Operators whose inputs have unknown types, or are no tensors, are left out: they may well run.

    Args:
        graph: The model, with its branches and loops.
    """
    # One for all: each asks what the library reads. Nothing runs in it, so that threads would be for nothing.
    sessions = Runtime(1, runtime().providers)
    refusal_of: dict[Hashable, str] = {}
    for inner in graph.walk():
        for node in inner.operators:
            kind = (node.domain, node.op_type)
            if collective(*kind) is not None or uses_float_status(*kind):  # it has no kernel, and needs none
                continue
            stand_ins = _stand_ins(inner, node)
            if stand_ins is None:
                continue
            attributes = repr(sorted(node.attributes.items()))
            key = (node.domain, node.op_type, node.proto.overload, attributes, _types(node, stand_ins))
            # A network repeats few kinds of operators many times, and compiling one takes milliseconds.
            if key not in refusal_of:
                refusal_of[key] = _refusal(inner, node, stand_ins, sessions)
            if refusal_of[key]:
                yield node, refusal_of[key]


def _refusal(graph: Graph, node: Node, stand_ins: dict[str, Any], sessions: Runtime) -> str:
    """Return why an operator cannot be compiled, "" where it can."""
    weightless = KernelFactory(graph, WeightStore({}), sessions, as_the_model_says)
    weights = WeightStore(graph.weights)
    try:
        weightless.make(node, stand_ins)
    except UnsupportedOpError:  # it may need its weights
        try:
            factory = KernelFactory(graph, weights, sessions, as_the_model_says)
            factory.make(node, {name: value for name, value in stand_ins.items() if name not in weights})
        except UnsupportedOpError as error:
            # The message names the model and the operator first, which the reader is told anyway.
            return str(error).partition(f"node {node.name!r}: ")[2] or str(error)
    return ""


def _stand_ins(graph: Graph, node: Node) -> dict[str, Any] | None:
    """Return zeros of the types that an operator reads, by name; None where a type is not known."""
    stand_ins = {name: _stand_in(graph, name) for name in reads(node)}
    return None if any(value is None for value in stand_ins.values()) else stand_ins


def _stand_in(graph: Graph, name: str) -> Any:
    declared = graph.type_of(name)
    if declared.dtype is None or declared.kind != "tensor":
        return None
    if declared.dtype is STRING:
        return values.from_array(np.array([""], declared.dtype.numpy))
    shape = [dim if isinstance(dim, int) else 1 for dim in declared.shape or ()]
    stand_in_shape = shape if np.prod(shape, dtype=float) <= _MOST else [1] * len(shape)
    return values.owned(np.zeros(stand_in_shape, declared.dtype.numpy))


def _types(node: Node, stand_ins: dict[str, Any]) -> Hashable:
    return tuple(values.kind_of(stand_ins[name]) if name in stand_ins else "" for name in node.inputs)
