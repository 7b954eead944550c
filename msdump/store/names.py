r"""The grammars of the names of dump files, in both directions.

One tensor, and one operator with all its tensors (Ascend O2, acl):

    {op_type}.{op_name}.{task_id}.{stream_id}.{timestamp}.{io}.{slot}.{format}[.{dtype}].npy
    {op_type}.{op_name}.{task_id}.{stream_id}.{timestamp}[.{task_type}.{context}.{thread}.{device}]

``op_name`` is the full scoped name without ``/ \ .`` and spaces, or its last
component; the dtype field is absent, lower case or capitalised: both depend on
the generation of MindSpore and the device. Weights, graph inputs and constants
have the op_type ``Parameter``; a constant's op_name is ``data-{id}``.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msdump.encode import op_debug
from msdump.plan import DeviceTarget, Naming
from msdump.record import DEFAULT_FORMAT, IO, OperatorRef

if TYPE_CHECKING:
    from msdump.dtypes import DType
    from msdump.record import TensorRecord

PARAMETER: Final = "Parameter"
OP_DEBUG: Final = OperatorRef(op_debug.OP_TYPE, op_debug.NODE)
"""The identity of the file that tells of an overflow (``op_debug_mode`` 3 under O2, acl ``dump_debug``)."""

SUFFIX: Final = ".npy"

_FIELDS: Final = {
    "op_type": r"[^./]+",
    # vendor: old versions keep the dots of a parameter's name; fields count from the right.
    "op_name": r"[^/]+",
    "task_id": r"[0-9]{1,20}",
    "stream_id": r"[0-9]{1,20}",
    "timestamp": r"[0-9]{1,20}",
    "io": "input|output",
    "slot": r"[0-9]{1,20}",
    "format": r"[^./]+",
}
_DTYPE: Final = r"[^./]+"
_NAME: Final = re.compile(
    r"\.".join(f"(?P<{field}>{pattern})" for field, pattern in _FIELDS.items())
    + rf"(?:\.(?P<dtype>{_DTYPE}))?{re.escape(SUFFIX)}",
    re.DOTALL,
)
_OPERATOR_FIELDS: Final = {
    "op_type": r"[^./]+",
    "op_name": r"[^./]+",
    "task_id": r"[0-9]{1,20}",
    "stream_id": r"[0-9]{1,20}",
    "timestamp": r"[0-9]{1,20}",
}
_OPERATOR: Final = re.compile(
    r"\.".join(f"(?P<{field}>{pattern})" for field, pattern in _OPERATOR_FIELDS.items())
    + r"(?P<suffix>(?:\.[0-9]{1,20}){3,4})?",
    re.DOTALL,
)
_BRIEF_EXCEPTION: Final = "exception_info"
_EXCEPTION: Final = re.compile(
    rf"(?:{_BRIEF_EXCEPTION}\.(?P<stream_id>[0-9]{{1,20}})\.(?P<task_id>[0-9]{{1,20}})"
    r"|(?P<op_type>[^./]+)\.(?P<op_name>[^./]+)\.(?P<norm_task_id>[0-9]{1,20}))\.(?P<time>[0-9]{17})",
    re.DOTALL,
)
_OP_DEBUG_JSON: Final = ".output.0.json"
_KERNEL_ARGS: Final = re.compile(r"([^./]+)\.([^./]+)\.json", re.DOTALL)
_FORBIDDEN: Final = re.compile(r"[^A-Za-z0-9_-]")


class DTypeField(enum.Enum):
    """What the dtype field of a name holds."""

    ABSENT = enum.auto()
    NAME = enum.auto()
    TITLE = enum.auto()


@dataclass(frozen=True, slots=True)
class Style:
    """What distinguishes the names of one generation and device.

    Attributes:
        is_scoped: op_name is the full scoped name, not its last component.
        dtype: How the element type is spelled.
    """

    is_scoped: bool
    dtype: DTypeField


_CLASSIC: Final = Style(is_scoped=False, dtype=DTypeField.ABSENT)
_SCOPED: Final = Style(is_scoped=True, dtype=DTypeField.ABSENT)
_TYPED: Final = Style(is_scoped=True, dtype=DTypeField.NAME)
_TITLED: Final = Style(is_scoped=True, dtype=DTypeField.TITLE)

STYLES: Final = {
    (Naming.CLASSIC, DeviceTarget.CPU): _CLASSIC,
    (Naming.CLASSIC, DeviceTarget.GPU): _CLASSIC,
    (Naming.CLASSIC, DeviceTarget.ASCEND): _CLASSIC,
    (Naming.V2_5, DeviceTarget.CPU): _SCOPED,
    (Naming.V2_5, DeviceTarget.GPU): _SCOPED,
    (Naming.V2_5, DeviceTarget.ASCEND): _TYPED,
    (Naming.V2_7, DeviceTarget.CPU): _TITLED,
    (Naming.V2_7, DeviceTarget.GPU): _TITLED,
    (Naming.V2_7, DeviceTarget.ASCEND): _TYPED,
}


@dataclass(frozen=True, slots=True)
class TensorName:
    """The fields of a tensor file's name; ``str`` gives the name.

    Attributes:
        op_type: Operator type, or "Parameter".
        op_name: Operator name as files spell it.
        timestamp: Microseconds since the epoch.
        io: Input or output.
        slot: Index among the operator's inputs or outputs.
        format: Memory format.
        dtype: Element type as the name spells it, or None where the name has no such field.
        task_id: Task; 0 but for Ascend O2.
        stream_id: Stream; 0 but for Ascend.
    """

    op_type: str
    op_name: str
    timestamp: int
    io: IO
    slot: int
    format: str = DEFAULT_FORMAT
    dtype: str | None = None
    task_id: int = 0
    stream_id: int = 0

    def __str__(self) -> str:
        """Return the file name."""
        fields = [str(getattr(self, field)) for field in _FIELDS]
        if self.dtype is not None:
            fields.append(self.dtype)
        return ".".join(fields) + SUFFIX


def parse(name: str) -> TensorName | None:
    """Return the fields of a tensor file's name of any generation, None for another file."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    op_type, op_name, task_id, stream_id, timestamp, io, slot, memory_format, dtype = match.groups()
    return TensorName(
        op_type,
        op_name,
        int(timestamp),
        IO.INPUT if io == "input" else IO.OUTPUT,
        int(slot),
        memory_format,
        dtype,
        int(task_id),
        int(stream_id),
    )


@dataclass(frozen=True, slots=True)
class OperatorName:
    """The fields of the name of an operator's file; ``str`` gives the name.

    Attributes:
        op_type: Operator type.
        op_name: Operator name as files spell it.
        task_id: Task.
        stream_id: Stream.
        timestamp: Microseconds since the epoch.
        suffix: Task type, context, thread and device of an FFTS+ task, else nothing.
    """

    op_type: str
    op_name: str
    task_id: int
    stream_id: int
    timestamp: int
    suffix: tuple[int, ...] = ()

    @property
    def is_op_debug(self) -> bool:
        """Whether the file tells of an overflow."""
        return self.op_type == OP_DEBUG.op_type

    def __str__(self) -> str:
        """Return the file name."""
        fields = (*(getattr(self, field) for field in _OPERATOR_FIELDS), *self.suffix)
        return ".".join(map(str, fields))


def parse_operator(name: str) -> OperatorName | None:
    """Return the fields of the name of an operator's file, None for another file."""
    match = _OPERATOR.fullmatch(name)
    if match is None:
        return None
    op_type, op_name, task_id, stream_id, timestamp, suffix = match.groups()
    return OperatorName(
        op_type,
        op_name,
        int(task_id),
        int(stream_id),
        int(timestamp),
        tuple(map(int, (suffix or "").split(".")[1:])),
    )


def parse_op_debug_json(name: str) -> OperatorName | None:
    """Return the fields of ``Opdebug.Node_OpDebug....output.0.json``, None for another file."""
    found = parse_operator(name.removesuffix(_OP_DEBUG_JSON)) if name.endswith(_OP_DEBUG_JSON) else None
    return found if found is not None and found.is_op_debug else None


def op_debug_json_name(name: OperatorName) -> str:
    """Return the name of the JSON form of a file that tells of an overflow."""
    return f"{name}{_OP_DEBUG_JSON}"


def operator_name(
    operator: OperatorRef, style: Style, task_id: int, stream_id: int, timestamp: int
) -> OperatorName:
    """Return the name of an operator's file."""
    return OperatorName(sanitize(operator.op_type), op_name(operator, style), task_id, stream_id, timestamp)


def norm_exception(operator: OperatorRef, task_id: int, time: str) -> str:
    """Return the name of the file of an operator that failed, with its shapes and types.

    Args:
        operator: The operator.
        task_id: Its task.
        time: Local time, ``YYYYMMDDHHMMSSmmm``.
    """
    return f"{sanitize(operator.op_type)}.{sanitize(operator.full_name)}.{task_id}.{time}"


def brief_exception(task_id: int, stream_id: int, time: str) -> str:
    """Return the name of the file of an operator that failed, without shapes and types."""
    return f"{_BRIEF_EXCEPTION}.{stream_id}.{task_id}.{time}"


def parse_exception(name: str) -> OperatorName | None:
    """Return the fields of the file of an operator that failed; its time stands for the timestamp.

    A file without shapes and types has the operator type ``exception_info`` and no operator name,
    one with them has stream 0.
    """
    match = _EXCEPTION.fullmatch(name)
    if match is None:
        return None
    if match["stream_id"] is None:
        return OperatorName(
            match["op_type"], match["op_name"], int(match["norm_task_id"]), 0, int(match["time"])
        )
    return OperatorName(
        _BRIEF_EXCEPTION, "", int(match["task_id"]), int(match["stream_id"]), int(match["time"])
    )


def of_operator(name: OperatorName, record: TensorRecord, style: Style) -> TensorName:
    """Return the name of one tensor of an operator's file (``file_format`` npy under O2)."""
    return TensorName(
        name.op_type,
        name.op_name,
        name.timestamp,
        record.io,
        record.slot,
        record.format,
        dtype_field(record.dtype, style),
        name.task_id,
        name.stream_id,
    )


def sanitize(name: str) -> str:
    r"""Return a name as files and ``statistic.csv`` spell it.

    Every ``/``, ``\``, ``.``, space and any other character outside
    ``[A-Za-z0-9_-]`` becomes one ``_``.
    """
    return _FORBIDDEN.sub("_", name)


def op_name(operator: OperatorRef, style: Style) -> str:
    """Return the op_name field of an operator; a parameter is never cut to its last component."""
    if style.is_scoped or operator.op_type == PARAMETER:
        return sanitize(operator.full_name)
    return sanitize(operator.full_name.rpartition("/")[2] or "/")


def dtype_field(dtype: DType, style: Style) -> str | None:
    """Return the dtype field of an element type, None where names have none."""
    if style.dtype is DTypeField.ABSENT:
        return None
    return dtype.name if style.dtype is DTypeField.NAME else dtype.title


def constant(number: int) -> OperatorRef:
    """Return the identity of a graph's constant, ``Parameter.data-{number}`` in file names."""
    return OperatorRef(PARAMETER, f"data-{number}")


def parse_kernel_args_name(name: str) -> tuple[str, str] | None:
    """Return op_type and op_name of a file of operator arguments, None for another file."""
    match = _KERNEL_ARGS.fullmatch(name)
    return None if match is None else (match[1], match[2])


def kernel_args_name(operator: OperatorRef) -> str:
    """Return the file name of an operator's arguments, ``{op_type}.{op_name}.json``."""
    return f"{sanitize(operator.op_type)}.{sanitize(operator.full_name)}.json"


NameTensor = Callable[["TensorRecord"], str]
"""Gives the file name of a tensor."""


def namer(naming: Naming, device_target: DeviceTarget) -> NameTensor:
    """Return the function that names tensor files.

    It keeps the parts of a name that come again, so that a name costs well
    under a microsecond from the second step on.
    """
    style = STYLES[naming, device_target]
    heads: dict[OperatorRef, str] = {}
    input_tails: dict[tuple[int, str, str], str] = {}
    output_tails: dict[tuple[int, str, str], str] = {}

    def file_name(record: TensorRecord) -> str:
        head = heads.get(record.operator)
        if head is None:
            head = heads[record.operator] = _head(record.operator, style)
        tails = input_tails if record.io is IO.INPUT else output_tails
        key = (record.slot, record.format, record.dtype.name)
        tail = tails.get(key)
        if tail is None:
            tail = tails[key] = _tail(record, style)
        return f"{head}{record.timestamp}{tail}"

    return file_name


def _head(operator: OperatorRef, style: Style) -> str:
    return f"{sanitize(operator.op_type)}.{op_name(operator, style)}.0.0."


def _tail(record: TensorRecord, style: Style) -> str:
    fields = [record.io, str(record.slot), record.format]
    dtype = dtype_field(record.dtype, style)
    if dtype is not None:
        fields.append(dtype)
    return f".{'.'.join(fields)}{SUFFIX}"
