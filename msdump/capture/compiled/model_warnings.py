"""Warnings about names in ``dump_list`` of acl.json that a model does not have, with similar ones."""

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
    """Log the names of an item that the watcher does not find in a model; arguments as above."""
    model_names = _ModelNames(graph, runs)
    for layer in item.layers:
        model_names.warn_of_layer(f"{source}: layer {layer!r}", layer)
    for name in item.watched:
        model_names.warn_of_compiled(f"{source}: watcher_nodes {name!r}", name)


def alike(text: str, candidates: Collection[str]) -> str:
    """Return the names that a text may have meant, as the end of a message, "" without candidates.

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
        """Warn where no operator, fused or original, has a name, or the device runs none for it."""
        if name not in self._nodes:
            hint = alike(name, [other for other, node in self._nodes.items() if self._is_worth_telling(node)])
            _log.warning("%s: model %s has no such operator%s", subject, self._model, hint)
        elif name not in self._running:
            why = "the device runs no task for it, so it is never dumped"
            _log.warning("%s: %s of model %s", subject, why, self._model)

    def _is_worth_telling(self, node: Node) -> bool:
        """Tell whether a name may be suggested: that of an operator of the model which the device runs."""
        return node.operator.full_name in self._running and not node.is_added

    def warn_of_compiled(self, subject: str, name: str) -> None:
        """Warn as for a layer, and where a name is the one before fusion."""
        if name in self._nodes and name not in self.compiled:
            fused = self._nodes[name].operator.full_name
            _log.warning("%s: is fused into %r and cannot be seen inside it; name that", subject, fused)
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
        """Warn where an entry of a black list meets no operator, or positions that none of them has."""
        if not nodes:
            _log.warning("%s: model %s has no such operator%s", subject, self._model, alike(name, candidates))
            return
        for io, index in sorted(slots):
            count = max(len(node.inputs if io is IO.INPUT else node.declared_outputs) for node in nodes)
            if index >= count:
                number = f"there are {count}, counted from 0" if count else "there is none"
                _log.warning("%s: pos '%s%d': %s in model %s", subject, io, index, number, self._model)


def _unique(items: Iterator[str]) -> dict[str, None]:
    return dict.fromkeys(filter(None, items))
