"""The graph of a compiled model, where the files of its compilation lie beside its dump.

GE writes ``ge_proto_*_Build.txt`` into the working directory of its program, or where ``DUMP_GRAPH_PATH``
says: a user who sets that to the path of the dump has both in one place.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from msdump.errors import DumpReadError
from msdump.store import graph_names
from msdump.store.graph_names import GraphFileKind
from msdump.store.read.graphs import ge
from msdump.store.read.graphs.operator_graph import OperatorGraph

_LAST_STAGE: Final = "Build"


def graph_of(model: str, beside: Iterable[str]) -> OperatorGraph | None:
    """Return the graph of a model; None where no file shows it.

    Args:
        model: Name of the model.
        beside: Paths of what lies in the dump and is no part of it.
    """
    graphs = [graph for path in _files(beside) if (graph := _read(path)) is not None]
    named = [graph for graph in graphs if graph.name == model]
    chosen = named or graphs
    # of several graphs of one name the newest one: a program compiles anew each time it starts
    return chosen[-1] if named or len(graphs) == 1 else None


def _files(beside: Iterable[str]) -> Iterator[str]:
    """Yield the files of last stages, the oldest first."""
    for path in sorted(beside):
        name = graph_names.parse(Path(path).name)
        if name is None:
            continue
        if name.kind is GraphFileKind.GE_DIRECTORY and os.path.isdir(path):
            yield from _files(entry.path for entry in os.scandir(path))
        elif name.kind is GraphFileKind.GE_PROTO and name.stage == _LAST_STAGE:
            yield path


def _read(path: str) -> OperatorGraph | None:
    try:
        return ge.read_whole(path)
    except DumpReadError:  # it tells of a dump, it is no part of it
        return None
