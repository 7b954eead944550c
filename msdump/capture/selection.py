"""Which operators, tensors, parameters and constants of one graph a plan dumps, and why not the others.

The capture, ``check`` and ``explain`` ask here. A run adds the reasons that only it shows: text, no elements,
no overflow, no hit.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from msdump.capture.steps import is_no_tensor
from msdump.config import grammar
from msdump.graph import ROOT, Graph, Node
from msdump.graph.files import ir_text
from msdump.plan import DeviceTarget, DumpPlan, Scene, Tree, Trigger
from msdump.reasons import Reason
from msdump.record import IO
from msdump.selector import DumpMode, KernelPattern, PatternKind, used_patterns
from msdump.store import names

Slot = tuple[IO, int]
"""An input or output of an operator by its index."""

# vendor: outputs that MindSpore's kernels declare useless, by operator type; None: all outputs
_USELESS: Final[Mapping[str, frozenset[int] | None]] = {
    "Print": None,
    "Send": None,
    "FlashAttentionScore": frozenset({2}),
}
"""Outputs that an operator of MindSpore declares useless, by primitive; None: all."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The parts of a graph that are dumped."""

    refusals: tuple[Reason | None, ...]  # for each node the reason for no dump, None for a dumped node
    parameters: tuple[str, ...]  # names of the weights and graph inputs that are dumped
    constants: tuple[int, ...]  # numbers of the constants that are dumped, from 0

    @property
    def watched(self) -> tuple[bool, ...]:
        """For each node, whether it is dumped."""
        return tuple(refusal is None for refusal in self.refusals)


def select(graph: Graph, plan: DumpPlan, marked: frozenset[str]) -> Selection:
    """Return the operators and parameters of a graph that a plan and names of ``set_dump`` select."""
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


@dataclass(frozen=True, slots=True)
class GraphRefusals:
    """The operators, inputs and outputs of one graph that have no files, with reasons."""

    graph: Graph  # the graph as the device runs it
    operators: tuple[Reason | None, ...]  # for each node the reason for no dump, None for a dumped node
    plan: DumpPlan
    blocked: Mapping[int, frozenset[Slot]]  # inputs and outputs on black lists, by the node's position

    def refusal(self, position: int, io: IO, slot: int) -> Reason | None:
        """Return the reason for which an input or output of an operator has no file; None where it has one.

        Only a run shows that a tensor is text or has no elements, or that an operator does not run at all.
        """
        return self.operators[position] or self._slot_refusal(position, io, slot)

    def slots(self, position: int) -> Iterator[tuple[Slot, Reason | None]]:
        """Yield the inputs and outputs of an operator, each with the reason why it has no file, or None."""
        node = self.graph.nodes[position]
        for io, values in ((IO.INPUT, node.inputs), (IO.OUTPUT, node.declared_outputs)):
            for slot in range(len(values)):
                yield (io, slot), self._slot_refusal(position, io, slot)

    def parameters(self) -> Iterator[tuple[str, Reason | None]]:
        """Yield weights, graph inputs and constants, each with the reason why it has no file, or None."""
        for name in (*parameter_names(self.graph), *constant_names(self.graph)):
            is_on_ascend = self.plan.context.device_target is DeviceTarget.ASCEND
            yield name, Reason.PARAMETER if is_on_ascend else refuse_by_name(self.plan, name, IO.OUTPUT)

    def _slot_refusal(self, position: int, io: IO, slot: int) -> Reason | None:
        node, what = self.graph.nodes[position], self.plan.what
        name = (node.inputs if io is IO.INPUT else node.outputs)[slot]
        if not name:
            return Reason.ABSENT
        # vendor: the watcher dumps outputs alone
        if self.plan.compiled.scene is Scene.WATCHER:
            return Reason.NOT_WATCHED if io is IO.INPUT else None
        if not (what.keeps_inputs if io is IO.INPUT else what.keeps_outputs):
            return Reason.SIDE_NOT_ASKED
        if (io, slot) in self.blocked.get(position, frozenset()):
            return Reason.BLACKLISTED
        if io is IO.OUTPUT and drops_useless(self.plan) and is_useless(node, slot):
            return Reason.USELESS
        return Reason.NO_TENSOR if is_no_tensor(self.graph, name) else None


def graph_refusals(graph: Graph, plan: DumpPlan, marked: frozenset[str]) -> GraphRefusals:
    """Return the refusals of one graph that runs operator by operator."""
    if plan.when.trigger is Trigger.EXCEPTION:
        return all_refused(graph, plan, Reason.NO_FAILURE)
    return GraphRefusals(graph, select(graph, plan, marked).refusals, plan, {})


def all_refused(graph: Graph, plan: DumpPlan, reason: Reason) -> GraphRefusals:
    """Return refusals of every operator of a graph for one reason."""
    refused = tuple(Reason.CONTROL_FLOW if node.bodies else reason for node in graph.nodes)
    return GraphRefusals(graph, refused, plan, {})


def refuse_by_name(plan: DumpPlan, full_name: str, io: IO | None = None) -> Reason | None:
    """Return why a plan leaves out an operator, or its inputs or outputs; None: it does not, by the name.

    Only a model shows the reasons of ``GraphRefusals``.
    """
    what, when, models = plan.what, plan.when, plan.compiled.models
    if not plan.is_enabled:
        return Reason.OTHER_DEVICE
    if when.trigger is Trigger.EXCEPTION:
        return Reason.NO_FAILURE
    if (io is IO.INPUT and not what.keeps_inputs) or (io is IO.OUTPUT and not what.keeps_outputs):
        return Reason.SIDE_NOT_ASKED
    if models is None:
        return what.selector.refusal(full_name)
    if any(item.ranges or not item.layers for item in models):
        return None
    patterns = (grammar.parse_kernel(layer, searches=True) for item in models for layer in item.layers)
    is_listed = any(pattern is not None and pattern.matches(full_name) for pattern in patterns)
    return None if is_listed else Reason.NOT_IN_KERNELS


def parameter_names(graph: Graph) -> tuple[str, ...]:
    """Return the parameters of a graph in the order of its .ir: weights, then inputs.

    A body has only its own weights; its inputs change while the network runs.
    """
    inner = (parameter for parameter in ir_text.parameters(graph) if parameter.name not in graph.outer)
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
    return frozenset(pattern.item for pattern in used_patterns(plan.what.selector.patterns, full_names))


def unmatched(
    patterns: Iterable[KernelPattern], used: Container[str], nodes: Sequence[Node]
) -> Iterator[tuple[KernelPattern, str]]:
    """Yield the items of ``kernels`` that are not used, the first ones with a suggestion, others with ""."""
    unused = (pattern for pattern in patterns if pattern.item not in used)
    for place, pattern in enumerate(unused):
        yield pattern, _suggest_for(pattern, nodes) if place < _MOST_SUGGESTIONS else ""


def drops_useless(plan: DumpPlan) -> bool:
    """Return whether outputs that operators declare useless are not dumped: on GPU and Ascend O0 and O1."""
    # vendor: CPU writes them, whatever the variable says
    is_dropping = plan.what.drops_useless and plan.context.device_target is not DeviceTarget.CPU
    return is_dropping and plan.files.tree is Tree.RANKS


def is_useless(node: Node, slot: int) -> bool:
    """Return whether an operator declares an output useless to others.

    ONNX's ``Attention`` is called FlashAttentionScore, but its third output is a cache that operators read.
    """
    slots = _USELESS.get(node.operator.op_type, frozenset())
    slots = slots if slots is None or node.op_type == node.operator.op_type else frozenset()
    return slots is None or slot in slots


def inside(name: str, fused: str) -> str:
    """Return the message that an operator is hidden inside the one that O1 has fused it into."""
    return f"{name} is fused into {fused}; dump {fused}, or use jit_level O0"


# special characters of a regular expression: hyphen, slash and underscore are not special
_SPECIAL: Final = re.compile(r"([.*+?()[\]{}|$])")


_MOST_SHOWN: Final = 3
_MOST_SUGGESTIONS: Final = 100  # each compares an item with all operators


def suggest(text: str, nodes: Sequence[Node]) -> str:
    """Return which operators a text may mean and the item that selects them, "" where nothing is close.

    Texts are often a part of a name, a module of the user's program, an ONNX node or type, the name of a file
    in a dump. None of these selects an operator; each is answered with an item that does.
    """
    wanted = text.replace(" ", "").strip("/")
    if not wanted:
        return ""
    return next((hint for way in _WAYS if (hint := way(wanted, nodes))), "")


def _suggest_for(pattern: KernelPattern, nodes: Sequence[Node]) -> str:
    """Return a suggestion for an item that matches nothing, "" where nothing is close."""
    if pattern.kind is not PatternKind.REGEX:
        return suggest(pattern.text, nodes)
    # vendor: O2 searches names for an expression, the other levels compare it with whole names
    searching = replace(pattern, searches=True)
    meant = [node for node in nodes if searching.matches(node.operator.full_name)]
    if pattern.searches or not meant:
        return ""
    expression = f"(?:{pattern.text})" if "|" in pattern.text else pattern.text
    return (
        f"the expression must match a whole name, but matches parts of {_count(meant)} only; "
        f"write name-regex(.*{expression}.*)"
    )


def similar_names(text: str, nodes: Sequence[Node]) -> str:
    """Return `` (did you mean 'Default/Add-op0'?)`` for the names that a text may mean, "" without one."""
    full_names = [node.operator.full_name for node in nodes]
    meant = [name for name in full_names if text and text.lower() in name.lower()]
    meant = meant or [name for name in full_names if names.sanitize(name) == text]
    return _question(meant or difflib.get_close_matches(text, full_names, n=_MOST_SHOWN))


def similar_scopes(text: str, nodes: Sequence[Node]) -> str:
    """Return `` (did you mean 'Default/conv1-Conv2d'?)`` for the scopes that a text may mean."""
    scopes = list(dict.fromkeys(node.scope for node in nodes))
    meant = [scope for scope in scopes if text and text.lower() in scope.rpartition("/")[2].lower()]
    return _question(meant or difflib.get_close_matches(text, scopes, n=_MOST_SHOWN))


def operators(graph: Graph) -> tuple[Node, ...]:
    """Return the operators of a model, with branches and loops."""
    return tuple(node for inner in graph.walk() for node in inner.operators)


def _question(candidates: Sequence[str]) -> str:
    if not candidates:
        return ""
    more = f" or {len(candidates) - _MOST_SHOWN} more" if len(candidates) > _MOST_SHOWN else ""
    return f" (did you mean {', '.join(map(repr, candidates[:_MOST_SHOWN]))}{more}?)"


def _by_onnx_name(text: str, nodes: Sequence[Node]) -> str:
    """Return a hint for the name of an ONNX node, with or without slashes; "" for other texts."""
    meant = [node for node in nodes for part in node.members if part.name.replace(" ", "").strip("/") == text]
    return f"the full name of this ONNX node is {meant[0].operator.full_name!r}" if meant else ""


def _by_file_name(text: str, nodes: Sequence[Node]) -> str:
    """Return a hint for a file name, or an operator's name as in file names; "" for other texts."""
    fields = text.split(".")
    wanted = {text, fields[1] if len(fields) > 1 else text}
    meant = [node for node in nodes if names.sanitize(node.operator.full_name) in wanted]
    return f"the full name for this file name is {meant[0].operator.full_name!r}" if meant else ""


def _by_scope(text: str, nodes: Sequence[Node]) -> str:
    """Return an expression for all operators below a scope, given with or without root; else ""."""
    for scope in (text, f"Default/{text}"):
        meant = [node for node in nodes if _name(node).startswith(f"{scope}/")]
        if meant:
            return f"a scope of {_count(meant)}; write name-regex({_literal(scope)}/.+)"
    return ""


def _by_module(text: str, nodes: Sequence[Node]) -> str:
    """Return a hint for the path of a module in the program, ``transformer.h.0.attn``; else ""."""
    scopes = {scope for node in nodes if (scope := _scope_of_module(node, text))}
    meant = [node for node in nodes if any(_name(node).startswith(f"{s}/") for s in scopes)]
    if not meant:
        return ""
    choice = "|".join(_literal(scope) for scope in sorted(scopes))
    choice = choice if len(scopes) == 1 else f"(?:{choice})"
    return f"a module of {_count(meant)}; write name-regex({choice}/.+)"


def _scope_of_module(node: Node, text: str) -> str:
    """Return the beginning of an operator's scope that matches a module path, "" without a match."""
    root, *components = node.scope.replace(" ", "").split("/")
    modules = [component.rpartition("-")[0] or component for component in components]
    for length in range(1, len(modules) + 1):
        if ".".join(modules[:length]) == text:
            return "/".join([root, *components[:length]])
    return ""


def _by_onnx_type(text: str, nodes: Sequence[Node]) -> str:
    """Return a hint for an ONNX type that has another name in MindSpore; else ""."""
    meant = [node for node in nodes if any(part.op_type.lower() == text.lower() for part in node.members)]
    types = list(dict.fromkeys(node.operator.op_type for node in meant))
    if not meant or any(text.lower() in name.lower() for name in types):
        return ""
    items = ", ".join(repr(name) for name in types[:_MOST_SHOWN])
    return f"the type of ONNX's {text} is {items} here"


def _by_part(text: str, nodes: Sequence[Node]) -> str:
    """Return an expression for a part of names, given in any case of letters; "" without a match."""
    meant = [node for node in nodes if text.lower() in _name(node).lower()]
    if not meant:
        return ""
    spelled = {_spelled(text, _name(node)): None for node in meant}
    choice = "|".join(_literal(part) for part in spelled)
    choice = choice if len(spelled) == 1 else f"(?:{choice})"
    verb = "contains" if len(meant) == 1 else "contain"
    return f"{_count(meant)} {verb} {text!r}; write name-regex(.*{choice}.*)"


def _spelled(text: str, full_name: str) -> str:
    start = full_name.lower().index(text.lower())
    return full_name[start : start + len(text)]


def _by_likeness(text: str, nodes: Sequence[Node]) -> str:
    """Return a hint for a misspelled full name or type; else ""."""
    is_name = "/" in text or "-op" in text
    candidates = {node.operator.full_name if is_name else node.operator.op_type for node in nodes}
    by_lower_case = {candidate.lower(): candidate for candidate in candidates}
    close = difflib.get_close_matches(text.lower(), by_lower_case, n=1)
    return f"did you mean {by_lower_case[close[0]]!r}?" if close else ""


def _literal(text: str) -> str:
    """Escape a text for a regular expression, by character classes: MindSpore doubles backslashes.

    >>> _literal("layers.0/Add(x)")
    'layers[.]0/Add[(]x[)]'
    """
    return _SPECIAL.sub(r"[\1]", text)


def _name(node: Node) -> str:
    """Return a full name without spaces, as items are compared with it."""
    return node.operator.full_name.replace(" ", "")


def _count(nodes: Sequence[Node]) -> str:
    return f"{len(nodes):,} operator{'s' * (len(nodes) != 1)}"


# the surest answer first: a text that is a whole name of something is not a part of other names
_WAYS: Final[tuple[Callable[[str, Sequence[Node]], str], ...]] = (
    _by_onnx_name,
    _by_file_name,
    _by_scope,
    _by_module,
    _by_onnx_type,
    _by_part,
    _by_likeness,
)
