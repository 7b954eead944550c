"""GE's graph files: attribute names that refer to the original network, and the text forms of messages.

Messages are written in protobuf's text form, and as the JSON that ``atc --mode=5`` converts it to. A message
is a list of pairs, field and value, in the order of the fields' numbers; a repeated field has a pair for
each value.

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

GE's ``ge_onnx*.pbtxt``: a ModelDef as ONNX's ModelProto, for viewers such as Netron.

Operator types stand behind ``ge:``. Facts without a field in ONNX - formats, element
types, numbers of streams - are attributes: ``input_desc_layout:0``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.encode import dump_message

DATA: Final = "Data"
"""Type of the operator that stands for an input of a network."""

NET_OUTPUT: Final = "NetOutput"
"""Type of the operator that stands for the outputs of a network."""

ORIGINAL_NAMES: Final = "_datadump_original_op_names"
"""Attribute of an operator: names of the operators of the original network that it stands for."""

IS_PART_OF_SEVERAL: Final = "_datadump_is_multiop"
"""Attribute of an operator: it is one of several that stand for one of the original network."""

ORIGIN_NAME: Final = "_datadump_origin_name"
ORIGIN_INDEX: Final = "_datadump_origin_output_index"
ORIGIN_DTYPE: Final = "_datadump_origin_data_type"
ORIGIN_FORMAT: Final = "_datadump_origin_format"
"""Attributes of an output: name of the original operator, number, type and format of its output."""

HOST_FORMAT: Final = "origin_format"
HOST_SHAPE: Final = "origin_shape"
"""Attributes of an input or output: format and shape as the model has them."""


class Symbol(str):
    """The name of an enumeration's member, which protobuf's text form writes without quotes."""

    __slots__ = ()


Message = list[tuple[str, Any]]
"""Values are messages, symbols, texts, truth values, numbers, and arrays, which stand for their bytes."""

LIST_TYPES: Final = (
    *("VT_LIST_NONE", "VT_LIST_STRING", "VT_LIST_INT", "VT_LIST_FLOAT", "VT_LIST_BOOL", "VT_LIST_BYTES"),
    *("VT_LIST_TENSOR_DESC", "VT_LIST_TENSOR", "VT_LIST_GRAPH", "VT_LIST_NAMED_ATTRS", "VT_LIST_DATA_TYPE"),
)
"""Names of the types that a list attribute can hold, in the order of their numbers in GE's ListValueType."""

# repeated fields: arrays in JSON even with one value
_REPEATED: Final = frozenset(
    {"graph", "input", "output", "op", "attr", "input_desc", "output_desc", "dim", "subgraph_name"}
)
_LIST: Final = "list"
_LIST_TYPE: Final = "val_type"
_BYTES_AT_ONCE: Final = 1 << 20  # of a tensor, escaped at a time: the text has four characters per byte
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
            raw = np.frombuffer(np.ascontiguousarray(value).tobytes(), np.uint8)
            yield f'{indent}{name}: "'.encode()
            # piece by piece, so that a large weight's text is never in memory as a whole
            for start in range(0, raw.size, _BYTES_AT_ONCE):
                yield _OCTAL[raw[start : start + _BYTES_AT_ONCE]].tobytes()
            yield b'"\n'
        else:
            yield f"{indent}{name}: {_scalar(value)}\n".encode()


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
        shown: Any
        if isinstance(value, list):
            shown = _object(value, in_list=name == _LIST)
        elif name == _LIST_TYPE:
            shown = LIST_TYPES.index(value)
        else:
            shown = _number(value) if isinstance(value, float) and not math.isfinite(value) else value
        if name in _REPEATED or (in_list and name != _LIST_TYPE):
            fields.setdefault(name, []).append(shown)
        else:
            fields[name] = shown
    return fields


_IR_VERSION: Final = 6
_LISTS: Final = {"s": ("strings", "STRINGS"), "i": ("ints", "INTS"), "f": ("floats", "FLOATS")}
_SINGLES: Final = {"s": ("s", "STRING"), "i": ("i", "INT"), "f": ("f", "FLOAT")}
# ONNX's number of an element type by the name that GE's ModelDef has for it
_ELEMENTS: Final = {
    dump_message.data_type_name(row.dump): row.onnx for row in dtypes.DTYPES if row.dump is not None
}


def onnx_model(model: Message, *, only_relations: bool = False) -> Message:
    """Return the ModelProto of a ModelDef, its first graph as main graph; optionally without attributes."""
    graphs = {_only(graph, "name"): graph for graph in _all(model, "graph")}
    main = next(iter(graphs.values()))
    translated = _Translation(graphs, only_relations=only_relations).graph(main)
    return [("ir_version", _IR_VERSION), ("producer_name", "GE"), ("graph", translated)]


class _Translation:
    """Translates the graphs of one ModelDef, which refer to subgraphs by name."""

    def __init__(self, graphs: dict[str, Message], *, only_relations: bool) -> None:
        self._graphs = graphs
        self._only_relations = only_relations

    def graph(self, graph: Message) -> Message:
        """Return a GraphProto, with subgraphs nested as attributes of their operators."""
        ops = list(_all(graph, "op"))
        producers = {_only(op, "name"): op for op in ops}
        sources = (value.rpartition(":")[0] for value in _all(graph, "input"))  # names are operator:slot
        inputs = [("input", _value(name, producers[name])) for name in sources]
        outputs = [("output", [("name", name)]) for name in _all(graph, "output")]
        return [*(("node", self._node(op)) for op in ops), ("name", _only(graph, "name")), *inputs, *outputs]

    def _node(self, op: Message) -> Message:
        name = _only(op, "name")
        results = [("output", f"{name}:{slot}") for slot, _ in enumerate(_all(op, "output_desc"))]
        head = [
            *(("input", source) for source in _all(op, "input")),
            *results,
            ("name", name),
            ("op_type", f"ge:{_only(op, 'type')}"),
        ]
        if self._only_relations:
            return head
        return [*head, *(("attribute", attribute) for attribute in self._attributes(op))]

    def _attributes(self, op: Message) -> Iterator[Message]:
        for attribute in _all(op, "attr"):
            key = _only(attribute, "key")
            value = _only(attribute, "value")
            (field, content), *_ = value
            if field == "list":
                items = [(field, item) for field, item in content if field != "val_type"]
                # an empty list does not state the type of its items: strings are assumed
                kind = items[0][0] if items else "s"
                name, symbol = _LISTS["i" if kind == "b" else kind]
                shown = [(name, int(item) if kind == "b" else item) for _, item in items]
                yield [("name", key), *shown, ("type", Symbol(symbol))]
            elif field == "t":
                described, data = _only(content, "desc"), _only(content, "data")
                dims = [("dims", size) for size in _all(_only(described, "shape"), "dim")]
                yield [
                    ("name", key),
                    ("t", [*dims, ("data_type", _element(described)), ("raw_data", data)]),
                    ("type", Symbol("TENSOR")),
                ]
            elif field == "b":  # ONNX has no boolean attributes
                yield _single(key, "i", int(content))
            else:
                yield _single(key, field, content)
        # facts without a field in ONNX's NodeProto
        yield _single("id", "i", _only(op, "id"))
        yield _single("stream_id", "i", _only(op, "stream_id", 0))
        for side in ("input_desc", "output_desc"):
            for slot, described in enumerate(_all(op, side)):
                origin = {
                    _only(attribute, "key"): _only(attribute, "value")
                    for attribute in _all(described, "attr")
                }
                yield _single(f"{side}_dtype:{slot}", "s", str(_only(described, "dtype")))
                yield _ints(f"{side}_shape:{slot}", _all(_only(described, "shape"), "dim"))
                yield _ints(f"{side}_origin_shape:{slot}", _all(_only(origin[HOST_SHAPE], "list"), "i"))
                yield _single(f"{side}_layout:{slot}", "s", _only(described, "layout"))
                yield _single(f"{side}_origin_layout:{slot}", "s", _only(origin[HOST_FORMAT], "s"))
                yield _single(f"{side}_size:{slot}", "i", _only(described, "size", 0))
        for name in _all(op, "subgraph_name"):
            yield [("name", name), ("g", self.graph(self._graphs[name])), ("type", Symbol("GRAPH"))]


def _single(key: str, kind: str, value: Any) -> Message:
    field, symbol = _SINGLES[kind]
    return [("name", key), (field, value), ("type", Symbol(symbol))]


def _ints(key: str, values: Iterator[int]) -> Message:
    return [("name", key), *(("ints", value) for value in values), ("type", Symbol("INTS"))]


def _value(name: str, op: Message) -> Message:
    described = next(_all(op, "output_desc"))
    sizes = (("dim", [("dim_value", size)]) for size in _all(_only(described, "shape"), "dim"))
    tensor = [("elem_type", _element(described)), ("shape", list(sizes))]
    return [("name", f"{name}:0"), ("type", [("tensor_type", tensor)])]


def _element(described: Message) -> int:
    return _ELEMENTS.get(str(_only(described, "dtype")), 0)


def _all(message: Message, name: str) -> Iterator[Any]:
    return (value for field, value in message if field == name)


def _only(message: Message, name: str, default: Any = None) -> Any:
    return next(_all(message, name), default)
