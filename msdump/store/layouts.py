"""Where the files of an O0/O1, CPU or GPU dump stand: one table, read in both directions.

``Key`` names a place, ``Key.path`` gives its path below the dump's root, and
``parse`` gives the key of a path. The writer asks ``Layout``, which holds the
parts that do not change during a run; the reader asks ``parse``.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Final


class Kind(enum.Enum):
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


MAPPING: Final = "mapping.csv"
STATISTICS: Final = "statistic.csv"

_ITERATION: Final = "rank_{rank}/{net}/{graph}/{iteration}"
_CONSTANTS: Final = "rank_{rank}/{net}/{graph}/constants"
_GRAPHS: Final = "rank_{rank}/graphs/ms_output_trace_code_graph_{graph}"
_ORDER: Final = "rank_{rank}/execution_order"

PATHS: Final = {
    Kind.RANK: "rank_{rank}",
    Kind.METADATA: "rank_{rank}/.dump_metadata",
    Kind.CONFIG: "rank_{rank}/.dump_metadata/data_dump.json",
    Kind.DEVICE: "rank_{rank}/.dump_metadata/config.json",
    Kind.IR: f"{_GRAPHS}.ir",
    Kind.PB: f"{_GRAPHS}.pb",
    Kind.EXECUTION_ORDER: f"{_ORDER}/ms_execution_order_graph_{{graph}}.csv",
    Kind.ITERATIONS_RUN: f"{_ORDER}/ms_global_execution_order_graph_{{graph}}.csv",
    Kind.NETWORK: "rank_{rank}/{net}",
    Kind.GRAPH: "rank_{rank}/{net}/{graph}",
    Kind.ITERATION: _ITERATION,
    Kind.CONSTANTS: _CONSTANTS,
    Kind.STATISTICS: f"{_ITERATION}/{STATISTICS}",
    Kind.MAPPING: f"{_ITERATION}/{MAPPING}",
    Kind.KERNEL_ARGS: f"{_ITERATION}/{{name}}.json",
    Kind.TENSOR: f"{_ITERATION}/{{name}}.npy",
    Kind.CONSTANT_MAPPING: f"{_CONSTANTS}/{MAPPING}",
    Kind.CONSTANT: f"{_CONSTANTS}/{{name}}.npy",
}
"""Every path of the layout below the root; the first that fits a path decides its kind."""

DIRECTORIES: Final = frozenset(
    {Kind.RANK, Kind.METADATA, Kind.NETWORK, Kind.GRAPH, Kind.ITERATION, Kind.CONSTANTS}
)
"""The kinds that are directories. ``graphs`` and ``execution_order`` are networks without graphs."""

_FIELDS: Final = {
    "rank": "(?P<rank>0|[1-9][0-9]*)",
    "net": "(?P<net>[A-Za-z0-9_-]+)",
    "graph": "(?P<graph>0|[1-9][0-9]*)",
    "iteration": "(?P<iteration>0|[1-9][0-9]*)",
    "name": "(?P<name>[^/]+)",
}
_NUMBERS: Final = frozenset({"rank", "graph", "iteration"})


def _pattern(template: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", template)
    literals, fields = parts[::2], parts[1::2]
    patterns = [re.escape(literals[0])]
    for field, literal in zip(fields, literals[1:], strict=True):
        patterns += (_FIELDS[field], re.escape(literal))
    return re.compile("".join(patterns), re.DOTALL)


_PATTERNS: Final = {kind: _pattern(template) for kind, template in PATHS.items()}


@dataclass(frozen=True, slots=True)
class Key:
    """A place in the layout; fields that its kind has not are None.

    Attributes:
        kind: What stands there.
        rank: Number of the rank.
        net: Directory of the network.
        graph: Number of the graph.
        iteration: Number of the iteration.
        name: File name without its suffix.
    """

    kind: Kind
    rank: int
    net: str | None = None
    graph: int | None = None
    iteration: int | None = None
    name: str | None = None

    @property
    def path(self) -> str:
        """The path below the dump's root, with ``/``."""
        return PATHS[self.kind].format(
            rank=self.rank, net=self.net, graph=self.graph, iteration=self.iteration, name=self.name
        )


def parse(path: str) -> Key | None:
    """Return what stands at a path below the dump's root, None for a file of somebody else."""
    for kind, pattern in _PATTERNS.items():
        match = pattern.fullmatch(path)
        if match is not None:
            return _key(kind, match.groupdict())
    return None


def _key(kind: Kind, fields: dict[str, str]) -> Key:
    numbers = {field: int(text) for field, text in fields.items() if field in _NUMBERS}
    return Key(
        kind,
        numbers["rank"],
        fields.get("net"),
        numbers.get("graph"),
        numbers.get("iteration"),
        fields.get("name"),
    )


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
        return self._path(Kind.CONFIG)

    def device(self) -> str:
        """Device and version of the run (CPU and GPU)."""
        return self._path(Kind.DEVICE)

    def graph_ir(self, graph: int) -> str:
        """Text of a compiled graph."""
        return self._path(Kind.IR, graph)

    def graph_pb(self, graph: int) -> str:
        """Protobuf message of a compiled graph."""
        return self._path(Kind.PB, graph)

    def execution_order(self, graph: int) -> str:
        """List of a graph's operators in execution order."""
        return self._path(Kind.EXECUTION_ORDER, graph)

    def iterations_run(self, graph: int) -> str:
        """List of a graph's dumped iterations (CPU and GPU)."""
        return self._path(Kind.ITERATIONS_RUN, graph)

    def iteration(self, graph: int, iteration: int) -> str:
        """Directory of the tensors of one iteration."""
        return self._path(Kind.ITERATION, graph, iteration)

    def constants(self, graph: int) -> str:
        """Directory of a graph's constants (CPU and GPU)."""
        return self._path(Kind.CONSTANTS, graph)

    def statistics(self, graph: int, iteration: int) -> str:
        """Statistics of the tensors of one iteration."""
        return self._path(Kind.STATISTICS, graph, iteration)

    def _path(self, kind: Kind, graph: int | None = None, iteration: int | None = None) -> str:
        return f"{self.root.rstrip('/')}/{Key(kind, self.rank, self.net_name, graph, iteration).path}"
