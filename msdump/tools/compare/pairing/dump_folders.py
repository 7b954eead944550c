"""The directories of dumped operators below two paths, and which belongs to which."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from msdump.errors import DumpReadError, ToolError
from msdump.store import operator_names
from msdump.store.layouts import STATISTICS
from msdump.store.operator_names import OperatorFileKind
from msdump.store.read.reader import open_dump
from msdump.tools.compare.pairing import dump_folder
from msdump.tools.compare.pairing.several import divisions
from msdump.tools.return_codes import ReturnCode

_log = logging.getLogger("msdump.tools")

_TIME: Final = re.compile(r"[0-9]{14}")  # YYYYMMDDHHMMSS: when the dump was configured
_SHOWN: Final = 5

Executions = tuple[int | None, int | None]
"""Number of an execution, or of a run, of the examined side and of golden; None: the last one."""

_IsWanted = Callable[[Sequence[str]], bool]
"""Tells by the names of its files whether a directory is looked for."""


@dataclass(frozen=True, slots=True)
class FolderPair:
    """Two directories of dumped operators that belong together.

    Attributes:
        label: Their path without the time of the dump, or their iteration; "" for the only pair.
        dumped: The directory that is examined.
        golden: The directory that it is compared with.
        dumped_inner: Directories of further graphs of the same iteration, which branches and loops may be.
        golden_inner: The same of golden.
        is_united: Whether the two divide their network into graphs in other ways, so that all directories of
            one side belong to all of the other one.
    """

    label: str
    dumped: str
    golden: str
    dumped_inner: tuple[str, ...] = ()
    golden_inner: tuple[str, ...] = ()
    is_united: bool = False


@dataclass(frozen=True, slots=True)
class FolderPairs:
    """Directories that belong together, and those without a counterpart.

    Attributes:
        pairs: Sorted by their labels, numbers by value.
        alone: Directories without a counterpart.
        executions: Number of the execution in the directories of each side that is compared, None: the last
            one that is whole, or the only one.
    """

    pairs: tuple[FolderPair, ...]
    alone: tuple[str, ...]
    executions: Executions = (None, None)


def pair(dumped: str, golden: str, executions: Executions = (None, None)) -> FolderPairs:
    """Return the pairs of directories of dumped operators below two paths.

    Directories with the same path below these belong together, whenever the dumps were made; else the
    only one of each side, or those of the same iteration. A directory that cannot be listed is told by a
    warning.

    Args:
        dumped: Directory of dumped operators that is examined, or one above it.
        golden: Directory that it is compared with, or one above it.
        executions: Number of the execution, or of the run, of each side; None: the last one.

    Raises:
        ToolError: A path is no directory, has none of dumped operators below it, or several dumps.
        DumpReadError: There is no such run.
    """
    return _pair(dumped, golden, executions, _has_dumps)


def pair_statistics(dumped: str, golden: str, executions: Executions = (None, None)) -> FolderPairs:
    """Return the pairs of directories with statistics or tensors below two paths, as ``pair`` does."""
    return _pair(dumped, golden, executions, _has_either)


def labelled(root: str, execution: int | None = None) -> tuple[dict[str, str], int | None]:
    """Return the directories with statistics or tensors below a root by label, as ``pair`` does.

    Args:
        root: The root.
        execution: Number of the execution, or of the run, None: the last one.

    Returns:
        The directories, and which execution in them is meant.
    """
    return _labelled(root, execution, _has_either)


def _pair(dumped: str, golden: str, executions: Executions, is_wanted: _IsWanted) -> FolderPairs:
    mine, execution = _labelled(dumped, executions[0], is_wanted)
    theirs, golden_execution = _labelled(golden, executions[1], is_wanted)
    is_divided = len(mine) > 1 < len(theirs) and divisions.differ(dumped, golden)
    found = _of_networks(mine, theirs) if is_divided else _paired(dumped, golden, mine, theirs)
    return replace(found, executions=(execution, golden_execution))


def _of_networks(mine: Mapping[str, str], theirs: Mapping[str, str]) -> FolderPairs:
    """Return the pairs of all directories of each network and iteration, whatever their graphs' numbers."""
    own, other = _by_network(mine), _by_network(theirs)
    shared = sorted(own.keys() & other.keys(), key=lambda place: _order("/".join(place)))
    pairs = []
    for place in shared:
        (main, *inner), (golden_main, *golden_inner) = own[place], other[place]
        further = (tuple(map(mine.__getitem__, inner)), tuple(map(theirs.__getitem__, golden_inner)))
        pairs.append(FolderPair(main, mine[main], theirs[golden_main], *further, is_united=True))
    used = {label for place in shared for label in own[place]}
    golden_used = {label for place in shared for label in other[place]}
    alone = (
        *(path for label, path in sorted(mine.items()) if label not in used),
        *(path for label, path in sorted(theirs.items()) if label not in golden_used),
    )
    return FolderPairs(tuple(pairs), alone)


def is_measured_alone(*roots: str) -> bool:
    """Tell whether one of the paths has statistics below it and no tensors, and the others have either."""
    has_tensors = [next(_holding(root, _has_dumps), None) is not None for root in roots]
    has_statistics = [next(_holding(root, _has_statistics), None) is not None for root in roots]
    pairs = list(zip(has_statistics, has_tensors, strict=True))
    return any(measured and not dumped for measured, dumped in pairs) and all(map(any, pairs))


def _paired(
    dumped: str, golden: str, dumped_by_label: dict[str, str], golden_by_label: dict[str, str]
) -> FolderPairs:
    # Two single directories belong together even if one is iteration 3 and the other iteration 0.
    if len(dumped_by_label) == len(golden_by_label) == 1:
        (mine,), (other,) = dumped_by_label.values(), golden_by_label.values()
        return FolderPairs((FolderPair("", mine, other),), ())
    paths = [path for side in (dumped_by_label, golden_by_label) for _, path in sorted(side.items())]
    inner: dict[str, tuple[str, ...]] = {}
    if not dumped_by_label.keys() & golden_by_label.keys():
        inner = _inner(dumped_by_label) | _inner(golden_by_label)
        dumped_by_label, golden_by_label = _by_iteration(dumped_by_label), _by_iteration(golden_by_label)
    shared_labels = sorted(dumped_by_label.keys() & golden_by_label.keys(), key=_order)
    if not shared_labels:
        raise ToolError(
            ReturnCode.NO_DUMP_FILE,
            f"no directory of {dumped} ({_examples(dumped_by_label)}) has a counterpart in {golden}"
            f" ({_examples(golden_by_label)}); give the directory of one iteration on each side",
        )
    used = {side[label] for side in (dumped_by_label, golden_by_label) for label in shared_labels}
    alone = [path for path in paths if path not in used]
    sides = ((label, dumped_by_label[label], golden_by_label[label]) for label in shared_labels)
    return FolderPairs(
        tuple(
            FolderPair(label, mine, other, inner.get(mine, ()), inner.get(other, ()))
            for label, mine, other in sides
        ),
        tuple(alone),
    )


def lowest(path: str) -> str:
    """Return a directory of dumped operators, or the only one below it; else the directory itself.

    Raises:
        ToolError: There are several below it.
    """
    folders = list(_holding(path, _has_dumps))
    if len(folders) > 1 and path not in folders:
        raise ToolError(
            ReturnCode.PARAMETER,
            f"{path} holds several directories of dump files, {folders[0]} is one; give one",
        )
    return folders[0] if len(folders) == 1 else path


def _labelled(root: str, execution: int | None, is_wanted: _IsWanted) -> tuple[dict[str, str], int | None]:
    """Return the wanted directories of one run below a root by their labels, and the execution in them.

    Raises:
        ToolError: The root is no directory, has none of them, or two with the same label.
        DumpReadError: There is no such run.
    """
    if not os.path.isdir(root):
        raise ToolError(ReturnCode.PATH, f"{root}: no such directory")
    wanted = [*_holding(root, is_wanted, _tell)]
    if any(_TIME.fullmatch(part) for path in wanted for part in Path(path).relative_to(root).parts):
        others = _of_other_runs(root, execution)
        wanted = [path for path in wanted if os.path.abspath(path) not in others]  # noqa: PTH100 - as dumps
        execution = None
    label_of = {path: _label(Path(path).relative_to(root)) for path in wanted}
    if not label_of:
        raise ToolError(ReturnCode.FILE_NAME, f"{root}: no dump files in it, nor below it{_hint(root)}")
    # Several dumps of one network below a root: nothing tells which of them is meant.
    repeated = [label for label, count in Counter(label_of.values()).items() if count > 1]
    if repeated:
        one, other, *_ = (path for path, label in label_of.items() if label == repeated[0])
        raise ToolError(
            ReturnCode.PARAMETER,
            f"{root} holds several dumps, such as {one} and {other}; give one of them",
        )
    return {label: path for path, label in label_of.items()}, execution


def _of_other_runs(root: str, execution: int | None) -> frozenset[str]:
    """Return the directories below a root of the runs that are not meant."""
    try:
        open_dump(root)
    except DumpReadError:  # it holds several dumps, or no tree of one
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
    root: str, is_wanted: _IsWanted, tell: Callable[[OSError], object] | None = None
) -> Iterator[str]:
    for folder, below, files in os.walk(root, onerror=tell):
        below.sort()  # in place: os.walk goes on in this order
        if is_wanted(files):
            yield folder


def _tell(error: OSError) -> None:
    _log.warning("%s: %s; left out", error.filename, error.strerror or error)


def _has_dumps(names: Sequence[str]) -> bool:
    return any(dump_folder.parse(name, name) is not None for name in names)


def _has_statistics(names: Sequence[str]) -> bool:
    return STATISTICS in names or any(_is_statistics(name) for name in names)


def _has_either(names: Sequence[str]) -> bool:
    return _has_statistics(names) or _has_dumps(names)


def _is_statistics(name: str) -> bool:
    """Tell whether a name is that of a csv file that acl writes in place of an operator's tensors."""
    is_csv = name.endswith(".csv")
    return is_csv and operator_names.parse(name, OperatorFileKind.STATISTICS) is not None


def _by_iteration(labelled: Mapping[str, str]) -> dict[str, str]:
    """Return directories by the number that their path ends in, without those that share a number.

    Of the graphs of one network the first is taken: a graph that was compiled as a whole holds its branches
    and loops, which have directories of their own elsewhere.
    """
    mains = {place: labels[0] for place, labels in _by_network(labelled).items()}
    counts = Counter(number for _, number in mains)
    return {number: labelled[label] for (_, number), label in mains.items() if counts[number] == 1}


def _inner(labelled: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the directories of the further graphs of each network and iteration by that of the first."""
    networks = _by_network(labelled).values()
    return {labelled[main]: tuple(labelled[label] for label in inner) for main, *inner in networks}


def _by_network(labelled: Mapping[str, str]) -> dict[tuple[str, str], list[str]]:
    """Return the labels of each network and number of an iteration, in the order of the graphs."""
    # The trees of MindSpore, acl and torchair differ above, but all end in the number of the iteration.
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


def _examples(labelled: Mapping[str, str]) -> str:
    shown = [path for _, path in sorted(labelled.items())[:_SHOWN]]
    more = f" and {len(labelled) - _SHOWN} more" if len(labelled) > _SHOWN else ""
    return f"{', '.join(shown) or 'none with a number of its own'}{more}"
