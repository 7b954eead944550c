"""An operator with its shapes and weights fixed, for kernels that need them when the session is created.

A Scan must know the shapes of its body's outputs, some functions of operators those of their inputs; a shape
that is computed from a weight is known only where the weight stands in the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msdump.execute import values
from msdump.execute.runtime import OrtValue, Run, Runtime
from msdump.execute.weights import WeightStore
from msdump.graph import legacy
from msdump.graph.graph import Graph, Node
from msdump.graph.kernel import onenode
from msdump.graph.kernel.emulation import Rounding
from msdump.graph.order import reads


class Pinned:
    """Sessions of one node with its shapes and weights fixed, one for each set of shapes."""

    def __init__(
        self,
        graph: Graph,
        node: Node,
        weights: WeightStore,
        runtime: Runtime,
        roundings: Sequence[Rounding] | None,
    ) -> None:
        """Set the parts that the sessions for all shapes share.

        Args:
            graph: The node's graph.
            node: The node.
            weights: The graph's weights.
            runtime: What runs the sessions.
            roundings: How each original operator of the node computes; None: as the model says.
        """
        self._graph = graph
        self._node = node
        self._roundings = roundings
        self._runtime = runtime
        self._embedded = {name: weights.array(name) for name in reads(node) if name in weights}
        self._sessions: dict[Any, tuple[Run, onenode.NodeModel]] = {}

    def session(self, fed: Mapping[str, OrtValue]) -> tuple[Run, onenode.NodeModel]:
        """Return the session for the shapes of the values."""
        shapes = {name: tuple(value.shape()) for name, value in fed.items() if value.is_tensor()}
        key = tuple(shapes.items())
        if key not in self._sessions:
            types = {name: values.kind_of(value) for name, value in fed.items()}
            embedded = {name: array for name, array in self._embedded.items() if name not in fed}
            bindings = onenode.Bindings(types=types, shapes=shapes, embedded=embedded, shared={})
            model = onenode.build(self._graph, self._node, bindings, self._runtime.limits, self._roundings)
            # the runtime has no kernels for the oldest opsets; the converter needs the shapes that stand here
            is_old = self._graph.opsets.get("", legacy.OLDEST_OPSET) < legacy.OLDEST_OPSET
            data = legacy.modern(model.data) if is_old else model.data
            session = self._runtime.session(data, has_memory=model.has_memory)
            self._sessions[key] = (session.run_with_ort_values, model)
        return self._sessions[key]

    def __call__(self, fed: Mapping[str, OrtValue], _names: list[str], _options: None) -> Any:
        """Run the session for the shapes of the values."""
        run, model = self.session(fed)
        feeds = {inner: fed[name] for inner, name in model.feeds}
        return run(feeds, onenode.result_names(model.outputs, has_status=model.has_status), None)
