"""Where the files of a dump stand: one table, read in both directions.

``Key`` names a place, ``Key.path`` gives its path below the dump's root, and ``parse`` gives the key of
a path. Writers use the views of ``run_paths``, which hold the parts that do not change while
a run goes on; the reader uses ``parse``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from msdump.store.templates import NUMBER, PART, Field, Template


class PathKind(enum.Enum):
    """Kinds of files and directories of a dump."""

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
    CONSTANT_STATISTICS = enum.auto()
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
    HISTORY = enum.auto()


MAPPING: Final = "mapping.csv"
STATISTICS: Final = "statistic.csv"
FAILED_LIST: Final = "convert_failed_file_list.txt"
"""Lists the dump files that were not converted as a whole, in the directory of the results."""
ORDER_HEADER: Final = "NodeExecutionOrder-FullNameWithScope"
"""First line of a list of operators in execution order."""

CAPTURED_GRAPH: Final = "graph_{graph}"
"""The directory of a graph that torch.compile captured, and the name of its model."""

_ITERATION: Final = "rank_{rank}/{net}/{graph}/{iteration}"
_CONSTANTS_FOLDER: Final = "constants"
_CONSTANTS: Final = f"rank_{{rank}}/{{net}}/{{graph}}/{_CONSTANTS_FOLDER}"
_GRAPHS: Final = "rank_{rank}/graphs/ms_output_trace_code_graph_{graph}"
_ORDER: Final = "rank_{rank}/execution_order"
_WORLD: Final = "worldsize{world}_global_rank{rank}"
_TIME: Final = f"[{_WORLD}/][{{step}}/]{{time}}"
_SINGLE: Final = f"{_TIME}/{{device}}"
_EXECUTION: Final = f"{_SINGLE}/{{model}}/{{model_id}}/{{iteration}}"
_CAPTURED_STEP: Final = f"{_WORLD}/{CAPTURED_GRAPH}/{{iteration}}"
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
    PathKind.CONSTANT_STATISTICS: f"{_CONSTANTS}/{STATISTICS}",
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
    PathKind.CAPTURED_GRAPH: f"{_WORLD}/{CAPTURED_GRAPH}",
    PathKind.CAPTURED_STEP: _CAPTURED_STEP,
    PathKind.CAPTURED_TENSOR: f"{_CAPTURED_STEP}/{{name}}.npy",
    PathKind.EXTRA_INFO: "extra-info",
    PathKind.DATA_DUMP: "extra-info/data-dump",
    PathKind.EXCEPTIONS: _EXCEPTIONS,
    PathKind.EXCEPTION: f"{_EXCEPTIONS}/{{name}}",
    PathKind.HISTORY: "msdump_history_{rank}.json",
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
TEMPLATES: Final = {kind: Template(text, _FIELDS) for kind, text in PATHS.items()}
"""``PATHS`` as what formats and parses a path."""


@dataclass(frozen=True, slots=True)
class Key:
    """A place in the layout; fields that its kind has not are None.

    >>> Key(PathKind.STATISTICS, rank=0, net="LeNet", graph=0, iteration=3).path
    'rank_0/LeNet/0/3/statistic.csv'

    Attributes:
        net: Directory of the network.
        name: File name without its suffix; the whole name where ``PATHS`` gives none.
        world: Number of ranks that run together (torchair).
        step: Number of the user's training step (Ascend O2).
        time: When the dump was configured, ``YYYYMMDDHHMMSS``.
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
        return TEMPLATES[self.kind].format(self)

    def below(self, root: str) -> str:
        """Return the path below a root."""
        return f"{root.rstrip('/')}/{self.path}"

    def holds(self, other: Key) -> bool:
        """Return whether both keys agree in every field that both define (``kind`` is ignored)."""
        pairs = ((getattr(self, field), getattr(other, field)) for field in _FIELDS)
        return all(a is None or b is None or a == b for a, b in pairs)


def parse(path: str, *, is_directory: bool | None = None) -> Key | None:
    """Return the key of a path below the dump's root, None for a foreign file.

    >>> key = parse("20240112093000/0/resnet50/1/5")
    >>> key.kind.name, key.model, key.iteration
    ('EXECUTION', 'resnet50', 5)

    ``is_directory``: whether the path is a directory or a file; None: either.
    """
    for kind, template in TEMPLATES.items():
        if is_directory is not None and is_directory != (kind in DIRECTORIES):
            continue
        fields = template.parse(path)
        if fields is not None:
            return Key(kind, **fields)
    return None


def is_constants(directory: str) -> bool:
    """Tell whether a directory is one of constants, which belong to no iteration."""
    return directory.rpartition("/")[2] == _CONSTANTS_FOLDER
