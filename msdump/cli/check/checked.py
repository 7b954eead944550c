"""What a configuration does to a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from msdump.capture.suggestions import suggest
from msdump.device.ascend import Ascend
from msdump.graph.graph import Graph, Node
from msdump.plan import DumpPlan
from msdump.reasons import Reason
from msdump.record import OperatorRef
from msdump.tools.preview.forecast import Forecast, forecast
from msdump.tools.preview.left_out import left_out
from msdump.tools.preview.matches import Matches, matches
from msdump.tools.preview.runnable import unrunnable


@dataclass(frozen=True)
class ModelCheck:
    """What a configuration does to a model; each part is found out when it is asked for.

    Attributes:
        plan: The configuration.
        graph: The model, or its training step.
        settled: The same with the sizes of its dynamic dimensions.
        device: The emulated device with the model, None on CPU and GPU.
    """

    plan: DumpPlan
    graph: Graph
    settled: Graph
    device: Ascend | None

    @cached_property
    def selected(self) -> Matches:
        """The operators that are dumped."""
        return matches(self.graph, self.plan, self.device)

    @cached_property
    def amounts(self) -> Forecast | None:
        """What a dump writes, None: nothing."""
        is_dumped = self.plan.is_enabled and self.graph.nodes
        return forecast(self.graph, self.plan, self.settled) if is_dumped else None

    @cached_property
    def left_out(self) -> Mapping[tuple[str, Reason], int]:
        """What gets no file."""
        return left_out(self.graph, self.plan, self.device)

    @cached_property
    def cannot_run(self) -> tuple[tuple[Node, str, bool], ...]:
        """Operators that have no kernel, why, and whether every run reaches them."""
        # The operators of the main graph run in every step; those inside branches and loops perhaps never.
        always = {node.operator.full_name for node in self.settled.operators}
        return tuple(
            (node, reason, node.operator.full_name in always) for node, reason in unrunnable(self.settled)
        )

    @property
    def may_succeed(self) -> bool:
        """Whether a run may succeed: a branch or a loop with an operator that has no kernel may not run."""
        return not any(is_certain for _, _, is_certain in self.cannot_run)


def operators_like(text: str, nodes: Sequence[Node]) -> tuple[str, list[OperatorRef]]:
    """Return the ``kernels`` item that a text suggests, and the operators whose names contain the text."""
    lower = text.lower()
    named = [node.operator for node in nodes if lower in f"{node.operator.full_name} {node.name}".lower()]
    return suggest(text, nodes), named
