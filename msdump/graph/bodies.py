"""The graphs inside If, Loop and Scan: their order, and which of them run operator by operator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from msdump.graph.graph import MINDSPORE_DOMAIN, Graph, Node, canonical_domain
from msdump.graph.operators import facts_of
from msdump.graph.order import reads

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
    """Return the graphs of a control flow node in the order of ``ATTRIBUTES``; {} for any other node."""
    if canonical_domain(node.domain):
        return {}
    # HasField: a graph attribute that is not set reads as an empty graph
    graphs = {attribute.name: attribute.g for attribute in node.attribute if attribute.HasField("g")}
    return {name: graphs[name] for name in ATTRIBUTES.get(node.op_type, ()) if name in graphs}


def obstacle(node: onnx.NodeProto, opset: int) -> str:
    """Return why an If, Loop or Scan must run as one operator; "" if its bodies run operator by operator."""
    graphs = protos(node)
    if len(graphs) < len(ATTRIBUTES[node.op_type]):
        return "a graph is missing"
    for name, body in graphs.items():
        stored = {tensor.name for tensor in body.initializer}
        if any(value.name in stored for value in body.input):
            return f"an input of its {name} has a default"  # it would count as a weight
    scan = _scan_obstacle(node, opset) if node.op_type == "Scan" else ""
    return scan or _count_fault(node, graphs)


def _scan_obstacle(node: onnx.NodeProto, opset: int) -> str:
    # the batch axis of Scan-8 is no axis of its body, which would have to run once for each batch
    if opset < _SCAN_WITHOUT_BATCHES:
        return f"Scan of opset {opset} works on batches"
    scanned = _scan_input_count(node)
    if not 0 < scanned <= len(node.input):
        return f"it scans {scanned} of {len(node.input)} inputs"
    stacked = len(protos(node)["body"].output) - (len(node.input) - scanned)
    for attribute in node.attribute:
        expected = {"scan_input": scanned, "scan_output": stacked}.get(attribute.name.rpartition("_")[0])
        if expected is not None and len(attribute.ints) != expected:
            return f"its {attribute.name} has {len(attribute.ints)} entries, {expected} are expected"
    return ""


def _scan_input_count(node: onnx.NodeProto) -> int:
    return next((attribute.i for attribute in node.attribute if attribute.name == "num_scan_inputs"), 0)


def _count_fault(node: onnx.NodeProto, graphs: Mapping[str, onnx.GraphProto]) -> str:
    input_count, output_count = len(node.input), len(node.output)
    # branches have no inputs: they read outer values by name
    if node.op_type == "If":
        takes, gives = 0, output_count
    elif node.op_type == "Loop":
        # outputs of a Loop's body: condition, carried values, scan outputs
        carried = max(input_count - LOOP_HEAD, 0)
        takes, gives = LOOP_HEAD + carried, 1 + max(carried, output_count)
    else:
        takes, gives = input_count, max(input_count - _scan_input_count(node), output_count)
    for name, body in graphs.items():
        if len(body.input) != takes:
            return f"its {name} takes {len(body.input)} values, {takes} are given"
        if len(body.output) < gives:
            return f"its {name} gives {len(body.output)} values, {gives} are taken"
    return ""


def with_bodies(graph: Graph, change: Callable[[Graph], Graph]) -> Graph:
    """Return a graph with changed bodies; ``change`` must keep inputs, outputs and outer values of a body."""
    nodes = (
        replace(node, bodies={name: change(body) for name, body in node.bodies.items()})
        if node.bodies
        else node
        for node in graph.nodes
    )
    return replace(graph, nodes=tuple(nodes))


def rewritten(graph: Graph, change: Callable[[Graph], Graph]) -> Graph:
    """Apply a change to a graph and to all graphs inside it, outer graphs first; return the graph."""
    return with_bodies(change(graph), lambda body: rewritten(body, change))


def opaque_control_flow(graph: Graph) -> Iterator[tuple[Node, str]]:
    """Yield each control flow node of a model that runs as one operator, and the reason (``obstacle``)."""
    for inner in graph.walk():
        for node in inner.nodes:
            if node.op_type in ATTRIBUTES and not node.domain and not node.bodies:
                yield node, obstacle(node.proto, graph.opsets.get("", 1))


_KNOWN_DOMAINS: Final = frozenset({"", "ai.onnx.ml", "com.microsoft", MINDSPORE_DOMAIN})

_SHAPES: Final = frozenset({"Shape", "Size"})
"""Operators with results that depend on the shape of their input alone."""


def has_content_sizes(graph: Graph, fed: Collection[str]) -> bool:
    """Return whether output sizes of an operator may vary between runs with inputs of equal shapes.

    ``fed`` names the inputs and weights that may have other contents in another run. Sizes of control flow
    vary if sizes inside it vary; sizes of operators of unknown domains vary, unless their outputs have a
    fixed shape.
    """
    return _Walk(set(fed)).varies(graph)


class _Walk:
    """Collects in ``_dependent`` the names of values that depend on the contents of a graph's inputs."""

    def __init__(self, fed: set[str]) -> None:
        self._dependent = fed

    def varies(self, graph: Graph) -> bool:
        """Return whether a size in the graph varies; stops at the first operator with a varying size."""
        return any(self._node_varies(graph, part) for node in graph.nodes for part in node.members)

    def _node_varies(self, graph: Graph, node: Node) -> bool:
        slots = {slot for slot, name in enumerate(node.inputs) if name in self._dependent}
        if node.bodies:
            if not slots.isdisjoint(_DECISIVE[node.op_type]):
                return True
            # until nothing changes: each pass of a loop may make further carried values dependent
            while True:
                count_before = len(self._dependent)
                for body in node.bodies.values():
                    self._enter(node, body)
                    if self.varies(body) or self._leave(node, body):
                        return True
                if len(self._dependent) == count_before:
                    return False
        if not self._dependent.isdisjoint(set(reads(node)) - set(node.inputs)):
            return True  # a subgraph of the operator reads a dependent value
        # of an operator of an unknown domain only the declared output shapes are known
        if node.domain not in _KNOWN_DOMAINS:
            outputs = filter(None, node.outputs)
            varies = bool(slots) and not all(graph.type_of(name).is_settled for name in outputs)
        else:
            varies = not slots.isdisjoint(facts_of(node.op_type).sizes_from)
        if (slots and node.op_type not in _SHAPES) or facts_of(node.op_type).is_random:
            self._dependent.update(filter(None, node.outputs))
        return varies

    def _enter(self, node: Node, body: Graph) -> None:
        """Mark inputs of a body that take dependent values: inputs of the node, outputs of the last pass."""
        if node.op_type == "If":
            return
        inputs = [value.name for value in body.inputs if value.name not in body.outer]
        outputs = [value.name for value in body.outputs]
        if node.op_type == "Loop":  # a body has inputs (number, condition, ...), outputs (condition, ...)
            pairs = [*zip(node.inputs[LOOP_HEAD:], inputs[LOOP_HEAD:], strict=False)]
            pairs += zip(outputs[1:], inputs[LOOP_HEAD:], strict=False)
        else:
            states = len(node.inputs) - int(str(node.attributes["num_scan_inputs"]))
            pairs = [*zip(node.inputs, inputs, strict=False), *zip(outputs[:states], inputs, strict=False)]
        self._dependent.update(target for source, target in pairs if source in self._dependent)

    def _leave(self, node: Node, body: Graph) -> bool:
        """Mark node outputs that take dependent values of a body; return whether the condition is one."""
        outputs = [value.name for value in body.outputs]
        if node.op_type == "Loop":
            condition, *outputs = outputs
            if condition in self._dependent:
                return True
        results = zip(node.outputs, outputs, strict=False)
        self._dependent.update(result for result, source in results if result and source in self._dependent)
        return False


_DECISIVE: Final[Mapping[str, frozenset[int]]] = {
    "If": frozenset({0}),
    "Loop": frozenset({0, 1}),
    "Scan": frozenset(),
}
"""Inputs of control flow that say which bodies run, and how often."""
