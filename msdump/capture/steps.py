"""The steps that every tensor walks through before it is measured and becomes a file.

A step takes a record and returns it, another one, or the reason for which it gets no file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from msdump.dtypes import STRING, widen
from msdump.graph.graph import Graph, Node
from msdump.reasons import Reason
from msdump.record import TensorRecord

_log = logging.getLogger("msdump.capture")

Step = Callable[[TensorRecord], TensorRecord | Reason]
Skip = Callable[[Reason], None]

_NO_TENSORS: Final = frozenset({"sequence", "map"})


def count_no_tensors(graph: Graph, node: Node, *, inputs: bool, outputs: bool) -> int:
    """Return how many of an operator's values are no tensors, so that no file can hold them.

    Args:
        graph: The graph of the operator.
        node: The operator.
        inputs: Its inputs count.
        outputs: Its outputs count.
    """
    names = node.inputs * inputs + node.outputs * outputs
    return sum(is_no_tensor(graph, name) for name in names if name)


def is_no_tensor(graph: Graph, name: str) -> bool:
    """Tell whether a value of a graph is a sequence or a map."""
    return graph.type_of(name).kind in _NO_TENSORS


def walk(record: TensorRecord, steps: tuple[Step, ...]) -> TensorRecord | Reason:
    """Return a record after all steps, or the reason for which one of them dropped it."""
    for step in steps:
        kept = step(record)
        if isinstance(kept, Reason):
            return kept
        record = kept
    return record


def drop_empty(record: TensorRecord) -> TensorRecord | Reason:
    """Drop tensors without elements."""
    return record if record.array.size else Reason.NO_ELEMENTS


def drop_text() -> Step:
    """Drop string tensors, which .npy files cannot hold; each operator is named once."""
    warned: set[str] = set()

    def step(record: TensorRecord) -> TensorRecord | Reason:
        if record.dtype is not STRING:
            return record
        name = record.operator.full_name
        if name not in warned:
            warned.add(name)
            _log.warning("%s: %s.%d is text, which a dump cannot hold; skipped", name, record.io, record.slot)
        return Reason.TEXT

    return step


def widened(record: TensorRecord) -> TensorRecord:
    """Store types that numpy lacks in the next larger one: bfloat16 as float32, int4 as int8."""
    if record.dtype.saved == record.array.dtype:
        return record
    return replace(record, array=widen(record.array, record.dtype))
