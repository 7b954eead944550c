"""Sessions of operators that ran a short while ago, for those that come next and are equal to them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msdump.execute.runtime import ONE_OPERATOR, Runtime, SessionUse, runtime
from msdump.graph.graph import Graph, Node
from msdump.graph.kernel import onenode
from msdump.graph.kernel.emulation import Rounding
from msdump.graph.kernel.equal_models import EqualModels
from msdump.threads import new_lock, thread_count

_KEPT: Final = 32  # as many as the layers of a network have different operators; each has threads of its own


class RecentSessions(Runtime):
    """A runtime on the CPU that keeps its latest sessions, but those that hold weights or have a memory.

    Who runs the operators of a network one after the other, and drops the kernel of each, then does not make
    a session for every layer anew. Any thread may use it.
    """

    def __init__(self) -> None:
        """Keep nothing yet."""
        super().__init__(thread_count())
        self._kept: OrderedDict[tuple[bytes, SessionUse], Any] = OrderedDict()
        self._lock = new_lock()
        self._models = EqualModels(_KEPT)

    @property
    def limits(self) -> onenode.RuntimeLimits:
        """Those of the process's runtime, which have been asked for."""
        return runtime().limits

    def model(
        self, graph: Graph, node: Node, bindings: onenode.Bindings, roundings: Sequence[Rounding] | None
    ) -> onenode.NodeModel:
        """Return the model of one operator, as ``Runtime.model`` does."""
        if roundings is not None:
            return super().model(graph, node, bindings, roundings)
        return self._models.build(graph, node, bindings, self.limits)

    def forget(self) -> None:
        """Keep none of the sessions that were made so far."""
        super().forget()
        self._kept.clear()

    def session(
        self,
        model: bytes,
        shared: Mapping[str, Any] | None = None,
        *,
        has_memory: bool = False,
        use: SessionUse = ONE_OPERATOR,
    ) -> Any:
        """Return a session of a model, as ``Runtime.session`` does."""
        session = super().session(model, shared, has_memory=has_memory, use=use)
        if not (shared or has_memory):
            with self._lock:
                self._kept[model, use] = session
                self._kept.move_to_end((model, use))
                if len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
        return session
