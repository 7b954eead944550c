r"""The names of tensor files, and how names spell operators and types.

    {op_type}.{op_name}.{task_id}.{stream_id}.{timestamp}.{io}.{slot}.{format}[.{dtype}].npy

``op_name`` is the full scoped name without ``/ \ .`` and spaces, or its last
component; the dtype field is absent, lower case or capitalised: both depend on
the generation of MindSpore and the device. Weights, graph inputs and constants
have the op_type ``Parameter``; a constant's op_name is ``data-{id}``. The names of
files of whole operators stand in ``operator_names``.
"""

from __future__ import annotations

import enum
import re
import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol

from msdump.dtypes import DType
from msdump.plan import DeviceTarget, Naming
from msdump.record import DEFAULT_FORMAT, IO, OperatorRef, TensorRecord
from msdump.store.templates import PART, TEXT, Field, Template

PARAMETER: Final = "Parameter"
SUFFIX: Final = ".npy"

_MOST_DIGITS: Final = 20
_COMMON_PARTS: Final = (9, 10)  # parts of a name without and with a dtype
_SIDES: Final = {io.value: io for io in IO}
DIGITS: Final = Field(f"[0-9]{{1,{_MOST_DIGITS}}}", int)
"""A number of a task, a stream, a time or a slot; other writers may put zeros before it."""

_FIELDS: Final = {
    "op_type": TEXT,
    # vendor: old versions keep the dots of a parameter's name; fields count from the right.
    "op_name": PART,
    "task_id": DIGITS,
    "stream_id": DIGITS,
    "timestamp": DIGITS,
    "io": Field("input|output", IO),
    "slot": DIGITS,
    "format": TEXT,
    "dtype": TEXT,
}
_BEFORE_TIME: Final = "{op_type}.{op_name}.{task_id}.{stream_id}."
_BEHIND_TIME: Final = f".{{io}}.{{slot}}.{{format}}[.{{dtype}}]{SUFFIX}"
_NAME: Final = Template(f"{_BEFORE_TIME}{{timestamp}}{_BEHIND_TIME}", _FIELDS)
_HEAD, _TAIL = Template(_BEFORE_TIME, _FIELDS), Template(_BEHIND_TIME, _FIELDS)
_FORBIDDEN: Final = re.compile(r"[^A-Za-z0-9_-]")


class DTypeField(enum.Enum):
    """Contents of the dtype field of a name."""

    ABSENT = enum.auto()
    NAME = enum.auto()
    TITLE = enum.auto()


@dataclass(frozen=True, slots=True)
class Style:
    """The style of names of one generation and device."""

    is_scoped: bool  # op_name is the full scoped name, not its last component
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

    >>> str(TensorName("Conv2D", "Default_conv1-op0", 1795216920861338, IO.INPUT, 2, dtype="float32"))
    'Conv2D.Default_conv1-op0.0.0.1795216920861338.input.2.DefaultFormat.float32.npy'
    """

    op_type: str  # operator type, or "Parameter"
    op_name: str  # operator name as files spell it
    timestamp: int
    io: IO
    slot: int  # index among the operator's inputs or outputs
    format: str = DEFAULT_FORMAT
    dtype: str | None = None  # element type as the name spells it, or None where the name has no such field
    task_id: int = 0  # task; 0 but for Ascend O2
    stream_id: int = 0  # stream; 0 but for Ascend

    def __str__(self) -> str:
        """Return the file name."""
        return _NAME.format(self)


def parse(name: str) -> TensorName | None:
    """Return the fields of a tensor file's name of any generation, None for another file.

    >>> parse("Add.Add-op3.0.0.1795216920861338.output.0.DefaultFormat.npy").op_name
    'Add-op3'
    """
    return _parse_common(name) or _parse_any(name)


def _parse_any(name: str) -> TensorName | None:
    fields = _NAME.parse(name)
    return None if fields is None else TensorName(**fields)


def _parse_common(name: str) -> TensorName | None:
    """Return the fields of a name without dots in op_name, None for every other name.

    A fast path: the template gives the same fields in ten times the time, and directories hold 100,000 names.
    """
    parts = name.split(".")
    if len(parts) not in _COMMON_PARTS:
        return None
    op_type, op_name, task_id, stream_id, timestamp, io, slot, form, *dtype, suffix = parts
    side = _SIDES.get(io)
    numbers = (task_id, stream_id, timestamp, slot)
    if side is None or suffix != SUFFIX[1:] or "/" in name or not all(parts) or not _are_digits(numbers):
        return None
    dtype_name = sys.intern(dtype[0]) if dtype else None
    # interned: many names hold the same few words
    op_type, op_name, form = map(sys.intern, (op_type, op_name, form))
    return TensorName(
        op_type, op_name, int(timestamp), side, int(slot), form, dtype_name, int(task_id), int(stream_id)
    )


def _are_digits(numbers: tuple[str, ...]) -> bool:
    digits = "".join(numbers)
    return digits.isascii() and digits.isdecimal() and max(map(len, numbers)) <= _MOST_DIGITS


@lru_cache(maxsize=8192)  # files and graphs have the same names, each looked up several times
def sanitize(name: str) -> str:
    r"""Return a name as files and ``statistic.csv`` spell it.

    Every ``/``, ``\``, ``.``, space and any other character outside
    ``[A-Za-z0-9_-]`` becomes one ``_``.

    >>> sanitize("Default/fc1-Dense/MatMul-op0")
    'Default_fc1-Dense_MatMul-op0'
    """
    return _FORBIDDEN.sub("_", name)


def op_name(operator: OperatorRef, style: Style) -> str:
    """Return the op_name field of an operator; a parameter is never cut to its last component.

    >>> op_name(OperatorRef("MatMul", "Default/fc1/MatMul-op0"), STYLES[Naming.V2_5, DeviceTarget.CPU])
    'Default_fc1_MatMul-op0'
    >>> op_name(OperatorRef("MatMul", "Default/fc1/MatMul-op0"), STYLES[Naming.CLASSIC, DeviceTarget.CPU])
    'MatMul-op0'
    """
    if style.is_scoped or operator.op_type == PARAMETER:
        return sanitize(operator.full_name)
    return sanitize(operator.full_name.rpartition("/")[2] or "/")


def dtype_field(dtype: DType, style: Style) -> str | None:
    """Return the dtype field of an element type, None where names have none: ``float32``, ``Float32``."""
    if style.dtype is DTypeField.ABSENT:
        return None
    return dtype.name if style.dtype is DTypeField.NAME else dtype.title


def constant(number: int) -> OperatorRef:
    """Return the identity of a graph's constant, ``Parameter.data-{number}`` in file names."""
    return OperatorRef(PARAMETER, f"data-{number}")


class NameTensor(Protocol):
    """Gives the file name of a tensor."""

    def __call__(self, record: TensorRecord, task_id: int = 0, stream_id: int = 0, /) -> str:
        """Return the name, given the task and the stream of a compiled graph's operator."""


def namer(naming: Naming, device_target: DeviceTarget) -> NameTensor:
    """Return the function that names tensor files.

    It keeps the parts before and behind the timestamp, so that a name costs well under a microsecond
    from the second step on.
    """
    style = STYLES[naming, device_target]
    heads: dict[tuple[str, str, int, int], str] = {}
    input_tails: dict[tuple[int, str, str], str] = {}
    output_tails: dict[tuple[int, str, str], str] = {}

    def file_name(record: TensorRecord, task_id: int = 0, stream_id: int = 0, /) -> str:
        key = (record.operator.op_type, record.operator.full_name, task_id, stream_id)
        head = heads.get(key)
        if head is None:
            head = heads[key] = _HEAD.format(_of_record(record, style, task_id, stream_id))
        tails = input_tails if record.io is IO.INPUT else output_tails
        form = (record.slot, record.format, record.dtype.name)
        tail = tails.get(form)
        if tail is None:
            tail = tails[form] = _TAIL.format(_of_record(record, style, task_id, stream_id))
        return f"{head}{record.timestamp}{tail}"

    return file_name


def _of_record(record: TensorRecord, style: Style, task_id: int, stream_id: int) -> TensorName:
    return TensorName(
        sanitize(record.operator.op_type),
        op_name(record.operator, style),
        record.timestamp,
        record.io,
        record.slot,
        record.format,
        dtype_field(record.dtype, style),
        task_id,
        stream_id,
    )
