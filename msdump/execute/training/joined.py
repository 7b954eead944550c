"""A training step as one session, for steps of short operators that nobody looks at one by one.

Handing an operator to the runtime takes microseconds, with several threads tens of them, and leaves the
processor's caches to others. A step of short operators is faster as a whole, and gives the same bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from msdump.execute.control import Frame
from msdump.execute.kernels import KernelFactory
from msdump.execute.program import Program
from msdump.execute.runtime import OrtValue, runtime
from msdump.execute.weights import WeightStore
from msdump.graph.collectives.calls import call_of
from msdump.graph.compile.fusion import joined
from msdump.graph.graph import Graph, Node
from msdump.graph.kernel.emulation import HALVES
from msdump.graph.operator_types import MINDSPORE_DOMAIN, WITH_MEMORY, uses_float_status
from msdump.graph.order import reads

SHORT: Final = 2e-3
"""Seconds of an average operator below which a step is to be run as a whole.

A BERT of twelve layers gains a tenth then, and its session is made in a third of a step; a ResNet-50, whose
operators take 5 ms, gains nothing.
"""


class JoinedStep:
    """All operators of a network as one session."""

    def __init__(self, program: Program, fed: Mapping[str, OrtValue | None]) -> None:
        """Compile the session.

        Args:
            program: The network, one for which ``can_join`` holds.
            fed: What a run is fed.

        Raises:
            Exception: The runtime cannot run the operators as one.
        """
        graph, self._program = program.graph, program
        node = _whole(graph)
        # the session reads the arrays where they lie: they live as long as the store
        self._store = WeightStore(graph.weights)
        factory = KernelFactory(graph, self._store, runtime(), lambda _: None)
        self._kernel = factory.as_one(node, {name: fed[name] for name in reads(node) if name in fed})
        self._results = [program.slots[node.outputs[position]] for _, position in self._kernel.outputs]
        # a run need not feed again what this one overrides
        constant = graph.weights.keys() - graph.variables
        names = (name for _, name in self._kernel.feeds)
        self._weights = {name: self._store.value(name) for name in names if name in constant}

    def completed(self, fed: Mapping[str, OrtValue | None]) -> Frame:
        """Run the network; return a frame of its program that holds inputs and outputs alone.

        Args:
            fed: Inputs and variables.
        """
        frame, slots = self._program.frame(), self._program.slots
        for name, value in fed.items():
            frame[slots[name]] = value
        present = {**self._weights, **fed}
        feeds = {inner: present[name] for inner, name in self._kernel.feeds}
        # no strict zip: the end of the runtime's vector is a slow exception
        for slot, value in zip(self._results, self._kernel.run(feeds, self._kernel.results, None)):  # noqa: B905
            frame[slot] = value
        return frame


def _whole(graph: Graph) -> Node:
    """Return all operators as one that writes the graph's outputs."""
    written = {name for node in graph.nodes for name in node.outputs}
    outputs = tuple(dict.fromkeys(value.name for value in graph.outputs if value.name in written))
    return replace(joined(graph.nodes, graph.nodes[-1].operator), outputs=outputs)


def can_join(graph: Graph) -> bool:
    """Tell whether one session certainly gives the bits that the operators give one by one.

    It may not where the runtime lacks kernels (half types, other domains), where operators remember their
    runs, and where it packs a weight for one reader that several would read unpacked.
    """
    return (
        all(_is_plain(node) for node in graph.nodes)
        and all(
            kind.kind == "tensor" and kind.dtype is not None and kind.dtype not in HALVES
            for kind in graph.types.values()
        )
        and WITH_MEMORY.isdisjoint(node.op_type for each in graph.proto.functions for node in each.node)
        and not _has_shared_matrix(graph)
    )


def _is_plain(node: Node) -> bool:
    return (
        not node.bodies
        and not node.parts
        and node.domain in {"", MINDSPORE_DOMAIN}
        and node.op_type not in WITH_MEMORY
        and call_of(node) is None
        and not uses_float_status(node.domain, node.op_type)
    )


def _has_shared_matrix(graph: Graph) -> bool:
    """Tell whether several operators read a matrix that stays the same from run to run."""
    readers = Counter(name for node in graph.nodes for name in set(reads(node)))
    return any(
        readers[name] > 1 and array.ndim > 1 and np.issubdtype(array.dtype, np.floating)
        for name, array in graph.weights.items()
        if name not in graph.changeable
    )
