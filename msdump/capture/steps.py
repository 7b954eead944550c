"""The steps that every tensor walks through before it is measured and becomes a file.

A step takes a record and returns it, another one, or None to drop it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from msdump.dtypes import STRING, widen
from msdump.graph.graph import Graph, Node
from msdump.record import TensorRecord

_log = logging.getLogger("msdump.capture")

Step = Callable[[TensorRecord], TensorRecord | None]
Skip = Callable[[str], None]

NO_ELEMENTS = "no elements"
TEXT = "text"
NO_TENSOR = "sequences and maps"
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
    return sum(graph.type_of(name).kind in _NO_TENSORS for name in names if name)


def walk(record: TensorRecord, steps: tuple[Step, ...]) -> TensorRecord | None:
    """Return a record after all steps, None where one of them dropped it."""
    for step in steps:
        kept = step(record)
        if kept is None:
            return None
        record = kept
    return record


def drop_empty(skip: Skip) -> Step:
    """Drop tensors without elements: no file, but counted."""

    def step(record: TensorRecord) -> TensorRecord | None:
        if record.array.size:
            return record
        skip(NO_ELEMENTS)
        return None

    return step


def drop_text(skip: Skip) -> Step:
    """Drop string tensors, which .npy files cannot hold; each operator is named once."""
    warned: set[str] = set()

    def step(record: TensorRecord) -> TensorRecord | None:
        if record.dtype is not STRING:
            return record
        skip(TEXT)
        name = record.operator.full_name
        if name not in warned:
            warned.add(name)
            _log.warning("%s: %s.%d is text, which a dump cannot hold; skipped", name, record.io, record.slot)
        return None

    return step


def widened(record: TensorRecord) -> TensorRecord:
    """Store types that numpy lacks in the next larger one: bfloat16 as float32, int4 as int8."""
    if record.dtype.saved == record.array.dtype:
        return record
    return replace(record, array=widen(record.array, record.dtype))
