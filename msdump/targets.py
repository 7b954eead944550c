"""Parts of a network, as targets of ``set_dump``, and the names by which they are found."""

from __future__ import annotations

from typing import Protocol

from msdump.capture.selection import inside
from msdump.capture.suggestions import operators, similar_names, similar_scopes
from msdump.graph.graph import Graph, Node
from msdump.record import lies_below


class Markable(Protocol):
    """A network whose operators can be marked."""

    def mark(self, full_names: tuple[str, ...], *, enabled: bool) -> None:
        """Mark operators for ``dump_mode`` 2 by their full names, or take their marks away."""


class Operator:
    """One operator of a network, as a target of ``set_dump``."""

    def __init__(self, network: Markable, node: Node) -> None:
        """Make the target of a network's node."""
        self._network = network
        self.full_name = node.operator.full_name
        self.op_type = node.operator.op_type
        self.onnx_name = node.name

    def set_dump(self, *, enabled: bool) -> None:
        """Mark the operator for ``dump_mode`` 2, or take the mark away."""
        self._network.mark((self.full_name,), enabled=enabled)

    def __repr__(self) -> str:
        """Name the operator."""
        return f"<Operator {self.full_name} ({self.onnx_name})>"


class Scope:
    """A scope of a network with everything below it, as a target of ``set_dump``."""

    def __init__(self, network: Markable, name: str, operators: tuple[str, ...]) -> None:
        """Make the target of the operators below a scope.

        Args:
            network: The network.
            name: Name of the scope, or module path, as the user wrote it.
            operators: Full names of the operators.
        """
        self._network = network
        self.name = name
        self.operators = operators

    def set_dump(self, *, enabled: bool) -> None:
        """Mark all operators of the scope, or take their marks away."""
        self._network.mark(self.operators, enabled=enabled)

    def __repr__(self) -> str:
        """Name the scope and count its operators."""
        return f"<Scope {self.name} of {len(self.operators)} operators>"


class Names:
    """The names to which the operators and scopes of a network answer.

    Attributes:
        nodes: The operators in execution order; those of branches and loops follow the main graph's.
    """

    def __init__(self, graph: Graph, *, is_compiled: bool) -> None:
        """Take the names of a graph's operators and scopes.

        Args:
            graph: The graph as the device runs it.
            is_compiled: Whether it is compiled as a whole (O2): there a fused operator answers to the
                names of its originals, too. Under O1 they cannot be dumped, and so are not found.
        """
        self.nodes = operators(graph)
        self._graph = graph
        self._is_compiled = is_compiled

    def operator(self, name: str) -> Node:
        """Return the operator of a full name or an ONNX node name.

        Raises:
            KeyError: No operator answers to it; says why.
        """
        node = self._find(name)
        if node is None:
            raise KeyError(self._why_missing(name))
        return node

    def scope(self, name: str) -> tuple[str, ...]:
        """Return the full names of the operators in a scope, ``Default/conv1-Conv2d``, or module, ``conv1``.

        Raises:
            KeyError: No operator lies in it.
        """
        full_names = self._below(name)
        if not full_names:
            raise KeyError(f"no scope {name!r} in {self._graph.source}{similar_scopes(name, self.nodes)}")
        return full_names

    def meant_by(self, name: str) -> tuple[str, ...]:
        """Return the full names of the operator, or else of the scope, of a name; empty without either."""
        node = self._find(name)
        return self._below(name) if node is None else (node.operator.full_name,)

    def hint(self, name: str) -> str:
        """Return which operator or scope may have been meant by a name, "" where nothing is close."""
        return similar_names(name, self.nodes) or similar_scopes(name, self.nodes)

    def _find(self, name: str) -> Node | None:
        """Return the first operator that answers to a name, None without one."""
        for node in self.nodes:
            if _is_called(node, name) or (self._is_compiled and _has_part(node, name)):
                return node
        return None

    def _why_missing(self, name: str) -> str:
        """Return why no operator answers to a name: fused, control flow, or unknown, with what is similar."""
        for node in self.nodes:
            if _has_part(node, name):
                return inside(name, node.operator.full_name)
        control = (node for inner in self._graph.walk() for node in inner.nodes if node.bodies)
        if any(_is_called(node, name) for node in control):
            return f"{name} is control flow: the operators inside it can be dumped, not itself"
        return f"no operator {name!r} in {self._graph.source}{similar_names(name, self.nodes)}"

    def _below(self, scope: str) -> tuple[str, ...]:
        """Return the full names of the operators below a scope or module path."""
        return tuple(node.operator.full_name for node in self.nodes if self._is_within(node, scope))

    def _is_within(self, node: Node, scope: str) -> bool:
        """Tell whether a scope holds an operator; one that O2 has fused, where it holds a part of it."""
        parts = node.members if self._is_compiled else (node,)
        return any(lies_below(part.scope, scope) for part in parts)


def _is_called(node: Node, name: str) -> bool:
    return name in {node.operator.full_name, node.name}


def _has_part(node: Node, name: str) -> bool:
    """Tell whether an operator of the name is fused in another one."""
    return any(_is_called(part, name) for part in node.parts)
