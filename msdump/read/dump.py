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

import copyreg
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from html import escape
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

from msdump.errors import DAMAGED, DumpReadError
from msdump.read import files, ge, msprobe
from msdump.read.ir import (
    ListedForms,
    read_called,
    read_ir,
    read_listed_operators,
    read_parameters,
    read_pb,
    restore_graph,
)
from msdump.read.iteration import DumpProblem, Execution, GraphFacts, Iteration
from msdump.read.operator_graph import OperatorGraph, connected, named_as_files
from msdump.read.records import OperatorFile, Record
from msdump.read.selection import SelectableTensors, TensorSelection
from msdump.read.tree import (
    DumpedRun,
    TreeListing,
    choose_run,
    locate,
    scan,
    separate_runs,
    warn_of_several,
)
from msdump.store import CAPTURED_GRAPH, Key, PathKind, names

_Read = TypeVar("_Read")

_log = logging.getLogger("msdump.store")

_COMPILED: Final = (PathKind.IR, PathKind.PB, PathKind.EXECUTION_ORDER)


@dataclass(frozen=True)
class Rank:
    """The networks, graph files and metadata of one rank."""

    number: int
    _tree: TreeListing = field(repr=False, compare=False)
    # numbers of executions that a warning has named, as in ``GraphFacts``
    reported: set[tuple[int, int] | None] = field(default_factory=set, init=False, repr=False, compare=False)
    _damaged: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    @cached_property
    def networks(self) -> Mapping[str, RankNetwork]:
        """Networks with tensors, by directory name."""
        keys = self._tree.of(Key(PathKind.RANK, self.number), PathKind.NETWORK)
        nets = sorted(key.net for key in keys if key.net is not None and self._tree.of(key, PathKind.GRAPH))
        return {name: RankNetwork(name, self, self._tree) for name in nets}

    @cached_property
    def called_graphs(self) -> frozenset[int]:
        """Numbers of the branches and loop bodies in the graph files."""
        paths = [self.graph_file(PathKind.IR, graph) for graph in self.compiled_graphs]
        called = (self._unless_damaged(read_called, path) for path in paths)
        return frozenset().union(*(each or () for each in called))

    @cached_property
    def operator_graphs(self) -> Mapping[int, OperatorGraph]:
        """Graphs from graph files by number, with operators in execution order and callers of bodies.

        A file that cannot be read counts as missing, with a warning.
        """
        graphs = map(self._shared_graph, self.compiled_graphs)
        return connected(named_as_files(graph for graph in graphs if graph is not None))

    def _shared_graph(self, number: int) -> OperatorGraph | None:
        """Return a graph; ranks with equal graph files share one object."""
        paths = [self.graph_file(kind, number) for kind in _COMPILED]
        try:
            key = (number, *(None if path is None else files.digest(path) for path in paths))
        except DumpReadError:  # the unreadable file may not be needed
            return self._ordered_graph(number)
        shared = self._tree.graphs
        if key not in shared:
            shared[key] = self._ordered_graph(number)
        return shared[key]

    def _ordered_graph(self, number: int) -> OperatorGraph | None:
        graph = self._read_graph(number)
        if graph is None:
            return None
        return replace(graph, number=number).in_order(self.order_unless_damaged(number))

    def _read_graph(self, number: int) -> OperatorGraph | None:
        text, message = (self.graph_file(kind, number) for kind in (PathKind.IR, PathKind.PB))
        graph = self._unless_damaged(read_ir, text)
        if graph is None:
            return self._unless_damaged(read_pb, message)
        if graph.is_whole:
            return graph
        restored = self._unless_damaged(lambda path: restore_graph(path, graph), message)
        if text is not None and text not in self._damaged:
            self._damaged.add(text)
            known = len(self.order_unless_damaged(number) or ())
            count = f"{len(graph.operators):,}{f' of {known:,}' * bool(known)} operators"
            beside = "the .pb file beside it has the rest" if restored else "the rest is not known"
            _log.log(DAMAGED, "%s: the graph file ends after %s; %s", text, count, beside)
        return restored or graph

    def _unless_damaged(self, read: Callable[[str], _Read], path: str | None) -> _Read | None:
        """Return the contents of a file, None if the file is missing or damaged, which is logged once."""
        if path is None:
            return None
        try:
            return read(path)
        except DumpReadError as error:
            if path not in self._damaged:
                self._damaged.add(path)
                _log.log(DAMAGED, "%s; the dump is read as if the file were missing", error)
            return None

    @cached_property
    def listed_graphs(self) -> frozenset[int]:
        """Numbers of the graphs with a list of iterations (CPU, GPU), without branches and loop bodies."""
        lists = self._tree.of_rank(self.number, PathKind.ITERATIONS_RUN)
        return frozenset(key.graph for key in lists if key.graph is not None)

    @cached_property
    def compiled_graphs(self) -> tuple[int, ...]:
        """Numbers of all compiled graphs, with or without an execution."""
        graphs = {key.graph for key in self._tree.of_rank(self.number, *_COMPILED)}
        return tuple(sorted(number for number in graphs if number is not None))

    @cached_property
    def config(self) -> Any:
        """The user's configuration of the dump, None if it was not saved.

        Raises:
            DumpReadError: The copy cannot be read.
        """
        return self._json(PathKind.CONFIG)

    @property
    def config_file(self) -> str | None:
        """Path of the copy of the user's configuration, None if it was not saved."""
        return self._tree.paths.get(Key(PathKind.CONFIG, self.number))

    @cached_property
    def device(self) -> Any:
        """``device_target`` and ``ms_version`` of the run, None if they were not saved.

        Raises:
            DumpReadError: The file cannot be read.
        """
        return self._json(PathKind.DEVICE)

    def execution_order(self, graph: int) -> tuple[str, ...] | None:
        """Return the full names of a graph's operators in order, None without a list.

        Raises:
            DumpReadError: The list cannot be read.
        """
        path = self.graph_file(PathKind.EXECUTION_ORDER, graph)
        return None if path is None else files.read_execution_order(path)

    def order_unless_damaged(self, graph: int) -> tuple[str, ...] | None:
        """Return full names in execution order; None without a list, or with a warning for a damaged list."""
        return self._unless_damaged(
            files.read_execution_order, self.graph_file(PathKind.EXECUTION_ORDER, graph)
        )

    def listed_operators(self, graph: int) -> Mapping[str, ListedForms]:
        """Return the operators of a graph's .ir file by full name; none, with a warning, of a damaged one."""
        return self._unless_damaged(read_listed_operators, self.graph_file(PathKind.IR, graph)) or {}

    def iterations_run(self, graph: int) -> tuple[int, ...] | None:
        """Return the dumped iterations of a graph in the order of their runs, None without a list.

        Raises:
            DumpReadError: The list cannot be read.
        """
        path = self.graph_file(PathKind.ITERATIONS_RUN, graph)
        return None if path is None else files.read_iterations_run(path)

    def graph_file(self, kind: PathKind, graph: int) -> str | None:
        """Return the path of a graph's file or list, None if it is missing."""
        return self._tree.paths.get(Key(kind, self.number, graph=graph))

    @property
    def is_known(self) -> bool:
        """Whether the dump has the rank's directory; False for a single directory of tensors."""
        key = Key(PathKind.RANK, self.number)
        return Path(self._tree.paths[key]).name == key.path

    def _json(self, kind: PathKind) -> Any:
        path = self._tree.paths.get(Key(kind, self.number))
        return None if path is None else files.read_json(path)

    def __repr__(self) -> str:
        """Return number and networks."""
        return f"<Rank {self.number}: networks {[*self.networks]}>"


@dataclass(frozen=True)
class RankNetwork:
    """The tensors of one network."""

    name: str  # its directory, ``net_name`` of the configuration
    _rank: Rank = field(repr=False)
    _tree: TreeListing = field(repr=False, compare=False)

    @cached_property
    def graphs(self) -> Mapping[int, RankGraph]:
        """Graphs with tensors, by number."""
        keys = self._tree.of(Key(PathKind.NETWORK, self._rank.number, self.name), PathKind.GRAPH)
        numbers = sorted(key.graph for key in keys if key.graph is not None)
        return {number: RankGraph(number, self.name, self._rank, self._tree) for number in numbers}

    def __repr__(self) -> str:
        """Return name and graphs."""
        return f"<Network {self.name!r}: graphs {[*self.graphs]}>"


@dataclass(frozen=True)
class RankGraph:
    """The tensors of one graph."""

    number: int
    network: str
    _rank: Rank = field(repr=False)
    _tree: TreeListing = field(repr=False, compare=False)

    @cached_property
    def iterations(self) -> Mapping[int, Iteration]:
        """Dumped iterations by number."""
        place = Key(PathKind.GRAPH, self._rank.number, self.network, self.number)
        keys = self._tree.of(place, PathKind.ITERATION)
        listed = (self.iteration_at(key, self._tree.paths[key]) for key in keys)
        in_order = sorted(listed, key=lambda iteration: iteration.number)
        return {iteration.number: iteration for iteration in in_order}

    @cached_property
    def constants(self) -> tuple[Record, ...]:
        """Constants of the graph."""
        return () if self.constants_folder is None else self.constants_folder.records

    @cached_property
    def execution_order(self) -> tuple[str, ...] | None:
        """Full names of the operators in order, None without a list; may raise DumpReadError."""
        return self._rank.execution_order(self.number)

    @cached_property
    def _order(self) -> tuple[str, ...]:
        return self._rank.order_unless_damaged(self.number) or ()

    @cached_property
    def operator_graph(self) -> OperatorGraph | None:
        """The operators and their inputs, None without a graph file."""
        return self._rank.operator_graphs.get(self.number)

    @cached_property
    def iterations_run(self) -> tuple[int, ...] | None:
        """Iterations in the order of their runs, None without a list; may raise DumpReadError."""
        return self._rank.iterations_run(self.number)

    def full_name(self, name: names.TensorName) -> str | None:
        """Return the full scoped name of a tensor's operator, or a parameter's plain name.

        None if unknown or ambiguous, as without the execution order and the .ir file.
        """
        if name.op_type == names.PARAMETER:
            return self._parameters.get(name.op_name)
        return self._full_names.get(name.op_name)

    @cached_property
    def constants_folder(self) -> Iteration | None:
        """The directory of the constants, None if it is missing."""
        key = Key(PathKind.CONSTANTS, self._rank.number, self.network, self.number)
        path = self._tree.paths.get(key)
        facts = GraphFacts(loaded=self._loaded, reported=self._rank.reported)
        return None if path is None else Iteration(key, path, lambda name: name.op_name, _facts=lambda: facts)

    @cached_property
    def main(self) -> int | None:
        """Number of the main graph of a branch or a loop body, else None; may raise DumpReadError."""
        called, listed = self._rank.called_graphs, self._rank.listed_graphs
        # without calls in graph files (MindSpore's, or none), lists of iterations show main graphs
        if self.number not in called and (called or not listed or self.number in listed):
            return None
        mains = (number for number in self._rank.compiled_graphs if number not in called)
        # a main graph has a lower number than its branches: it is the nearest one below
        below = [number for number in mains if number < self.number and (not listed or number in listed)]
        return max(below, default=None)

    def _facts(self, iteration: int) -> GraphFacts:
        return GraphFacts(
            self._place_of,
            lambda op_name: max(1, self._bearers[op_name]),
            self._loaded,
            self._main_executions(iteration),
            self._listed_passes(iteration),
            self._newest is not None and iteration not in self._newest,
            self._rank.reported,
        )

    @cached_property
    def _newest(self) -> frozenset[int] | None:
        """The iterations of the last program, None without a list of several programs."""
        try:
            numbers = self.iterations_run or ()
        except DumpReadError:  # ``iterations_run`` raises it for callers that need the list
            return None
        begins = [place for place in range(1, len(numbers)) if numbers[place] <= numbers[place - 1]]
        return frozenset(numbers[begins[-1] :]) if begins else None

    def _main_executions(self, iteration: int) -> Sequence[Execution] | None:
        if self.main is None:
            return None
        graph = RankGraph(self.main, self.network, self._rank, self._tree)
        place = Path(self._tree.paths[Key(PathKind.GRAPH, self._rank.number, self.network, self.number)])
        path = place.parent / str(self.main) / str(iteration)
        if not os.path.isdir(path):
            return ()
        key = Key(PathKind.ITERATION, self._rank.number, self.network, self.main, iteration)
        found = graph.iteration_at(key, str(path)).executions
        return [replace(each, records=(), statistics=()) for each in found]

    def _listed_passes(self, iteration: int) -> int | None:
        """Return how often an iteration ran if an execution may run the graph several times, else None."""
        if not self._rank.is_known:  # a directory of tensors alone is taken for that of one iteration
            return 1
        is_alone = len(self._rank.compiled_graphs) < 2 or bool(self._rank.called_graphs)  # noqa: PLR2004
        numbers = None if is_alone else self.iterations_run
        return None if numbers is None else numbers.count(iteration)

    def _place_of(self, op_type: str, op_name: str) -> int | None:
        if op_type == names.PARAMETER:  # written at the end of a step, behind all operators
            return len(self._places) if self._places else None
        return self._places.get(self._full_names.get(op_name, ""))

    @cached_property
    def _bearers(self) -> Counter[str]:
        order = self._order
        return Counter(
            file_name
            for name in order
            for file_name in {names.sanitize(name.rpartition("/")[2]), names.sanitize(name)}
        )

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {name: number for number, name in enumerate(self._order)}

    @cached_property
    def _loaded(self) -> int | None:
        # written at every load of the graph: its time is that of the newest load
        path = self._rank.graph_file(PathKind.EXECUTION_ORDER, self.number)
        return None if path is None else files.modified(path)

    @cached_property
    def _parameters(self) -> Mapping[str, str]:
        path = self._rank.graph_file(PathKind.IR, self.number)
        parameters = () if path is None else read_parameters(path)
        return _unique((names.sanitize(name), name) for name in parameters)

    @cached_property
    def _full_names(self) -> Mapping[str, str]:
        order = self._order
        # the generation of the names is not known: ``classic`` ones hold the last component alone
        last_components = _unique((names.sanitize(name.rpartition("/")[2]), name) for name in order)
        return last_components | _unique((names.sanitize(name), name) for name in order)

    def iteration_at(self, key: Key, path: str) -> Iteration:
        """Return the iteration that lies in a directory."""
        number = key.iteration or 0
        return Iteration(
            key,
            path,
            self.full_name,
            lambda: self.operator_graph,
            lambda: self._facts(number),
            chosen=self._tree.execution,
        )

    def __repr__(self) -> str:
        """Return number, network and iterations."""
        return f"<Graph {self.number} of {self.network!r}: iterations {[*self.iterations]}>"


def _unique(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return full names by their short form, without the short forms that several full names share."""
    full_names: dict[str, str] = {}
    ambiguous = set()
    for short, name in pairs:
        if full_names.setdefault(short, name) != name:
            ambiguous.add(short)
    return {short: name for short, name in full_names.items() if short not in ambiguous}


_Model = tuple[int, str, int | None]
"""Device, name and number of a model."""


@dataclass(frozen=True)
class DumpedModel:
    """The executions of one compiled model, or of a graph that torch.compile captured."""

    device: int  # number of the device; for a captured graph the number of the rank
    name: str  # name of the directory; "" for single operators
    model_id: int | None  # number of the model in its process, None for single operators
    iterations: tuple[Iteration, ...] = field(repr=False)  # the executions by run, step, time and number

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
        place = locate(folder)
        tree = _single_directory(folder, execution) if place is None else scan(*place, execution)
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
    """Return an iteration in another process; its dump is opened when names, graph or times are needed."""
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


# the place alone is pickled
copyreg.pickle(Iteration, lambda each: (reopened, (each.key, each.path, each.run, each.chosen)))


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
                    key,
                    self._tree.paths[key],
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
        inside = (folder.ignored for folder in (*self.all_iterations, *self.constants))
        return tuple(sorted(chain(self._tree.ignored, *inside)))

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


def _single_directory(folder: str, execution: int | None) -> TreeListing:
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
