"""What the session of a segment writes to files, and which files it writes together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msdump.execute.segments import sizes
from msdump.execute.segments.cutting import MOST_BYTES
from msdump.execute.segments.operators import ProgramOperator
from msdump.execute.segments.segment import ProgramView
from msdump.graph.graph import Graph
from msdump.graph.kernel.linked import SavedValue
from msdump.observer import TensorSlot
from msdump.record import IO

_MOST_WAITING: Final = 32
"""Values that wait for one another: their files are open at once."""

_PAIR: Final = 2


def saved_values(
    graph: Graph, view: ProgramView, operators: Iterable[ProgramOperator], first: int
) -> dict[TensorSlot, SavedValue]:
    """Return the tensors of operators that their session writes, in the order of their files.

    Where an operator holds nothing up, its files wait for those of operators behind it, so that threads can
    write several at once; they all hold about as many bytes as a segment does for an observer.

    Args:
        graph: The graph.
        view: The view.
        operators: Those whose tensors are written, in order.
        first: Position of the segment's first operator.
    """
    saved: dict[TensorSlot, SavedValue] = {}
    held = count = 0
    for operator in operators:
        holds_up = bool(view.holds_up) and view.holds_up[operator.position]
        for tensor, name in _tensors(operator, view):
            held, count = held + sizes.nbytes(graph, name, view.dimensions), count + 1
            is_full = count >= _MOST_WAITING or (held >= MOST_BYTES and count >= _PAIR)
            if holds_up or is_full:
                held = count = 0
            reader = operator.position - first if tensor.io is IO.INPUT else None
            saved[tensor] = SavedValue(name, reader, waits=not (holds_up or is_full))
    return saved


def _tensors(operator: ProgramOperator, view: ProgramView) -> Iterator[tuple[TensorSlot, str]]:
    """Yield the tensors of an operator and their values: inputs, where they are wanted, then outputs."""
    for io, names in (
        (IO.INPUT, operator.inputs if view.wants_inputs else ()),
        (IO.OUTPUT, operator.node.outputs),
    ):
        yield from (
            (TensorSlot(operator.position, io, slot), name) for slot, name in enumerate(names) if name
        )
