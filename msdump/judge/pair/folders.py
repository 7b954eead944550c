"""Pairs of the directories of dumped operators below two paths."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final

from msdump import reading
from msdump.errors import DAMAGED, DumpReadError, ToolError
from msdump.read import Iteration, is_tree, open_dump, original_names, parse_file_name, read_statistics
from msdump.return_codes import ReturnCode
from msdump.store import STATISTICS, OperatorFileKind, operator_names

_log = logging.getLogger("msdump.judge")

_TIME: Final = re.compile(r"[0-9]{14}")  # YYYYMMDDHHMMSS: when the dump was configured
_SHOWN: Final = 5

Executions = tuple[int | None, int | None]
"""Number of an execution, or of a run, of the examined side and of golden; None: the last one."""

_IsWanted = Callable[[Sequence[str]], bool]
"""Returns whether a directory is wanted, by the names of its files."""


@dataclass(frozen=True, slots=True)
class FolderPair:
    """Two directories of dumped operators that are compared."""

    label: str  # their path without the time of the dump, or their iteration; "" for the only pair
    dumped: str
    golden: str
    # directories of the iteration's other graphs, such as branches and loops
    dumped_inner: tuple[str, ...] = ()
    golden_inner: tuple[str, ...] = ()  # the same on the golden side
    # whether the sides divide the network into different graphs, so that all directories of one side are
    # compared with all of the other one
    is_united: bool = False


@dataclass(frozen=True, slots=True)
class FolderPairs:
    """Pairs of directories to compare, and directories without a counterpart."""

    pairs: tuple[FolderPair, ...]  # sorted by their labels, numbers by value
    alone: tuple[str, ...]  # directories without a counterpart
    # number of the compared execution in the directories of each side, None: the last whole one
    executions: Executions = (None, None)


def pair_folders(
    dumped: str, golden: str, executions: Executions = (None, None), *, is_measured: bool = False
) -> FolderPairs:
    """Return the pairs of directories of dumped operators below two paths.

    Directories with the same relative path, without the time of the dump, are a pair. If no paths agree,
    directories of the same iteration are. A single directory on each side is always a pair. A directory that
    cannot be listed is left out with a warning.

    Args:
        dumped: Directory of dumped operators that is examined, or one above it.
        golden: The same on the golden side.
        executions: Number of the execution, or of the run, of each side; None: the last one.
        is_measured: Pair directories with statistics, too.

    Raises:
        ToolError: A path is no directory, or has no dumped operators or several dumps below it.
        DumpReadError: There is no such run.
    """
    if is_tree(dumped) or is_tree(golden):
        return FolderPairs(*_of_trees(dumped, golden, is_measured=is_measured))
    is_wanted = _has_either if is_measured else _has_dumps
    mine, execution = label_folders(dumped, executions[0], is_wanted)
    theirs, golden_execution = label_folders(golden, executions[1], is_wanted)
    is_divided = len(mine) > 1 < len(theirs) and _divide_otherwise(dumped, golden)
    pairs = (
        _of_networks(mine, theirs) if is_divided else _paired(dumped, golden, mine, _renumbered(mine, theirs))
    )
    used = {path for pair in pairs for path in (pair.dumped, pair.golden)}
    used |= {path for pair in pairs if pair.is_united for path in (*pair.dumped_inner, *pair.golden_inner)}
    paths = (path for side in (mine, theirs) for _, path in sorted(side.items()))
    alone = tuple(path for path in paths if path not in used)
    return FolderPairs(pairs, alone, (execution, golden_execution))


def _of_trees(
    dumped: str, golden: str, *, is_measured: bool
) -> tuple[tuple[FolderPair, ...], tuple[str, ...]]:
    """Return the pairs of steps and ranks, and directories without a counterpart, where golden is a tree."""
    if not is_tree(golden):
        raise ToolError(
            ReturnCode.PARAMETER,
            f"{dumped} is a tree of msprobe and {golden} is not; give the tree as GOLDEN, behind MINE",
        )
    theirs = {(each.rank, each.number): each for each in open_dump(golden).iterations}
    if not is_measured:
        theirs = {place: each for place, each in theirs.items() if each.records} or theirs
    mine: dict[tuple[int, int], Iteration] = {}
    for each in open_dump(dumped).iterations:
        sizes = [len(other.tensors) for other in (mine.get((each.rank, each.number)), each) if other]
        if sizes[-1] == max(sizes):  # the largest of several graphs, the first of equal ones: not reached
            mine[each.rank, each.number] = each
    if len(mine) == len(theirs) == 1:
        theirs = dict(zip(mine, theirs.values(), strict=True))
    shared = sorted(mine.keys() & theirs.keys())
    if not shared:
        sides = (
            ", ".join(f"rank {rank} step {step}" for rank, step in sorted(side)[:_SHOWN])
            for side in (mine, theirs)
        )
        raise ToolError(
            ReturnCode.NO_DUMP_FILE,
            f"no rank and step of {dumped} ({next(sides)}) is in {golden} ({next(sides)});"
            " give one step on each side",
        )
    pairs = tuple(
        FolderPair(
            f"{rank}/{step}" if len(shared) > 1 else "", mine[rank, step].path, theirs[rank, step].path
        )
        for rank, step in shared
    )
    return pairs, tuple(
        each.path for side in (mine, theirs) for place, each in sorted(side.items()) if place not in shared
    )


def _of_networks(mine: Mapping[str, str], theirs: Mapping[str, str]) -> tuple[FolderPair, ...]:
    """Return one pair for each network and iteration, with the directories of all graphs of both sides."""
    own, other = _by_network(mine), _by_network(theirs)
    pairs = []
    for place in sorted(own.keys() & other.keys(), key=lambda place: _order("/".join(place))):
        (main, *inner), (golden_main, *golden_inner) = own[place], other[place]
        further = (tuple(map(mine.__getitem__, inner)), tuple(map(theirs.__getitem__, golden_inner)))
        pairs.append(FolderPair(main, mine[main], theirs[golden_main], *further, is_united=True))
    return tuple(pairs)


def is_measured_alone(*roots: str) -> bool:
    """Return whether a path has only statistics below it, and every path has statistics or tensors."""
    if any(map(is_tree, roots)):
        return not all(any(each.records for each in open_dump(root).iterations) for root in roots)
    has_tensors = [next(_holding(root, _has_dumps), None) is not None for root in roots]
    has_statistics = [next(_holding(root, _has_statistics), None) is not None for root in roots]
    pairs = list(zip(has_statistics, has_tensors, strict=True))
    return any(measured and not dumped for measured, dumped in pairs) and all(map(any, pairs))


def _paired(dumped: str, golden: str, mine: dict[str, str], theirs: dict[str, str]) -> tuple[FolderPair, ...]:
    # Two single directories belong together even if one is iteration 3 and the other iteration 0.
    if len(mine) == len(theirs) == 1:
        (own,), (other,) = mine.values(), theirs.values()
        return (FolderPair("", own, other),)
    inner: dict[str, tuple[str, ...]] = {}
    if not mine.keys() & theirs.keys():
        inner = _inner_folders(mine) | _inner_folders(theirs)
        mine, theirs = _by_iteration(mine), _by_iteration(theirs)
    shared = sorted(mine.keys() & theirs.keys(), key=_order)
    if not shared:
        raise ToolError(
            ReturnCode.NO_DUMP_FILE,
            f"no directory of {dumped} ({_examples(mine)}) has a counterpart in {golden}"
            f" ({_examples(theirs)}); give the directory of one iteration on each side",
        )
    sides = ((label, mine[label], theirs[label]) for label in shared)
    return tuple(
        FolderPair(label, own, other, inner.get(own, ()), inner.get(other, ())) for label, own, other in sides
    )


def label_folders(
    root: str, execution: int | None, is_wanted: _IsWanted | None = None
) -> tuple[dict[str, str], int | None]:
    """Return the directories of one run below a root by label, and the number of the execution in them.

    Args:
        root: The root.
        execution: Number of the execution, or of the run, None: the last one.
        is_wanted: Selects directories by the names of their files; None: any with statistics or tensors.

    Raises:
        ToolError: The root is no directory, or has no wanted directory or two with the same label below it.
        DumpReadError: There is no such run.
    """
    if not os.path.isdir(root):
        raise ToolError(ReturnCode.PATH, f"{root}: no such directory")
    wanted = [*_holding(root, is_wanted or _has_either, _warn_of)]
    if any(_TIME.fullmatch(part) for path in wanted for part in Path(path).relative_to(root).parts):
        others = _of_other_runs(root, execution)
        wanted = [path for path in wanted if os.path.abspath(path) not in others]  # noqa: PTH100 - as dumps
        execution = None
    label_of = {path: _label(Path(path).relative_to(root)) for path in wanted}
    if not label_of:
        raise ToolError(ReturnCode.FILE_NAME, f"{root}: no dump files in it, nor below it{_hint(root)}")
    # several dumps of one network below a root are ambiguous
    repeated = [label for label, count in Counter(label_of.values()).items() if count > 1]
    if repeated:
        one, other, *_ = (path for path, label in label_of.items() if label == repeated[0])
        raise ToolError(
            ReturnCode.PARAMETER,
            f"{root} holds several dumps, such as {one} and {other}; give one of them",
        )
    return {label: path for path, label in label_of.items()}, execution


def _of_other_runs(root: str, execution: int | None) -> frozenset[str]:
    try:
        open_dump(root)
    except DumpReadError:  # the root holds several dumps, or not the tree of one
        return frozenset()
    dump = open_dump(root, execution)
    meant = {each.path for each in dump.iterations}
    return frozenset(each.path for each in dump.all_iterations if each.path not in meant)


def _hint(root: str) -> str:
    is_measured = next(_holding(root, _has_statistics), None)
    return f", only {STATISTICS}, which needs a dump on the other side" if is_measured else ""


def _label(path: Path) -> str:
    """Return a path without the time of the dump, in which two dumps of the same network differ.

    >>> _label(Path("20240131120000/0/lenet/1/0"))
    '0/lenet/1/0'
    """
    return "/".join(part for part in path.parts if not _TIME.fullmatch(part))


def _holding(
    root: str, is_wanted: _IsWanted, on_error: Callable[[OSError], object] = lambda _: None
) -> Iterator[str]:
    for folder, _, files in reading.walk(root, on_error):
        if is_wanted(original_names(folder, files)):
            yield folder


def _warn_of(error: OSError) -> None:
    _log.log(DAMAGED, "%s: %s; left out", error.filename, error.strerror or error)


def _has_dumps(names: Sequence[str]) -> bool:
    return any(parse_file_name(name) is not None for name in names)


def _has_statistics(names: Sequence[str]) -> bool:
    # acl writes a csv file in place of each operator's tensors
    tables = (name for name in names if name.endswith(".csv"))
    kind = OperatorFileKind.STATISTICS
    return any(name == STATISTICS or operator_names.parse(name, kind) is not None for name in tables)


def _has_either(names: Sequence[str]) -> bool:
    return _has_statistics(names) or _has_dumps(names)


def _by_iteration(labelled: Mapping[str, str]) -> dict[str, str]:
    """Return directories by iteration number, without the numbers that several networks have.

    The first graph of a network is taken: a compiled graph contains its branches and loops, which have
    directories of their own in other dumps.
    """
    mains = {place: labels[0] for place, labels in _by_network(labelled).items()}
    counts = Counter(number for _, number in mains)
    return {number: labelled[label] for (_, number), label in mains.items() if counts[number] == 1}


def _inner_folders(labelled: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    networks = _by_network(labelled).values()
    return {labelled[main]: tuple(labelled[label] for label in inner) for main, *inner in networks}


def _by_network(labelled: Mapping[str, str]) -> dict[tuple[str, str], list[str]]:
    # The trees of MindSpore, acl and torchair have different upper levels; the lowest is the iteration.
    networks: dict[tuple[str, str], list[str]] = {}
    for label in sorted(labelled, key=_order):
        above, _, number = label.rpartition("/")
        network, _, graph = above.rpartition("/")
        if number.isdigit():
            networks.setdefault((network if graph.isdigit() else above, number), []).append(label)
    return networks


def _order(label: str) -> list[tuple[int, str]]:
    """Return a sort key that puts numbers in the order of their values, behind names.

    >>> sorted(["rank_0/10", "rank_0/9"], key=_order)
    ['rank_0/9', 'rank_0/10']
    """
    parts = label.split("/")
    return [(int(part), "") if part.isascii() and part.isdigit() else (-1, part) for part in parts]


_Graphs = dict[int, dict[str, str]]
"""Directories of a network by number of the graph, and number of the iteration."""

_ENOUGH: Final = 0.5
"""Share of the likeness to the graph most like it from which on another graph may be the counterpart."""


def _renumbered(mine: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    """Return golden directories by label, with graphs and iterations renumbered as on the examined side.

    Their numbers differ if one process ran other networks before.
    """
    own, other = _by_graph(mine), _by_graph(theirs)
    labels: dict[str, str] = {}
    for network in own.keys() & other.keys():
        for graph, golden in _pair_graphs(own[network], other[network]):
            numbers, theirs_of = own[network][graph].keys(), other[network][golden]
            has_same_numbers = graph == golden or not numbers.isdisjoint(theirs_of)
            if len(numbers) == len(theirs_of) and not has_same_numbers:
                named = dict(zip(theirs_of, numbers, strict=True))
            else:
                named = {number: number for number in theirs_of}
            labels |= {
                f"{network}{golden}/{number}": f"{network}{graph}/{named[number]}" for number in theirs_of
            }
    moved = {labels[label]: path for label, path in theirs.items() if label in labels}
    return moved | {
        label: path for label, path in theirs.items() if label not in labels and label not in moved
    }


def _by_graph(labelled: Mapping[str, str]) -> dict[str, _Graphs]:
    networks: dict[str, _Graphs] = {}
    for label in sorted(labelled, key=_order):
        above, _, number = label.rpartition("/")
        network, slash, graph = above.rpartition("/")
        if number.isdigit() and graph.isdigit():
            networks.setdefault(network + slash, {}).setdefault(int(graph), {})[number] = labelled[label]
    return networks


def _pair_graphs(mine: _Graphs, theirs: _Graphs) -> Iterator[tuple[int, int]]:
    """Yield pairs of numbers, examined and golden, of graphs that hold the same operators.

    The graphs of a network have consecutive numbers, so each shift between the numbers is tried, the one with
    the most operators in common first. Remaining graphs are paired by number.
    """
    own, other = ({number: _operators(graph) for number, graph in side.items()} for side in (mine, theirs))
    shared = own.keys() & other.keys()
    is_like = all(_likeness(own[number], other[number]) >= _ENOUGH for number in shared)
    if not is_like or len(shared) < min(len(own), len(other)):
        likeness = {(one, two): _likeness(own[one], other[two]) for one, two in product(own, other)}
        merits: Counter[int] = Counter()
        for (graph, golden), share in likeness.items():
            merits[golden - graph] += round(share * own[graph].total())
        for shift in sorted(merits, key=lambda each: (-merits[each], abs(each))):
            for graph in [each for each in own if each + shift in other]:
                rivals = [likeness[graph, each] for each in other]
                rivals += [likeness[each, graph + shift] for each in own]
                if 0 < likeness[graph, graph + shift] >= _ENOUGH * max(rivals):
                    yield graph, graph + shift
                    del own[graph], other[graph + shift]
    yield from ((graph, graph) for graph in own.keys() & other.keys())


def _likeness(mine: Counter[str], golden: Counter[str]) -> float:
    return (mine & golden).total() / max((mine | golden).total(), 1)


def _operators(graph: Mapping[str, str]) -> Counter[str]:
    """Return a graph's operator names, with and without numbers, and their types."""
    folder = next(iter(graph.values()))
    listed = original_names(folder, [entry.name for entry in os.scandir(folder)])
    parsed = map(parse_file_name, listed)
    found = {(file.op_name, file.op_type) for _, file in filter(None, parsed)}
    if not found and os.path.exists(table := f"{folder}/{STATISTICS}"):
        found = {(str(row.get("Op Name")), str(row.get("Op Type"))) for row in read_statistics(table)}
    # parameters count, too: a graph that consists of one loop has no other files
    return Counter(text for name, kind in found for text in (name, name.rpartition("-op")[0] or name, kind))


def _examples(labelled: Mapping[str, str]) -> str:
    shown = [path for _, path in sorted(labelled.items())[:_SHOWN]]
    more = f" and {len(labelled) - _SHOWN} more" if len(labelled) > _SHOWN else ""
    return f"{', '.join(shown) or 'none with a number of its own'}{more}"


def _divide_otherwise(dumped: str, golden: str) -> bool:
    """Return whether two dumps of one network divide the network of a rank into different graphs.

    MindSpore's compiler makes a graph of the condition of a loop, of its body, of the operators behind it,
    and of each branch; msdump makes one of everything around branches and bodies. A dump with several
    networks, or with a training step and an evaluation, is recognised by operator names in several graphs.
    """
    mine, theirs = _orders(dumped), _orders(golden)
    return any(
        len(mine[rank]) != len(theirs[rank])
        and _is_one_network(mine[rank])
        and _is_one_network(theirs[rank])
        and (_is_spread(mine[rank], theirs[rank]) or _is_spread(theirs[rank], mine[rank]))
        for rank in mine.keys() & theirs.keys()
    )


def _orders(path: str) -> Mapping[int, Sequence[tuple[str, ...]]]:
    try:
        ranks = open_dump(path).ranks
        return {
            number: [rank.order_unless_damaged(graph) or () for graph in rank.compiled_graphs]
            for number, rank in ranks.items()
            if rank.is_known and rank.compiled_graphs
        }
    except DumpReadError:  # the path has golden tensors or several dumps, or an unreadable list
        return {}


def _is_one_network(orders: Sequence[tuple[str, ...]]) -> bool:
    counts = Counter(name for order in orders for name in order)
    return bool(counts) and max(counts.values()) == 1


def _is_spread(orders: Sequence[tuple[str, ...]], others: Sequence[tuple[str, ...]]) -> bool:
    """Return whether the operators of one graph are in several graphs of the other side."""
    graph_of = {name: number for number, order in enumerate(others) for name in order}
    return any(len({graph_of[name] for name in order if name in graph_of}) > 1 for order in orders)
