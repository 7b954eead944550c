"""Operators of a network in two precisions: as the device's mode rounds them, and kept in a wider type."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from msdump.device.ascend import Ascend
from msdump.device.memory import lifetimes
from msdump.dtypes import DType
from msdump.errors import UnsupportedOpError
from msdump.execute import accelerate
from msdump.execute.kernels import RoundingsOf
from msdump.execute.operators.runner import OperatorRunner, is_repeatable
from msdump.execute.program import Program
from msdump.execute.weights import WeightCopies
from msdump.graph.graph import Graph, Node, Value
from msdump.graph.kernel.emulation import FLOAT32, MOVES, Rounding
from msdump.graph.operator_types import GE_DOMAIN, GE_PREFIX, MINDSPORE_DOMAIN
from msdump.graph.order import reads
from msdump.plan import OverflowMode, PrecisionMode

Values = dict[str, Any]
"""Arrays by the names of values; None for an absent optional."""

_MATRIX_OPS: Final = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose"})


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node whose operators can be kept in a wider type: one operator, or all of a branch or loop.

    Attributes:
        position: Its place in the execution order of the main graph.
        nodes: The operators.
    """

    position: int
    nodes: tuple[Node, ...]

    @property
    def size(self) -> int:
        """Number of operators."""
        return len(self.nodes)


class Variants:
    """Runs the operators of a network, each narrow or kept.

    Attributes:
        graph: The model, operator by operator: no level changes what its operators compute.
        to: The type of operators that are kept.
        narrow: How an operator rounds in the device's mode.
        saturates: Whether float16 stays within its range.
        candidates: What can be kept, by position.
        dead: Names of the values that nobody reads after each operator.
    """

    def __init__(
        self, graph: Graph, mode: PrecisionMode, overflow: OverflowMode, to: DType = FLOAT32
    ) -> None:
        """Compile nothing yet.

        Args:
            graph: The model.
            mode: The device's precision mode.
            overflow: What float16 results beyond the range become.
            to: float32 or bfloat16.

        Raises:
            UnsupportedOpError: An operator draws random numbers or talks to other ranks.
        """
        accelerate.install()
        device = Ascend(graph, mode, overflow)
        self.graph = device.graph
        self.to = to
        self.dead = lifetimes(self.graph).dead
        for node in self.graph.nodes:
            if not is_repeatable(node):
                raise UnsupportedOpError(
                    f"{graph.source}: {node.operator.full_name} gives other results in every run:"
                    " nothing can be advised about such a network"
                )
        self.narrow: Final = device.roundings
        self.saturates = overflow is OverflowMode.SATURATION
        copies = WeightCopies()
        self._narrow = _Runner(self.graph, self.narrow, copies)
        self._wide = _Runner(self.graph, self._all_wide, copies)
        self._kept = self._wide if to is FLOAT32 else _Runner(self.graph, self.kept, copies)
        self._reading: dict[DType, OperatorRunner] = {}
        self._copies = copies
        self.candidates = {
            position: Candidate(position, nodes)
            for position, node in enumerate(self.graph.nodes)
            if (nodes := tuple(inner for inner in _operators(node) if self._narrows(inner)))
        }

    def kept(self, node: Node) -> tuple[Rounding, ...]:
        """Return how an operator rounds that is kept: what the mode narrows becomes the wider type."""
        return tuple(
            replace(
                usual,
                reads=FLOAT32 if usual.reads is FLOAT32 else self.to,
                writes=FLOAT32 if usual.writes is FLOAT32 else self.to,
            )
            for usual in self.narrow(node)
        )

    def _all_wide(self, node: Node) -> tuple[Rounding, ...]:
        return tuple(replace(usual, reads=FLOAT32, writes=FLOAT32) for usual in self.narrow(node))

    def _narrows(self, node: Node) -> bool:
        """Tell whether the device rounds anything that an operator reads or writes."""
        (usual,) = self.narrow(node)
        inputs, outputs = (
            any(self.is_float(name) for name in names) for names in (node.inputs, node.outputs)
        )
        if moves(node):
            return usual.reads is not FLOAT32 and inputs and outputs
        return (usual.reads is not FLOAT32 and inputs) or (usual.writes is not FLOAT32 and outputs)

    def is_float(self, name: str) -> bool:
        """Tell whether a value is a float32 tensor, which alone is rounded."""
        return any(graph.type_of(name).dtype is FLOAT32 for graph in self.graph.walk() if name in graph.types)

    def needed(self, position: int) -> tuple[str, ...]:
        """Return the names of the values that an operator reads, weights aside."""
        node = self.graph.nodes[position]
        return tuple(name for name in reads(node) if name not in self.graph.weights)

    def run(self, position: int, values: Values, *, is_kept: bool) -> Values:
        """Return what an operator writes, narrow or kept, by name."""
        return (self._kept if is_kept else self._narrow).run(position, values)

    def wide(self, position: int, values: Values) -> Values:
        """Return what an operator writes in float32."""
        return self._wide.run(position, values)

    def reading(self, position: int, values: Values, dtype: DType) -> Values:
        """Return what an operator writes that reads a smaller type, and rounds no result."""
        node = self.graph.nodes[position]
        if dtype not in self._reading:

            def reads(node: Node) -> tuple[Rounding, ...]:
                return tuple(replace(usual, reads=dtype, writes=FLOAT32) for usual in self.narrow(node))

            self._reading[dtype] = OperatorRunner(self.graph, reads, self._copies)
        outputs = self._reading[dtype].run(node, values)
        self._reading[dtype].forget(node)  # it runs seldom: its packed weights cost more than they save
        return {name: array for name, array in zip(node.outputs, outputs, strict=True) if name}

    def cost(self, position: int, values: Mapping[str, Any]) -> int:
        """Return the multiplications and results of an operator, by the shapes of a run."""
        node = self.graph.nodes[position]
        written = sum(_size(values.get(name)) for name in node.outputs)
        if node.op_type in _MATRIX_OPS and len(node.inputs) > 1:
            weight = values.get(node.inputs[1], self.graph.weights.get(node.inputs[1]))
            columns = np.shape(weight)[0 if node.op_type == "Conv" else -1] if np.ndim(weight) else 1
            first = _size(values.get(node.inputs[0], self.graph.weights.get(node.inputs[0])))
            return max(written, first * max(1, columns))
        return written


class _Runner:
    """Runs nodes of one precision: operators alone, branches and loops as programs."""

    def __init__(self, graph: Graph, roundings: RoundingsOf, copies: WeightCopies) -> None:
        self._graph = graph
        self._roundings = roundings
        self._operators = OperatorRunner(graph, roundings, copies)
        self._programs: dict[int, Program] = {}

    def run(self, position: int, values: Values) -> Values:
        node = self._graph.nodes[position]
        if node.bodies:
            outputs: Sequence[Any] = self._controlled(position, node, values)
        else:
            outputs = self._operators.run(node, values)
        written = {name: array for name, array in zip(node.outputs, outputs, strict=True) if name}
        for name, array in written.items():
            if array is None and self._graph.type_of(name).kind != "optional":
                raise UnsupportedOpError(
                    f"{node.operator.full_name} writes {name!r}, which is no tensor:"
                    " only networks of tensors can be advised about"
                )
        return written

    def _controlled(self, position: int, node: Node, values: Values) -> list[Any]:
        needed = self._operators.needed(node)
        if position not in self._programs:
            graph = self._graph
            part = replace(
                graph,
                nodes=(node,),
                inputs=tuple(Value(name, graph.type_of(name)) for name in needed),
                outputs=tuple(Value(name, graph.type_of(name)) for name in node.outputs if name),
            )
            self._programs[position] = Program(part, self._roundings)
        from_python = self._operators._value  # noqa: SLF001
        results = iter(
            self._programs[position].run({name: from_python(name, values[name]) for name in needed})
        )
        return [next(results) if name else None for name in node.outputs]


def moves(node: Node) -> bool:
    """Tell whether an operator moves elements and rounds no result."""
    is_foreign = node.domain not in {"", GE_DOMAIN, MINDSPORE_DOMAIN}
    return is_foreign or node.op_type.removeprefix(GE_PREFIX) in MOVES


def _operators(node: Node) -> list[Node]:
    """Return a node, or the operators in its branches and loops."""
    if not node.bodies:
        return [node]
    return [inner for body in node.bodies.values() for each in body.nodes for inner in _operators(each)]


def _size(array: Any) -> int:
    return math.prod(np.shape(array))
