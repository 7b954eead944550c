"""One directory of dumped operators, by the file-name rules of CANN's comparison tool.

    {op_type}.{op_name}.{task_id}[.{stream_id}].{timestamp}[.{task_type}.{context}.{thread}][.{device}]
    {op_name}.{output_index}.{timestamp}.npy                                            golden tensors
    {op_type}.{op_name}.{task_id}.{stream_id}.{timestamp}.{io}.{slot}.{format}....npy   MindSpore's

All files of a directory are of one kind. A name of digits only is looked up in ``mapping.csv``.
"""

from __future__ import annotations

import enum
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from msdump.device import FRACTAL_Z
from msdump.errors import DumpReadError, ToolError
from msdump.read.dump import open_iteration
from msdump.read.executions import ordinals
from msdump.read.files import read_bytes
from msdump.read.iteration import Iteration
from msdump.read.operator_graph import (
    UNKNOWN_FORM,
    GraphOperator,
    OperatorGraph,
    ValueForm,
    convolution_groups,
)
from msdump.read.records import side_of
from msdump.record import DEFAULT_FORMAT, IO
from msdump.return_codes import ReturnCode
from msdump.store import FAILED_LIST, MAPPING, STATISTICS, is_collective, names, operator_names, sanitize
from msdump.store.write import parse_mapping

_log = logging.getLogger("msdump.read")

_NOT_DUMPS: Final = frozenset({MAPPING, FAILED_LIST, STATISTICS})
# vendor: the patterns of the vendor's tool. It accepts no dots in types and names of operators, but does in
# golden names; FFTS+ adds task type, context, thread and perhaps device behind the timestamp.
_OPERATOR: Final = re.compile(
    r"(?P<type>[A-Za-z0-9_-]+)\.(?P<name>[A-Za-z0-9_-]+)\.(?P<task>[0-9]{1,20})(?:\.(?P<stream>[0-9]{1,20}))?"
    r"\.(?P<timestamp>[0-9]{1,255})(?P<slice>(?:\.[0-9]{1,20}){3,4})?"
)
_GOLDEN: Final = re.compile(
    r"(?P<name>[.A-Za-z0-9_-]+)\.(?P<index>[0-9]{1,20})\.(?P<timestamp>[0-9]{1,255})\.npy"
)
_STAND_IN: Final = re.compile(r"[0-9]+(?:\.npy)?")
_TIMESTAMP_DIGITS: Final = 16


class FolderKind(enum.StrEnum):
    """The kinds of files that a directory of dumped operators may hold."""

    DUMPS = "dump files of operators"
    GOLDEN = "golden tensors"
    TENSORS = "tensors of MindSpore"
    COMPILED = "tensors of a graph that MindSpore compiled"

    @property
    def is_compiled(self) -> bool:
        """Whether a graph that was compiled as a whole wrote the files."""
        return self in {FolderKind.DUMPS, FolderKind.COMPILED}


_ALONE: Final = frozenset({FolderKind.DUMPS, FolderKind.GOLDEN})
"""Kinds of which no directory holds files of several executions."""


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file of a dumped operator, with the fields of its name.

    Attributes:
        name: Its name; the original name where it has a stand-in.
        op_name: Operator as files spell it, its key in ``Folder.operators``.
        timestamp: Microseconds since the epoch, 0 where the name holds something else.
        op_type: Operator type, "" of golden tensors.
        task_id: Task, 0 of golden tensors.
        stream_id: Stream, None where the name has none.
        part: Task type, context, thread and device of an FFTS+ task.
        io: Input or output, None where the file holds both; a collective has a file for each.
        format: Memory format where the name has it.
        dtype: Element type where the name has it.
        pass_number: Number of the operator's run within the execution, from 0: the pass of a loop; it
            continues over operators that share a name.
        held: Element type and shape in which the device held the tensor, where a graph has them.
        groups: Groups that the device laid out a weight by, where a graph has them.
    """

    path: str
    name: str
    op_name: str
    timestamp: int
    op_type: str = ""
    task_id: int = 0
    stream_id: int | None = None
    part: tuple[int, ...] = ()
    io: IO | None = None
    slot: int = 0
    format: str = ""
    dtype: str | None = None
    pass_number: int = 0
    held: ValueForm = UNKNOWN_FORM
    groups: int = 1


@dataclass(frozen=True, slots=True)
class Folder:
    """A directory of dumped operators.

    Attributes:
        operators: Files of each operator sorted by timestamp, the operators sorted by their last file's.
        version: Version of the dump files: 2, or 1 for plain messages.
        executions: How many executions left files in the directory.
    """

    path: str
    kind: FolderKind
    operators: Mapping[str, tuple[NamedFile, ...]]
    version: int = 2
    execution: int = 0
    executions: int = 1

    @property
    def files(self) -> Iterator[NamedFile]:
        """Every file."""
        for files in self.operators.values():
            yield from files


def read_folder(path: str, version: int = 2, execution: int | None = None) -> Folder:
    """Return the files of a directory; others than dump files are left out with a warning.

    Args:
        path: The directory.
        version: Version of the dump files: 2, or 1 for plain messages.
        execution: Number of the execution, where programs dumped several times into one path (MindSpore's
            tree); None: the last whole one.

    Raises:
        ToolError: It is no directory, has no dump files, or several kinds of them.
        DumpReadError: It or its ``mapping.csv`` cannot be read, or there was no such execution.
    """
    path = os.path.realpath(path)
    parsed = list(_named(path))
    if not parsed:
        raise ToolError(
            ReturnCode.FILE_NAME,
            f"{path}: no dump files; their names are op_type.op_name.task_id.stream_id.timestamp,"
            " op_name.output_index.timestamp.npy or those of MindSpore",
        )
    kinds = dict(reversed(parsed))  # the first file of each kind: the last of a reversed list stays
    if len(kinds) > 1:
        examples = ", ".join(f"{file.name!r} ({kind})" for kind, file in kinds.items())
        raise ToolError(
            ReturnCode.FILE_NAME, f"{path}: only files of one kind can be compared, but there are {examples}"
        )
    kind, files = parsed[0][0], [file for _, file in parsed]
    iteration = None if kind in _ALONE else open_iteration(path)
    folder = Folder(path, _told_kind(kind, files, iteration), {}, version)
    return _of_execution(folder, iteration, files, execution)


def with_forms(folder: Folder, graph: OperatorGraph | None) -> Folder:
    """Return a directory with the type, shape and layout in which the device of a graph held each tensor."""
    if graph is None or folder.kind is not FolderKind.TENSORS:
        return folder
    groups = convolution_groups(graph)
    operators = {
        name: tuple(_with_form(graph.find(name), file, groups) for file in files)
        for name, files in folder.operators.items()
    }
    return replace(folder, operators=operators)


def _with_form(operator: GraphOperator | None, file: NamedFile, groups: Mapping[str, int]) -> NamedFile:
    if operator is None:
        return file
    forms = operator.device_inputs if file.io is IO.INPUT else operator.device_outputs
    held = forms[file.slot] if file.slot < len(forms) else file.held
    number = groups.get(operator.full_name, 1) if file.format == FRACTAL_Z else 1
    return replace(file, held=held, groups=number)


def _of_execution(
    folder: Folder, iteration: Iteration | None, files: list[NamedFile], execution: int | None
) -> Folder:
    if iteration is None:
        return replace(folder, operators=_by_operator(_with_passes(files)))
    number = iteration.timeline.last_whole if execution is None else execution
    passes = {record.path: record.pass_number for record in iteration.execution(number).records}
    chosen = [replace(file, pass_number=passes[file.path]) for file in files if file.path in passes]
    count = len(iteration.timeline.spans)
    return replace(folder, operators=_by_operator(chosen), execution=number, executions=count)


def _with_passes(files: list[NamedFile]) -> list[NamedFile]:
    files = sorted(files, key=lambda file: (file.timestamp, file.name))
    # Files of one operator that differ in path and time alone are passes of a loop, oldest first.
    numbers = ordinals(replace(file, path="", name="", timestamp=0) for file in files)
    return [replace(file, pass_number=number) for file, number in zip(files, numbers, strict=True)]


def _told_kind(kind: FolderKind, files: list[NamedFile], iteration: Iteration | None) -> FolderKind:
    """Return the kind of files; COMPILED for tensor files of MindSpore's compiled graphs."""
    if kind is not FolderKind.TENSORS:
        return kind
    if iteration is not None and iteration.key.net:  # a directory of a network: compiled graphs have none
        return kind
    # Both have the same grammar of names, but only a compiled graph has the format of every tensor.
    is_compiled = all(file.format != DEFAULT_FORMAT for file in files)
    return FolderKind.COMPILED if is_compiled else kind


def _by_operator(files: list[NamedFile]) -> dict[str, tuple[NamedFile, ...]]:
    operators: dict[str, list[NamedFile]] = {}
    for file in sorted(files, key=lambda file: (file.timestamp, file.name)):
        operators.setdefault(file.op_name, []).append(file)
    by_time = sorted(operators.items(), key=lambda item: item[1][-1].timestamp)
    return {name: tuple(operator_files) for name, operator_files in by_time}


def _named(path: str) -> Iterator[tuple[FolderKind, NamedFile]]:
    foreign = []
    listed = _listed(path)
    for name, original in zip(listed, original_names(path, listed), strict=True):
        parsed = parse_file_name(f"{path}/{name}", original)
        if parsed is None:
            foreign.append(original)
        else:
            yield parsed
    if foreign:
        _log.warning(
            "%s: left out %d files with names that are not of dump files, such as %r",
            path,
            len(foreign),
            foreign[0],
        )


def _listed(path: str) -> list[str]:
    try:
        # scandir separates files from directories without a system call for each of thousands of entries.
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_file() and entry.name not in _NOT_DUMPS)
    except NotADirectoryError:
        raise ToolError(ReturnCode.PATH, f"{path}: not a directory") from None
    except FileNotFoundError:
        raise ToolError(ReturnCode.PATH, f"{path}: no such directory") from None
    except OSError as error:
        raise DumpReadError(path, error.strerror or str(error)) from error


def original_names(path: str, listed: Sequence[str]) -> Sequence[str]:
    """Return names of files with each stand-in replaced by the long name that ``mapping.csv`` gives it.

    Raises:
        DumpReadError: ``mapping.csv`` cannot be read.
    """
    mapping = f"{path}/{MAPPING}"
    if not any(map(_STAND_IN.fullmatch, listed)) or not os.path.exists(mapping):
        return listed
    originals = parse_mapping(read_bytes(mapping))
    return [originals.get(name, name) for name in listed]


def parse_file_name(path: str, name: str) -> tuple[FolderKind, NamedFile] | None:
    """Return the kind of a file and the fields of its (original) name, None where it is no dump file's name.

    >>> kind, file = parse_file_name("/dump/123", "Conv2D.conv1.12.3.1700000000000000")
    >>> kind.name, file.op_type, file.op_name, file.task_id, file.stream_id, file.timestamp
    ('DUMPS', 'Conv2D', 'conv1', 12, 3, 1700000000000000)
    >>> kind, file = parse_file_name("/dump/conv1.0.1700000000000000.npy", "conv1.0.1700000000000000.npy")
    >>> kind.name, file.op_name, file.slot
    ('GOLDEN', 'conv1', 0)
    """
    if not name.endswith(names.SUFFIX):
        match = _OPERATOR.fullmatch(name)
        return None if match is None else (FolderKind.DUMPS, _operator_file(path, match))
    # MindSpore's grammar first: it is the stricter one, golden names may hold any number of dots.
    tensor = names.parse(name)
    if tensor is not None:
        task = tensor.timestamp, tensor.op_type, tensor.task_id, tensor.stream_id
        held = tensor.io, tensor.slot, tensor.format, tensor.dtype
        return FolderKind.TENSORS, NamedFile(path, name, sanitize(tensor.op_name), *task, (), *held)
    match = _GOLDEN.fullmatch(name)
    if match is None:
        return None
    operator_name, time = sanitize(match["name"]), _timestamp(match["timestamp"])
    slot = int(match["index"])
    return FolderKind.GOLDEN, NamedFile(path, name, operator_name, time, io=IO.OUTPUT, slot=slot)


def _operator_file(path: str, match: re.Match[str]) -> NamedFile:
    # the name of a collective's file does not show whether it holds inputs or outputs
    collective = operator_names.parse(match.string) if is_collective(match["type"]) else None
    return NamedFile(
        path,
        match.string,
        match["name"],
        _timestamp(match["timestamp"]),
        match["type"],
        int(match["task"]),
        None if match["stream"] is None else int(match["stream"]),
        tuple(map(int, (match["slice"] or "").split(".")[1:])),
        None if collective is None else side_of(collective, path),
    )


def _timestamp(digits: str) -> int:
    # vendor: a timestamp that has not 16 digits sorts as 0.
    return int(digits) if len(digits) == _TIMESTAMP_DIGITS else 0
