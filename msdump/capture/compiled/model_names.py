"""The names to which an operator of a compiled model answers."""

from __future__ import annotations

from msdump.graph.graph import Node


def names(node: Node) -> frozenset[str]:
    """Return the names of an operator of the compiled graph: full name and ONNX name.

    A fused operator has the joined ONNX names of its parts, ``conv1conv1_relu``.

    >>> from msdump.record import OperatorRef
    >>> operator = OperatorRef("Conv2D", "Default/Conv2D-op0")
    >>> sorted(names(Node("conv1", "Conv", "", (), (), {}, operator, (), None)))
    ['Default/Conv2D-op0', 'conv1']
    """
    return frozenset({node.operator.full_name, node.name, "".join(part.name for part in node.members)})


def all_names(node: Node) -> frozenset[str]:
    """Return the names of an operator and of the original operators in it."""
    originals = (name for part in node.parts for name in (part.operator.full_name, part.name))
    return names(node).union(originals)


def kinds(node: Node) -> frozenset[str]:
    """Return the types of an operator: of the compiled graph, ``Conv2D``, and of ONNX, ``Conv``."""
    return frozenset({node.operator.op_type, node.op_type})
