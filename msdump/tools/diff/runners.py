"""What runs single operators in the golden side's arithmetic, run after run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from msdump.execute.operators.float64.evaluator import Float64Runner
from msdump.execute.operators.runner import OperatorRunner
from msdump.graph.graph import Graph, Node
from msdump.graph.order import reads
from msdump.observer import Array
from msdump.tools.diff.sides import Side
from msdump.tools.diff.variants import Engine

_MOST_BYTES: Final = 16 << 20
"""Bytes of weights that kernels which are kept may have packed, beside those of the golden network itself."""

_MOST: Final = 1024
"""Operators whose kernels are kept; a session without weights takes some tens of kilobytes."""


@dataclass(slots=True)
class GoldenRunners:
    """Runs operators of any graph as the golden side computes them.

    Operators that ran again in one run of the networks do so in the next one as a rule. So their kernels
    stay, up to a bound: those of the first ones, since each run asks for them in the same order.

    Attributes:
        side: The golden side.
    """

    side: Side
    _singles: dict[int, OperatorRunner] = field(default_factory=dict)
    _doubles: dict[int, Float64Runner] = field(default_factory=dict)
    _kept: set[tuple[int, str]] = field(default_factory=set)
    _bytes: int = 0

    def outputs(self, graph: Graph, node: Node, given: Mapping[str, np.ndarray]) -> tuple[Array, ...]:
        """Run an operator once; return an array for each of its outputs, None for an unused one.

        Args:
            graph: The graph of the operator, of either side.
            node: The operator.
            given: What it reads, by the names of values; weights that are not given are the graph's.

        Raises:
            MsdumpError: It refuses its inputs.
        """
        if self.side.variant.engine is Engine.FLOAT64:
            return self._doubles.setdefault(id(graph), Float64Runner(graph)).run(node, given)
        runner = self._singles.get(id(graph))
        if runner is None:  # it keeps the graph, so that no other one gets its identity
            runner = OperatorRunner(graph, self.side.arithmetic, self.side.copies, on=self.side.runtime)
            self._singles[id(graph)] = runner
        try:
            return runner.run(node, given)
        finally:
            if not self._keeps(graph, node):
                runner.forget(node)

    def _keeps(self, graph: Graph, node: Node) -> bool:
        """Tell whether the kernels of an operator stay."""
        key = (id(graph), node.name)
        if key in self._kept:
            return True
        packed = sum(graph.weights[name].nbytes for name in reads(node) if name in graph.weights)
        if len(self._kept) >= _MOST or self._bytes + packed > _MOST_BYTES:
            return False
        self._kept.add(key)
        self._bytes += packed
        return True
