"""Selection of operators and tensors of a model by ``dump_list`` of acl.json.

The rules are CANN's. An item without a model name comes before items that name the model; of several items
for one model the last counts, but their black lists add up. An operator is selected by its name in the
compiled graph, ONNX name or full name, and in ``layer`` also by names of the operators that are fused in it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from msdump.capture.selection import Slot
from msdump.graph import Graph, Node
from msdump.plan import Blocked, DumpPlan, ModelItem
from msdump.reasons import Reason
from msdump.record import IO


def names(node: Node) -> frozenset[str]:
    """Return the names of an operator of the compiled graph: full name and ONNX name.

    A fused operator has the joined ONNX names of its parts, ``conv1conv1_relu``.

    >>> from msdump.record import OperatorRef
    >>> operator = OperatorRef("Conv2D", "Default/Conv2D-op0")
    >>> sorted(names(Node("conv1", "Conv", "", (), (), {}, operator, (), None)))
    ['Default/Conv2D-op0', 'conv1']
    """
    return frozenset({node.operator.full_name, node.name, "".join(part.name for part in node.members)})


def all_names(node: Node) -> frozenset[str]:
    """Return the names of an operator and of the original operators in it."""
    originals = (name for part in node.parts for name in (part.operator.full_name, part.name))
    return names(node).union(originals)


def kinds(node: Node) -> frozenset[str]:
    """Return the types of an operator: of the compiled graph, ``Conv2D``, and of ONNX, ``Conv``."""
    return frozenset({node.operator.op_type, node.op_type})


_log = logging.getLogger("msdump.capture")

_MOST_SHOWN: Final = 3
_LONGEST: Final = 200  # characters; longer names get no hint at similar names


def warn_of_selection(graph: Graph, items: Items, runs: Sequence[bool], source: str) -> None:
    """Log each name and position of ``dump_list`` that matches nothing in a model."""
    model_names = _ModelNames(graph, runs)
    for layer in items.deciding.layers if items.deciding else ():
        model_names.warn_of_layer(f"{source}: layer {layer!r}", layer)
    for end in dict.fromkeys(end for both in items.ranges for end in both):
        model_names.warn_of_compiled(f"{source}: opname_range {end!r}", end)
    for name, slots in items.blocked_types.items():
        nodes = [node for node in graph.nodes if name in kinds(node)]
        model_names.warn_of_blocked(
            f"{source}: optype_blacklist {name!r}", name, nodes, slots, model_names.kinds
        )
    for name, slots in items.blocked_names.items():
        nodes = [node for node in graph.nodes if name in names(node)]
        model_names.warn_of_blocked(
            f"{source}: opname_blacklist {name!r}", name, nodes, slots, model_names.compiled
        )


def warn_of_watch(graph: Graph, item: ModelItem, runs: Sequence[bool], source: str) -> None:
    """Log the names of a watcher's item that a model lacks; arguments as of ``warn_of_selection``."""
    model_names = _ModelNames(graph, runs)
    for layer in item.layers:
        model_names.warn_of_layer(f"{source}: layer {layer!r}", layer)
    for name in item.watched:
        model_names.warn_of_compiled(f"{source}: watcher_nodes {name!r}", name)


def alike(text: str, candidates: Collection[str]) -> str:
    """Return similar names as the end of a message, "" without candidates.

    >>> alike("cov1", ["conv1", "relu"])
    "; it has 'conv1'"
    """
    if not candidates:
        return ""
    lower = text.lower()
    near = get_close_matches(text, candidates, n=_MOST_SHOWN) if len(text) <= _LONGEST else []
    holding = [name for name in candidates if lower in name.lower()]
    meant = list(dict.fromkeys([*near, *holding])) or list(candidates)
    more = ", ..." if len(meant) > _MOST_SHOWN else ""
    return f"; it has {', '.join(map(repr, meant[:_MOST_SHOWN]))}{more}"


class _ModelNames:
    """The names of a model's operators, in execution order."""

    def __init__(self, graph: Graph, runs: Sequence[bool]) -> None:
        self._model = graph.name
        running = (node for node, is_run in zip(graph.nodes, runs, strict=True) if is_run)
        self._running = {name for node in running for name in all_names(node)}
        self._nodes = {name: node for node in graph.nodes for name in sorted(all_names(node)) if name}
        self.compiled = _unique(name for node in graph.nodes for name in sorted(names(node)))
        self.kinds = _unique(name for node in graph.nodes for name in sorted(kinds(node)))

    def warn_of_layer(self, subject: str, name: str) -> None:
        """Warn of a name that no compiled or original operator has, or only an operator without a task."""
        if name not in self._nodes:
            running = [
                other
                for other, node in self._nodes.items()
                if node.operator.full_name in self._running and not node.is_added
            ]
            hint = alike(name, running)
            _log.warning("%s: model %s has no such operator%s", subject, self._model, hint)
        elif name not in self._running:
            why = "the device runs no task for the operator, so no file is written"
            _log.warning("%s: %s of model %s", subject, why, self._model)

    def warn_of_compiled(self, subject: str, name: str) -> None:
        """Warn as ``warn_of_layer`` does, and of an operator that is fused into another one."""
        if name in self._nodes and name not in self.compiled:
            fused = self._nodes[name].operator.full_name
            _log.warning("%s: is fused into %r; name the fused operator", subject, fused)
        else:
            self.warn_of_layer(subject, name)

    def warn_of_blocked(
        self,
        subject: str,
        name: str,
        nodes: Sequence[Node],
        slots: Iterable[Slot],
        candidates: Collection[str],
    ) -> None:
        """Warn of an entry of a black list that matches no operator, or no position of any."""
        if not nodes:
            _log.warning("%s: model %s has no such operator%s", subject, self._model, alike(name, candidates))
            return
        for io, index in sorted(slots):
            count = max(len(node.inputs if io is IO.INPUT else node.declared_outputs) for node in nodes)
            if index >= count:
                number = f"there are {count}, counted from 0" if count else "there are none"
                _log.warning("%s: pos '%s%d': %s in model %s", subject, io, index, number, self._model)


def _unique(items: Iterator[str]) -> dict[str, None]:
    return dict.fromkeys(filter(None, items))


_TRANSFER: Final = re.compile(r"trans_(?:TransData|Cast)_[0-9]+")
_POSITION: Final = re.compile(r"(?P<io>input|output)(?P<index>[0-9]+)")

_WITHOUT_TASK: Final = frozenset({Reason.NO_TASK, Reason.CONTROL_FLOW})


@dataclass(frozen=True, slots=True)
class ModelSelection:
    """The dumped parts of a model."""

    refusals: tuple[Reason | None, ...]  # for each node the reason for no dump, None for a dumped node
    # graph inputs that dumped nodes read, by position: their ``Data`` operators are dumped, too
    data: Mapping[int, tuple[str, ...]]
    blocked: Mapping[int, frozenset[Slot]]  # inputs and outputs on black lists, by position

    @property
    def watched(self) -> tuple[bool, ...]:
        """For each node, whether it is dumped."""
        return tuple(refusal is None for refusal in self.refusals)

    @property
    def asked(self) -> tuple[bool, ...]:
        """For each node, whether ``dump_list`` selects it; a selected node without a task is not dumped."""
        return tuple(refusal is None or refusal in _WITHOUT_TASK for refusal in self.refusals)


def select_model(
    graph: Graph, plan: DumpPlan, file_name: str = "", runs: Sequence[bool] | None = None
) -> ModelSelection:
    """Return the selection of a model by ``plan.models``; names that no operator has are logged.

    A node without a task (``runs``) is never dumped and ends no range.
    """
    items = Items.of(plan.compiled.models or (), file_name, graph.name, plan.source)
    present = tuple(runs) if runs is not None else (True,) * len(graph.nodes)
    in_layer = items.selected(graph.nodes)
    in_range = within(items.ranges, graph.nodes, present)
    # an operator is selected by ``layer``, by a range, or by both
    is_asked = [any(pair) for pair in zip(in_layer, in_range, strict=True)]
    unasked = Reason.NOT_IN_DUMP_LIST if items.deciding or items.ranges else Reason.MODEL_NOT_LISTED
    warn_of_selection(graph, items, present, plan.source)
    asked = [None if is_node_asked else unasked for is_node_asked in is_asked]
    return selected(graph, asked, present, items.blocked(graph.nodes))


def selected(
    graph: Graph,
    requested: Sequence[Reason | None],
    runs: Sequence[bool],
    blocked: Mapping[int, frozenset[Slot]] | None = None,
) -> ModelSelection:
    """Return the selection of the operators that ``dump_list`` selects and that have a task."""
    refusals = tuple(
        refusal if refusal is not None or is_run else Reason.CONTROL_FLOW if node.bodies else Reason.NO_TASK
        for node, refusal, is_run in zip(graph.nodes, requested, runs, strict=True)
    )
    watched = [refusal is None for refusal in refusals]
    return ModelSelection(refusals, data_read(graph, watched), blocked or {})


def directory_name(plan: DumpPlan, file_name: str, graph_name: str) -> str:
    """Return the ``{model_name}``: the file's name if ``dump_list`` has it, else the graph's."""
    named = {item.model_name for item in plan.compiled.models or ()}
    return file_name if file_name and (file_name in named or not graph_name) else graph_name


@dataclass(frozen=True, slots=True)
class Items:
    """The items of ``dump_list`` for one model."""

    deciding: ModelItem | None  # the item that selects operators, None: the model is not listed
    ranges: tuple[tuple[str, str], ...]  # first and last operator of each range
    # inputs and outputs on the black lists of all items, by operator type
    blocked_types: Mapping[str, frozenset[Slot]]
    # inputs and outputs on the black lists of all items, by operator name
    blocked_names: Mapping[str, frozenset[Slot]]

    @classmethod
    def of(cls, models: Iterable[ModelItem], file_name: str, graph_name: str, source: str = "") -> Items:
        """Choose the items for a model by the name of its file and its own; ``source`` is for messages."""
        keys = {None, file_name, graph_name}
        applicable = tuple(item for item in models if item.model_name in keys)
        last = {item.model_name: item for item in applicable}  # vendor: a later item replaces an earlier one
        model_item = last.get(file_name) or last.get(graph_name)
        return cls(
            last.get(None)
            or model_item,  # vendor: an item for all models makes CANN ignore items that name it
            model_item.ranges if model_item else (),
            _slots((entry for item in applicable for entry in item.blocked_types), source),
            _slots((entry for item in applicable for entry in item.blocked_names), source),
        )

    def selected(self, nodes: Sequence[Node]) -> tuple[bool, ...]:
        """Return for each node whether ``layer`` selects it."""
        item = self.deciding
        if item is None:
            return (False,) * len(nodes)
        if not item.layers:
            return (item.model_name is None or not self.ranges,) * len(nodes)
        layers = frozenset(item.layers)
        return tuple(not layers.isdisjoint(all_names(node)) for node in nodes)

    def blocked(self, nodes: Sequence[Node]) -> dict[int, frozenset[Slot]]:
        """Return the inputs and outputs on black lists, by position."""
        slots_by_position = {}
        for position, node in enumerate(nodes):
            slots = frozenset().union(
                *(self.blocked_types.get(kind, frozenset()) for kind in kinds(node)),
                *(self.blocked_names.get(name, frozenset()) for name in names(node)),
            )
            if slots:
                slots_by_position[position] = slots
        return slots_by_position


def within(
    ranges: Iterable[tuple[str, str]], nodes: Sequence[Node], runs: Sequence[bool]
) -> tuple[bool, ...]:
    """Return for each node whether one of the ranges holds it, both ends included.

    >>> from msdump.record import OperatorRef
    >>> refs = [OperatorRef("ReLU", f"Default/ReLU-op{number}") for number in range(4)]
    >>> nodes = [Node(f"relu{n}", "Relu", "", (), (), {}, ref, (), None) for n, ref in enumerate(refs)]
    >>> within([("relu1", "relu2")], nodes, (True,) * 4)
    (False, True, True, False)
    >>> within([("relu2", "relu1")], nodes, (True,) * 4)  # an end before its begin breaks a range
    (False, False, False, False)

    Nodes without a task (``runs``) are ignored.
    """
    running = [position for position, is_run in enumerate(runs) if is_run]
    in_range = [False] * len(nodes)
    for begin, end in ranges:
        is_inside = has_just_ended = False
        for position in running:
            found = names(nodes[position])
            if begin in found:
                if has_just_ended:
                    break  # vendor: a begin right behind an end breaks the range
                is_inside, has_just_ended = end not in found, end in found
            elif end in found:
                if not (is_inside or has_just_ended):
                    break  # vendor: so does an end before its begin
                is_inside, has_just_ended = False, True
            else:
                has_just_ended = False
            in_range[position] |= is_inside or has_just_ended
    return tuple(in_range)


def _slots(entries: Iterable[Blocked], source: str) -> dict[str, frozenset[Slot]]:
    """Return the slots of black list entries by name; entries of one name add up."""
    slots: dict[str, frozenset[Slot]] = {}
    for entry in entries:
        if entry.name:
            slots[entry.name] = slots.get(entry.name, frozenset()) | _parsed(entry, source)
    return slots


def _parsed(entry: Blocked, source: str) -> frozenset[Slot]:
    """Return the slots of a black list entry; invalid positions are logged and ignored.

    >>> sorted(_parsed(Blocked("conv1", ("input0", "output2")), "acl.json"))
    [(<IO.INPUT: 'input'>, 0), (<IO.OUTPUT: 'output'>, 2)]
    """
    if not entry.positions:
        _log.warning(
            "%s: the black list entry %r has no pos and has no effect; add a pos such as 'input0'",
            source,
            entry.name,
        )
    slots = set()
    # vendor: CANN checks positions only now, and ignores faulty ones
    for text in entry.positions:
        match = _POSITION.fullmatch(text)
        if match is None:
            _log.warning(
                "%s: pos %r of %r is ignored: must be 'input' or 'output' and an index, as in 'input0'",
                source,
                text,
                entry.name,
            )
        else:
            slots.add((IO(match["io"]), int(match["index"])))
    return frozenset(slots)


def data_read(graph: Graph, watched: Sequence[bool]) -> dict[int, tuple[str, ...]]:
    """Return the graph inputs that dumped operators read, by the position of the operator.

    Transfers that the device inserted between input and reader are looked through, unless dumped themselves.
    """
    # vendor: an input's Data operator is dumped along with a reader, not by a name of its own
    input_names = {value.name for value in graph.inputs}
    sources = {
        node.outputs[0]: node.inputs[0]
        for node, is_watched in zip(graph.nodes, watched, strict=True)
        if not is_watched and _TRANSFER.fullmatch(node.name)
    }
    inputs_read = {
        position: tuple(name for name in dict.fromkeys(_origins(node, sources)) if name in input_names)
        for position, node in enumerate(graph.nodes)
        if watched[position]
    }
    return {position: read for position, read in inputs_read.items() if read}


def _origins(node: Node, sources: Mapping[str, str]) -> Iterator[str]:
    """Yield the values that a node reads, traced back through transfers that the device inserted."""
    for name in node.inputs:
        origin = name
        while origin in sources:
            origin = sources[origin]
        yield origin
