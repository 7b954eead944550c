"""The graphs inside If, Loop and Scan: which of them run operator by operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from msdump.graph.graph import Graph, Node
from msdump.graph.operator_types import canonical_domain

if TYPE_CHECKING:
    import onnx

ATTRIBUTES: Final[Mapping[str, tuple[str, ...]]] = {
    "If": ("then_branch", "else_branch"),
    "Loop": ("body",),
    "Scan": ("body",),
}
"""The attributes that hold graphs of control flow, in the order in which the graphs are numbered."""

LOOP_HEAD: Final = 2
"""Inputs of a Loop, and of its body, before the values that it carries: number and condition."""

_SCAN_WITHOUT_BATCHES: Final = 9


def protos(node: onnx.NodeProto) -> dict[str, onnx.GraphProto]:
    """Return the graphs of a control flow node by attribute, in order; of any other node none."""
    if canonical_domain(node.domain):
        return {}
    held = {attribute.name: attribute.g for attribute in node.attribute if attribute.HasField("g")}
    return {name: held[name] for name in ATTRIBUTES.get(node.op_type, ()) if name in held}


def obstacle(node: onnx.NodeProto, opset: int) -> str:
    """Return why the bodies of a control flow node cannot run operator by operator, "" where they can.

    Args:
        node: An If, Loop or Scan of ai.onnx.
        opset: Version of ai.onnx.
    """
    held = protos(node)
    if len(held) < len(ATTRIBUTES[node.op_type]):
        return "it lacks a graph"
    for name, body in held.items():
        stored = {tensor.name for tensor in body.initializer}
        if any(value.name in stored for value in body.input):
            return f"an input of its {name} has a default"
    scan = _scan_obstacle(node, opset) if node.op_type == "Scan" else ""
    return scan or _miscounted(node, held)


def _scan_obstacle(node: onnx.NodeProto, opset: int) -> str:
    if opset < _SCAN_WITHOUT_BATCHES:
        return f"Scan of opset {opset} works on batches"
    scanned = _scanned(node)
    if not 0 < scanned <= len(node.input):
        return f"it scans {scanned} of {len(node.input)} inputs"
    stacked = len(protos(node)["body"].output) - (len(node.input) - scanned)
    for attribute in node.attribute:
        wanted = {"scan_input": scanned, "scan_output": stacked}.get(attribute.name.rpartition("_")[0])
        if wanted is not None and len(attribute.ints) != wanted:
            return f"its {attribute.name} has {len(attribute.ints)} entries, {wanted} are expected"
    return ""


def _scanned(node: onnx.NodeProto) -> int:
    return next((a.i for a in node.attribute if a.name == "num_scan_inputs"), 0)


def _miscounted(node: onnx.NodeProto, held: Mapping[str, onnx.GraphProto]) -> str:
    takes, gives = _counts(node)
    for name, body in held.items():
        if len(body.input) != takes:
            return f"its {name} takes {len(body.input)} values, {takes} are given"
        if len(body.output) < gives:
            return f"its {name} gives {len(body.output)} values, {gives} are taken"
    return ""


def _counts(node: onnx.NodeProto) -> tuple[int, int]:
    """Return how many values a body takes, and the least that it gives."""
    given, taken = len(node.input), len(node.output)
    if node.op_type == "If":
        return 0, taken
    if node.op_type == "Loop":
        carried = max(given - LOOP_HEAD, 0)
        return LOOP_HEAD + carried, 1 + max(carried, taken)
    return given, max(given - _scanned(node), taken)


def with_bodies(graph: Graph, change: Callable[[Graph], Graph]) -> Graph:
    """Return the graph with the graphs directly inside it changed.

    Args:
        graph: The graph.
        change: Returns what takes a body's place; inputs, outputs and values that inner nodes read
            of outer graphs must stay.
    """
    nodes = (
        replace(node, bodies={name: change(body) for name, body in node.bodies.items()})
        if node.bodies
        else node
        for node in graph.nodes
    )
    return replace(graph, nodes=tuple(nodes))


def unseen(graph: Graph) -> Iterator[tuple[Node, str]]:
    """Yield the control flow nodes of a model that run as one operator each, and why."""
    for inner in graph.walk():
        for node in inner.nodes:
            if node.op_type in ATTRIBUTES and not node.domain and not node.bodies:
                yield node, obstacle(node.proto, graph.opsets.get("", 1))
