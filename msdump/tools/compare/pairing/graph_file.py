"""The compiled graph of a model as a file: JSON for msaccucmp's ``-f``, GE's text, or GE's ONNX text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from msdump.capture.graphs import ge_model
from msdump.encode import ge_onnx, ge_text
from msdump.encode.ge_text import Message
from msdump.errors import InputError
from msdump.execute.compilation import emulated
from msdump.graph.graph import Graph
from msdump.plan import Context
from msdump.store.write.streams import write_stream

Shape = Callable[[Message], Iterable[bytes]]

FORMS: Final[Mapping[str, Shape]] = {
    ".json": lambda message: (ge_text.json_text(message),),
    # GE's text holds the graph alone, without the model around it.
    ".txt": lambda message: ge_text.text([field for field in message if field[0] == "graph"]),
    ".pbtxt": lambda message: ge_text.text(ge_onnx.onnx_model(message)),
}
"""The form of the graph by the suffix of its file."""


def write_graph_file(graph: Graph, path: str, context: Context) -> None:
    """Compile a model for Ascend O2 and write the graph that an operator dump's names belong to.

    Args:
        graph: The model.
        path: The file; its suffix says what it holds.
        context: Where the network runs: an Ascend at O2.

    Raises:
        InputError: The suffix is unknown.
        DumpWriteError: The file cannot be written.
    """
    file = Path(path)
    if file.suffix not in FORMS:
        raise InputError(f"graph file {path!r}: its name must end in {', '.join(FORMS)}")
    device = emulated(graph, None, context)
    assert device is not None, "only an Ascend compiles graphs"
    write_stream(str(file.parent), file.name, FORMS[file.suffix](ge_model.model(device)))
