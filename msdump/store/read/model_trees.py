"""Models in a dump that was read: Ascend O2, GE, acl and torchair."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial

from msdump.store import names
from msdump.store.layouts import CAPTURED_GRAPH, Key, PathKind
from msdump.store.read.executions.shared import GraphFacts
from msdump.store.read.graphs import built
from msdump.store.read.graphs.operator_graph import OperatorGraph
from msdump.store.read.operator_files import OperatorFile
from msdump.store.read.tensor_directories import Iteration
from msdump.store.read.tree import TreeListing

_Model = tuple[int, str, int | None]
"""Device, name and number of a model."""


@dataclass(frozen=True)
class DumpedModel:
    """The executions of one compiled model, or of a graph that torch.compile captured.

    Attributes:
        device: Number of the device; of a captured graph that of the rank.
        name: Its directory; "" for operators that were called alone.
        model_id: Its number in its process, None for operators that were called alone.
        iterations: Its executions by run, step, time and number.
    """

    device: int
    name: str
    model_id: int | None
    iterations: tuple[Iteration, ...] = field(repr=False)

    @property
    def operator_graph(self) -> OperatorGraph | None:
        """Its operators, where GE's files of its compilation lie in the dump, else None."""
        return next((each.operator_graph for each in self.iterations), None)


def models(tree: TreeListing, run_of: Mapping[Key, int]) -> tuple[DumpedModel, ...]:
    """Return the models of a dump by device, name and number; operators called alone come first.

    Args:
        tree: The dump.
        run_of: Number of the run of each directory.
    """
    iterations: dict[_Model, list[Iteration]] = {}

    @cache
    def graph_of(model: str) -> OperatorGraph | None:
        return built.graph_of(model, tree.ignored)

    for key in executions(tree):
        model = (key.device or 0, key.model or "", key.model_id)
        graph = partial(graph_of, model[1])
        iteration = Iteration(key, tree.paths[key], _no_name, GraphFacts, graph, run=run_of.get(key, 0))
        iterations.setdefault(model, []).append(iteration)
    return _in_order(iterations)


def executions(tree: TreeListing) -> Iterator[Key]:
    """Yield the directories of executions, and those of operators that were called alone."""
    for key in tree.paths:
        is_single = key.kind is PathKind.SINGLE and bool(tree.of(key, PathKind.SINGLE_OPERATOR))
        if (key.kind is PathKind.EXECUTION or is_single) and key.device is not None:
            yield key


def captured_graphs(tree: TreeListing) -> tuple[DumpedModel, ...]:
    """Return the graphs that torch.compile captured and torch itself ran, by rank and number."""
    iterations: dict[_Model, list[Iteration]] = {}
    for key, path in tree.paths.items():
        if key.kind is PathKind.CAPTURED_STEP:
            model = (key.rank or 0, CAPTURED_GRAPH.format(graph=key.graph), key.graph)
            iterations.setdefault(model, []).append(Iteration(key, path, _no_name))
    return _in_order(iterations)


def _in_order(iterations: Mapping[_Model, list[Iteration]]) -> tuple[DumpedModel, ...]:
    return tuple(
        DumpedModel(*model, tuple(sorted(iterations[model], key=_order)))
        for model in sorted(iterations, key=str)
    )


def _order(iteration: Iteration) -> tuple[int, int, str, int]:
    key = iteration.key
    return (iteration.run, -1 if key.step is None else key.step, key.time or "", key.iteration or 0)


def failures(tree: TreeListing) -> tuple[OperatorFile, ...]:
    """Return the files in the directories of exception dumps: the tensors of operators that failed."""
    places = [path for key, path in tree.paths.items() if key.kind is PathKind.EXCEPTIONS]
    key = Key(PathKind.EXCEPTIONS)
    return tuple(file for path in sorted(places) for file in Iteration(key, path, _no_name).files)


def _no_name(name: names.TensorName) -> str | None:
    """Return no full name: a compiled graph has no list of its operators beside its tensors."""
    del name
    return None
