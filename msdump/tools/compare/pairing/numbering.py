"""Operators of a graph file by the numbers that the files of its dump have, where those are other ones.

vendor: MindSpore 2.10 numbers the operators that its backend inserts, and others of their scope and type,
once for the graph file and once more for the kernels that are dumped: both call other ones ``Cast-op3``.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from msdump.errors import DumpReadError, FormatError
from msdump.record import IO
from msdump.store.read.graphs.operator_graph import (
    GraphOperator,
    OperatorGraph,
    SourceKind,
    ValueForm,
    ValueSource,
)
from msdump.tools.compare.pairing import dump_folder, operands
from msdump.tools.compare.pairing.dump_folder import Folder, FolderKind

_NUMBER = "-op"

_Written = Mapping[tuple[IO, int], tuple[str, int]]
"""Element type and count of the elements of the tensors that one operator has files of."""


def as_files(graph: OperatorGraph | None, folder: Folder) -> OperatorGraph | None:
    """Return a graph whose operators have the numbers of a directory's files.

    Where files have numbers that the graph lacks, operators of one scope and type are told apart by the types
    and sizes of their tensors. Those that are not told apart so get names that no file has: nothing is known
    of their files then.

    Args:
        graph: The graph that ran; None: nothing tells.
        folder: The directory of its operators.
    """
    if graph is None or folder.kind is not FolderKind.TENSORS:
        return graph
    listed, files = _groups(map(dump_folder.key, graph.operators)), _groups(folder.operators)
    if not any(_is_renumbered(listed.get(group, []), members) for group, members in files.items()):
        return graph
    full_names = {dump_folder.key(name): name for name in graph.operators}
    renamed: dict[str, str] = {}
    for group, members in files.items():
        own = [full_names[name] for name in listed.get(group, ())]
        if own:
            renamed |= _renamed(graph, own, {name: _written(folder, name) for name in members})
    return _with_names(graph, renamed)


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


def _written(folder: Folder, name: str) -> _Written:
    files = [file for file in folder.operators[name] if not file.pass_number]
    types = {(file.io, file.slot): (file.dtype or "").lower() for file in files}
    try:
        tensors = operands.read(folder, files)
    except (DumpReadError, FormatError):  # said where the tensors themselves are compared
        return {}
    return {
        (each.io, each.index): (types.get((each.io, each.index), ""), math.prod(each.shape))
        for each in tensors
    }


def _renamed(graph: OperatorGraph, listed: Sequence[str], files: Mapping[str, _Written]) -> dict[str, str]:
    """Return the new full names of the operators of one scope and type."""
    fits = {
        name: {each for each, written in files.items() if _fits(graph, graph.operators[name], written)}
        for name in listed
    }
    numbered = {name: dump_folder.key(name) for name in listed}
    if {*files} <= {*numbered.values()} and all(
        file in fits[name] for name, file in numbered.items() if file in files
    ):
        return {}
    chosen = _told_apart(fits)
    return {
        name: _with_number(name, chosen[name]) if name in chosen else f"{name} of the graph file"
        for name in listed
    }


def _told_apart(fits: Mapping[str, set[str]]) -> dict[str, str]:
    """Return the file names of the operators that alone fit their files."""
    chosen: dict[str, str] = {}
    while True:
        left = {name: files - {*chosen.values()} for name, files in fits.items() if name not in chosen}
        counts = Counter(file for files in left.values() for file in files)
        found = {name: min(files) for name, files in left.items() if len(files) == 1}
        found = {name: file for name, file in found.items() if counts[file] == 1}
        if not found:
            return chosen
        chosen |= found


def _with_number(name: str, file: str) -> str:
    return name.rpartition(_NUMBER)[0] + _NUMBER + file.rpartition(_NUMBER)[2]


def _fits(graph: OperatorGraph, operator: GraphOperator, written: _Written) -> bool:
    """Tell whether an operator's tensors may be those of files; where nothing is written, none may."""
    forms = {
        **{(IO.INPUT, slot): graph.form_of(each) for slot, each in enumerate(operator.inputs)},
        **{(IO.OUTPUT, slot): each for slot, each in enumerate(operator.outputs)},
    }
    return bool(written) and all(
        _is_form(forms.get(place, ValueForm()), *tensor) for place, tensor in written.items()
    )


def _is_form(form: ValueForm, dtype: str, count: int) -> bool:
    if form.dtype and dtype and form.dtype != dtype:
        return False
    return form.shape is None or -1 in form.shape or math.prod(form.shape) == count


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
