"""Weights that the examined side rounds to infinity, though what is computed of them may be finite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from msdump.analysis import errors
from msdump.analysis.diff.lockstep import Ran
from msdump.analysis.diff.models import Side
from msdump.analysis.judge import TensorEvidence
from msdump.device import numpy_cast
from msdump.graph import Graph, Node, model_names
from msdump.graph.kernel import FLOAT16, FLOAT32
from msdump.record import IO


@dataclass(slots=True)
class WeightOverflows:
    """Counts the elements of weights that are too large for the type in which one side alone reads them.

    Attributes:
        mine: The examined side.
        golden: The other one.
    """

    mine: Side
    golden: Side
    _counts: dict[tuple[int, str], dict[int, int]] = field(default_factory=dict)
    _names: dict[int, Mapping[str, str]] = field(default_factory=dict)

    def mark(self, ran: Ran, tensors: tuple[TensorEvidence, ...]) -> tuple[TensorEvidence, ...]:
        """Return the evidence of an operator's tensors, with the overflows of weights."""
        key = ran.graph.index, ran.node.name
        if key not in self._counts:
            self._counts[key] = self._count(ran.graph, ran.node)
        counts = self._counts[key]
        if not counts:
            return tensors
        return tuple(
            replace(each, overflows=counts[each.slot])
            if each.io is IO.INPUT and each.slot in counts
            else each
            for each in tensors
        )

    def _count(self, graph: Graph, node: Node) -> dict[int, int]:
        reads, golden = (
            {each.reads for each in side.arithmetic(node) or () if not each.saturates}
            for side in (self.mine, self.golden)
        )
        if FLOAT16 not in reads - golden:
            return {}
        names = self._names.setdefault(graph.index, model_names(graph))
        found: dict[int, int] = {}
        for slot, name in enumerate(node.inputs):
            array = graph.weights.get(names.get(name, name))
            if array is None:
                array = self.mine.model.weights.get(names.get(name, name))
            if array is not None and array.dtype == FLOAT32.numpy:
                count = errors.overflowed(numpy_cast(array, FLOAT16), array)
                found |= {slot: count} if count else {}
        return found
