"""Reads the protobuf messages of CANN's dump files.

A message becomes a dict by the attribute names of ``dump_message.MESSAGES``. The
bytes of tensors are not copied: their place is given. What is read is not trusted:
sizes are checked before they count, and the number of fields, the text and the
dimensions have limits, so that a small file cannot fill the memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from msdump.encode.dump_message import MESSAGES, RANGES, SHAPE_DIM, FieldKind, MessageField
from msdump.errors import DumpReadError
from msdump.wire import fields as wire_fields
from msdump.wire.faults import WireError, WireFault
from msdump.wire.fields import LENGTH, VARINT, tag_of
from msdump.wire.varints import read_varint

MOST_FIELDS: Final = 1 << 18
"""Enough for an operator of 20,000 tensors."""

MOST_TEXT: Final = 1 << 24
MOST_DIMENSIONS: Final = 64

_BY_NUMBER: Final = {name: {field.number: field for field in fields} for name, fields in MESSAGES.items()}
_DIMENSIONS: Final = frozenset({tag_of(SHAPE_DIM, VARINT), tag_of(SHAPE_DIM, LENGTH)})  # one, or packed
_FAULTS: Final[Mapping[WireFault, str]] = {
    WireFault.LONG_NUMBER: "no protobuf message: a number of more than ten bytes",
    WireFault.TORN_NUMBER: "truncated: the message ends inside a number",
    WireFault.FIELD_NUMBER: "no protobuf message: a field has the number {0.value}",
    WireFault.WIRE_TYPE: "no protobuf message: a field has the wire type {0.value}",
    WireFault.TORN_FIELD: "truncated: a field of {0.value} bytes, {0.left} are left",
}


@dataclass(slots=True)
class Parser:
    """Reads messages out of a file's bytes.

    Attributes:
        view: The bytes.
        source: Name of the file for messages.
        fields_left: How many more fields may come.
        text_left: How many more bytes of text may come.
    """

    view: memoryview
    source: str
    fields_left: int = MOST_FIELDS
    text_left: int = MOST_TEXT

    def read(self, message: str, start: int, end: int) -> dict[str, Any]:
        """Return the fields of a message by attribute.

        Numbers are int, texts str, shapes tuples of dimensions, messages dicts (or lists of dicts where the
        field repeats), and bytes are spans in the file.

        Fields that are not there are left out; unknown ones are skipped.

        Raises:
            DumpReadError: The bytes are no such message.
        """
        fields: dict[str, Any] = {}
        try:
            self._merge(message, start, end, fields)
        except WireError as error:
            raise self.fault(error.start, _FAULTS[error.fault].format(error)) from None
        return fields

    def _merge(self, message: str, offset: int, end: int, into: dict[str, Any]) -> None:
        by_number = _BY_NUMBER[message]
        for tag, value, body, stop in self._fields(offset, end):
            field = by_number.get(tag >> 3)
            if field is None:
                continue
            if tag & 7 == LENGTH:
                self._read_field(field, body, stop, into)
            elif tag & 7 == VARINT and field.kind in RANGES:
                into[field.attribute] = _fitted(value, field.kind)

    def _fields(self, offset: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield (tag, number that it holds, start of the value, end) of each field, and count it."""
        for tag, value, start, body, stop in wire_fields.fields(self.view, offset, end):
            self.fields_left -= 1
            if self.fields_left < 0:
                raise self.fault(start, f"more than the {MOST_FIELDS} fields allowed")
            yield tag, value, body, stop

    def _read_field(self, field: MessageField, offset: int, stop: int, into: dict[str, Any]) -> None:
        name = field.attribute
        match field.kind:
            case FieldKind.BYTES:
                into[name] = (offset, stop)
            case FieldKind.TEXT:
                into[name] = self._text(name, offset, stop)
            case FieldKind.SHAPE:
                into[name] = self._dims(offset, stop, into.get(name, ()))
            case FieldKind.MESSAGE:  # a message that comes twice is merged
                self._merge(field.of, offset, stop, into.setdefault(name, {}))
            case FieldKind.MESSAGES:
                into.setdefault(name, []).append(self.read(field.of, offset, stop))

    def _text(self, name: str, offset: int, stop: int) -> str:
        self.text_left -= stop - offset
        if self.text_left < 0:
            raise self.fault(offset, f"{name} goes beyond the {MOST_TEXT} bytes of text allowed")
        try:
            return str(self.view[offset:stop], "utf-8")
        except UnicodeDecodeError:
            raise self.fault(offset, f"{name} is no UTF-8 text") from None

    def _dims(self, offset: int, end: int, before: tuple[int, ...]) -> tuple[int, ...]:
        """Return the dimensions of a Shape message, after those of an earlier one."""
        dims = list(before)
        for tag, _, body, stop in self._fields(offset, end):
            if tag in _DIMENSIONS:
                self._packed(body, stop, dims)
        return tuple(dims)

    def _packed(self, offset: int, end: int, dims: list[int]) -> None:
        while offset < end:
            if len(dims) == MOST_DIMENSIONS:
                raise self.fault(offset, f"a shape of more than {MOST_DIMENSIONS} dimensions")
            size, offset = read_varint(self.view, offset, end)
            dims.append(size)

    def fault(self, offset: int, message: str) -> DumpReadError:
        """Return an error that names the file and the offset of the fault."""
        return DumpReadError(self.source, message, offset)


def _fitted(value: int, kind: FieldKind) -> int:
    """Return a number cut to its field's bits and read as signed where the field is, as protobuf does."""
    low, high = RANGES[kind]
    return (value - low & high - low) + low
