"""The steps that drop tensors which no artifact can hold, and the values that are no tensors at all."""

from __future__ import annotations

import logging
from typing import Final

from msdump.capture.steps.step import Step, in_sessions
from msdump.dtypes import STRING
from msdump.graph.graph import Graph, Node
from msdump.reasons import Reason
from msdump.record import TensorRecord

_log = logging.getLogger("msdump.capture")

_NO_TENSORS: Final = frozenset({"sequence", "map"})


def count_no_tensors(graph: Graph, node: Node, *, inputs: bool, outputs: bool) -> int:
    """Return how many of an operator's values are no tensors, so that no file can hold them.

    Args:
        graph: The graph of the operator.
        node: The operator.
        inputs: Its inputs count.
        outputs: Its outputs count.
    """
    names = node.inputs * inputs + node.declared_outputs * outputs  # of a side that does not count: no names
    return sum(is_no_tensor(graph, name) for name in names if name)


def is_no_tensor(graph: Graph, name: str) -> bool:
    """Tell whether a value of a graph is a sequence or a map."""
    return graph.type_of(name).kind in _NO_TENSORS


@in_sessions
def drop_empty(record: TensorRecord) -> TensorRecord | Reason:
    """Drop tensors without elements."""
    return record if record.array.size else Reason.NO_ELEMENTS


def drop_text() -> Step:
    """Return the step that drops string tensors, which no file can hold; it names each operator once."""
    warned: set[str] = set()

    @in_sessions  # it takes no text
    def step(record: TensorRecord) -> TensorRecord | Reason:
        if record.dtype is not STRING:
            return record
        name = record.operator.full_name
        if name not in warned:
            warned.add(name)
            _log.warning("%s: %s.%d is text, which a dump cannot hold; skipped", name, record.io, record.slot)
        return Reason.TEXT

    return step
