"""Finds the records that a device leaves of overflows, and reads them."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from msdump.encode import dump_data, op_debug
from msdump.encode.op_debug import Unit
from msdump.errors import DumpReadError, ToolError
from msdump.record import IO
from msdump.store import operator_names
from msdump.store.read import mapped, texts
from msdump.store.read.tensor_directories import Overflow
from msdump.tools.compare.pairing import dump_folder
from msdump.tools.return_codes import ReturnCode

Task = tuple[int | None, int | None]
"""Number of a task, and of its stream."""

_TASK: Final = ("task_id", "stream_id")
_UNITS: Final = frozenset(unit.name for unit in Unit)


@dataclass(frozen=True, slots=True)
class OverflowFile:
    """The file of an overflow record.

    Attributes:
        timestamp: Microseconds since the epoch, from the name of the file.
        path: The file.
    """

    timestamp: int
    path: str

    def as_json(self) -> Mapping[str, Any]:
        """Return the record in its JSON form: ``magic``, ``version`` and ``acc_list``, or a member by unit.

        Raises:
            DumpReadError: The file cannot be read, or holds no record.
        """
        if not self.is_json:
            return _decoded(self.path)
        record = texts.read_json(self.path)
        if not isinstance(record, dict):
            raise DumpReadError(self.path, f"no overflow record: {type(record).__name__}, not an object")
        return record

    @property
    def is_json(self) -> bool:
        """Whether the file is the record's JSON form, which dumps of .npy files hold."""
        return self.path.endswith(operator_names.OVERFLOW_JSON)


def _decoded(path: str) -> dict[str, Any]:
    view = mapped.load(path)
    for block in dump_data.blocks(*dump_data.read_header(view, path)):
        if block.section == IO.OUTPUT:
            return op_debug.decode(view[block.offset : block.end], path, block.offset).as_dict()
    raise DumpReadError(path, "no overflow record: the file has no output")


@dataclass(frozen=True, slots=True)
class OverflowUnit:
    """A unit of a device that reports an overflow.

    Attributes:
        unit: AIC, AIV, AICPU or SDMA; the name of a section, "AI Core", on older devices.
        fields: Fields of the record about this unit: ``task_id``, ``stream_id``, ``status``, ...
    """

    unit: str
    fields: Mapping[str, Any]

    @property
    def task(self) -> Task:
        """Task and stream of the operator; None for what is no number."""
        task, stream = (self.fields.get(name) for name in _TASK)
        return task if isinstance(task, int) else None, stream if isinstance(stream, int) else None

    def __str__(self) -> str:
        """Return the line of a report."""
        task, stream = (self.fields.get(name) for name in _TASK)
        return f"[{self.unit}][TaskId:{task}][StreamId:{stream}][Status:{self.fields.get('status')}]"


def overflowed_tasks(overflows: Iterable[Overflow]) -> Counter[Task]:
    """Return how many overflow records tell of each task; a record that names no unit tells of none.

    Args:
        overflows: The records of an iteration.
    """
    tasks: Counter[Task] = Counter()
    for overflow in overflows:
        file = OverflowFile(overflow.name.timestamp, overflow.path)
        with contextlib.suppress(ToolError):
            tasks.update(unit.task for unit in faults(file, overflow.told))
    return tasks


def find(directory: str) -> list[OverflowFile]:
    """Return the files of records in a directory and everything below, oldest first.

    Raises:
        ToolError: There is no such directory, or one below cannot be listed.
    """
    if not os.path.isdir(directory):
        raise ToolError(ReturnCode.PATH, f"{directory}: no such directory")
    records = [record for folder in _folders(directory) for record in _records(*folder)]
    return sorted(records, key=lambda record: (record.timestamp, record.path))


def _folders(directory: str) -> Iterator[tuple[str, list[str]]]:
    for folder, folders, files in os.walk(directory, onerror=_raise):
        folders.sort()  # in place: os.walk goes on in this order
        yield folder, files


def _raise(error: OSError) -> None:
    raise ToolError(ReturnCode.PATH, f"{error.filename}: {error.strerror or error}") from error


def _records(folder: str, files: list[str]) -> Iterator[OverflowFile]:
    """Yield the records of a directory; a JSON form counts only where the record itself is not there."""
    by_name = {}
    # JSON forms first, so that a record of the same name replaces its own.
    for file in sorted(files, key=lambda name: not name.endswith(operator_names.OVERFLOW_JSON)):
        parsed = dump_folder.parse(f"{folder}/{file}", file.removesuffix(operator_names.OVERFLOW_JSON))
        if parsed is not None and parsed[1].op_type == operator_names.OP_DEBUG.op_type:
            by_name[parsed[1].name] = OverflowFile(parsed[1].timestamp, parsed[1].path)
    yield from by_name.values()


def faults(record: OverflowFile, record_json: Mapping[str, Any]) -> list[OverflowUnit]:
    """Return the units of a device that report an overflow.

    >>> fields = {"task_id": 9, "stream_id": 2, "status": 2048}
    >>> print(*faults(OverflowFile(0, ""), {"AI Core": fields, "L2 Atomic Add": {"status": 0}}))
    [AI Core][TaskId:9][StreamId:2][Status:2048]

    Args:
        record: The file of the record, for messages.
        record_json: The record in its JSON form (``OverflowFile.as_json``).

    Raises:
        ToolError: No unit reports one.
    """
    # vendor: records of older devices have no magic number but a section for each unit.
    if "magic" not in record_json:
        units = [
            OverflowUnit(name, fields) for name, fields in record_json.items() if isinstance(fields, dict)
        ]
        reporting = [fault for fault in units if fault.fields.get("status")]
        if not reporting:
            raise ToolError(ReturnCode.OVERFLOW_TYPE, f"{record.path}: no unit has a status other than 0")
        return reporting
    details = record_json.get("acc_list")
    unit = details.get("acc_type") if isinstance(details, dict) else None
    fields = details.get("data") if isinstance(details, dict) else None
    if unit not in _UNITS or not isinstance(fields, dict):
        raise ToolError(
            ReturnCode.OVERFLOW_TYPE, f"{record.path}: unit {unit!r}; there are {', '.join(sorted(_UNITS))}"
        )
    # vendor: in records of version 1 the status of AIC and AIV is a list of four numbers.
    if not np.any(fields.get("status", 0)):
        raise ToolError(ReturnCode.OVERFLOW_STATUS, f"{record.path}: the status of {unit} is 0: no overflow")
    return [OverflowUnit(unit, fields)]
