"""Reading dumps back: ranks, networks, graphs or models, then iterations and tensors.

    dump = open_dump("/path")
    for record in dump.ranks[0].networks["LeNet"].graphs[0].iterations[3].records:
        print(record, record.shape, record.array.max())
    for record in dump.models[0].iterations[3].records:
        print(record, record.host.shape)

Trees of msdump and of MindSpore are read alike. Opening lists directories down to the
iterations. An iteration lists its files at first use, and a tensor reads its file at first use.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from html import escape
from itertools import chain
from pathlib import Path

from msdump.errors import DumpReadError
from msdump.read import ge, msprobe
from msdump.read.iteration import DumpProblem, Iteration
from msdump.read.operator_graph import OperatorGraph
from msdump.read.ranks import Rank, RankGraph
from msdump.read.records import OperatorFile, Record
from msdump.read.selection import SelectableTensors, TensorSelection
from msdump.read.tree import (
    DumpedRun,
    TreeListing,
    choose_run,
    locate,
    locate_below,
    scan,
    separate_runs,
    warn_of_several,
)
from msdump.store import CAPTURED_GRAPH, Key, PathKind

_Model = tuple[int, str, int | None]
"""Device, name and number of a model."""


@dataclass(frozen=True)
class DumpedModel:
    """The executions of one compiled model, or of a graph that torch.compile captured.

    Attributes:
        device: Number of the device; for a captured graph the number of the rank.
        name: Name of the directory; "" for single operators.
        model_id: Number of the model in its process, None for single operators.
        iterations: The executions by run, step, time and number.
    """

    device: int
    name: str
    model_id: int | None
    iterations: tuple[Iteration, ...] = field(repr=False)

    @property
    def operator_graph(self) -> OperatorGraph | None:
        """The operators from GE's graph files in the dump, None without such files."""
        return next((each.operator_graph for each in self.iterations), None)


def _executions(tree: TreeListing) -> Iterator[Key]:
    """Yield the directories of executions, and of operators that were called alone."""
    for key in tree.paths:
        is_single = key.kind is PathKind.SINGLE and bool(tree.of(key, PathKind.SINGLE_OPERATOR))
        if (key.kind is PathKind.EXECUTION or is_single) and key.device is not None:
            yield key


def _in_order(iterations: Iterable[tuple[_Model, Iteration]]) -> tuple[DumpedModel, ...]:
    models: dict[_Model, list[Iteration]] = {}
    for model, iteration in iterations:
        models.setdefault(model, []).append(iteration)
    return tuple(
        DumpedModel(*model, tuple(sorted(models[model], key=_order))) for model in sorted(models, key=str)
    )


def _order(iteration: Iteration) -> tuple[int, int, str, int]:
    key = iteration.key
    return (iteration.run, -1 if key.step is None else key.step, key.time or "", key.iteration or 0)


def open_dump(path: str | os.PathLike[str], execution: int | None = None) -> Dump:
    """Open a dump for reading.

    A path may hold several executions. The default is the newest run of compiled graphs (time directories),
    and the last complete execution in each directory of MindSpore's tree. ``execution`` selects another.

    Args:
        path: Root of the dump; a directory of a rank, network, graph or iteration in it; the directory above
            the only root; a tree of msprobe, a step or a rank in it; or a directory of copied tensor files.
        execution: Number of the run or execution, from 0, or for a run one of its times, 20240131120000.

    Raises:
        DumpReadError: The directory or run does not exist, has no dump, or has several dumps below it.
    """
    folder = os.path.abspath(path)  # noqa: PTH100 - pathlib's absolute() keeps ".." components
    # the root is the directory, one above or one below; else the directory may hold copied tensor files
    place, tree = None, msprobe.scan(folder) if os.path.isdir(folder) else None
    if tree is None:
        place = locate(folder) or locate_below(folder)
        tree = _loose(folder, execution) if place is None else scan(*place, execution)
    dump = Dump(folder, tree)
    choose_run(folder, dump.runs, execution)  # raises if the dump has no such run
    if place is None and not any(
        each.records or each.statistics or each.operator_statistics for each in dump.iterations
    ):
        raise DumpReadError(
            folder,
            "not a dump: the directory has neither rank_N nor time directories nor tensor files; "
            "give the path of the dump configuration or a directory of a rank, network or iteration in it",
        )
    return dump


def open_iteration(path: str, run: int = 0, chosen: int | None = None) -> Iteration | None:
    """Open one directory of tensors: an iteration, the constants of a graph, or a copy of either.

    ``run`` and ``chosen`` are attributes of ``Iteration``. None for any other directory.

    Raises:
        DumpReadError: The directory cannot be listed or holds no dump.
    """
    dump = open_dump(path)
    folders = (*dump.iterations, *dump.constants)
    found = (each for each in folders if each.path == dump.path)
    return next((replace(each, run=run, chosen=chosen) for each in found), None)


def reopened(key: Key, path: str, run: int, chosen: int | None) -> Iteration:
    """Return an unpickled Iteration; its dump is opened when names, graph or times are needed."""
    bare = Iteration(key, path, run=run, chosen=chosen)

    @cache
    def found() -> Iteration:
        try:
            return open_iteration(path, run, chosen) or bare
        except DumpReadError:
            return bare

    return replace(
        bare,
        _full_name=lambda name: found().full_name(name),
        _facts=lambda: found().facts,
        _graph=lambda: found().operator_graph,
    )


@dataclass(frozen=True)
class Dump(SelectableTensors):
    """A dump, or the part of it that was opened."""

    path: str
    _tree: TreeListing = field(default_factory=TreeListing, repr=False)

    @cached_property
    def ranks(self) -> Mapping[int, Rank]:
        """The ranks by number (O0/O1, CPU, GPU)."""
        numbers = {key.rank for key in self._tree.of(None, PathKind.RANK) if key.rank is not None}
        return {number: Rank(number, self._tree) for number in sorted(numbers)}

    @cached_property
    def _separated(self) -> tuple[tuple[DumpedRun, ...], dict[Key, int]]:
        return separate_runs(_executions(self._tree))

    @property
    def runs(self) -> tuple[DumpedRun, ...]:
        """The runs of compiled graphs, by time."""
        return self._separated[0]

    @property
    def run(self) -> DumpedRun | None:
        """The selected run; None for a dump without runs of compiled graphs."""
        return choose_run(self.path, self.runs, self._tree.execution)

    @cached_property
    def all_models(self) -> tuple[DumpedModel, ...]:
        """The models by device, name and number (Ascend O2, GE, acl, torchair), of all runs."""
        graph_of = cache(partial(ge.compiled_graph, beside=self._tree.ignored))
        run_of = self._separated[1]
        return _in_order(
            (
                (key.device or 0, key.model or "", key.model_id),
                Iteration(
                    *(key, self._tree.paths[key]),
                    _graph=partial(graph_of, key.model or ""),
                    run=run_of.get(key, 0),
                ),
            )
            for key in _executions(self._tree)
        )

    @cached_property
    def captured(self) -> tuple[DumpedModel, ...]:
        """Graphs captured by torch.compile and run by torch, by rank and number."""
        return _in_order(
            ((key.rank or 0, CAPTURED_GRAPH.format(graph=key.graph), key.graph), Iteration(key, path))
            for key, path in self._tree.paths.items()
            if key.kind is PathKind.CAPTURED_STEP
        )

    @cached_property
    def failures(self) -> tuple[OperatorFile, ...]:
        """Files with the tensors of operators that failed, from the directories of exception dumps."""
        places = (path for key, path in self._tree.paths.items() if key.kind is PathKind.EXCEPTIONS)
        key = Key(PathKind.EXCEPTIONS)
        return tuple(file for path in sorted(places) for file in Iteration(key, path).files)

    @cached_property
    def models(self) -> tuple[DumpedModel, ...]:
        """The models with the iterations of the selected run."""
        if len(self.runs) > 1 and self._tree.execution is None:
            warn_of_several(self.path, self.runs)
        return self._models_of_run

    @cached_property
    def _models_of_run(self) -> tuple[DumpedModel, ...]:
        if self.run is None or len(self.runs) == 1:
            return self.all_models
        number = self.run.number
        models = (
            replace(model, iterations=tuple(each for each in model.iterations if each.run == number))
            for model in self.all_models
        )
        return tuple(model for model in models if model.iterations)

    @cached_property
    def iterations(self) -> tuple[Iteration, ...]:
        """Every iteration by rank, network, graph and number, or by model and time; of one run."""
        return self._iterations(self.models)

    @cached_property
    def all_iterations(self) -> tuple[Iteration, ...]:
        """Every iteration of every run."""
        return self._iterations(self.all_models)

    def _iterations(self, models: tuple[DumpedModel, ...]) -> tuple[Iteration, ...]:
        of_graphs = (iteration for _, graph in self._by_rank for iteration in graph.iterations.values())
        of_models = (iteration for model in (*models, *self.captured) for iteration in model.iterations)
        return (*of_graphs, *of_models)

    def acl_config_file(self, device: int) -> str | None:
        """Return the path of the configuration of a device's compiled graphs, None if it was not saved."""
        return self._tree.paths.get(Key(PathKind.ACL_CONFIG, device=device))

    @property
    def constants(self) -> Iterator[Iteration]:
        """The directories of constants, by rank, network and graph."""
        return (graph.constants_folder for _, graph in self._by_rank if graph.constants_folder is not None)

    @property
    def records(self) -> Iterator[Record]:
        """Every tensor of every iteration of one run, in execution order within each."""
        for iteration in self.iterations:
            yield from iteration.records

    @property
    def tensors(self) -> TensorSelection:
        """Every tensor of every iteration, also tensors with saved statistics only."""
        return TensorSelection(lambda: self.iterations)

    def _repr_html_(self) -> str:
        """Return the dump in a line and a table of its first tensors, as notebooks show it."""
        return f"<p>{escape(repr(self))}</p>{self.tensors._repr_html_()}"

    @property
    def _by_rank(self) -> Iterator[tuple[int, RankGraph]]:
        for number, rank in self.ranks.items():
            for network in rank.networks.values():
                yield from ((number, graph) for graph in network.graphs.values())

    @cached_property
    def ignored(self) -> tuple[str, ...]:
        """Paths of files and directories that belong to no dump; lists every iteration."""
        paths = [*self._tree.ignored]
        for _, graph in self._by_rank:
            paths += graph.ignored
        for model in (*self.all_models, *self.captured):
            paths += [path for iteration in model.iterations for path in iteration.ignored]
        return tuple(sorted(paths))

    @property
    def problems(self) -> tuple[DumpProblem, ...]:
        """The faults of the dump (unreadable files, lost tensors, files that belong to no dump).

        Every file of every run is opened. Large files are memory-mapped, so only headers and sizes are read.

        Raises:
            DumpReadError: A directory cannot be listed.
        """
        strangers = (DumpProblem(path, "belongs to no dump") for path in self._tree.ignored)
        inside = (folder.problems for folder in (*self.all_iterations, *self.constants))
        return (*strangers, *chain.from_iterable(inside))

    def graph(
        self, network: str = "", *, number: int | None = None, rank: int | None = None
    ) -> OperatorGraph:
        """Return the operators of a graph and their inputs, from the graph file in the dump.

        Args:
            network: Name of the network or of the compiled model; "": any.
            number: Number of the graph or of the model; None: the first one that has a graph file.
            rank: Number of the rank or device; None: any.

        Raises:
            DumpReadError: The dump has no graph file (``.ir``, ``.pb``, ``ge_proto_*``) of such a graph.
        """
        of_ranks = ((each.network, each.number, owner, each) for owner, each in self._by_rank)
        of_models = ((each.name, each.model_id, each.device, each) for each in self.all_models)
        holders: Iterator[tuple[str, int | None, int, RankGraph | DumpedModel]] = chain(of_ranks, of_models)
        for name, own, owner, holder in holders:
            is_meant = network in {"", name} and number in {None, own} and rank in {None, owner}
            if is_meant and (graph := holder.operator_graph) is not None:
                return graph
        raise DumpReadError(
            self.path,
            "no graph file of this graph; dump again with graph files (save_graphs or DUMP_GE_GRAPH)",
        )

    def __repr__(self) -> str:
        """Return path, ranks, networks and the number of iterations."""
        networks = {name for rank in self.ranks.values() for name in rank.networks}
        models = self._models_of_run
        networks |= {model.name for model in (*models, *self.captured)}
        count = len(self._iterations(models))
        return f"<Dump {self.path!r}: ranks {[*self.ranks]}, networks {sorted(networks)}, {count} iterations>"


def _loose(folder: str, execution: int | None) -> TreeListing:
    """Return a tree for one directory of tensors alone: as if it stood in graph 0 of a nameless network."""
    number = Path(folder).name
    iteration = int(number) if number.isascii() and number.isdigit() else 0
    rank = Key(PathKind.RANK, 0)
    network = Key(PathKind.NETWORK, 0, "")
    graph = Key(PathKind.GRAPH, 0, "", 0)
    tree = TreeListing(execution=execution)
    tree.add(None, rank, folder)
    tree.add(rank, network, folder)
    tree.add(network, graph, folder)
    tree.add(graph, Key(PathKind.ITERATION, 0, "", 0, iteration), folder)
    return tree
