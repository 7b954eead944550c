"""Reads the protobuf messages of CANN's dump files.

A message becomes a dict by the attribute names of ``dump_message.MESSAGES``. The
bytes of tensors are not copied: their place is given. What is read is not trusted:
sizes are checked before they count, and the number of fields, the text and the
dimensions have limits, so that a small file cannot fill the memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from msdump.encode.dump_message import ALL_BITS, LENGTH, MESSAGES, RANGES, SHAPE_DIM, VARINT, Field, FieldKind
from msdump.errors import DumpReadError

Span = tuple[int, int]
"""Start and end of bytes in a file."""

MOST_FIELDS: Final = 1 << 18
"""Enough for an operator of 20,000 tensors."""

MOST_TEXT: Final = 1 << 24
MOST_DIMENSIONS: Final = 64

_FIXED_SIZES: Final = {1: 8, 5: 4}
_BY_NUMBER: Final = {name: {field.number: field for field in fields} for name, fields in MESSAGES.items()}
_DIMENSIONS: Final = frozenset({SHAPE_DIM << 3 | VARINT, SHAPE_DIM << 3 | LENGTH})  # one, or packed
_HIGHEST_TAG: Final = (1 << 32) - 1


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
        """Return the fields of a message by attribute: numbers, texts, tuples of dimensions, dicts, spans.

        Fields that are not there are left out; unknown ones are skipped.

        Raises:
            DumpReadError: The bytes are no such message.
        """
        fields: dict[str, Any] = {}
        self._merge(message, start, end, fields)
        return fields

    def _merge(self, message: str, at: int, end: int, into: dict[str, Any]) -> None:
        known = _BY_NUMBER[message]
        while at < end:
            start = at
            tag, at = self._tag(at, end)
            wire = tag & 7
            field = known.get(tag >> 3)
            if wire == VARINT:
                value, at = self.varint(at, end)
                if field is not None and field.kind in RANGES:
                    into[field.attribute] = _fitted(value, field.kind)
                continue
            at, stop = self._body(wire, start, at, end)
            if wire == LENGTH and field is not None:
                self._take(field, at, stop, into)
            at = stop

    def _tag(self, at: int, end: int) -> Span:
        """Return number and wire type of a field, and where they end."""
        tag, after = self.varint(at, end)
        if tag >> 3 == 0 or tag > _HIGHEST_TAG:
            raise self.fault(at, f"no protobuf message: a field has the number {tag >> 3}")
        self.fields_left -= 1
        if self.fields_left < 0:
            raise self.fault(at, f"more than the {MOST_FIELDS} fields allowed")
        return tag, after

    def _body(self, wire: int, start: int, at: int, end: int) -> Span:
        """Return where the value of a field lies."""
        if wire == LENGTH:
            size, at = self.varint(at, end)
        elif wire in _FIXED_SIZES:
            size = _FIXED_SIZES[wire]
        else:
            raise self.fault(start, f"no protobuf message: a field has the wire type {wire}")
        if size > end - at:
            raise self.fault(start, f"truncated: a field of {size} bytes, {end - at} are left")
        return at, at + size

    def _take(self, field: Field, at: int, stop: int, into: dict[str, Any]) -> None:
        name = field.attribute
        match field.kind:
            case FieldKind.BYTES:
                into[name] = (at, stop)
            case FieldKind.TEXT:
                into[name] = self._text(name, at, stop)
            case FieldKind.SHAPE:
                into[name] = self._dims(at, stop, into.get(name, ()))
            case FieldKind.MESSAGE:  # a message that comes twice is merged
                self._merge(field.of, at, stop, into.setdefault(name, {}))
            case FieldKind.MESSAGES:
                into.setdefault(name, []).append(self.read(field.of, at, stop))

    def _text(self, name: str, at: int, stop: int) -> str:
        self.text_left -= stop - at
        if self.text_left < 0:
            raise self.fault(at, f"{name} goes beyond the {MOST_TEXT} bytes of text allowed")
        try:
            return str(self.view[at:stop], "utf-8")
        except UnicodeDecodeError:
            raise self.fault(at, f"{name} is no UTF-8 text") from None

    def _dims(self, at: int, end: int, before: tuple[int, ...]) -> tuple[int, ...]:
        """Return the dimensions of a Shape message, after those of an earlier one."""
        dims = list(before)
        while at < end:
            start = at
            tag, at = self._tag(at, end)
            if tag & 7 == VARINT:
                stop = self.varint(at, end)[1]
            else:
                at, stop = self._body(tag & 7, start, at, end)
            if tag in _DIMENSIONS:
                self._packed(at, stop, dims)
            at = stop
        return tuple(dims)

    def _packed(self, at: int, end: int, dims: list[int]) -> None:
        while at < end:
            if len(dims) == MOST_DIMENSIONS:
                raise self.fault(at, f"a shape of more than {MOST_DIMENSIONS} dimensions")
            size, at = self.varint(at, end)
            dims.append(size)

    def varint(self, at: int, end: int) -> tuple[int, int]:
        """Return a number of at most 64 bits and where it ends."""
        value = shift = 0
        start = at
        view = self.view
        while at < end:
            byte = view[at]
            value |= (byte & 0x7F) << shift
            at += 1
            if byte < 0x80:  # noqa: PLR2004 - the continuation bit of a varint
                return value & ALL_BITS, at
            shift += 7
            if shift > 63:  # noqa: PLR2004 - a varint has at most ten bytes
                raise self.fault(start, "no protobuf message: a number of more than ten bytes")
        raise self.fault(start, "truncated: the message ends inside a number")

    def fault(self, at: int, message: str) -> DumpReadError:
        """Return the error of a byte."""
        return DumpReadError(self.source, message, at)


def _fitted(value: int, kind: FieldKind) -> int:
    """Return a number cut to its field's bits, as protobuf does."""
    low, high = RANGES[kind]
    return (value - low & high - low) + low
