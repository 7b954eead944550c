"""Operators of a graph file by the numbers that the files of its dump have, where those are other ones.

vendor: MindSpore 2.10 numbers the operators that its backend inserts, and others of their scope and type,
once for the graph file and once more for the kernels that are dumped: both call other ones ``Cast-op3``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from msdump.store.read.graphs.operator_graph import OperatorGraph, SourceKind, ValueSource
from msdump.tools.compare.pairing import dump_folder
from msdump.tools.compare.pairing.candidates import Candidates, DumpedTensors
from msdump.tools.compare.pairing.dump_folder import Folder, FolderKind

_NUMBER = "-op"
_UNTOLD = " of the graph file"
"""Behind the name of an operator of which nothing tells which files are its."""


def as_files(graph: OperatorGraph | None, folder: Folder) -> OperatorGraph | None:
    """Return a graph whose operators have the numbers of a directory's files.

    Where files have numbers that the graph lacks, or the sizes of others, operators of one scope and type are
    told apart by types, sizes and contents of their tensors. Those that are not told apart so keep their
    numbers where files have no others; else they get names that no file has: nothing is known of their files.

    Args:
        graph: The graph that ran; None: nothing tells.
        folder: The directory of its operators.
    """
    if graph is None or folder.kind is not FolderKind.TENSORS:
        return graph
    listed, files = _groups(map(dump_folder.key, graph.operators)), _groups(folder.operators)
    full_names = {dump_folder.key(name): name for name in graph.operators}
    tensors = DumpedTensors(folder)
    is_told = any(_is_renumbered(listed.get(group, []), members) for group, members in files.items())
    if not is_told and not any(
        _is_mixed_up(graph, tensors, full_names, members) for members in files.values()
    ):
        return graph
    groups = {
        full_names[name]: {*members} for group, members in files.items() for name in listed.get(group, ())
    }
    candidates = Candidates(graph, tensors, groups)
    own = {group for group, members in files.items() if not _is_renumbered(listed.get(group, []), members)}
    return _with_names(graph, {name: _renamed(name, candidates, own) for name in groups})


def _renamed(name: str, candidates: Candidates, numbered_alike: Collection[str]) -> str:
    """Return the full name that an operator has in files.

    Args:
        name: Its full name in the graph file.
        candidates: Which files were found to be whose.
        numbered_alike: What stands in front of numbers that the graph has as well.
    """
    if name in candidates.chosen:
        return name.rpartition(_NUMBER)[0] + _NUMBER + candidates.chosen[name].rpartition(_NUMBER)[2]
    file = dump_folder.key(name)
    is_own = file.rpartition(_NUMBER)[0] in numbered_alike and file not in candidates.chosen.values()
    return name if is_own else f"{name}{_UNTOLD}"


def may_have_files(name: str, graph: OperatorGraph, folder: Folder) -> bool:
    """Tell whether files that are told of no operator may be those of one whose files were not found.

    Args:
        name: Full name of the operator in a graph from ``as_files``.
        graph: The graph.
        folder: The directory.
    """
    files = _groups(folder.operators).get(_untold_group(name), []) if name.endswith(_UNTOLD) else []
    return any(graph.find(file) is None for file in files)


def may_be_listed(name: str, graph: OperatorGraph) -> bool:
    """Tell whether an operator's files may be those of an operator of the graph whose files were not found.

    Args:
        name: The operator as files call it.
        graph: A graph from ``as_files``.
    """
    untold = {_untold_group(each) for each in graph.operators if each.endswith(_UNTOLD)}
    return graph.find(name) is None and name.rpartition(_NUMBER)[0] in untold


def _untold_group(name: str) -> str:
    return dump_folder.key(name.removesuffix(_UNTOLD)).rpartition(_NUMBER)[0]


def _groups(names: Iterable[str]) -> dict[str, list[str]]:
    """Return names as files hold them, by what stands in front of their numbers."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        stem, mark, number = name.rpartition(_NUMBER)
        if mark and number.isdecimal():
            groups[stem].append(name)
    return dict(groups)


def _is_renumbered(listed: Sequence[str], files: Sequence[str]) -> bool:
    """Tell whether files have other numbers than the operators of a graph, which are no fewer."""
    return len(files) <= len(listed) and not {*files} <= {*listed}


def _is_mixed_up(
    graph: OperatorGraph, tensors: DumpedTensors, full_names: Mapping[str, str], files: Sequence[str]
) -> bool:
    """Tell whether the files of operators of one scope and type do not fit the operators of their numbers.

    Graphs that tell the nodes of a model are msdump's own, which has one number for both.
    """
    operators = {name: graph.operators[full_names[name]] for name in files if name in full_names}
    if len(operators) <= 1 or any(each.onnx_names for each in operators.values()):
        return False
    return not all(tensors.fits(name, graph, operator) for name, operator in operators.items())


def _with_names(graph: OperatorGraph, renamed: Mapping[str, str]) -> OperatorGraph:
    def source(each: ValueSource) -> ValueSource:
        is_operator = each.kind is SourceKind.OPERATOR
        return replace(each, name=renamed.get(each.name, each.name)) if is_operator else each

    operators = {
        renamed.get(name, name): replace(
            each, full_name=renamed.get(name, name), inputs=tuple(map(source, each.inputs))
        )
        for name, each in graph.operators.items()
    }
    return replace(graph, operators=operators, outputs=tuple(map(source, graph.outputs)))
