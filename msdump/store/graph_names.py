"""The names of files that show graphs (of GE, MindSpore, torch.compile), and of captured tensors.

    pid_{pid}_deviceid_{device}                    the directory of GE's files below DUMP_GRAPH_PATH
    ge_proto_{number}_graph_{graph}_{stage}.txt    ge_onnx_{number}_graph_{graph}_{stage}.pbtxt
    graph_build_{graph}_{number}.{ir, dot}         trace_code_graph_{number}[.dot]
    dynamo_{original, optimized}_graph_{graph}_rank_{rank}_pid_{pid}_ts_{time}.{txt, pbtxt, py}
    {node}-{target}.{INPUT, OUTPUT}.{place}[.{time}.npy]    a tensor that torch.compile captures

The graphs of a dump inside MindSpore's tree, and the paths of captured tensors, are rows of ``layouts``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from msdump.record import IO
from msdump.store.templates import NUMBER, PART, Field, Template, padded


class GraphFileKind(enum.Enum):
    """Kinds of files that show graphs."""

    GE_DIRECTORY = enum.auto()
    GE_PROTO = enum.auto()
    GE_ONNX = enum.auto()
    BUILT = enum.auto()
    TRACE = enum.auto()
    DYNAMO = enum.auto()


_WORD: Final = Field("[A-Za-z0-9_]+")
_FIELDS: Final = {
    "graph": NUMBER,
    "rank": NUMBER,
    "pid": NUMBER,
    "device": NUMBER,
    "stage": _WORD,
    "time": Field("[0-9]{20}"),
    "suffix": _WORD,
}
_OF_GE: Final = _FIELDS | {"number": padded(8)}
_SAVED: Final = _FIELDS | {"number": padded(4)}

NAMES: Final = {
    GraphFileKind.GE_DIRECTORY: Template("pid_{pid}_deviceid_{device}", _FIELDS),
    GraphFileKind.GE_PROTO: Template("ge_proto_{number}_graph_{graph}_{stage}.txt", _OF_GE),
    GraphFileKind.GE_ONNX: Template("ge_onnx_{number}_graph_{graph}_{stage}.pbtxt", _OF_GE),
    GraphFileKind.BUILT: Template("graph_build_{graph}_{number}.{suffix}", _SAVED),
    GraphFileKind.TRACE: Template("trace_code_graph_{number}[.{suffix}]", _SAVED),
    GraphFileKind.DYNAMO: Template(
        "dynamo_{stage}_graph_{graph}_rank_{rank}_pid_{pid}_ts_{time}.{suffix}",
        _FIELDS | {"stage": Field("original|optimized")},
    ),
}
"""The name of each kind of file."""


@dataclass(frozen=True, slots=True)
class GraphFileName:
    """The fields of the name of a file that shows a graph; ``str`` gives the name.

    >>> str(GraphFileName(GraphFileKind.GE_PROTO, number=3, graph=0, stage="Build"))
    'ge_proto_00000003_graph_0_Build.txt'
    >>> str(GraphFileName(GraphFileKind.TRACE, number=12, suffix="dot"))
    'trace_code_graph_0012.dot'
    """

    kind: GraphFileKind
    number: int | None = None  # number of the file in its process (GE, MindSpore)
    graph: int | None = None  # number of the graph; of a branch or loop body among the graphs of its model
    stage: str | None = None
    rank: int | None = None  # number of the process among the ones that train together (torch.compile)
    pid: int | None = None
    device: int | None = None
    time: str | None = None  # when it was written, ``YYYYMMDDHHMMSS`` and microseconds
    suffix: str | None = None  # the format where a kind has several

    def __str__(self) -> str:
        """Return the file name."""
        return NAMES[self.kind].format(self)


def parse(name: str) -> GraphFileName | None:
    """Return the fields of the name of a file that shows a graph, None for another file.

    >>> parse("dynamo_original_graph_2_rank_0_pid_4711_ts_20240112093000000042.py").graph
    2
    """
    for kind, template in NAMES.items():
        fields = template.parse(name)
        if fields is not None:
            return GraphFileName(kind, **fields)
    return None


_CAPTURED: Final = Template(
    "{node}-{target}.{io}.{place}[.{time}.npy]",
    {
        "node": Field("[^-/]+"),
        "target": PART,
        "io": Field("INPUT|OUTPUT", lambda text: IO(text.lower()), lambda io: io.upper()),
        "place": Field(
            r"[0-9]+(?:\.[0-9]+)*",
            lambda text: tuple(map(int, text.split("."))),
            lambda place: ".".join(map(str, place)),
        ),
        "time": Field("[0-9]{20}"),
    },
)


@dataclass(frozen=True, slots=True)
class CapturedTensorName:
    """The fields of the name of a tensor that a captured node reads or makes; ``str`` gives the name.

    >>> str(CapturedTensorName("mm", "aten.mm.default", IO.OUTPUT, (0,)))
    'mm-aten.mm.default.OUTPUT.0'
    >>> str(CapturedTensorName("cat", "aten.cat.default", IO.INPUT, (0, 2), "20240112093000000042"))
    'cat-aten.cat.default.INPUT.0.2.20240112093000000042.npy'
    """

    node: str
    target: str  # the function that the node calls
    io: IO
    # index of the tensor; for a tensor in a list, the index of the list and that in it
    place: tuple[int, ...]
    # when its file was written, ``YYYYMMDDHHMMSS`` and microseconds; None in graph files
    time: str | None = None

    def __str__(self) -> str:
        """Return the name."""
        return _CAPTURED.format(self)


def parse_captured(name: str) -> CapturedTensorName | None:
    """Return the fields of a captured tensor's name, with or without a file's time; None for others.

    >>> parse_captured("mm-aten.mm.default.OUTPUT.0").target
    'aten.mm.default'
    """
    fields = _CAPTURED.parse(name)
    return None if fields is None else CapturedTensorName(**fields)
