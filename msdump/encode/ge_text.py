"""GE's graph files: messages as protobuf's text form and as the JSON that ``atc --mode=5`` makes of it.

A message is a list of pairs, field and value, in the order of its fields' numbers; a field
that repeats stands once for each value.

    >>> attribute = [("key", "kind"), ("value", [("i", 1)])]
    >>> message = [("name", "relu"), ("attr", attribute), ("dtype", Symbol("DT_FLOAT"))]
    >>> print(b"".join(text(message)).decode(), end="")
    name: "relu"
    attr {
      key: "kind"
      value {
        i: 1
      }
    }
    dtype: DT_FLOAT
    >>> "".join(json_text(message).decode().split())
    '{"name":"relu","attr":[{"key":"kind","value":{"i":1}}],"dtype":"DT_FLOAT"}'
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np


class Symbol(str):
    """The name of an enumeration's member: text files spell it without quotes."""

    __slots__ = ()


Message = list[tuple[str, Any]]
"""Values are messages, symbols, texts, truth values, numbers, and arrays, which stand for their bytes."""

LIST_TYPES: Final = (
    *("VT_LIST_NONE", "VT_LIST_STRING", "VT_LIST_INT", "VT_LIST_FLOAT", "VT_LIST_BOOL", "VT_LIST_BYTES"),
    *("VT_LIST_TENSOR_DESC", "VT_LIST_TENSOR", "VT_LIST_GRAPH", "VT_LIST_NAMED_ATTRS", "VT_LIST_DATA_TYPE"),
)
"""Names of the types that a list attribute can hold, in the order of their numbers in GE's ListValueType."""

# arrays in JSON even where they have one value
_REPEATED: Final = frozenset(
    {"graph", "input", "output", "op", "attr", "input_desc", "output_desc", "dim", "subgraph_name"}
)
_LIST: Final = "list"
_LIST_TYPE: Final = "val_type"
_BYTES_AT_ONCE: Final = 1 << 20  # of a tensor: its text is four times as long
_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "'": "\\'", "\\": "\\\\"}
# A look-up table lets numpy escape all bytes of a weight at once.
_OCTAL: Final = np.array([f"\\{byte:03o}" for byte in range(256)], "S4")


def text(message: Message, indent: str = "") -> Iterator[bytes]:
    """Yield the pieces of protobuf's text form of a message."""
    for name, value in message:
        if isinstance(value, list):
            yield f"{indent}{name} {{\n".encode()
            yield from text(value, f"{indent}  ")
            yield f"{indent}}}\n".encode()
        elif isinstance(value, np.ndarray):
            yield f'{indent}{name}: "'.encode()
            # in pieces: a weight's text need not be in memory as a whole
            yield from _escaped_bytes(value)
            yield b'"\n'
        else:
            yield f"{indent}{name}: {_scalar(value)}\n".encode()


def _escaped_bytes(array: np.ndarray) -> Iterator[bytes]:
    raw = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
    for start in range(0, raw.size, _BYTES_AT_ONCE):
        yield _OCTAL[raw[start : start + _BYTES_AT_ONCE]].tobytes()


def _scalar(value: Any) -> str:
    if isinstance(value, Symbol):
        return str(value)
    if isinstance(value, str):
        return f'"{"".join(map(_escaped, value))}"'
    # before numbers: a bool is an int to Python
    if isinstance(value, bool):
        return str(value).lower()
    return _number(value) if isinstance(value, float) else str(value)


def _escaped(letter: str) -> str:
    if letter in _ESCAPES:
        return _ESCAPES[letter]
    if letter.isascii() and letter.isprintable():
        return letter
    # protobuf escapes the bytes of UTF-8, not the letters
    return "".join(f"\\{byte:03o}" for byte in letter.encode())


def _number(value: float) -> str:
    """Return a float as protobuf spells it: the shortest text that gives the same float32."""
    return str(np.float32(value)) if math.isfinite(value) else repr(value)


def json_text(message: Message) -> bytes:
    """Return the JSON of a message, two spaces of indent; tensor data are left out."""
    return json.dumps(_object(message, in_list=False), indent=2, ensure_ascii=False).encode()


def _object(message: Message, *, in_list: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in message:
        if isinstance(value, np.ndarray):
            continue
        shown = _shown(name, value)
        if name in _REPEATED or (in_list and name != _LIST_TYPE):
            fields.setdefault(name, []).append(shown)
        else:
            fields[name] = shown
    return fields


def _shown(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return _object(value, in_list=name == _LIST)
    if name == _LIST_TYPE:
        return LIST_TYPES.index(value)
    return _number(value) if isinstance(value, float) and not math.isfinite(value) else value
