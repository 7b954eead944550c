"""What a plan selects of a model, and which ``kernels`` items select nothing."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from msdump.capture import selection
from msdump.graph.graph import Graph
from msdump.plan import DeviceTarget, DumpPlan, KernelPattern, PatternKind
from msdump.record import OperatorRef


@dataclass(frozen=True, slots=True)
class Unmatched:
    """An item of ``kernels`` that selects nothing.

    Attributes:
        item: The item as the user wrote it.
        hint: What may have been meant, "" where nothing is close.
    """

    item: str
    hint: str


@dataclass(frozen=True, slots=True)
class Matches:
    """What a plan selects of a model.

    Attributes:
        kernels: Operators in execution order.
        parameters: Weights and graph inputs (CPU and GPU).
        unmatched: Items that select nothing.
    """

    kernels: tuple[OperatorRef, ...]
    parameters: tuple[str, ...]
    unmatched: tuple[Unmatched, ...]


def matches(graph: Graph, plan: DumpPlan) -> Matches:
    """Return what a plan selects of a model; ``set_dump`` marks nothing."""
    chosen = selection.select(graph, plan, frozenset())
    has_parameters = plan.keeps_outputs and plan.context.device_target is not DeviceTarget.ASCEND
    kernels = tuple(node.operator for node in graph.nodes)
    names = [operator.full_name for operator in kernels]
    if has_parameters:
        names += [*selection.parameter_names(graph), *selection.constant_names(graph)]
    used = selection.used_items(plan, names)
    return Matches(
        tuple(operator for operator, is_watched in zip(kernels, chosen.watched, strict=True) if is_watched),
        chosen.parameters if has_parameters else (),
        tuple(
            Unmatched(pattern.item, _hint(pattern, names, {operator.op_type for operator in kernels}))
            for pattern in plan.selector.patterns
            if pattern.item not in used
        ),
    )


def _hint(pattern: KernelPattern, names: Iterable[str], types: Iterable[str]) -> str:
    if pattern.kind is PatternKind.REGEX:
        return ""
    if any(name.startswith(f"{pattern.text}/") for name in names):
        return f"a scope; name-regex({pattern.text}/.+) selects the operators in it"
    candidates = types if pattern.kind is PatternKind.TYPE else names
    by_case = {candidate.lower(): candidate for candidate in candidates}
    close = difflib.get_close_matches(pattern.text.lower(), by_case, n=1)
    return f"did you mean {by_case[close[0]]!r}?" if close else ""
