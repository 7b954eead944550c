"""Which operators, parameters and constants of one graph a plan dumps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from msdump.graph.files import ir_model
from msdump.graph.graph import Graph, Node
from msdump.graph.names import ROOT
from msdump.plan import DeviceTarget, DumpPlan, Tree
from msdump.reasons import Reason
from msdump.selector import DumpMode
from msdump.store import names

# vendor: what MindSpore's kernels declare
_USELESS: Final[Mapping[str, frozenset[int] | None]] = {
    "Print": None,
    "Send": None,
    "FlashAttentionScore": frozenset({2}),
}
"""Outputs that an operator of MindSpore declares useless, by primitive; None: all."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The parts of a graph that are dumped.

    Attributes:
        refusals: For each node, why it is not dumped, None where it is.
        parameters: Names of the weights and graph inputs that are dumped.
        constants: Numbers of the constants that are dumped, from 0.
    """

    refusals: tuple[Reason | None, ...]
    parameters: tuple[str, ...]
    constants: tuple[int, ...]

    @property
    def watched(self) -> tuple[bool, ...]:
        """For each node, whether it is dumped."""
        return tuple(refusal is None for refusal in self.refusals)


def select(graph: Graph, plan: DumpPlan, marked: frozenset[str]) -> Selection:
    """Return what a plan dumps of a graph.

    Args:
        graph: The graph.
        plan: The plan.
        marked: Full names of the operators that ``set_dump`` marked.
    """
    selector = plan.what.selector
    return Selection(
        tuple(
            Reason.CONTROL_FLOW
            if node.bodies
            else selector.refusal(node.operator.full_name, is_marked=node.operator.full_name in marked)
            for node in graph.nodes
        ),
        tuple(name for name in parameter_names(graph) if selector.selects(name)),
        tuple(number for number, name in enumerate(constant_names(graph)) if selector.selects(name)),
    )


def parameter_names(graph: Graph) -> tuple[str, ...]:
    """Return the parameters of a graph in the order of its .ir: weights, then inputs.

    Those of a body are its own weights; its inputs change while the network runs.
    """
    inner = (parameter for parameter in ir_model.parameters(graph) if parameter.name not in graph.outer)
    return tuple(parameter.name for parameter in inner if parameter.is_weight or not graph.index)


def constant_names(graph: Graph) -> tuple[str, ...]:
    """Return the names by which ``kernels`` selects the constants of a graph: ``Default/data-0``, ..."""
    return tuple(f"{ROOT}/{names.constant(n).full_name}" for n in range(len(graph.constants)))


def selectable(graph: Graph, plan: DumpPlan) -> Iterator[str]:
    """Yield the names in a model, branches and loops included, that items of ``kernels`` may select."""
    has_parameters = plan.what.keeps_outputs and plan.context.device_target is not DeviceTarget.ASCEND
    for inner in graph.walk():
        yield from (node.operator.full_name for node in inner.operators)
        if has_parameters:
            yield from parameter_names(inner)
            yield from constant_names(inner)


def used_items(plan: DumpPlan, full_names: Iterable[str]) -> frozenset[str]:
    """Return the items of ``kernels`` that select at least one of the names."""
    if plan.what.selector.mode is not DumpMode.KERNELS:
        return frozenset()
    candidates = tuple(full_names)
    return frozenset(
        pattern.item
        for pattern in plan.what.selector.patterns
        if any(pattern.matches(name) for name in candidates)
    )


def drops_useless(plan: DumpPlan) -> bool:
    """Tell whether outputs that operators declare useless are not dumped: on GPU and Ascend O0 and O1."""
    # vendor: CPU writes them, whatever the variable says
    is_dropping = plan.what.drops_useless and plan.context.device_target is not DeviceTarget.CPU
    return is_dropping and plan.files.tree is Tree.RANKS


def has_useless(node: Node) -> bool:
    """Tell whether an operator declares some of its outputs useless to others."""
    return _useless_slots(node) != frozenset()


def is_useless(node: Node, slot: int) -> bool:
    """Tell whether an operator declares an output useless to others.

    ONNX's ``Attention`` is called FlashAttentionScore, but its third output is a cache that others read.
    """
    slots = _useless_slots(node)
    return slots is None or slot in slots


def _useless_slots(node: Node) -> frozenset[int] | None:
    slots = _USELESS.get(node.operator.op_type, frozenset())
    return slots if slots is None or node.op_type == node.operator.op_type else frozenset()


def inside(name: str, fused: str) -> str:
    """Return why an operator that O1 has fused cannot be seen."""
    return f"{name} is fused into {fused} and cannot be seen inside it; dump that, or use jit_level O0"
