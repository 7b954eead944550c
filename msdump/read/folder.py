"""The tensors of one execution in a directory of dumped operators, by operator.

Files have the names of MindSpore, of CANN's dump files, or of golden tensors:

    {op_type}.{op_name}.{task_id}.{stream_id}.{timestamp}.{io}.{slot}.{format}....npy   MindSpore's
    {op_type}.{op_name}.{task_id}[.{stream_id}].{timestamp}[.{task_type}.{context}.{thread}][.{device}]
    {op_name}.{output_index}.{timestamp}.npy                                            golden tensors

All files of a directory are of one kind. A name of digits only is looked up in ``mapping.csv``.
"""

from __future__ import annotations

import enum
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from msdump.device import FRACTAL_Z
from msdump.errors import ToolError
from msdump.read.dump import open_iteration
from msdump.read.files import read_bytes
from msdump.read.iteration import Iteration, ordinals
from msdump.read.msprobe import is_process
from msdump.read.operator_graph import OperatorGraph, convolution_groups
from msdump.read.records import OperatorFile, Record, of_rows
from msdump.record import DEFAULT_FORMAT, IO
from msdump.return_codes import ReturnCode
from msdump.store import FAILED_LIST, MAPPING, Key, OperatorName, PathKind, TensorName, names, sanitize
from msdump.store.write import parse_mapping

_log = logging.getLogger("msdump.read")

# vendor: the patterns of the vendor's tool. It accepts no dots in types and names of operators, but does in
# golden names; FFTS+ adds task type, context, thread and perhaps device behind the timestamp.
_OPERATOR: Final = re.compile(
    r"(?P<type>[A-Za-z0-9_-]+)\.(?P<name>[A-Za-z0-9_-]+)\.(?P<task>[0-9]{1,20})(?:\.(?P<stream>[0-9]{1,20}))?"
    r"\.(?P<timestamp>[0-9]{1,255})(?P<suffix>(?:\.[0-9]{1,20}){3,4})?"
)
_GOLDEN: Final = re.compile(
    r"(?P<name>[.A-Za-z0-9_-]+)\.(?P<index>[0-9]{1,20})\.(?P<timestamp>[0-9]{1,255})\.npy"
)
_STAND_IN: Final = re.compile(r"[0-9]+(?:\.npy)?")


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


@dataclass(frozen=True, slots=True)
class Folder:
    """The tensors of one execution in a directory."""

    path: str
    kind: FolderKind
    # tensors of each operator sorted by timestamp, the operators sorted by their last tensor's; a
    # ``TensorlessFile`` for a dump file that has none, or cannot be read
    operators: Mapping[str, tuple[Record, ...]]
    execution: int = 0
    executions: int = 1  # how many executions left files in the directory
    is_measured: bool = False  # whether it is of statistics, without elements

    @property
    def tensors(self) -> Iterator[Record]:
        """Every tensor."""
        for tensors in self.operators.values():
            yield from tensors


def read_folder(path: str, execution: int | None = None, iteration: Iteration | None = None) -> Folder:
    """Return the tensors of a directory; files of no dump are left out with a warning.

    Args:
        path: The directory.
        execution: Number of the execution, where programs dumped several times into one path (MindSpore's
            tree); None: the last whole one.
        iteration: The directory as a dump has it, None: it is opened.

    Raises:
        ToolError: It is no directory, has no dump files, or several kinds of them.
        DumpReadError: It or its ``mapping.csv`` cannot be read, or there was no such execution.
    """
    path = os.path.realpath(path)
    if not os.path.isdir(path):
        what = "not a directory" if os.path.exists(path) else "no such directory"
        raise ToolError(ReturnCode.PATH, f"{path}: {what}")
    listed = iteration or Iteration(Key(PathKind.ITERATION, 0, "", 0, 0), path)
    if is_process(path):
        return read_tree(path, iteration)
    golden, dumps = _foreign(path, listed)
    dumps = [*dumps, *(file for file in listed.files if not file.name.is_brief_failure)]
    examples = {
        FolderKind.GOLDEN: golden[0].path if golden else "",
        FolderKind.DUMPS: dumps[0].path if dumps else "",
        FolderKind.TENSORS: listed.tensor_files[0].path if listed.tensor_files else "",
    }
    kinds = [kind for kind, example in examples.items() if example]
    if not kinds:
        raise ToolError(
            ReturnCode.FILE_NAME,
            f"{path}: no dump files; their names are op_type.op_name.task_id.stream_id.timestamp,"
            " op_name.output_index.timestamp.npy or those of MindSpore",
        )
    if len(kinds) > 1:
        shown = ", ".join(f"{os.path.basename(examples[kind])!r} ({kind})" for kind in kinds)  # noqa: PTH119
        raise ToolError(
            ReturnCode.FILE_NAME, f"{path}: only files of one kind can be compared, but there are {shown}"
        )
    if golden:
        return Folder(path, FolderKind.GOLDEN, by_operator(with_passes(golden)))
    if dumps:
        dumps.sort(key=_time)
        numbers = ordinals((replace(file.name, timestamp=0), file.side) for file in dumps)
        dumps = [replace(file, pass_number=number) for file, number in zip(dumps, numbers, strict=True)]
        return Folder(path, FolderKind.DUMPS, by_operator(each for file in dumps for each in file.tensors))
    # Both have the same grammar of names, but only a compiled graph has the format of every tensor, and no
    # directory of a network.
    is_compiled = not listed.key.net and all(each.format != DEFAULT_FORMAT for each in listed.tensor_files)
    kind = FolderKind.COMPILED if is_compiled else FolderKind.TENSORS
    listed = iteration or open_iteration(path) or listed
    number = listed.last_whole if execution is None else execution
    operators = by_operator(listed.execution(number).records)
    return Folder(path, kind, operators, number, len(listed.all_executions))


def read_tree(path: str, iteration: Iteration | None = None, *, is_measured: bool = False) -> Folder:
    """Return the tensors of one process in one step of a tree of msprobe, under the names of the tree.

    Args:
        path: The directory of the process.
        iteration: The directory as a dump has it, None: it is opened.
        is_measured: Return the statistics of all tensors, as for a tree without files.

    Raises:
        DumpReadError: The directory or ``dump.json`` cannot be read.
    """
    listed = iteration or open_iteration(path) or Iteration(Key(PathKind.ITERATION, 0, "", 0, 0), path)
    files = () if is_measured else listed.records
    operators: dict[str, list[Record]] = {}
    for each in files or of_rows(listed.statistics, listed):
        operators.setdefault(each.op_name, []).append(each)
    whole = {name: tuple(tensors) for name, tensors in operators.items()}
    return Folder(path, FolderKind.GOLDEN, whole, is_measured=not files)


def _foreign(path: str, listed: Iteration) -> tuple[list[Record], list[OperatorFile]]:
    """Return golden tensors and dump files without a stream, which no dump of ours has; warn of others."""
    golden, dumps, foreign = [], [], []
    files = [os.path.basename(each) for each in listed.ignored if os.path.isfile(each)]  # noqa: PTH119
    for file, original in zip(files, original_names(path, files), strict=True):
        kind, name = parse_file_name(original) or (None, None)
        if kind is FolderKind.GOLDEN and isinstance(name, TensorName):
            golden.append(Record(name, f"{path}/{file}", listed))
        elif isinstance(name, OperatorName):
            dumps.append(OperatorFile(name, f"{path}/{file}", listed))
        elif original != FAILED_LIST:
            foreign.append(original)
    if foreign:
        _log.warning(
            "%s: left out %d files with names that are not of dump files, such as %r",
            path,
            len(foreign),
            min(foreign),
        )
    return golden, dumps


def with_forms(folder: Folder, graph: OperatorGraph | None) -> Folder:
    """Return a directory with the type, shape and layout in which the device of a graph held each tensor."""
    if graph is None or folder.kind is not FolderKind.TENSORS:
        return folder
    groups = convolution_groups(graph)
    operators = dict(folder.operators)
    for name, tensors in folder.operators.items():
        operator = graph.find(name)
        sides = () if operator is None else (operator.device_inputs, operator.device_outputs)
        if operator is None or not (any(sides) or operator.full_name in groups):
            continue
        number, known = groups.get(operator.full_name, 1), []
        for each in tensors:
            forms, slot = sides[each.name.io is IO.OUTPUT], each.name.slot
            held = forms[slot] if slot < len(forms) else each.held
            known.append(replace(each, held=held, groups=number if each.name.format == FRACTAL_Z else 1))
        operators[name] = tuple(known)
    return replace(folder, operators=operators)


def _time(each: Record | OperatorFile) -> tuple[int, str]:
    return each.name.timestamp, each.path


def with_passes(tensors: Iterable[Record]) -> list[Record]:
    """Return tensors by time, each with its number among the tensors of one input or output."""
    # Files of one tensor that differ in time alone are passes of a loop, oldest first.
    tensors = sorted(tensors, key=_time)
    numbers = ordinals((each.op_name, each.io, each.slot) for each in tensors)
    return [replace(each, pass_number=number) for each, number in zip(tensors, numbers, strict=True)]


def by_operator(tensors: Iterable[Record]) -> dict[str, tuple[Record, ...]]:
    """Return tensors by the name of their operator in files, as ``Folder.operators``."""
    operators: dict[str, list[Record]] = {}
    for each in sorted(tensors, key=_time):
        name = sanitize(each.name.op_name)
        tensor = each if name == each.name.op_name else replace(each, name=replace(each.name, op_name=name))
        operators.setdefault(name, []).append(tensor)
    by_time = sorted(operators.items(), key=lambda item: item[1][-1].timestamp)
    return {name: tuple(operator_tensors) for name, operator_tensors in by_time}


def original_names(path: str, listed: Sequence[str]) -> Sequence[str]:
    """Return names of files, long ones for stand-ins; DumpReadError if ``mapping.csv`` cannot be read."""
    mapping = f"{path}/{MAPPING}"
    if not any(map(_STAND_IN.fullmatch, listed)) or not os.path.exists(mapping):
        return listed
    originals = parse_mapping(read_bytes(mapping))
    return [originals.get(name, name) for name in listed]


def parse_file_name(name: str) -> tuple[FolderKind, TensorName | OperatorName] | None:
    """Return the kind of a file and the fields of its (original) name, None where it is no dump file's name.

    >>> kind, name = parse_file_name("Conv2D.conv1.12.3.1700000000000000")
    >>> kind.name, name.op_type, name.op_name, name.task_id, name.stream_id, name.timestamp
    ('DUMPS', 'Conv2D', 'conv1', 12, 3, 1700000000000000)
    >>> kind, name = parse_file_name("conv1.0.1700000000000000.npy")
    >>> kind.name, name.op_name, name.slot
    ('GOLDEN', 'conv1', 0)
    """
    if not name.endswith(names.SUFFIX):
        found = _OPERATOR.fullmatch(name)
        if found is None:
            return None
        suffix = tuple(map(int, (found["suffix"] or "").split(".")[1:]))
        task, stream, time = (int(found[each] or 0) for each in ("task", "stream", "timestamp"))
        return FolderKind.DUMPS, OperatorName(found["type"], found["name"], task, stream, time, suffix)
    # MindSpore's grammar first: it is the stricter one, golden names may hold any number of dots.
    tensor = names.parse(name)
    if tensor is not None:
        return FolderKind.TENSORS, tensor
    found = _GOLDEN.fullmatch(name)
    if found is None:
        return None
    place = (sanitize(found["name"]), int(found["timestamp"]), IO.OUTPUT, int(found["index"]))
    return FolderKind.GOLDEN, TensorName("", *place, format="")
