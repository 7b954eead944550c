"""The records that a device leaves of overflows: where they stand, and what they tell."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from msdump.encode import dump_data, op_debug
from msdump.encode.op_debug import Unit
from msdump.errors import DumpReadError, ToolError
from msdump.record import IO
from msdump.store import operator_names
from msdump.store.read import mapped, texts
from msdump.tools.compare.pairing import dump_folder
from msdump.tools.return_codes import ReturnCode

_UNITS: Final = frozenset(unit.name for unit in Unit)


@dataclass(frozen=True, slots=True)
class OverflowFile:
    """A file that tells of an overflow.

    Attributes:
        timestamp: Microseconds since the epoch, as its name tells it.
        path: The file.
    """

    timestamp: int
    path: str

    def told(self) -> Mapping[str, Any]:
        """Return the record as its JSON form has it.

        Raises:
            DumpReadError: The file cannot be read, or holds something else.
        """
        if not self.is_json:
            return _decoded(self.path)
        found = texts.read_json(self.path)
        if not isinstance(found, dict):
            raise DumpReadError(self.path, f"no overflow record: {type(found).__name__}, not an object")
        return found

    @property
    def is_json(self) -> bool:
        """Whether the file is the record's JSON form, which stands beside .npy files."""
        return self.path.endswith(operator_names.OVERFLOW_JSON)


def _decoded(path: str) -> dict[str, Any]:
    view = mapped.load(path)
    for block in dump_data.blocks(*dump_data.read_header(view, path)):
        if block.section == IO.OUTPUT:
            return op_debug.decode(view[block.offset : block.end], path, block.offset).as_dict()
    raise DumpReadError(path, "no overflow record: the file has no output")


@dataclass(frozen=True, slots=True)
class OverflowUnit:
    """Part of a device that reports an overflow.

    Attributes:
        unit: AIC, AIV, AICPU or SDMA; a section's name on older devices.
        fields: What it tells.
    """

    unit: str
    fields: Mapping[str, Any]

    @property
    def task(self) -> tuple[Any, Any]:
        """Task and stream of the operator."""
        return self.fields.get("task_id"), self.fields.get("stream_id")

    def __str__(self) -> str:
        """Return the line of a report."""
        task, stream = self.task
        return f"[{self.unit}][TaskId:{task}][StreamId:{stream}][Status:{self.fields.get('status')}]"


def find(directory: str) -> list[OverflowFile]:
    """Return the records in a directory and everything below, oldest first.

    Raises:
        ToolError: There is no such directory, or one below cannot be listed.
    """
    if not os.path.isdir(directory):
        raise ToolError(ReturnCode.PATH, f"{directory}: no such directory")
    found = [record for folder in _folders(directory) for record in _records(*folder)]
    return sorted(found, key=lambda record: (record.timestamp, record.path))


def _folders(directory: str) -> Iterator[tuple[str, list[str]]]:
    for folder, below, files in os.walk(directory, onerror=_raise):
        below.sort()
        yield folder, files


def _raise(error: OSError) -> None:
    raise ToolError(ReturnCode.PATH, f"{error.filename}: {error.strerror or error}") from error


def _records(folder: str, files: list[str]) -> Iterator[OverflowFile]:
    """Yield the records of a directory; a JSON form counts where the record itself is not there."""
    found = {}
    for file in sorted(files, key=lambda name: not name.endswith(operator_names.OVERFLOW_JSON)):
        parsed = dump_folder.parse(f"{folder}/{file}", file.removesuffix(operator_names.OVERFLOW_JSON))
        if parsed is not None and parsed[1].op_type == operator_names.OP_DEBUG.op_type:
            found[parsed[1].name] = OverflowFile(parsed[1].timestamp, parsed[1].path)
    yield from found.values()


def faults(record: OverflowFile, told: Mapping[str, Any]) -> list[OverflowUnit]:
    """Return the parts of a device that report an overflow.

    Args:
        record: The record.
        told: What it tells (``Record.told``).

    Raises:
        ToolError: None does.
    """
    if "magic" not in told:
        found = [OverflowUnit(name, each) for name, each in told.items() if isinstance(each, dict)]
        reporting = [fault for fault in found if fault.fields.get("status")]
        if not reporting:
            raise ToolError(ReturnCode.OVERFLOW_TYPE, f"{record.path}: no unit has a status other than 0")
        return reporting
    details = told.get("acc_list")
    unit = details.get("acc_type") if isinstance(details, dict) else None
    fields = details.get("data") if isinstance(details, dict) else None
    if unit not in _UNITS or not isinstance(fields, dict):
        raise ToolError(
            ReturnCode.OVERFLOW_TYPE, f"{record.path}: unit {unit!r}; there are {', '.join(sorted(_UNITS))}"
        )
    if not np.any(fields.get("status", 0)):
        raise ToolError(ReturnCode.OVERFLOW_STATUS, f"{record.path}: the status of {unit} is 0: no overflow")
    return [OverflowUnit(unit, fields)]
