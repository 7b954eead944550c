"""Sessions of several operators, each with the initializers and casts of its own one-operator session."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from msdump.dtypes import STRING
from msdump.execute import values
from msdump.execute.initializers import Bound, Initializers, packed
from msdump.execute.kernels import RoundingsOf
from msdump.execute.runtime import OrtValue, Run, Runtime, SessionUse
from msdump.execute.shortage import shortage
from msdump.execute.variants.optimisation import LEVELS
from msdump.execute.weights import WeightStore
from msdump.graph.graph import Graph, Node, Shape
from msdump.graph.kernel.emulation import HALVES, Rounding
from msdump.graph.kernel.linked import (
    NO_LOOKS,
    LinkedModel,
    LinkedOperator,
    SegmentEdges,
    SessionLooks,
    UnlinkableError,
    link,
)
from msdump.graph.kernel.onenode import Bindings, type_text
from msdump.graph.order import reads
from msdump.graph.weights import forget_pages
from msdump.precision.optimization import Optimization
from msdump.statistics import insession
from msdump.store import session_files

_IN_MODEL: Final = 1 << 14
"""Bytes up to which a weight that no kernel packs is copied into the model: feeding it costs every run."""

_CULPRIT: Final = re.compile(r"""(?:name '|Node \(|Node,? \(["']|Name:'|node:)(\d+)\.\d""")
"""The number of an operator in the runtime's messages: the name of its node begins with it."""


@dataclass(frozen=True, slots=True)
class SegmentSession:
    """The session of several operators.

    Attributes:
        run: Called with (values by feed name, output names, None); returns the outputs in order.
        feeds: (feed name, value of the graph) for everything that must be fed.
        names: The name in the model of each value of the graph that it can give.
        looks: What it does about values of the graph where it makes them.
    """

    run: Run
    feeds: tuple[tuple[str, str], ...]
    names: Mapping[str, str]
    looks: SessionLooks = NO_LOOKS


class SegmentCompiler:
    """Makes the sessions of a graph's segments.

    Attributes:
        optimizes: Whether the runtime may fuse operators of a segment.
    """

    def __init__(
        self,
        graph: Graph,
        weights: WeightStore,
        runtime: Runtime,
        roundings: RoundingsOf,
        distant: Container[str],
        *,
        optimization: Optimization = Optimization.NONE,
    ) -> None:
        """Set the parts that all segments share; see ``KernelFactory``.

        Args:
            graph: The graph.
            weights: Its weights.
            runtime: What runs the sessions.
            roundings: The emulated device's arithmetic.
            distant: Weights of a body that the graph around it takes from outside as well.
            optimization: How far the runtime optimises a segment.
        """
        self._graph = graph
        self._weights = weights
        self._runtime = runtime
        self._roundings = roundings
        self._changeable = graph.changeable
        self._checked = frozenset() if graph.index else frozenset(value.name for value in graph.inputs)
        self.optimizes = optimization is not Optimization.NONE
        self._use = SessionUse(LEVELS[optimization], spins=True)
        self._initializers = Initializers(weights, self._changeable, roundings, distant)

    def compile(
        self,
        nodes: Sequence[Node],
        fed: Mapping[str, OrtValue | None],
        outputs: Sequence[str],
        looks: SessionLooks = NO_LOOKS,
    ) -> SegmentSession:
        """Compile operators to one session.

        Args:
            nodes: Operators that follow one another.
            fed: What they read from before; weights that no run changes need not be there.
            outputs: Values that the session gives.
            looks: What it does about values where it makes them.

        Raises:
            UnlinkableError: An operator cannot stand among others.
            Exception: Memory or threads ran out, or the runtime does not say which operator it cannot run.
        """
        model = self._linked(nodes, fed, outputs, looks)
        shared = {
            inner: self._initializers.shared_value(nodes[number], name, array)
            for inner, (array, name, number) in model.shared.items()
        }
        try:
            is_settled = all(self._graph.type_of(name).is_settled for _, name in model.feeds)
            use = replace(
                self._use_of(nodes), plans=is_settled, looks=bool(looks), in_order=bool(looks.saved)
            )
            session = self._runtime.session(model.data, shared, use=use)
        except Exception as error:
            culprit = None if shortage(error) else _CULPRIT.search(str(error))
            if culprit is None or int(culprit[1]) >= len(nodes):
                raise
            raise UnlinkableError(int(culprit[1]), error) from error
        for array, name, number in model.shared.values():
            if name in packed(nodes[number]):  # the session has its packed copy: the file's pages may go
                forget_pages(array)
        names = {name: inner for inner, name in model.outputs}
        return SegmentSession(session.run_with_ort_values, model.feeds, names, looks)

    def can_measure(self, name: str) -> bool:
        """Tell whether a session can measure a value of the graph."""
        return insession.takes(self._graph.type_of(name).dtype) and self._runtime.can_measure

    def can_save(self, name: str) -> bool:
        """Tell whether a session can write a value of the graph to a file."""
        return session_files.takes(self._graph.type_of(name).dtype) and self._runtime.can_measure

    def can_save_input(self, name: str) -> bool:
        """Tell whether a session can write a value of the graph as the operators that it runs are given it.

        What is given of small types is widened where a kernel has a copy of its own.
        """
        is_widened = name in self._weights and self._graph.type_of(name).dtype in HALVES
        return self.can_save(name) and not is_widened

    def _use_of(self, nodes: Sequence[Node]) -> SessionUse:
        """Return how the session of a segment runs: like the runtime's own where it is a whole network."""
        is_whole = not self._graph.index and len(nodes) == len(self._graph.nodes)
        return replace(self._use, spins_on=is_whole)

    def _linked(
        self,
        nodes: Sequence[Node],
        fed: Mapping[str, OrtValue | None],
        outputs: Sequence[str],
        looks: SessionLooks,
    ) -> LinkedModel:
        made = {name for node in nodes for name in node.outputs}
        feeds: dict[str, str] = {}
        defaults: dict[str, np.ndarray] = {}
        parts = []
        for number, node in enumerate(nodes):
            roundings = None if node.bodies else self._roundings(node)
            bound = self._bound(node, roundings)
            for name in reads(node):
                if name in bound.arrays or name in made or name in feeds or name in defaults:
                    continue
                if self._is_default(name):
                    defaults[name] = self._weights.array(name)
                else:
                    feeds[name] = self._kind(number, name, fed)
            types = {} if roundings is None else self._types(node, feeds)
            bindings = Bindings(types, {}, bound.embedded, bound.shared, rounded=bound.rounded)
            parts.append(LinkedOperator(node, bindings, roundings))
        around = SegmentEdges(feeds, defaults, outputs, self._shapes(feeds), looks)
        return link(self._graph, parts, around, self._runtime.limits)

    def _shapes(self, names: Iterable[str]) -> dict[str, Shape]:
        """Return the shapes of values as far as they hold in every run.

        By them the runtime lets operators write over what nobody else reads. Those of inputs are checked
        before a run; others only a session that is optimised needs.
        """
        return {name: shape for name in names if (shape := self._shape(name)) is not None}

    def _shape(self, name: str) -> Shape | None:
        declared = self._graph.type_of(name)
        is_checked = name in self._checked or name in self._weights
        return declared.shape if is_checked or (self.optimizes and declared.is_settled) else None

    def _bound(self, node: Node, roundings: Sequence[Rounding] | None) -> Bound:
        """Return the initializers of an operator; all of its weights where the runtime may fold them."""
        bound = self._initializers.of(node, roundings)
        if not self.optimizes:
            return bound
        fixed = (name for name in reads(node) if name in self._weights and name not in self._changeable)
        return replace(bound, arrays={name: self._weights.array(name) for name in fixed} | {**bound.arrays})

    def _is_default(self, name: str) -> bool:
        """Tell whether a weight that no kernel packs stands in the model."""
        if name not in self._weights or name in self._changeable:
            return False
        array = self._weights.array(name)
        return array.nbytes <= _IN_MODEL or array.dtype == STRING.numpy or array.dtype.isbuiltin != 1

    def _kind(self, number: int, name: str, fed: Mapping[str, OrtValue | None]) -> str:
        """Return the type text of a value that is fed."""
        value = fed.get(name)
        if value is None and name in self._weights:
            value = self._weights.value(name)
        if not isinstance(value, values.Native) or not value.is_tensor():
            raise UnlinkableError(number, f"{name!r} is no tensor of the runtime's")
        return values.kind_of(value)

    def _types(self, node: Node, feeds: Mapping[str, str]) -> dict[str, str]:
        """Return the types that the device's casts must know: real ones, else those that are declared."""
        declared = {name: self._graph.type_of(name).dtype for name in reads(node)}
        return {name: feeds.get(name) or type_text(dtype) for name, dtype in declared.items() if dtype}
