"""The graphs that MindSpore saves by itself: ``trace_code_graph_{number}`` under MS_DEV_SAVE_GRAPHS.

1 writes the graph that is handed to the backend, 2 the graph as it was built too, 3 also
a picture of each in Graphviz's language. Under O2 the backend compiles the graph once
more: the names in these files are those before fusion.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Final

from msdump import env
from msdump.communication.world import current
from msdump.counters import Counters
from msdump.device.ascend import Ascend
from msdump.graph.files import dot, ir_text
from msdump.graph.graph import Graph
from msdump.store.graph_names import GraphFileKind, GraphFileName
from msdump.store.layouts import Key, PathKind
from msdump.store.write.streams import WriteStream, write_stream

_log = logging.getLogger("msdump.capture")

_LEVELS: Final = ("1", "2", "3")
_OFF: Final = "0"
_TEXT, _PICTURE = "ir", "dot"
_WITH_BUILT, _WITH_PICTURES = 2, 3


def save(
    graph: Graph, counters: Counters, device: Ascend | None = None, write: WriteStream = write_stream
) -> None:
    """Save a graph and those of its branches and loops, where the environment asks for it.

    Args:
        graph: The model as it was loaded.
        counters: Number the files.
        device: The emulated device whose graph the backend gets; None: it gets the model itself.
        write: Writes a file.

    Raises:
        DumpWriteError: A file cannot be written.
    """
    level = _level()
    if level == 0:
        return
    numbers = counters.saved_graphs
    if level >= _WITH_BUILT:
        for inner in graph.walk():
            # vendor: one counter for all kinds of files, so that their order is that of the compilation
            built = GraphFileName(GraphFileKind.BUILT, next(numbers), inner.index, suffix=_TEXT)
            _write(built, inner, None, level=level, write=write)
    devices = {} if device is None else {inner.graph.index: inner for inner in device.walk()}
    for inner in (graph if device is None else device.graph).walk():
        traced = GraphFileName(GraphFileKind.TRACE, next(numbers))
        _write(traced, inner, devices.get(inner.index), level=level, write=write)


def _level() -> int:
    """Return how much is saved, 0 for nothing."""
    text = env.read(env.SAVE_GRAPHS) or _OFF
    if text in _LEVELS:
        return int(text)
    if text != _OFF:
        _log.warning("%s = %r: 0, 1, 2 or 3 is expected; no graphs are saved", env.SAVE_GRAPHS, text)
    return 0


def _directory() -> Path:
    """Return where the files go; ranks that a launcher distributes have a directory each, as in MindSpore."""
    directory, identity = Path(env.read(env.SAVE_GRAPHS_PATH) or ".").absolute(), current().identity
    return directory if identity.size == 1 else directory / Key(PathKind.RANK, identity.rank).path


def _write(
    name: GraphFileName, graph: Graph, device: Ascend | None, *, level: int, write: WriteStream
) -> None:
    directory = str(_directory())
    view = None if device is None else device.view()
    write(directory, str(name), [ir_text.text(graph, graph.index, view).encode()])
    if level >= _WITH_PICTURES:
        picture = str(replace(name, suffix=_PICTURE))
        write(directory, picture, [dot.text(graph, Path(picture).stem).encode()])
