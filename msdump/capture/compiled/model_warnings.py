"""Warnings about what ``dump_list`` of acl.json names and a model has not, with what would match."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from msdump.capture.compiled.model_names import all_names, kinds, names
from msdump.record import IO

if TYPE_CHECKING:
    from msdump.capture.compiled.model_selection import Items, Slot
    from msdump.graph.graph import Graph, Node
    from msdump.plan import ModelItem

_log = logging.getLogger("msdump.capture")

_MOST_SHOWN: Final = 3
_LONGEST: Final = 200  # characters; the nearest name to a longer text is not searched


def warn_of_selection(graph: Graph, items: Items, runs: Sequence[bool], source: str) -> None:
    """Log each name and position in the items for a model that selects or leaves out nothing.

    Args:
        graph: The compiled graph, with the operators of its branches and loops.
        items: The items for the model.
        runs: For each node, whether the device runs a task for it.
        source: The configuration, for messages.
    """
    book = _Book(graph, runs)
    for layer in items.deciding.layers if items.deciding else ():
        book.warn_of_layer(f"{source}: layer {layer!r}", layer)
    for end in dict.fromkeys(end for both in items.ranges for end in both):
        book.warn_of_compiled(f"{source}: opname_range {end!r}", end)
    for name, slots in items.blocked_types.items():
        nodes = [node for node in graph.nodes if name in kinds(node)]
        book.warn_of_blocked(f"{source}: optype_blacklist {name!r}", name, nodes, slots, book.kinds)
    for name, slots in items.blocked_names.items():
        nodes = [node for node in graph.nodes if name in names(node)]
        book.warn_of_blocked(f"{source}: opname_blacklist {name!r}", name, nodes, slots, book.compiled)


def warn_of_watch(graph: Graph, item: ModelItem, runs: Sequence[bool], source: str) -> None:
    """Log the names of an item that the watcher does not find in a model; arguments as above."""
    book = _Book(graph, runs)
    for layer in item.layers:
        book.warn_of_layer(f"{source}: layer {layer!r}", layer)
    for name in item.watched:
        book.warn_of_compiled(f"{source}: watcher_nodes {name!r}", name)


def alike(text: str, known: Collection[str]) -> str:
    """Return what a text may have meant, as the end of a message: ``; it has 'conv1', 'conv2', ...``."""
    if not known:
        return ""
    lower = text.lower()
    near = get_close_matches(text, known, n=_MOST_SHOWN) if len(text) <= _LONGEST else []
    found = list(dict.fromkeys([*near, *(name for name in known if lower in name.lower())])) or list(known)
    more = ", ..." if len(found) > _MOST_SHOWN else ""
    return f"; it has {', '.join(map(repr, found[:_MOST_SHOWN]))}{more}"


class _Book:
    """The names of a model's operators, in execution order."""

    def __init__(self, graph: Graph, runs: Sequence[bool]) -> None:
        self._model = graph.name
        running = (node for node, is_run in zip(graph.nodes, runs, strict=True) if is_run)
        self._running = {name for node in running for name in all_names(node)}
        self._known = {name: node for node in graph.nodes for name in sorted(all_names(node)) if name}
        self.compiled = _unique(name for node in graph.nodes for name in sorted(names(node)))
        self.kinds = _unique(name for node in graph.nodes for name in sorted(kinds(node)))

    def warn_of_layer(self, what: str, name: str) -> None:
        """Warn where no operator, fused or original, has a name, or the device runs none for it."""
        if name not in self._known:
            hint = alike(name, [known for known, node in self._known.items() if self._is_worth_telling(node)])
            _log.warning("%s: model %s has no such operator%s", what, self._model, hint)
        elif name not in self._running:
            why = "the device runs no task for it, so it is never dumped"
            _log.warning("%s: %s of model %s", what, why, self._model)

    def _is_worth_telling(self, node: Node) -> bool:
        return node.operator.full_name in self._running and not node.is_added

    def warn_of_compiled(self, what: str, name: str) -> None:
        """Warn as for a layer, and where a name is the one before fusion."""
        if name in self._known and name not in self.compiled:
            whole = self._known[name].operator.full_name
            _log.warning("%s: is fused into %r and cannot be seen inside it; name that", what, whole)
        else:
            self.warn_of_layer(what, name)

    def warn_of_blocked(
        self,
        what: str,
        name: str,
        nodes: Sequence[Node],
        slots: Iterable[Slot],
        known: Collection[str],
    ) -> None:
        """Warn where an entry of a black list meets no operator, or positions that none of them has."""
        if not nodes:
            _log.warning("%s: model %s has no such operator%s", what, self._model, alike(name, known))
            return
        for io, index in sorted(slots):
            count = max(len(node.inputs if io is IO.INPUT else node.outputs) for node in nodes)
            if index >= count:
                has = f"there are {count}, counted from 0" if count else "there is none"
                _log.warning("%s: pos '%s%d': %s in model %s", what, io, index, has, self._model)


def _unique(items: Iterator[str]) -> dict[str, None]:
    return dict.fromkeys(filter(None, items))
