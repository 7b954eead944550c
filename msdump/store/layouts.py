"""Where the files of a dump stand: one table, read in both directions.

``Key`` names a place, ``Key.path`` gives its path below the dump's root, and ``parse`` gives the key of
a path. Writers use ``Layout`` and ``ModelLayout``, which hold the parts that do not change while
a run goes on; the reader uses ``parse``.
"""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Final

from msdump.plan import Tree
from msdump.store.templates import NUMBER, PART, Field, Template

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


class PathKind(enum.Enum):
    """Kinds of files and directories of a dump, with their paths below the root; directories end in a slash.

    The first kind that fits a path is the kind of the path. A part in brackets may be missing: the step where
    the tree has no steps (GE, acl), the world everywhere but under torchair. ``graphs`` and
    ``execution_order`` parse as networks without graphs.
    """

    RANK = "rank_{rank}/"
    METADATA = "rank_{rank}/.dump_metadata/"
    CONFIG = "rank_{rank}/.dump_metadata/data_dump.json"
    DEVICE = "rank_{rank}/.dump_metadata/config.json"
    IR = f"{_GRAPHS}.ir"
    PB = f"{_GRAPHS}.pb"
    EXECUTION_ORDER = f"{_ORDER}/ms_execution_order_graph_{{graph}}.csv"
    ITERATIONS_RUN = f"{_ORDER}/ms_global_execution_order_graph_{{graph}}.csv"
    NETWORK = "rank_{rank}/{net}/"
    GRAPH = "rank_{rank}/{net}/{graph}/"
    ITERATION = f"{_ITERATION}/"
    CONSTANTS = f"{_CONSTANTS}/"
    STATISTICS = f"{_ITERATION}/statistic.csv"
    MAPPING = f"{_ITERATION}/mapping.csv"
    KERNEL_ARGS = f"{_ITERATION}/{{name}}.json"
    TENSOR = f"{_ITERATION}/{{name}}.npy"
    CONSTANT_STATISTICS = f"{_CONSTANTS}/statistic.csv"
    CONSTANT_MAPPING = f"{_CONSTANTS}/mapping.csv"
    CONSTANT = f"{_CONSTANTS}/{{name}}.npy"
    ACL_CONFIG = "acl_dump_{device}.json"
    WORLD = f"{_WORLD}/"
    STEP = f"[{_WORLD}/]{{step}}/"
    TIME = f"{_TIME}/"
    SINGLE = f"{_SINGLE}/"
    MODEL = f"{_SINGLE}/{{model}}/"
    MODEL_NUMBER = f"{_SINGLE}/{{model}}/{{model_id}}/"
    EXECUTION = f"{_EXECUTION}/"
    OPERATOR = f"{_EXECUTION}/{{name}}"
    SINGLE_OPERATOR = f"{_SINGLE}/{{name}}"
    CAPTURED_GRAPH = f"{_WORLD}/graph_{{graph}}/"
    CAPTURED_STEP = f"{_CAPTURED_STEP}/"
    CAPTURED_TENSOR = f"{_CAPTURED_STEP}/{{name}}.npy"
    EXTRA_INFO = "extra-info/"
    DATA_DUMP = "extra-info/data-dump/"
    EXCEPTIONS = f"{_EXCEPTIONS}/"
    EXCEPTION = f"{_EXCEPTIONS}/{{name}}"
    HISTORY = "msdump_history_{rank}.json"

    @property
    def path(self) -> str:
        """The path with fields in braces, without the slash of a directory."""
        return str(self.value).rstrip("/")

    @property
    def is_directory(self) -> bool:
        """Whether it is the kind of a directory."""
        return str(self.value).endswith("/")


_FIELDS: Final = {
    "rank": NUMBER,
    "net": Field("[A-Za-z0-9_-]+"),
    "graph": NUMBER,
    "iteration": NUMBER,
    "name": PART,
    "world": NUMBER,
    "step": Field("0|[1-9][0-9]{0,12}", int),  # shorter than a time
    "time": Field("[0-9]{14}"),
    "device": NUMBER,
    "model": PART,
    "model_id": NUMBER,
}
TEMPLATES: Final = {kind: Template(kind.path, _FIELDS) for kind in PathKind}
"""Writers and parsers of paths, in the order of the kinds."""


@dataclass(frozen=True, slots=True)
class Key:
    """A place in the layout; fields that its kind lacks are None.

    >>> Key(PathKind.STATISTICS, rank=0, net="LeNet", graph=0, iteration=3).path
    'rank_0/LeNet/0/3/statistic.csv'
    """

    kind: PathKind
    rank: int | None = None
    net: str | None = None  # directory of the network
    graph: int | None = None
    iteration: int | None = None
    name: str | None = None  # file name without its suffix; the whole name where the kind has none
    world: int | None = None  # number of ranks that run together (torchair)
    step: int | None = None  # number of the user's training step (Ascend O2)
    time: str | None = None  # when the dump was configured, ``YYYYMMDDHHMMSS``
    device: int | None = None
    model: str | None = None
    model_id: int | None = None  # number of the model in its process

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
    for kind in _candidates(is_directory, path.count("/")):
        fields = TEMPLATES[kind].parse(path)
        if fields is not None:
            return Key(kind, **fields)
    return None


@functools.cache
def _candidates(is_directory: bool | None, depth: int) -> tuple[PathKind, ...]:  # noqa: FBT001 - of ``parse``
    """Return the kinds of paths with a number of slashes; each part that may be missing has one."""
    return tuple(
        kind
        for kind in PathKind
        if is_directory in {None, kind.is_directory}
        and kind.path.count("/") - kind.path.count("[") <= depth <= kind.path.count("/")
    )


def is_constants(directory: str) -> bool:
    """Return whether a directory holds constants, which belong to no iteration."""
    return directory.rpartition("/")[2] == _CONSTANTS_FOLDER


_ABSENT: Final = {Tree.RANKS: (), Tree.STEPS: ("world", "rank"), Tree.MODELS: ("world", "rank", "step")}
"""Parts of the layouts that a tree has not, or that not every process of it has."""


def outline(tree: Tree, **known: str) -> str:
    """Return the path of an iteration's files below the dump's root, with fields of a run in braces.

    >>> outline(Tree.STEPS)
    '{step}/{time}/{device}/{model}/{model_id}/{iteration}'
    >>> outline(Tree.RANKS, net="LeNet")
    'rank_{rank}/LeNet/{graph}/{iteration}'
    """
    kind = PathKind.ITERATION if tree is Tree.RANKS else PathKind.EXECUTION
    fields = {field: f"{{{field}}}" for field in TEMPLATES[kind].fields}
    return TEMPLATES[kind].format(SimpleNamespace(**(fields | dict.fromkeys(_ABSENT[tree]) | known)))


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths that a run of one network on one rank writes (O0, O1, CPU, GPU).

    >>> Layout("/dump", 0, "LeNet").path(PathKind.ITERATION, graph=0, iteration=3)
    '/dump/rank_0/LeNet/0/3'
    """

    root: str
    rank: int
    net_name: str

    def path(self, kind: PathKind, graph: int | None = None, iteration: int | None = None) -> str:
        """Return the path of a file or directory of the network, a graph or an iteration."""
        return Key(kind, self.rank, self.net_name, graph, iteration).below(self.root)


@dataclass(frozen=True, slots=True)
class ModelLayout:
    """The paths that the executions of one compiled model write (Ascend O2, GE, acl, torchair).

    >>> model = ModelLayout("/dump", device=0, model="resnet50", model_id=1)
    >>> model.execution("20240112093000", iteration=5)
    '/dump/20240112093000/0/resnet50/1/5'
    >>> model.execution("20240112093000", iteration=5, step=7)
    '/dump/7/20240112093000/0/resnet50/1/5'
    """

    root: str
    device: int
    model: str
    model_id: int

    def acl_config(self) -> str:
        """The acl.json that MindSpore gives CANN before each step (Ascend O2)."""
        return Key(PathKind.ACL_CONFIG, device=self.device).below(self.root)

    def execution(self, time: str, iteration: int, step: int | None = None) -> str:
        """Directory of the operators of one execution; with a step under Ascend O2."""
        key = Key(
            PathKind.EXECUTION,
            iteration=iteration,
            step=step,
            time=time,
            device=self.device,
            model=self.model,
            model_id=self.model_id,
        )
        return key.below(self.root)


def captured_graph(number: int, part: str = "") -> str:
    """Return the directory, also used as model name, of a graph that torch.compile captured.

    The name of a graph that is half of a training step ends in its part, forward or backward.

    >>> captured_graph(1), captured_graph(2, "backward")
    ('graph_1', 'graph_2_backward')
    """
    name = CAPTURED_GRAPH.format(graph=number)
    return f"{name}_{part}" if part else name
