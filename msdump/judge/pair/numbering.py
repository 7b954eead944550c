"""Operator numbers of a graph file and of the dump's files, where the two differ.

vendor: MindSpore 2.10 numbers the operators that its backend inserts, and others of their scope and type,
once for the graph file and again for the dumped kernels: ``Cast-op3`` may be two different operators.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from msdump.device import INSERTED_PREFIX
from msdump.errors import DumpReadError, FormatError
from msdump.judge.pair.contents import tensor_key
from msdump.read import (
    Folder,
    FolderKind,
    GraphOperator,
    OperatorGraph,
    Record,
    SourceKind,
    ValueForm,
    ValueSource,
)
from msdump.record import IO
from msdump.store import sanitize

_NUMBER = "-op"
_UNTOLD = " of the graph file"
"""Suffix of the name of an operator with no known files."""


def as_files(graph: OperatorGraph | None, folder: Folder) -> OperatorGraph | None:
    """Return a graph with its operators renumbered as in the names of a directory's files.

    If numbers or tensor sizes of files contradict the graph, files are assigned to the operators of their
    scope and type by types, sizes and contents of tensors. An operator that stays ambiguous keeps its number
    if the numbers of graph and files agree; else it gets a name without files.

    Args:
        graph: The graph that ran; if None, the result is None.
        folder: The directory of its operators.
    """
    if graph is None or folder.kind is not FolderKind.TENSORS:
        return graph
    listed, files = _groups(map(sanitize, graph.operators)), _groups(folder.operators)
    full_names = {sanitize(name): name for name in graph.operators}
    tensors = _DumpedTensors(folder)
    is_told = any(_is_renumbered(listed.get(group, []), members) for group, members in files.items())
    if not is_told and not any(
        _is_mixed_up(graph, tensors, full_names, members) for members in files.values()
    ):
        return graph
    groups = {
        full_names[name]: {*members} for group, members in files.items() for name in listed.get(group, ())
    }
    files_of = _told_apart(graph, tensors, groups)
    own = {group for group, members in files.items() if not _is_renumbered(listed.get(group, []), members)}
    return _with_names(graph, {name: _renamed(name, files_of, own) for name in groups})


def _renamed(name: str, files_of: Mapping[str, str], numbered_alike: Collection[str]) -> str:
    if name in files_of:
        return name.rpartition(_NUMBER)[0] + _NUMBER + files_of[name].rpartition(_NUMBER)[2]
    file = sanitize(name)
    is_own = file.rpartition(_NUMBER)[0] in numbered_alike and file not in files_of.values()
    return name if is_own else f"{name}{_UNTOLD}"


def may_have_files(name: str, graph: OperatorGraph, folder: Folder) -> bool:
    """Return whether files that ``as_files`` could not assign may belong to an operator without files.

    Args:
        name: Full name of the operator in a graph from ``as_files``.
        graph: The graph.
        folder: The directory.
    """
    files = _groups(folder.operators).get(_untold_group(name), []) if name.endswith(_UNTOLD) else []
    return any(graph.find(file) is None for file in files)


def may_be_listed(name: str, graph: OperatorGraph) -> bool:
    """Return whether files of a name may belong to an operator that ``as_files`` left without files."""
    untold = {_untold_group(each) for each in graph.operators if each.endswith(_UNTOLD)}
    return graph.find(name) is None and name.rpartition(_NUMBER)[0] in untold


def _untold_group(name: str) -> str:
    return sanitize(name.removesuffix(_UNTOLD)).rpartition(_NUMBER)[0]


def _groups(names: Iterable[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        stem, mark, number = name.rpartition(_NUMBER)
        if mark and number.isdecimal():
            groups[stem].append(name)
    return dict(groups)


def _is_renumbered(listed: Sequence[str], files: Sequence[str]) -> bool:
    return len(files) <= len(listed) and not {*files} <= {*listed}


def _is_mixed_up(
    graph: OperatorGraph, tensors: _DumpedTensors, full_names: Mapping[str, str], files: Sequence[str]
) -> bool:
    """Return whether files of one scope and type contradict the types or sizes of equally numbered operators.

    False for a graph with names of ONNX nodes: it is msdump's own and has the numbers of the files.
    """
    operators = {name: graph.operators[full_names[name]] for name in files if name in full_names}
    if len(operators) <= 1 or any(each.onnx_names for each in operators.values()):
        return False
    return not all(tensors.fits(name, graph, operator) for name, operator in operators.items())


def _with_names(graph: OperatorGraph, renamed: Mapping[str, str]) -> OperatorGraph:
    def source(each: ValueSource) -> ValueSource:
        is_operator = each.kind is SourceKind.OPERATOR
        return replace(each, name=renamed.get(each.name, each.name)) if is_operator else each

    whole = graph.with_sources(source)
    operators = (replace(each, full_name=renamed.get(name, name)) for name, each in whole.operators.items())
    return replace(whole, operators={each.full_name: each for each in operators})


_Place = tuple[IO, int]
"""Side and number of a tensor of an operator."""


class _DumpedTensors:
    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._of = cache(self._read)
        self.key = cache(self._key)

    def fits(self, name: str, graph: OperatorGraph, operator: GraphOperator) -> bool:
        """Return whether files fit an operator by element types and sizes."""
        forms = {
            **{(IO.INPUT, slot): graph.form_of(each) for slot, each in enumerate(operator.inputs)},
            **{(IO.OUTPUT, slot): each for slot, each in enumerate(operator.outputs)},
        }
        dtypes, tensors = self._of(name)
        return bool(tensors) and all(
            _is_form(forms.get(place, ValueForm()), dtypes.get(place, ""), math.prod(each.shape))
            for place, each in tensors.items()
        )

    def _key(self, name: str, io: IO, slot: int) -> Hashable | None:
        tensor = self._of(name)[1].get((io, slot))
        return tensor_key(tensor) if tensor is not None and math.prod(tensor.shape) > 1 else None

    def _read(self, name: str) -> tuple[Mapping[_Place, str], Mapping[_Place, Record]]:
        found = [each for each in self._folder.operators.get(name, ()) if not each.pass_number]
        dtypes = {(each.io, each.slot): (each.name.dtype or "").lower() for each in found}
        try:
            return dtypes, {(each.io, each.slot): each.opened() for each in found}
        except (DumpReadError, FormatError):  # reported where the tensors are compared
            return dtypes, {}


def _is_form(form: ValueForm, dtype: str, count: int) -> bool:
    if form.dtype and dtype and form.dtype != dtype:
        return False
    return form.shape is None or -1 in form.shape or math.prod(form.shape) == count


def _told_apart(
    graph: OperatorGraph, tensors: _DumpedTensors, groups: Mapping[str, set[str]]
) -> dict[str, str]:
    """Return the files of ambiguous operators, by full name, as far as they can be assigned.

    An operator is assigned the only files that fit by types and sizes, or the files with most tensors in
    common with assigned neighbours: an input has the bits that its producer wrote.

    Args:
        graph: The graph that ran.
        tensors: The dumped tensors.
        groups: Names of files that each operator may have, by its full name.
    """
    fits = {
        name: {each for each in files if tensors.fits(each, graph, graph.operators[name])}
        for name, files in groups.items()
    }
    chosen: dict[str, str] = {}
    while True:
        left = {name: fits[name] - {*chosen.values()} for name in fits.keys() - chosen.keys()}
        links = _Links(graph, tensors, {name: chosen.get(name, "") for name in fits})
        found = _unique(left) or _unique({name: links.most(name, files) for name, files in left.items()})
        if not found:
            return chosen
        chosen |= found


def _unique(candidates: Mapping[str, set[str]]) -> dict[str, str]:
    counts = Counter(file for files in candidates.values() for file in files)
    single = {name: min(files) for name, files in candidates.items() if len(files) == 1}
    return {name: file for name, file in single.items() if counts[file] == 1}


@dataclass(frozen=True, slots=True)
class _Links:
    graph: OperatorGraph
    tensors: _DumpedTensors
    files: Mapping[str, str]

    def most(self, name: str, files: set[str]) -> set[str]:
        counts = {file: self._count(name, file) for file in files}
        most = max(counts.values(), default=0)
        return {file for file, count in counts.items() if count == most > 0}

    def _count(self, name: str, file: str) -> int:
        reads = (
            self._key(source.name, IO.OUTPUT, source.slot)
            == self.tensors.key(file, IO.INPUT, slot)
            is not None
            for slot, source in enumerate(self.graph.operators[name].inputs)
            if source.kind is not SourceKind.CONSTANT
        )
        written = (
            self._key(reader.full_name, IO.INPUT, slot)
            == self.tensors.key(file, IO.OUTPUT, source.slot)
            is not None
            for reader in self.graph.used_by(name)
            for slot, source in enumerate(reader.inputs)
            if source.kind is SourceKind.OPERATOR and source.name == name
        )
        return sum(reads) + sum(written)

    def _key(self, name: str, io: IO, slot: int) -> Hashable | None:
        known = self.files.get(name, name)
        return self.tensors.key(sanitize(known), io, slot) if known else None


_NUMBERED: Final = re.compile(r"(?P<stem>.*-op)(?P<number>\d+)")
_INSERTED: Final = re.compile(rf"(?P<stem>{INSERTED_PREFIX}.*_)(?P<number>\d+)")


def lost_operators(folder: Folder, other: Folder) -> frozenset[str]:
    """Return the operators of the other directory that ran in this one, too, but have lost their files.

    A network that lacks an operator numbers later operators and tasks differently. If no number has shifted,
    only the files are missing. Empty if the directory has operators that the other one lacks, or if more
    operators are missing than present.

    Args:
        folder: The directory that may have lost files.
        other: The directory that it is compared with.
    """
    if not (folder.kind.is_compiled and other.kind.is_compiled):
        return frozenset()
    absent = other.operators.keys() - folder.operators.keys()
    is_part = all(_has_same(name, folder, other) for name in folder.operators)
    if not is_part or len(absent) > len(folder.operators):
        return frozenset()
    if _tells_tasks(folder) and _tells_tasks(other):
        # shifted tasks show that one network has an operator more: no file is lost then
        is_told = _has_same_tasks(folder, other) and all(_keeps_tasks(name, folder, other) for name in absent)
    else:
        is_told = all(_keeps_numbers(name, folder) for name in absent)
    return frozenset(absent) if is_told else frozenset()


def _has_same(name: str, folder: Folder, other: Folder) -> bool:
    files, others = folder.operators[name], other.operators.get(name)
    return others is not None and files[-1].op_type == others[-1].op_type


def _tells_tasks(folder: Folder) -> bool:
    return 2 * len({_task(name, folder) for name in folder.operators}) > len(folder.operators)


def _has_same_tasks(folder: Folder, other: Folder) -> bool:
    return all(_task(name, folder) == _task(name, other) for name in folder.operators)


def _task(name: str, folder: Folder) -> tuple[int, int]:
    file = folder.operators[name][-1].name
    return file.stream_id, file.task_id


def _keeps_tasks(name: str, folder: Folder, other: Folder) -> bool:
    """Return whether an operator's task number is a gap in the numbers of its stream.

    Behind the last task no gap shows: True unless the task before it belongs to the operator of the same name
    with the number before, since a shorter series of such operators would look alike.
    """
    stream, task = _task(name, other)
    tasks = [_task(each, folder) for each in folder.operators]
    if any(each[0] == stream and each[1] > task for each in tasks):
        return True
    before = _before(name)
    return before not in other.operators or _task(before, other) != (stream, task - 1)


def _keeps_numbers(name: str, folder: Folder) -> bool:
    """Return whether an operator's number is a gap in the numbers of its scope and type, or the only one.

    Inserted operators share one series of numbers across types; another compiler may insert fewer.
    """
    if name.startswith(INSERTED_PREFIX):
        number = _number(name)
        behind = (_number(each) for each in folder.operators if each.startswith(INSERTED_PREFIX))
        return any(each > number for each in behind)
    found = _NUMBERED.fullmatch(name)
    if found is None:
        return True
    number = int(found["number"])
    alike = [_number(each) for each in folder.operators if each.startswith(found["stem"])]
    return not alike or max(alike) > number


def _number(name: str) -> int:
    found = (_INSERTED if name.startswith(INSERTED_PREFIX) else _NUMBERED).fullmatch(name)
    return -1 if found is None else int(found["number"])


def _before(name: str) -> str:
    found = (_INSERTED if name.startswith(INSERTED_PREFIX) else _NUMBERED).fullmatch(name)
    return "" if found is None or found["number"] == "0" else f"{found['stem']}{int(found['number']) - 1}"
