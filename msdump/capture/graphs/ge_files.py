"""The files in which GE shows the graphs that it compiles: ``ge_proto*.txt`` and ``ge_onnx*.pbtxt``.

``DUMP_GE_GRAPH`` asks for them, ``DUMP_GRAPH_LEVEL`` chooses the stages of the
compilation, ``DUMP_GRAPH_FORMAT`` the kinds of files, ``DUMP_GRAPH_PATH`` the place. A
dump that GE options turn on (``ENABLE_MS_GE_DUMP``, torchair) has the last stage's
``ge_proto_*_Build.txt`` in any case, as CANN promises; other dumps leave no such file.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msdump import env
from msdump.capture.graphs import ge_model
from msdump.capture.graphs.ge_model import HostView, View
from msdump.capture.process import Process
from msdump.communication.world import current
from msdump.counters import Counters
from msdump.device.ascend import Ascend
from msdump.encode import ge_onnx, ge_text
from msdump.graph.compile.compilation import BEGUN, BUILT
from msdump.graph.graph import Graph
from msdump.plan import Context, DeviceTarget, DumpPlan, JitLevel
from msdump.store.graph_names import GraphFileKind, GraphFileName
from msdump.store.write.streams import WriteStream, write_stream

_log = logging.getLogger("msdump.capture")

_ALL, _WITHOUT_DATA, _RELATIONS = "1", "2", "3"
_ONE_STAGE: Final = {"3": BUILT, "4": BEGUN}
_EVERY_STAGE: Final = ("1", "2")
_USUAL_LEVEL: Final = "2"
_PROTO, _ONNX, _READABLE = "ge_proto", "onnx", "readable"

Stages = Callable[[str, Graph | Ascend], None]
"""Takes the name of a stage of a compilation and what it made."""


@dataclass(frozen=True, slots=True)
class Request:
    """The graph files that the environment asks for.

    Attributes:
        content: 1, 2 or 3; "" for nothing.
        level: 1 or 2: every stage; 3: the last one; 4: the first one; else parts of their names, a|b.
        formats: Kinds of files.
        directory: Where they go.
    """

    content: str
    level: str
    formats: frozenset[str]
    directory: str

    def wants(self, stage: str) -> bool:
        """Tell whether a stage has files."""
        if not self.content:
            return False
        if self.level in _ONE_STAGE:
            return stage == _ONE_STAGE[self.level]
        return self.level in _EVERY_STAGE or any(part in stage for part in self.level.split("|") if part)


class GraphFiles:
    """Writes the files of one graph's stages of compilation."""

    def __init__(
        self, request: Request, counters: Counters, *, is_dumped: bool, write: WriteStream = write_stream
    ) -> None:
        """Give the graph its number; nothing is written yet.

        Args:
            request: What the environment asks for.
            counters: Number the graph and its files.
            is_dumped: Whether GE dumps the graph, and so must show its last stage.
            write: Writes a file; what it raises is raised.
        """
        self._write = write
        self._request = request
        self._is_dumped = is_dumped
        self._numbers = counters.stage_files
        self._graph = next(counters.ge_graphs)

    def write(self, stage: str, view: View) -> None:
        """Write the files of a stage, where they are wanted.

        Raises:
            DumpWriteError: A file cannot be written.
        """
        formats = self._formats(stage)
        if not formats:
            return
        number = next(self._numbers)  # one for both files of a stage

        def name(kind: GraphFileKind) -> str:
            return str(GraphFileName(kind, number, self._graph, stage))

        directory = str(Path(self._request.directory).absolute())
        message = ge_model.model(view, with_data=self._request.content == _ALL)
        if _PROTO in formats:
            pieces = ge_text.text([field for field in message if field[0] == "graph"])
            self._write(directory, name(GraphFileKind.GE_PROTO), pieces)
        if _ONNX in formats:
            shown = ge_onnx.onnx_model(message, only_relations=self._request.content == _RELATIONS)
            self._write(directory, name(GraphFileKind.GE_ONNX), ge_text.text(shown))

    def _formats(self, stage: str) -> frozenset[str]:
        """Return the kinds of files that a stage has."""
        wanted = self._request.formats if self._request.wants(stage) else frozenset()
        # vendor: a dump leaves ge_proto_*_Build.txt behind whether DUMP_GE_GRAPH is set or not
        return wanted | {_PROTO} if self._is_dumped and stage == BUILT else wanted


def graph_files(
    device_id: int, counters: Counters, *, is_dumped: bool, write: WriteStream = write_stream
) -> GraphFiles | None:
    """Return the writer of a graph's files, None where none are asked for.

    Args:
        device_id: Number of the device.
        counters: Number the graph and its files.
        is_dumped: Whether GE dumps the graph.
        write: Writes a file.
    """
    request = requested(device_id)
    if not request.content and not is_dumped:
        return None
    return GraphFiles(request, counters, is_dumped=is_dumped, write=write)


def stages(plan: DumpPlan | None, context: Context, process: Process) -> Stages | None:
    """Return a function that writes the stages of a network's compilation, None where none are asked for.

    Args:
        plan: What is dumped, None: nothing.
        context: Where the network runs; only O2 compiles a graph as a whole.
        process: What all networks share.
    """
    if context.device_target is not DeviceTarget.ASCEND or context.jit_level is not JitLevel.O2:
        return None
    is_dumped = plan is not None and plan.is_enabled and plan.compiled.shows_graph
    write = process.stream(plan)
    files = graph_files(context.device_id, process.counters, is_dumped=is_dumped, write=write)
    if files is None:
        return None
    return lambda stage, view: files.write(stage, HostView(view) if isinstance(view, Graph) else view)


def requested(device_id: int) -> Request:
    """Read the request for graph files from the environment; wrong values are logged once."""
    content = env.read(env.GE_GRAPH) or ""
    if content not in {"", "0", _ALL, _WITHOUT_DATA, _RELATIONS}:
        _warn(f"{env.GE_GRAPH} = {content!r}: 1, 2 or 3 is expected; no graph files are written")
    root = env.read(env.GE_GRAPH_PATH)
    if root is None and current().identity.size > 1:
        root = "."  # other ranks write there, too: each has the directory of its process and device
    return Request(
        content if content in {_ALL, _WITHOUT_DATA, _RELATIONS} else "",
        env.read(env.GE_GRAPH_LEVEL) or _USUAL_LEVEL,
        frozenset(_formats(env.read(env.GE_GRAPH_FORMAT) or f"{_PROTO}|{_ONNX}")),
        f"{root}/{_directory(device_id)}" if root else ".",
    )


def _directory(device_id: int) -> GraphFileName:
    return GraphFileName(GraphFileKind.GE_DIRECTORY, pid=os.getpid(), device=device_id)


def _formats(text: str) -> Iterator[str]:
    """Yield the kinds of files that ``DUMP_GRAPH_FORMAT`` names.

    >>> list(_formats("ge_proto|onnx"))
    ['ge_proto', 'onnx']
    """
    for name in filter(None, text.split("|")):
        if name in {_PROTO, _ONNX}:
            yield name
        elif name == _READABLE:
            _warn(f"{env.GE_GRAPH_FORMAT} = {text!r}: ge_readable files are not written")
        else:
            _warn(f"{env.GE_GRAPH_FORMAT} = {text!r}: {name!r} is unknown; ge_proto and onnx are allowed")


@functools.cache  # once for each text: the environment is read again for every graph
def _warn(message: str) -> None:
    _log.warning("%s", message)
