"""Overflow records: the 2048 bytes in the one output of an ``Opdebug.Node_OpDebug`` file, and their JSON.

A record of today's devices, little endian:

    0    u32 magic 5A5A5A5A, version, valid, unit (0 AIC, 1 AIV, 2 AICPU, 3 SDMA), 0, length of the rest
    24   u64 each: the fields of the unit; in version 1 AIC and AIV have four words of status

Older devices have three sections of fixed places instead: two atomic adders and the AI Core.

    >>> record = DebugRecord(Unit.AIC, {"stream_id": 2, "task_id": 9, "pc_start": 0x1234}, status=(2048,))
    >>> contents = encode(record)
    >>> len(contents), contents[:24].hex(" ", 4)
    (2048, '5a5a5a5a 00000000 01000000 00000000 00000000 58000000')
    >>> decode(memoryview(contents)).fields["task_id"]
    9
    >>> to_compact_json(record).decode()[:69]
    '{"acc_list":{"acc_type":"AIC","data":{"block_id":0,"context_id":0,"co'
    >>> "".join(to_json(record).decode().split())[:71]
    '{"magic":"0x5a5a5a5a","version":0,"acc_list":{"valid":1,"acc_type":"AIC'
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from msdump.encode import dump_message
from msdump.encode.dump_data import DumpData, OriginalOp, TensorInfo
from msdump.errors import DumpReadError

SIZE: Final = 2048
"""Bytes of a record; the rest behind its fields is zero."""

MAGIC: Final = 0x5A5A5A5A
NODE: Final = "Node_OpDebug"
"""Name of the operator that gives the records."""

OP_TYPE: Final = "Opdebug"
NONE: Final = 65535
"""The context or thread of a task that has none."""


class Unit(enum.IntEnum):
    """The part of the device that overflowed; the numbers stand in ``acc_type``."""

    AIC = 0
    AIV = 1
    AICPU = 2
    SDMA = 3


_TASK: Final = ("model_id", "stream_id", "task_id", "task_type")
_CORE: Final = (
    *_TASK,
    *("context_id", "thread_id", "pc_start", "para_base", "core_id", "block_id", "status"),
)
FIELDS: Final = MappingProxyType(
    {
        Unit.AIC: _CORE,
        Unit.AIV: _CORE,
        Unit.AICPU: (*_TASK, "context_id", "cpu_id", "thread_id", "status"),
        Unit.SDMA: (*_TASK, "context_id", "thread_id", "src_addr", "dst_addr", "channel_id", "status"),
    }
)
"""Fields of each unit in the order of their bytes; all but the addresses are shown as numbers."""

_ADDRESSES: Final = frozenset({"pc_start", "para_base", "src_addr", "dst_addr", "kernel_code"})
_STATUS_WORDS: Final = 4  # of AIC and AIV in version 1

_HEAD: Final = struct.Struct("<6I")
_UNITS: Final = frozenset(Unit)
_WORD: Final = 8

# layout of the 2048 bytes of older devices, which has gaps
_OLD_INFO: Final = (*_TASK, "pc_start", "para_base")
_OLD_SECTIONS: Final = (
    ("DHA Atomic Add", 0, 512, ("status",)),
    ("L2 Atomic Add", 128, 768, ("status",)),
    ("AI Core", 256, 1024, ("kernel_code", "block_idx", "status")),
)
"""Name of each section, offset of its task, offset of its status, and the fields of the status."""


@dataclass(frozen=True, slots=True)
class DebugRecord:
    """A record of today's devices."""

    unit: Unit  # which part overflowed
    fields: Mapping[str, int]  # numbers by the names in ``FIELDS``; absent ones are 0
    status: tuple[int, ...]  # status of the unit: one word, or four of AIC and AIV in version 1
    version: int = 0
    is_valid: int = 1
    reserved: int = 0  # 0 (``rsv``)

    def as_dict(self) -> dict[str, Any]:
        """Return the content of the record's JSON file, in msaccucmp's order."""
        values: dict[str, Any] = _shown(self.fields, FIELDS[self.unit][:-1])
        values["status"] = self.status[0] if len(self.status) == 1 else list(self.status)
        details = {
            "valid": self.is_valid,
            "acc_type": self.unit.name,
            "rsv": self.reserved,
            "data_len": self.length,
            "data": values,
        }
        return {"magic": hex(MAGIC), "version": self.version, "acc_list": details}

    @property
    def length(self) -> int:
        """Bytes of the fields after the fixed head (``data_len``)."""
        # each field has one word, except the last, status, which may have several
        return _WORD * (len(FIELDS[self.unit]) - 1 + len(self.status))


@dataclass(frozen=True, slots=True)
class OldRecord:
    """A record of older devices."""

    # numbers by field, by section: ``DHA Atomic Add``, ``L2 Atomic Add``, ``AI Core``; absent ones are 0
    sections: Mapping[str, Mapping[str, int]]

    def as_dict(self) -> dict[str, Any]:
        """Return the content of the record's JSON file, in msaccucmp's order."""
        return {
            name: _shown(self.sections.get(name, {}), (*_OLD_INFO, *status))
            for name, _, _, status in _OLD_SECTIONS
        }


def header_data(dump_time: int) -> DumpData:
    """Return the header of an Opdebug file with one output, the record, at a time in microseconds."""
    uint8 = dump_message.DATA_TYPES["UINT8"]
    shape = (SIZE,)
    output = TensorInfo(uint8, dump_message.ND, shape, shape, SIZE, original_op=OriginalOp(NODE))
    return DumpData(NODE, dump_time, outputs=(output,))


def encode(record: DebugRecord) -> bytes:
    """Return the 2048 bytes of a record; records of older devices are only read."""
    words = [record.fields.get(name, 0) for name in FIELDS[record.unit][:-1]]
    head = _HEAD.pack(MAGIC, record.version, record.is_valid, record.unit, record.reserved, record.length)
    body = struct.pack(f"<{len(words) + len(record.status)}Q", *words, *record.status)
    return (head + body).ljust(SIZE, b"\0")  # msaccucmp fails on a shorter record of version 1


def decode(data: memoryview, source: str = "<buffer>", offset: int = 0) -> DebugRecord | OldRecord:
    """Return the record in the output of an Opdebug file; DumpReadError, at ``offset``, if it is none."""
    # records of older devices have no magic: they are recognised by their length
    if len(data) >= _HEAD.size and _HEAD.unpack_from(data)[0] == MAGIC:
        return _decode_new(data, source, offset)
    if len(data) != SIZE:
        fault = f"not an overflow record: {len(data)} bytes without {MAGIC:#x} at the start, not {SIZE}"
        raise DumpReadError(source, fault, offset)
    return OldRecord(
        {
            name: _read_words(data, task, _OLD_INFO) | _read_words(data, status, fields)
            for name, task, status, fields in _OLD_SECTIONS
        }
    )


def to_json(record: DebugRecord | OldRecord) -> bytes:
    """Return the text that msaccucmp makes of a record: indented by four spaces, in the bytes' order."""
    import json  # not above: rarely needed

    return json.dumps(record.as_dict(), indent=4).encode()


def to_compact_json(record: DebugRecord | OldRecord) -> bytes:
    """Return the text that MindSpore makes of a record: without spaces, names in alphabetical order."""
    import json  # not above: rarely needed

    return json.dumps(record.as_dict(), sort_keys=True, separators=(",", ":")).encode()


def _decode_new(data: memoryview, source: str, offset: int) -> DebugRecord:
    _, version, is_valid, number, reserved, _ = _HEAD.unpack_from(data)
    if number not in _UNITS:
        units = ", ".join(f"{unit.value} ({unit.name})" for unit in Unit)
        raise DumpReadError(
            source, f"overflow record of unknown unit {number}; known are {units}", offset + 12
        )
    unit = Unit(number)
    # vendor: the stated length is ignored, as msaccucmp only warns of a wrong length
    names, words = FIELDS[unit][:-1], (_STATUS_WORDS if version == 1 and FIELDS[unit] is _CORE else 1)
    needed = _HEAD.size + _WORD * (len(names) + words)
    if len(data) < needed:
        fault = f"truncated: an overflow record of {unit.name} has {needed} bytes, {len(data)} are there"
        raise DumpReadError(source, fault, offset)
    fields = _read_words(data, _HEAD.size, names)
    status = struct.unpack_from(f"<{words}Q", data, _HEAD.size + _WORD * len(names))
    return DebugRecord(unit, fields, status, version, is_valid, reserved)


def _read_words(data: memoryview, offset: int, names: tuple[str, ...]) -> dict[str, int]:
    return dict(zip(names, struct.unpack_from(f"<{len(names)}Q", data, offset), strict=True))


def _shown(values: Mapping[str, int], names: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields of a record for JSON: addresses as hexadecimal texts, all others as numbers."""
    # as msaccucmp and MindSpore print them
    return {name: hex(values.get(name, 0)) if name in _ADDRESSES else values.get(name, 0) for name in names}
