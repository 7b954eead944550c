"""The analyzer of MindInsight's debugger over the dumps that msdump reads."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, Final

from msdump.store.read.reader import open_dump
from msdump.tools.debugger import nodes, watchpoints
from msdump.tools.debugger.graphs import DumpedGraph, graphs
from msdump.tools.debugger.nodes import DebuggerNode, DebuggerTensor
from msdump.tools.debugger.watchpoints import Watchpoint, WatchpointHit

_LEAST_MEMORY: Final = 2048
_MOST_MEMORY: Final = 2147483647
_FIELDS: Final[dict[str, Callable[[DebuggerNode], list[str]]]] = {
    "node_name": lambda node: [node.name],
    "code_stack": lambda node: [
        f"In file {line['file_path']}:{line['line_no']}/ {line['code_line']}/" for line in node.stack
    ],
}


class DumpAnalyzer:
    """What a dump holds: nodes and tensors by names and source lines, and where conditions are met.

    Dumps of every kind that ``msdump.open_dump`` opens; without a graph file (compiled graphs) nodes are what
    the names of files tell, and have no neighbours.
    """

    def __init__(self, dump_dir: str | os.PathLike[str], mem_limit: int | None = None) -> None:
        """Open a dump.

        Args:
            dump_dir: Its directory, as for ``msdump.open_dump``.
            mem_limit: MiB of memory for checks, from 2048, as MindInsight takes it; it limits nothing, as two
                tensors at a time are all that is held.

        Raises:
            DumpReadError: There is no dump.
            ValueError: ``mem_limit`` is out of its range.
        """
        if mem_limit is not None and not _LEAST_MEMORY <= mem_limit <= _MOST_MEMORY:
            allowed = f"None, or MiB from {_LEAST_MEMORY} to {_MOST_MEMORY}"
            raise ValueError(f"mem_limit = {mem_limit}: it is {allowed}")
        self._dump = open_dump(dump_dir)

    @cached_property
    def _graphs(self) -> tuple[DumpedGraph, ...]:
        return tuple(graphs(self._dump))

    def get_ranks(self) -> list[int]:
        """Return the numbers of the ranks that dumped."""
        return sorted({graph.rank for graph in self._graphs} | {*self._dump.ranks})

    def get_iterations(self, ranks: int | Iterable[int] | None = None) -> list[int]:
        """Return the numbers of the iterations that were dumped.

        Args:
            ranks: Numbers of the ranks, None: all.
        """
        chosen = self._of_ranks(ranks)
        return sorted({iteration for graph in chosen for iteration in graph.iterations})

    def select_nodes(
        self,
        query_string: str,
        use_regex: bool = False,  # noqa: FBT001, FBT002 - MindInsight's signature
        select_by: str = "node_name",
        ranks: int | Iterable[int] | None = None,
        case_sensitive: bool = True,  # noqa: FBT001, FBT002 - the same
    ) -> list[DebuggerNode]:
        """Return the nodes whose name or source lines hold a text.

        Args:
            query_string: The text, which may stand anywhere in the field.
            use_regex: It is a regular expression, which may match anywhere in the field.
            select_by: The field: "node_name" or "code_stack".
            ranks: Numbers of the ranks, None: all.
            case_sensitive: Upper and lower case differ.

        Raises:
            ValueError: Another field, or a text that is no regular expression.
            DumpReadError: A graph file cannot be read.
        """
        if select_by not in _FIELDS:
            raise ValueError(f"select_by = {select_by!r}: it is one of {', '.join(_FIELDS)}")
        texts_of, matches = _FIELDS[select_by], _matcher(query_string, use_regex, case_sensitive)
        return [
            node
            for graph in self._of_ranks(ranks)
            for node in nodes.nodes(graph)
            if any(map(matches, texts_of(node)))
        ]

    def select_tensors(  # noqa: PLR0917 - MindInsight's signature
        self,
        query_string: str,
        use_regex: bool = False,  # noqa: FBT001, FBT002 - MindInsight's signature
        select_by: str = "node_name",
        iterations: int | Iterable[int] | None = None,
        ranks: int | Iterable[int] | None = None,
        slots: Iterable[int] | None = None,
        case_sensitive: bool = True,  # noqa: FBT001, FBT002 - the same
    ) -> list[DebuggerTensor]:
        """Return the outputs of the nodes whose name or source lines hold a text.

        Args:
            query_string: The text, as for ``select_nodes``.
            use_regex: It is a regular expression.
            select_by: The field: "node_name" or "code_stack".
            iterations: Numbers of the iterations, None: all that were dumped.
            ranks: Numbers of the ranks, None: all.
            slots: Numbers of the outputs, None: all.
            case_sensitive: Upper and lower case differ.

        Raises:
            ValueError: As for ``select_nodes``.
            DumpReadError: A graph file or a directory cannot be read.
        """
        chosen = None if iterations is None else _several(iterations)
        wanted = None if slots is None else [*slots]
        found = self.select_nodes(query_string, use_regex, select_by, ranks, case_sensitive)
        return [tensor for node in found for tensor in node.get_output_tensors(chosen, wanted)]

    def select_tensor_statistics(
        self, iterations: int | Iterable[int] | None = None, ranks: int | Iterable[int] | None = None
    ) -> dict[int, dict[int, dict[str, list[dict[str, Any]]]]]:
        """Return the saved statistics by rank, iteration and ``operator:io:slot``.

        Each tensor has a list of rows of ``statistic.csv``, cells by the titles of their columns.

        Args:
            iterations: Numbers of the iterations, None: all that were dumped.
            ranks: Numbers of the ranks, None: all.

        Raises:
            DumpReadError: A table cannot be read.
        """
        chosen = None if iterations is None else {*_several(iterations)}
        told: dict[int, dict[int, dict[str, list[dict[str, Any]]]]] = {}
        for graph in self._of_ranks(ranks):
            of_rank = told.setdefault(graph.rank, {})
            for number, iteration in graph.iterations.items():
                if chosen is not None and number not in chosen:
                    continue
                tensors = of_rank.setdefault(number, {})
                for row in iteration.statistics:
                    name = f"{row.get('Op Name')}:{row.get('IO')}:{row.get('Slot')}"
                    tensors.setdefault(name, []).append(dict(row))
        return told

    def check_watchpoints(
        self,
        watchpoints: Iterable[Watchpoint],
        error_on_no_value: bool = False,  # noqa: FBT001, FBT002 - MindInsight's signature
    ) -> list[WatchpointHit]:
        """Return the tensors that meet their watchpoints' conditions, in the order of their writing.

        Args:
            watchpoints: The watchpoints.
            error_on_no_value: Return tensors without a value, too, with error code 32.

        Raises:
            DumpReadError: The file of a tensor cannot be read.
        """
        return _by_time(watchpoints, reports_missing=error_on_no_value)

    def list_affected_nodes(self, tensor: DebuggerTensor) -> list[DebuggerNode]:
        """Return the nodes that read a tensor."""
        return tensor.node.outputs(tensor.slot)

    def get_input_nodes(self, node: DebuggerNode) -> list[DebuggerNode]:
        """Return the nodes that a node reads."""
        return node.inputs()

    def get_output_nodes(self, node: DebuggerNode) -> list[DebuggerNode]:
        """Return the nodes that read a node."""
        return node.outputs()

    def _of_ranks(self, ranks: int | Iterable[int] | None) -> list[DumpedGraph]:
        wanted = None if ranks is None else {*_several(ranks)}
        return [graph for graph in self._graphs if wanted is None or graph.rank in wanted]


def _several(numbers: int | Iterable[int]) -> list[int]:
    return [numbers] if isinstance(numbers, int) else [*numbers]


def _matcher(query: str, use_regex: bool, case_sensitive: bool) -> Callable[[str], bool]:  # noqa: FBT001 - as above
    if not use_regex:
        if case_sensitive:
            return lambda text: query in text
        return lambda text: query.lower() in text.lower()
    try:
        expression = re.compile(query, 0 if case_sensitive else re.IGNORECASE)
    except re.error as error:
        raise ValueError(f"query_string = {query!r} is no regular expression: {error}") from error
    return lambda text: expression.search(text) is not None


def _by_time(points: Iterable[Watchpoint], *, reports_missing: bool) -> list[WatchpointHit]:
    timed = (each for point in points for each in watchpoints.check(point, reports_missing=reports_missing))
    return [hit for _, hit in sorted(timed, key=lambda each: each[0])]
