"""Reading dumps back: ranks, networks, graphs or models, then iterations and tensors.

    dump = open_dump("/path")
    for record in dump.ranks[0].networks["LeNet"].graphs[0].iterations[3].records:
        print(record, record.shape, record.array.max())
    for record in dump.models[0].iterations[3].records:
        print(record, record.host.shape)

Trees of msdump and of MindSpore itself are read alike. Opening lists
directories down to the iterations; files are listed when an iteration is
touched and read when a tensor is.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msdump.errors import DumpReadError
from msdump.store import names, texts
from msdump.store.iterations import Iteration
from msdump.store.layouts import Key, Kind
from msdump.store.models import Model, failures, models
from msdump.store.operator_files import OperatorFile
from msdump.store.records import Record
from msdump.store.tree import Tree, locate, scan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["Dump", "Graph", "Iteration", "Model", "Network", "Rank", "Record", "open_dump"]

_COMPILED: Final = frozenset({Kind.IR, Kind.PB, Kind.EXECUTION_ORDER})


def open_dump(path: str | os.PathLike[str]) -> Dump:
    """Open a dump for reading.

    Args:
        path: The dump's root, or the directory of a rank, network, graph or iteration in it; also
            a directory of tensor files that was copied out of a dump.

    Raises:
        DumpReadError: There is no such directory, or no dump in it.
    """
    folder = os.path.abspath(path)  # noqa: PTH100 - pathlib's absolute() keeps ".." components
    place = locate(folder)
    tree = _loose(folder) if place is None else scan(*place)
    ranks = {key.rank: Rank(key.rank, tree) for key in tree.of(None, Kind.RANK) if key.rank is not None}
    dump = Dump(folder, dict(sorted(ranks.items())), models(tree), failures(tree), tuple(tree.ignored))
    if place is None and not any(each.records or each.statistics for each in dump.iterations):
        raise DumpReadError(
            folder,
            "no dump: it has neither rank_N nor time directories nor tensor files; "
            "give the path of the dump configuration or a directory of a rank, network or iteration in it",
        )
    return dump


@dataclass(frozen=True)
class Dump:
    """A dump, or the part of it that was opened.

    Attributes:
        path: The directory that was opened.
        ranks: Its ranks by number (O0/O1, CPU, GPU).
        models: Its models by device, name and number (Ascend O2, GE, acl, torchair).
        failures: What operators that failed left behind.
    """

    path: str
    ranks: Mapping[int, Rank]
    models: tuple[Model, ...]
    failures: tuple[OperatorFile, ...]
    _ignored: tuple[str, ...] = field(repr=False)

    @property
    def iterations(self) -> Iterator[Iteration]:
        """Every iteration by rank, network, graph and number, or by model and time."""
        for graph in self._graphs:
            yield from graph.iterations.values()
        for model in self.models:
            yield from model.iterations

    @property
    def records(self) -> Iterator[Record]:
        """Every tensor of every iteration, in execution order within each."""
        for iteration in self.iterations:
            yield from iteration.records

    @property
    def _graphs(self) -> Iterator[Graph]:
        for rank in self.ranks.values():
            for network in rank.networks.values():
                yield from network.graphs.values()

    @cached_property
    def ignored(self) -> tuple[str, ...]:
        """Paths of files and directories that belong to no dump; lists every iteration."""
        found = [*self._ignored]
        for graph in self._graphs:
            found += graph.ignored
        for model in self.models:
            found += [path for iteration in model.iterations for path in iteration.ignored]
        return tuple(sorted(found))

    def __repr__(self) -> str:
        """Return what was found at a glance."""
        networks = {name for rank in self.ranks.values() for name in rank.networks}
        networks |= {model.name for model in self.models}
        count = sum(1 for _ in self.iterations)
        return f"<Dump {self.path!r}: ranks {[*self.ranks]}, networks {sorted(networks)}, {count} iterations>"


@dataclass(frozen=True)
class Rank:
    """What one rank wrote.

    Attributes:
        number: Its number.
    """

    number: int
    _tree: Tree = field(repr=False, compare=False)

    @cached_property
    def networks(self) -> Mapping[str, Network]:
        """Networks with tensors, by the name of their directory."""
        keys = self._tree.of(Key(Kind.RANK, self.number), Kind.NETWORK)
        found = sorted(key.net for key in keys if key.net is not None and self._tree.of(key, Kind.GRAPH))
        return {name: Network(name, self, self._tree) for name in found}

    @cached_property
    def compiled_graphs(self) -> tuple[int, ...]:
        """Numbers of the graphs that were compiled, executed or not."""
        found = {key.graph for key in self._tree.paths if key.kind in _COMPILED and key.rank == self.number}
        return tuple(sorted(number for number in found if number is not None))

    @cached_property
    def config(self) -> Any:
        """The user's configuration that the dump was made with, None where it was not kept.

        Raises:
            DumpReadError: The copy cannot be read.
        """
        return self._json(Kind.CONFIG)

    @cached_property
    def device(self) -> Any:
        """``device_target`` and ``ms_version`` of the run, None where they were not kept.

        Raises:
            DumpReadError: The file cannot be read.
        """
        return self._json(Kind.DEVICE)

    def execution_order(self, graph: int) -> tuple[str, ...] | None:
        """Return the full names of a graph's operators in order, None where there is no list.

        Raises:
            DumpReadError: The list cannot be read.
        """
        path = self._tree.paths.get(Key(Kind.EXECUTION_ORDER, self.number, graph=graph))
        return None if path is None else texts.read_execution_order(path)

    def iterations_run(self, graph: int) -> tuple[int, ...] | None:
        """Return the dumped iterations of a graph in the order of their runs, None without a list.

        Raises:
            DumpReadError: The list cannot be read.
        """
        path = self._tree.paths.get(Key(Kind.ITERATIONS_RUN, self.number, graph=graph))
        return None if path is None else texts.read_iterations_run(path)

    def graph_file(self, kind: Kind, graph: int) -> str | None:
        """Return the path of a graph's ``Kind.IR`` or ``Kind.PB`` file, None where there is none."""
        return self._tree.paths.get(Key(kind, self.number, graph=graph))

    def _json(self, kind: Kind) -> Any:
        path = self._tree.paths.get(Key(kind, self.number))
        return None if path is None else texts.read_json(path)

    def __repr__(self) -> str:
        """Return number and networks."""
        return f"<Rank {self.number}: networks {[*self.networks]}>"


@dataclass(frozen=True)
class Network:
    """The tensors of one network.

    Attributes:
        name: Its directory, ``net_name`` of the configuration.
    """

    name: str
    _rank: Rank = field(repr=False)
    _tree: Tree = field(repr=False, compare=False)

    @cached_property
    def graphs(self) -> Mapping[int, Graph]:
        """Graphs with tensors, by number."""
        keys = self._tree.of(Key(Kind.NETWORK, self._rank.number, self.name), Kind.GRAPH)
        numbers = sorted(key.graph for key in keys if key.graph is not None)
        return {number: Graph(number, self.name, self._rank, self._tree) for number in numbers}

    def __repr__(self) -> str:
        """Return name and graphs."""
        return f"<Network {self.name!r}: graphs {[*self.graphs]}>"


@dataclass(frozen=True)
class Graph:
    """The tensors of one graph.

    Attributes:
        number: Its number.
        network: Directory of its network.
    """

    number: int
    network: str
    _rank: Rank = field(repr=False)
    _tree: Tree = field(repr=False, compare=False)

    @cached_property
    def iterations(self) -> Mapping[int, Iteration]:
        """Dumped iterations by number."""
        place = Key(Kind.GRAPH, self._rank.number, self.network, self.number)
        found = [self._iteration(key) for key in self._tree.of(place, Kind.ITERATION)]
        return {each.number: each for each in sorted(found, key=lambda each: each.number)}

    @cached_property
    def constants(self) -> tuple[Record, ...]:
        """Constants of the graph."""
        return () if self._constants is None else self._constants.records

    @cached_property
    def execution_order(self) -> tuple[str, ...] | None:
        """Full names of its operators in order, None where there is no list; may DumpReadError."""
        return self._rank.execution_order(self.number)

    @cached_property
    def iterations_run(self) -> tuple[int, ...] | None:
        """Iterations in the order in which they were dumped, None without a list; may DumpReadError."""
        return self._rank.iterations_run(self.number)

    @property
    def ignored(self) -> list[str]:
        """Paths in its directories of tensors that belong to no dump."""
        folders = [*self.iterations.values()]
        if self._constants is not None:
            folders.append(self._constants)
        return [path for folder in folders for path in folder.ignored]

    def full_name(self, name: names.TensorName) -> str | None:
        """Return the full scoped name of a tensor's operator, or a parameter's plain name.

        None where it is not known for sure: without the execution order or the .ir file.
        """
        if name.op_type == names.PARAMETER:
            return self._parameters.get(name.op_name)
        return self._full_names.get(name.op_name)

    @cached_property
    def _constants(self) -> Iteration | None:
        key = Key(Kind.CONSTANTS, self._rank.number, self.network, self.number)
        path = self._tree.paths.get(key)
        return None if path is None else Iteration(key, path, lambda name: name.op_name)

    @cached_property
    def _parameters(self) -> Mapping[str, str]:
        path = self._rank.graph_file(Kind.IR, self.number)
        found = () if path is None else texts.read_parameters(path)
        return _unique((names.sanitize(name), name) for name in found)

    @cached_property
    def _full_names(self) -> Mapping[str, str]:
        order = self.execution_order or ()
        last_components = _unique((names.sanitize(name.rpartition("/")[2]), name) for name in order)
        return last_components | _unique((names.sanitize(name), name) for name in order)

    def _iteration(self, key: Key) -> Iteration:
        return Iteration(key, self._tree.paths[key], self.full_name)

    def __repr__(self) -> str:
        """Return number, network and iterations."""
        return f"<Graph {self.number} of {self.network!r}: iterations {[*self.iterations]}>"


def _unique(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the full names whose short form no other full name has."""
    found: dict[str, str] = {}
    doubles = set()
    for short, name in pairs:
        if found.setdefault(short, name) != name:
            doubles.add(short)
    return {short: name for short, name in found.items() if short not in doubles}


def _loose(folder: str) -> Tree:
    """Return the tree of one directory of tensors without anything around it."""
    number = Path(folder).name
    iteration = int(number) if number.isascii() and number.isdigit() else 0
    rank = Key(Kind.RANK, 0)
    network = Key(Kind.NETWORK, 0, "")
    graph = Key(Kind.GRAPH, 0, "", 0)
    tree = Tree()
    tree.add(None, rank, folder)
    tree.add(rank, network, folder)
    tree.add(network, graph, folder)
    tree.add(graph, Key(Kind.ITERATION, 0, "", 0, iteration), folder)
    return tree
