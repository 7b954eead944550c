"""The paths that a run writes: the views of ``layouts`` for networks, compiled models and captured graphs."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Final

from msdump.plan import Tree
from msdump.store.layouts import CAPTURED_GRAPH, TEMPLATES, Key, PathKind

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
