"""The names of the files of operators: dump files with all tensors of one, and reports on one.

{op_type}.{op_name}.{task_id}.{stream_id}.{timestamp}[.{task_type}.{context}.{thread}.{device}]
{op_type}.{op_name}.{task_id}.{stream_id}.{timestamp}.csv         its statistics (acl)
Opdebug.Node_OpDebug.{task_id}.{stream_id}.{timestamp}            an overflow
Opdebug.Node_OpDebug.{task_id}.{stream_id}.{timestamp}.output.0.json
{op_type}.{op_name}.{task_id}.{time}                              its failure
exception_info.{stream_id}.{task_id}.{time}                       its failure, in brief
{op_type}.{op_name}.json                                          its arguments
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from msdump.encode import op_debug
from msdump.record import OperatorRef
from msdump.store import names
from msdump.store.names import DIGITS, Style
from msdump.store.templates import TEXT, Field, Template

OP_DEBUG: Final = OperatorRef(op_debug.OP_TYPE, op_debug.NODE)
"""The identity of the file that reports an overflow (``op_debug_mode`` 3 under O2, acl ``dump_debug``)."""

OVERFLOW_JSON: Final = ".output.0.json"
"""What the name of the JSON form of an overflow's file adds to the name of the file."""

_BRIEF: Final = "exception_info"


class OperatorFileKind(enum.Enum):
    """Kinds of files of operators."""

    TENSORS = enum.auto()
    STATISTICS = enum.auto()
    OVERFLOW_JSON = enum.auto()
    BRIEF_EXCEPTION = enum.auto()
    NORM_EXCEPTION = enum.auto()
    ARGUMENTS = enum.auto()


_OPERATOR: Final = "{op_type}.{op_name}.{task_id}.{stream_id}.{timestamp}[.{suffix}]"
_FIELDS: Final = {
    "op_type": TEXT,
    "op_name": TEXT,
    "task_id": DIGITS,
    "stream_id": DIGITS,
    "timestamp": DIGITS,
    "suffix": Field(
        r"[0-9]{1,20}(?:\.[0-9]{1,20}){2,3}",
        lambda text: tuple(map(int, text.split("."))),
        lambda numbers: ".".join(map(str, numbers)),
    ),
}
_OF_OVERFLOW: Final = _FIELDS | {"op_type": Field(OP_DEBUG.op_type)}
_OF_FAILURE: Final = _FIELDS | {"timestamp": Field("[0-9]{17}", int)}
_OF_BRIEF_FAILURE: Final = _OF_FAILURE | {"op_type": Field(_BRIEF)}

NAMES: Final = {
    OperatorFileKind.TENSORS: Template(_OPERATOR, _FIELDS),
    OperatorFileKind.STATISTICS: Template(f"{_OPERATOR}.csv", _FIELDS),
    OperatorFileKind.OVERFLOW_JSON: Template(f"{_OPERATOR}{OVERFLOW_JSON}", _OF_OVERFLOW),
    OperatorFileKind.BRIEF_EXCEPTION: Template(
        "{op_type}.{stream_id}.{task_id}.{timestamp}", _OF_BRIEF_FAILURE
    ),
    OperatorFileKind.NORM_EXCEPTION: Template("{op_type}.{op_name}.{task_id}.{timestamp}", _OF_FAILURE),
    OperatorFileKind.ARGUMENTS: Template("{op_type}.{op_name}.json", _FIELDS),
}
"""The name of each kind of file."""


@dataclass(frozen=True, slots=True)
class OperatorName:
    """The fields of the name of an operator's file; ``str`` gives the name of the one with its tensors.

    >>> str(OperatorName("Conv2D", "Default_conv1-op0", 3, 7, 1795216920861338))
    'Conv2D.Default_conv1-op0.3.7.1795216920861338'
    """

    op_type: str  # operator type; ``exception_info`` of a brief failure
    op_name: str = ""  # operator name as files spell it
    task_id: int = 0
    stream_id: int = 0
    timestamp: int = 0  # microseconds since the epoch; of a failure its local time ``YYYYMMDDHHMMSSmmm``
    suffix: tuple[int, ...] = ()  # task type, context, thread and device of an FFTS+ task, else nothing

    @property
    def is_op_debug(self) -> bool:
        """Whether the file records an overflow."""
        return self.op_type == OP_DEBUG.op_type

    @property
    def is_brief_failure(self) -> bool:
        """Whether the file records a failure in brief: sizes of tensors, neither types nor shapes."""
        return self.op_type == _BRIEF

    def file_name(self, kind: OperatorFileKind) -> str:
        """Return the name of one of the operator's files; fields that its kind lacks are left out.

        >>> OperatorName("Conv2D", "conv1", 3, 7, 1795216920861338).file_name(OperatorFileKind.STATISTICS)
        'Conv2D.conv1.3.7.1795216920861338.csv'
        """
        return NAMES[kind].format(self)

    def __str__(self) -> str:
        """Return the name of the file with its tensors."""
        return self.file_name(OperatorFileKind.TENSORS)


def parse(name: str, kind: OperatorFileKind = OperatorFileKind.TENSORS) -> OperatorName | None:
    """Return the fields of the name of an operator's file, None for a file of another kind.

    >>> parse("Conv2D.Default_conv1-op0.3.7.1795216920861338").stream_id
    7
    """
    fields = NAMES[kind].parse(name)
    return None if fields is None else OperatorName(**fields)


def parse_exception(name: str) -> OperatorName | None:
    """Return the fields of the name of a failed operator's file, with or without its shapes and types."""
    return parse(name, OperatorFileKind.BRIEF_EXCEPTION) or parse(name, OperatorFileKind.NORM_EXCEPTION)


def of(operator: OperatorRef, style: Style, task_id: int, stream_id: int, timestamp: int) -> OperatorName:
    """Return the name of the file with an operator's tensors."""
    op_type, op_name = names.sanitize(operator.op_type), names.op_name(operator, style)
    return OperatorName(op_type, op_name, task_id, stream_id, timestamp)


def norm_exception(operator: OperatorRef, task_id: int, time: str) -> str:
    """Return the name of a failed operator's file with shapes and types; local time ``YYYYMMDDHHMMSSmmm``."""
    name = OperatorName(*_spelt(operator), task_id, timestamp=int(time))
    return name.file_name(OperatorFileKind.NORM_EXCEPTION)


def brief_exception(task_id: int, stream_id: int, time: str) -> str:
    """Return the name of the file of an operator that failed, without shapes and types.

    >>> brief_exception(3, 7, "20240112093000123")
    'exception_info.7.3.20240112093000123'
    """
    name = OperatorName(_BRIEF, task_id=task_id, stream_id=stream_id, timestamp=int(time))
    return name.file_name(OperatorFileKind.BRIEF_EXCEPTION)


def kernel_args(operator: OperatorRef) -> str:
    """Return the name of the file of an operator's arguments.

    >>> kernel_args(OperatorRef("MatMul", "Default/fc1-Dense/MatMul-op0"))
    'MatMul.Default_fc1-Dense_MatMul-op0.json'
    """
    return OperatorName(*_spelt(operator)).file_name(OperatorFileKind.ARGUMENTS)


def _spelt(operator: OperatorRef) -> tuple[str, str]:
    return names.sanitize(operator.op_type), names.sanitize(operator.full_name)


_COLLECTIVE: Final = "Hcom"  # HcomAllReduce, HcomBroadcast, ...


def is_collective(op_type: str) -> bool:
    """Return whether operators of a type exchange tensors between devices."""
    return op_type.startswith(_COLLECTIVE)
