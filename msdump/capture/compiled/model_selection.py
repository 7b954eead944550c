"""Which operators and tensors of one model ``dump_list`` of acl.json dumps.

The rules are CANN's. An item without a model name goes before those that name
the model; of several items for the same model the last one counts, but what they
leave out adds up. An operator answers to its name in the compiled graph, ONNX
name or full name, and in ``layer`` also to the names of the operators that
fusion has joined in it.
"""

from __future__ import annotations

import enum
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msdump.capture.compiled import model_warnings
from msdump.capture.compiled.model_names import all_names, kinds, names
from msdump.graph.graph import Graph, Node
from msdump.plan import Blocked, DumpPlan, ModelItem
from msdump.reasons import Reason
from msdump.record import IO

_log = logging.getLogger("msdump.capture")

_TRANSFER: Final = re.compile(r"trans_(?:TransData|Cast)_[0-9]+")
_POSITION: Final = re.compile(r"(?P<io>input|output)(?P<index>[0-9]+)")

_WITHOUT_TASK: Final = frozenset({Reason.NO_TASK, Reason.CONTROL_FLOW})

Slot = tuple[IO, int]
"""An input or output of an operator by its index."""


@dataclass(frozen=True, slots=True)
class ModelSelection:
    """The parts of a model that are dumped.

    Attributes:
        refusals: For each node, why it is not dumped, None where it is.
        data: Graph inputs that dumped nodes read, by the node's position: ``Data`` operators,
            which are dumped with their readers.
        blocked: Inputs and outputs that are left out, by the node's position.
    """

    refusals: tuple[Reason | None, ...]
    data: Mapping[int, tuple[str, ...]]
    blocked: Mapping[int, frozenset[Slot]]

    @property
    def watched(self) -> tuple[bool, ...]:
        """For each node, whether it is dumped."""
        return tuple(refusal is None for refusal in self.refusals)

    @property
    def asked(self) -> tuple[bool, ...]:
        """For each node, whether it is selected; what is and has no task is not dumped."""
        return tuple(refusal is None or refusal in _WITHOUT_TASK for refusal in self.refusals)


def select_model(
    graph: Graph, plan: DumpPlan, file_name: str = "", runs: Sequence[bool] | None = None
) -> ModelSelection:
    """Return what ``plan.models`` dumps of a model; names that no operator has are logged.

    Args:
        graph: The compiled graph.
        plan: The plan.
        file_name: Name of the model's file without suffix, "" for a model from memory.
        runs: For each node, whether the device runs it at all; None: it runs them all. What has
            no task of its own is never dumped and ends no range.
    """
    items = Items.of(plan.compiled.models or (), file_name, graph.name, plan.source)
    present = tuple(runs) if runs is not None else (True,) * len(graph.nodes)
    in_layer = items.selected(graph.nodes)
    in_range = within(items.ranges, graph.nodes, present)
    # one of the two is enough: layer and ranges add up
    is_asked = [any(pair) for pair in zip(in_layer, in_range, strict=True)]
    unasked = Reason.NOT_IN_DUMP_LIST if items.deciding or items.ranges else Reason.MODEL_NOT_LISTED
    model_warnings.warn_of_selection(graph, items, present, plan.source)
    asked = [None if is_node_asked else unasked for is_node_asked in is_asked]
    return selected(graph, asked, present, items.blocked(graph.nodes))


def selected(
    graph: Graph,
    asked: Sequence[Reason | None],
    runs: Sequence[bool],
    blocked: Mapping[int, frozenset[Slot]] | None = None,
) -> ModelSelection:
    """Return the selection of operators of which those with a task are dumped.

    Args:
        graph: The compiled graph.
        asked: For each node, why it is not selected, None where it is.
        runs: For each node, whether the device runs a task for it.
        blocked: Inputs and outputs that are left out, by the node's position.
    """
    refusals = tuple(
        refusal if refusal is not None or is_run else _without_task(node)
        for node, refusal, is_run in zip(graph.nodes, asked, runs, strict=True)
    )
    watched = [refusal is None for refusal in refusals]
    return ModelSelection(refusals, data_read(graph, watched), blocked or {})


def _without_task(node: Node) -> Reason:
    return Reason.CONTROL_FLOW if node.bodies else Reason.NO_TASK


def directory_name(plan: DumpPlan, file_name: str, graph_name: str) -> str:
    """Return the ``{model_name}`` of a model: its file's if ``dump_list`` names it so, else its own."""
    named = {item.model_name for item in plan.compiled.models or ()}
    return file_name if file_name and (file_name in named or not graph_name) else graph_name


@dataclass(frozen=True, slots=True)
class Items:
    """The items of ``dump_list`` that speak of one model.

    Attributes:
        deciding: The item that says which operators are dumped, None: the model is not listed.
        ranges: First and last operator of each range.
        blocked_types: Inputs and outputs that the black lists of all items leave out, by operator type.
        blocked_names: The same by operator name.
    """

    deciding: ModelItem | None
    ranges: tuple[tuple[str, str], ...]
    blocked_types: Mapping[str, frozenset[Slot]]
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
            or model_item,  # vendor: an item for all models makes CANN ignore those that name it
            model_item.ranges if model_item else (),
            _slots((entry for item in applicable for entry in item.blocked_types), source),
            _slots((entry for item in applicable for entry in item.blocked_names), source),
        )

    def selected(self, nodes: Sequence[Node]) -> tuple[bool, ...]:
        """Tell for each node whether ``layer`` selects it."""
        item = self.deciding
        if item is None:
            return (False,) * len(nodes)
        if not item.layers:
            return (item.model_name is None or not self.ranges,) * len(nodes)
        layers = frozenset(item.layers)
        return tuple(not layers.isdisjoint(all_names(node)) for node in nodes)

    def blocked(self, nodes: Sequence[Node]) -> dict[int, frozenset[Slot]]:
        """Return the inputs and outputs that the black lists leave out, by the node's position."""
        slots_by_position = {}
        for position, node in enumerate(nodes):
            slots = frozenset().union(
                *(self.blocked_types.get(kind, frozenset()) for kind in kinds(node)),
                *(self.blocked_names.get(name, frozenset()) for name in names(node)),
            )
            if slots:
                slots_by_position[position] = slots
        return slots_by_position


class _State(enum.Enum):
    """Where a range stands while the operators pass."""

    BEFORE = enum.auto()
    INSIDE = enum.auto()
    ENDED = enum.auto()
    BROKEN = enum.auto()


class _Event(enum.Enum):
    """Whether an operator begins a range, ends it, or neither."""

    BEGIN = enum.auto()
    END = enum.auto()
    OTHER = enum.auto()


_NEXT: Final = {
    (_State.BEFORE, _Event.BEGIN): _State.INSIDE,
    (_State.BEFORE, _Event.END): _State.BROKEN,
    (_State.BEFORE, _Event.OTHER): _State.BEFORE,
    (_State.INSIDE, _Event.BEGIN): _State.INSIDE,
    (_State.INSIDE, _Event.END): _State.ENDED,
    (_State.INSIDE, _Event.OTHER): _State.INSIDE,
    (_State.ENDED, _Event.BEGIN): _State.BROKEN,
    (_State.ENDED, _Event.END): _State.ENDED,
    (_State.ENDED, _Event.OTHER): _State.BEFORE,
    **{(_State.BROKEN, event): _State.BROKEN for event in _Event},
}
"""The states of ``opname_range``: an end too early, and a begin right behind an end, break it.

A range that has ended begins again where another operator has passed in between.
"""


def within(
    ranges: Iterable[tuple[str, str]], nodes: Sequence[Node], runs: Sequence[bool]
) -> tuple[bool, ...]:
    """Tell for each node whether one of the ranges holds it, both ends included.

    >>> from msdump.record import OperatorRef
    >>> refs = [OperatorRef("ReLU", f"Default/ReLU-op{number}") for number in range(4)]
    >>> nodes = [Node(f"relu{n}", "Relu", "", (), (), {}, ref, (), None) for n, ref in enumerate(refs)]
    >>> within([("relu1", "relu2")], nodes, (True,) * 4)
    (False, True, True, False)
    >>> within([("relu2", "relu1")], nodes, (True,) * 4)  # an end before its begin breaks a range
    (False, False, False, False)

    Args:
        ranges: First and last operator of each range.
        nodes: Operators in execution order.
        runs: For each node, whether the device runs it; those that it does not are passed over.
    """
    in_range = [False] * len(nodes)
    for begin, end in ranges:
        state = _State.BEFORE
        for position in (position for position, is_run in enumerate(runs) if is_run):
            event = _event(names(nodes[position]), begin, end)
            state = _NEXT[state, event]
            in_range[position] |= state in {_State.INSIDE, _State.ENDED}
            if state is _State.INSIDE and event is _Event.BEGIN and end in names(nodes[position]):
                state = _State.ENDED  # a range of one operator
    return tuple(in_range)


def _event(node_names: frozenset[str], begin: str, end: str) -> _Event:
    if begin in node_names:
        return _Event.BEGIN
    return _Event.END if end in node_names else _Event.OTHER


def _slots(entries: Iterable[Blocked], source: str) -> dict[str, frozenset[Slot]]:
    """Return the slots of black list entries by name; entries of one name add up."""
    slots: dict[str, frozenset[Slot]] = {}
    for entry in entries:
        if entry.name:
            slots[entry.name] = slots.get(entry.name, frozenset()) | _parsed(entry, source)
    return slots


def _parsed(entry: Blocked, source: str) -> frozenset[Slot]:
    """Return the slots that a black list entry names; what is none is logged and left out.

    >>> sorted(_parsed(Blocked("conv1", ("input0", "output2")), "acl.json"))
    [(<IO.INPUT: 'input'>, 0), (<IO.OUTPUT: 'output'>, 2)]
    """
    if not entry.positions:
        _log.warning("%s: the black list entry %r has no pos, so it leaves nothing out", source, entry.name)
    slots = set()
    # vendor: CANN checks positions only now, and goes on without those that it does not understand
    for text in entry.positions:
        match = _POSITION.fullmatch(text)
        if match is None:
            _log.warning(
                "%s: pos %r of %r is ignored: 'input' or 'output' and an index, as in 'input0', are expected",
                source,
                text,
                entry.name,
            )
        else:
            slots.add((IO(match["io"]), int(match["index"])))
    return frozenset(slots)


def data_read(graph: Graph, watched: Sequence[bool]) -> dict[int, tuple[str, ...]]:
    """Return the graph inputs that dumped operators read, by the position of the operator.

    What the device has put between an input and its reader does not part them, unless it is dumped itself.
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
    """Yield the values that a node reads, before any transfer that the device has put between."""
    for name in node.inputs:
        origin = name
        while origin in sources:
            origin = sources[origin]
        yield origin
