"""Where the files of a dump stand: one table, read in both directions.

``Key`` names a place, ``Key.path`` gives its path below the dump's root, and
``parse`` gives the key of a path. The writer asks ``Layout`` (O0/O1, CPU, GPU) or
``ModelLayout`` (Ascend O2, GE, acl, torchair), which hold the parts that do not
change during a run; the reader asks ``parse``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from msdump.store.templates import NUMBER, PART, Field, Template


class PathKind(enum.Enum):
    """What stands at a path."""

    RANK = enum.auto()
    METADATA = enum.auto()
    CONFIG = enum.auto()
    DEVICE = enum.auto()
    IR = enum.auto()
    PB = enum.auto()
    EXECUTION_ORDER = enum.auto()
    ITERATIONS_RUN = enum.auto()
    NETWORK = enum.auto()
    GRAPH = enum.auto()
    ITERATION = enum.auto()
    CONSTANTS = enum.auto()
    STATISTICS = enum.auto()
    MAPPING = enum.auto()
    KERNEL_ARGS = enum.auto()
    TENSOR = enum.auto()
    CONSTANT_MAPPING = enum.auto()
    CONSTANT = enum.auto()
    ACL_CONFIG = enum.auto()
    WORLD = enum.auto()
    STEP = enum.auto()
    TIME = enum.auto()
    SINGLE = enum.auto()
    MODEL = enum.auto()
    MODEL_NUMBER = enum.auto()
    EXECUTION = enum.auto()
    OPERATOR = enum.auto()
    SINGLE_OPERATOR = enum.auto()
    CAPTURED_GRAPH = enum.auto()
    CAPTURED_STEP = enum.auto()
    CAPTURED_TENSOR = enum.auto()
    EXTRA_INFO = enum.auto()
    DATA_DUMP = enum.auto()
    EXCEPTIONS = enum.auto()
    EXCEPTION = enum.auto()


MAPPING: Final = "mapping.csv"
STATISTICS: Final = "statistic.csv"

_ITERATION: Final = "rank_{rank}/{net}/{graph}/{iteration}"
_CONSTANTS: Final = "rank_{rank}/{net}/{graph}/constants"
_GRAPHS: Final = "rank_{rank}/graphs/ms_output_trace_code_graph_{graph}"
_ORDER: Final = "rank_{rank}/execution_order"
_WORLD: Final = "worldsize{world}_global_rank{rank}"
_TIME: Final = f"[{_WORLD}/][{{step}}/]{{time}}"
_SINGLE: Final = f"{_TIME}/{{device}}"
_EXECUTION: Final = f"{_SINGLE}/{{model}}/{{model_id}}/{{iteration}}"
_CAPTURED_GRAPH: Final = "graph_{graph}"
_CAPTURED_STEP: Final = f"{_WORLD}/{_CAPTURED_GRAPH}/{{iteration}}"
_EXCEPTIONS: Final = "extra-info/data-dump/{device}"

PATHS: Final = {
    PathKind.RANK: "rank_{rank}",
    PathKind.METADATA: "rank_{rank}/.dump_metadata",
    PathKind.CONFIG: "rank_{rank}/.dump_metadata/data_dump.json",
    PathKind.DEVICE: "rank_{rank}/.dump_metadata/config.json",
    PathKind.IR: f"{_GRAPHS}.ir",
    PathKind.PB: f"{_GRAPHS}.pb",
    PathKind.EXECUTION_ORDER: f"{_ORDER}/ms_execution_order_graph_{{graph}}.csv",
    PathKind.ITERATIONS_RUN: f"{_ORDER}/ms_global_execution_order_graph_{{graph}}.csv",
    PathKind.NETWORK: "rank_{rank}/{net}",
    PathKind.GRAPH: "rank_{rank}/{net}/{graph}",
    PathKind.ITERATION: _ITERATION,
    PathKind.CONSTANTS: _CONSTANTS,
    PathKind.STATISTICS: f"{_ITERATION}/{STATISTICS}",
    PathKind.MAPPING: f"{_ITERATION}/{MAPPING}",
    PathKind.KERNEL_ARGS: f"{_ITERATION}/{{name}}.json",
    PathKind.TENSOR: f"{_ITERATION}/{{name}}.npy",
    PathKind.CONSTANT_MAPPING: f"{_CONSTANTS}/{MAPPING}",
    PathKind.CONSTANT: f"{_CONSTANTS}/{{name}}.npy",
    PathKind.ACL_CONFIG: "acl_dump_{device}.json",
    PathKind.WORLD: _WORLD,
    PathKind.STEP: f"[{_WORLD}/]{{step}}",
    PathKind.TIME: _TIME,
    PathKind.SINGLE: _SINGLE,
    PathKind.MODEL: f"{_SINGLE}/{{model}}",
    PathKind.MODEL_NUMBER: f"{_SINGLE}/{{model}}/{{model_id}}",
    PathKind.EXECUTION: _EXECUTION,
    PathKind.OPERATOR: f"{_EXECUTION}/{{name}}",
    PathKind.SINGLE_OPERATOR: f"{_SINGLE}/{{name}}",
    PathKind.CAPTURED_GRAPH: f"{_WORLD}/{_CAPTURED_GRAPH}",
    PathKind.CAPTURED_STEP: _CAPTURED_STEP,
    PathKind.CAPTURED_TENSOR: f"{_CAPTURED_STEP}/{{name}}.npy",
    PathKind.EXTRA_INFO: "extra-info",
    PathKind.DATA_DUMP: "extra-info/data-dump",
    PathKind.EXCEPTIONS: _EXCEPTIONS,
    PathKind.EXCEPTION: f"{_EXCEPTIONS}/{{name}}",
}
"""Every path of the layouts below the root; the first that fits a path decides its kind.

What stands in brackets may be missing: ``STEP`` where the tree has no steps (GE, acl), ``WORLD``
everywhere but under torchair.
"""

DIRECTORIES: Final = frozenset(
    {
        *(
            PathKind.RANK,
            PathKind.METADATA,
            PathKind.NETWORK,
            PathKind.GRAPH,
            PathKind.ITERATION,
            PathKind.CONSTANTS,
        ),
        *(
            PathKind.WORLD,
            PathKind.STEP,
            PathKind.TIME,
            PathKind.SINGLE,
            PathKind.MODEL,
            PathKind.MODEL_NUMBER,
            PathKind.EXECUTION,
        ),
        *(PathKind.CAPTURED_GRAPH, PathKind.CAPTURED_STEP),
        *(PathKind.EXTRA_INFO, PathKind.DATA_DUMP, PathKind.EXCEPTIONS),
    }
)
"""The kinds that are directories. ``graphs`` and ``execution_order`` are networks without graphs."""

_FIELDS: Final = {
    "rank": NUMBER,
    "net": Field("[A-Za-z0-9_-]+"),
    "graph": NUMBER,
    "iteration": NUMBER,
    "name": PART,
    "world": NUMBER,
    "step": Field("0|[1-9][0-9]{0,12}", int),  # one digit less than a time has
    "time": Field("[0-9]{14}"),
    "device": NUMBER,
    "model": PART,
    "model_id": NUMBER,
}
_TEMPLATES: Final = {kind: Template(text, _FIELDS) for kind, text in PATHS.items()}


@dataclass(frozen=True, slots=True)
class Key:
    """A place in the layout; fields that its kind has not are None.

    Attributes:
        kind: What stands there.
        rank: Number of the rank.
        net: Directory of the network.
        graph: Number of the graph.
        iteration: Number of the iteration.
        name: File name without its suffix; the whole name where ``PATHS`` gives none.
        world: Number of ranks that run together (torchair).
        step: Number of the user's training step (Ascend O2).
        time: When the dump was configured, ``YYYYMMDDHHMMSS``.
        device: Number of the device.
        model: Directory of the model.
        model_id: Number of the model in its process.
    """

    kind: PathKind
    rank: int | None = None
    net: str | None = None
    graph: int | None = None
    iteration: int | None = None
    name: str | None = None
    world: int | None = None
    step: int | None = None
    time: str | None = None
    device: int | None = None
    model: str | None = None
    model_id: int | None = None

    @property
    def path(self) -> str:
        """The path below the dump's root, with ``/``."""
        return _TEMPLATES[self.kind].format(self)

    def holds(self, other: Key) -> bool:
        """Tell whether no field of the two, where both have it, differs; their kinds do not count."""
        pairs = ((getattr(self, field), getattr(other, field)) for field in _FIELDS)
        return all(a is None or b is None or a == b for a, b in pairs)


def parse(path: str, *, is_directory: bool | None = None) -> Key | None:
    """Return what stands at a path below the dump's root, None for a file of somebody else.

    Args:
        path: The path, with ``/``.
        is_directory: Whether it is known to be a directory, or a file; None: either.
    """
    for kind, template in _TEMPLATES.items():
        if is_directory is not None and is_directory != (kind in DIRECTORIES):
            continue
        fields = template.parse(path)
        if fields is not None:
            return Key(kind, **fields)
    return None


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths that a run of one network on one rank writes.

    Attributes:
        root: Absolute directory of the dump.
        rank: Number of the rank.
        net_name: Directory of the network.
    """

    root: str
    rank: int
    net_name: str

    def config(self) -> str:
        """Copy of the user's configuration (CPU and GPU)."""
        return self._path(PathKind.CONFIG)

    def device(self) -> str:
        """Device and version of the run (CPU and GPU)."""
        return self._path(PathKind.DEVICE)

    def graph_ir(self, graph: int) -> str:
        """Text of a compiled graph."""
        return self._path(PathKind.IR, graph)

    def graph_pb(self, graph: int) -> str:
        """Protobuf message of a compiled graph."""
        return self._path(PathKind.PB, graph)

    def execution_order(self, graph: int) -> str:
        """List of a graph's operators in execution order."""
        return self._path(PathKind.EXECUTION_ORDER, graph)

    def iterations_run(self, graph: int) -> str:
        """List of a graph's dumped iterations (CPU and GPU)."""
        return self._path(PathKind.ITERATIONS_RUN, graph)

    def iteration(self, graph: int, iteration: int) -> str:
        """Directory of the tensors of one iteration."""
        return self._path(PathKind.ITERATION, graph, iteration)

    def constants(self, graph: int) -> str:
        """Directory of a graph's constants (CPU and GPU)."""
        return self._path(PathKind.CONSTANTS, graph)

    def statistics(self, graph: int, iteration: int) -> str:
        """Statistics of the tensors of one iteration."""
        return self._path(PathKind.STATISTICS, graph, iteration)

    def _path(self, kind: PathKind, graph: int | None = None, iteration: int | None = None) -> str:
        return f"{self.root.rstrip('/')}/{Key(kind, self.rank, self.net_name, graph, iteration).path}"


@dataclass(frozen=True, slots=True)
class ModelLayout:
    """The paths that the executions of one compiled model write (Ascend O2, GE, acl, torchair).

    Attributes:
        root: Absolute directory of the dump.
        device: Number of the device.
        model: Directory of the model.
        model_id: Number of the model in its process.
    """

    root: str
    device: int
    model: str
    model_id: int

    def acl_config(self) -> str:
        """The acl.json that MindSpore gives CANN before each step (Ascend O2)."""
        return self._path(Key(PathKind.ACL_CONFIG, device=self.device))

    def execution(self, time: str, iteration: int, step: int | None = None) -> str:
        """Directory of the operators of one execution; with a step under Ascend O2."""
        return self._path(
            Key(
                PathKind.EXECUTION,
                iteration=iteration,
                step=step,
                time=time,
                device=self.device,
                model=self.model,
                model_id=self.model_id,
            )
        )

    def _path(self, key: Key) -> str:
        return f"{self.root.rstrip('/')}/{key.path}"


@dataclass(frozen=True, slots=True)
class CapturedLayout:
    """The paths of the tensors that torch itself computes for one captured graph (torchair's data dump).

    >>> CapturedLayout("/dump", 8, 3, graph=1).step(0)
    '/dump/worldsize8_global_rank3/graph_1/0'

    Attributes:
        root: Directory of the dump.
        world: Number of processes that train together.
        rank: Which of them this one is.
        graph: Number of the captured graph.
    """

    root: str
    world: int
    rank: int
    graph: int

    def step(self, number: int) -> str:
        """Directory of one run of the graph."""
        key = Key(PathKind.CAPTURED_STEP, self.rank, world=self.world, graph=self.graph, iteration=number)
        return f"{self.root.rstrip('/')}/{key.path}"


def single_operators(root: str, time: str, device: int) -> str:
    """Return the directory of operators that are called alone (acl)."""
    return f"{root.rstrip('/')}/{Key(PathKind.SINGLE, time=time, device=device).path}"


def world(size: int, rank: int) -> str:
    """Return the directory of one of the processes that train together, below the dump's root (torchair).

    >>> world(8, 3)
    'worldsize8_global_rank3'
    """
    return Key(PathKind.WORLD, rank, world=size).path


def captured_graph(number: int) -> str:
    """Return the directory of a graph that torch.compile captured, which is its model's name too.

    >>> captured_graph(1)
    'graph_1'
    """
    return _CAPTURED_GRAPH.format(graph=number)


def exceptions(root: str, device: int) -> str:
    """Return the directory of what operators that failed leave behind."""
    return f"{root.rstrip('/')}/{Key(PathKind.EXCEPTIONS, device=device).path}"
