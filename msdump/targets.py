"""Parts of a network, as targets of ``set_dump``."""

from __future__ import annotations

from typing import Protocol

from msdump.graph.graph import Node


class Markable(Protocol):
    """A network whose operators can be marked."""

    def mark(self, full_names: tuple[str, ...], *, enabled: bool) -> None:
        """Mark operators for ``dump_mode`` 2 by their full names, or take their marks away."""


class Operator:
    """One operator of a network, as a target of ``set_dump``."""

    def __init__(self, network: Markable, node: Node) -> None:
        """Refer to a node of a network."""
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
        """Refer to a scope of a network."""
        self._network = network
        self.name = name
        self.operators = operators

    def set_dump(self, *, enabled: bool) -> None:
        """Mark all operators of the scope, or take their marks away."""
        self._network.mark(self.operators, enabled=enabled)

    def __repr__(self) -> str:
        """Name the scope and count its operators."""
        return f"<Scope {self.name} of {len(self.operators)} operators>"
