"""Tasks and streams: which task of the device runs each operator of a compiled graph.

Operators without a task produce no dump (CANN, offline model dump): control flow,
data, data flow, and operators that the graph engine settles without the device, such as a
change of shape, which moves nothing (GE marks these operators ``_no_task``).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from msdump.graph import Graph, Node, OperatorKind, Use, operators_of, primitive_name

DATA_FLOW: Final = operators_of(OperatorKind.DATA_FLOW, OperatorKind.SEQUENCE)
_VIEWS: Final = operators_of(OperatorKind.VIEW)
SETTLED: Final = _VIEWS | operators_of(OperatorKind.SETTLED)
_WITHOUT_TASK: Final = operators_of(OperatorKind.CONTROL_FLOW) | DATA_FLOW | SETTLED

INSERTED_PREFIX: Final = "trans_"
"""Begins the names of the operators that convert formats and types, which the compiler inserts."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task of the device."""

    task_id: int
    stream_id: int


def assign(graph: Graph) -> tuple[Task | None, ...]:
    """Return the task of each operator in execution order; None: the device runs no task for the operator.

    The tasks of a graph are numbered in execution order, on one stream. Each branch and
    each body of a loop is a graph with a stream of its own. So equal models have equal
    tasks, and a pair of task and stream identifies one operator of a model.
    """
    tasks: list[Task | None] = []
    count = 0
    for node in graph.nodes:
        has_task = runs_on_device(node)
        tasks.append(Task(count, graph.index) if has_task else None)
        # numbers have no gaps: operators without a task take none
        count += has_task
    return tuple(tasks)


def input_tasks(graphs: Iterable[tuple[Graph, Sequence[Task | None]]]) -> dict[str, Task]:
    """Return the task of each model input: the task of the first operator that reads it, main graph first.

    The task depends on the model alone, not on the selection of operators to dump.
    """
    task_of: dict[str, Task] = {}
    for graph, tasks in graphs:
        for node, task in zip(graph.nodes, tasks, strict=True):
            if task is not None:
                task_of |= {name: task for name in node.inputs if name not in task_of}
    return task_of


def runs_on_device(node: Node) -> bool:
    """Return whether an operator has a task of its own."""
    if node.is_added:
        return True
    return not (node.bodies or (not node.domain and node.op_type in _WITHOUT_TASK))


@functools.cache
def _primitives(types: frozenset[str]) -> frozenset[str]:
    """Return operators by their names in ONNX and in MindSpore."""
    return types | {primitive_name(op_type, "", Use()) for op_type in types}


def is_settled(primitive: str) -> bool:
    """Return whether compiled graphs run no task for a primitive, so that their dumps lack it."""
    return primitive in _primitives(_WITHOUT_TASK)


def is_view(primitive: str) -> bool:
    """Return whether a primitive only renames or reshapes its first input, without moving data."""
    return primitive in _primitives(_VIEWS)


def moves_nothing(node: Node) -> bool:
    """Return whether a node of a compiled graph only renames or reshapes its input, without moving data."""
    return not node.domain and node.op_type in _VIEWS and not (node.parts or node.is_added)
