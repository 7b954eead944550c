"""GE's ``ge_onnx*.pbtxt``: a ModelDef as ONNX's ModelProto, for viewers such as Netron.

Operator types stand behind ``ge:``. What ONNX has no field for - formats, element
types, numbers of streams - stands in attributes: ``input_desc_layout:0``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from msdump import dtypes
from msdump.encode import dump_enums, ge_names
from msdump.encode.ge_text import Message, Symbol

_IR_VERSION: Final = 6
_LISTS: Final = {"s": ("strings", "STRINGS"), "i": ("ints", "INTS"), "f": ("floats", "FLOATS")}
_SINGLES: Final = {"s": ("s", "STRING"), "i": ("i", "INT"), "f": ("f", "FLOAT")}
# ONNX's number of an element type by the name that GE's ModelDef has for it
_ELEMENTS: Final = {
    dump_enums.data_type_name(row.dump): row.onnx for row in dtypes.DTYPES if row.dump is not None
}


def onnx_model(model: Message, *, only_relations: bool = False) -> Message:
    """Return the ModelProto of a ModelDef.

    Args:
        model: A ModelDef; its first graph is the main one.
        only_relations: Operators have names, types and producers only.
    """
    graphs = {_only(graph, "name"): graph for graph in _all(model, "graph")}
    main = next(iter(graphs.values()))
    translated = _Translation(graphs, only_relations=only_relations).graph(main)
    return [("ir_version", _IR_VERSION), ("producer_name", "GE"), ("graph", translated)]


class _Translation:
    """Translates the graphs of one ModelDef, which name each other."""

    def __init__(self, graphs: dict[str, Message], *, only_relations: bool) -> None:
        self._graphs = graphs
        self._only_relations = only_relations

    def graph(self, graph: Message) -> Message:
        """Return a GraphProto; subgraphs stand in the attributes of their operators."""
        ops = list(_all(graph, "op"))
        producers = {_only(op, "name"): op for op in ops}
        inputs = [("input", _value(name, producers[name])) for name in map(_producer, _all(graph, "input"))]
        outputs = [("output", [("name", name)]) for name in _all(graph, "output")]
        return [
            *(("node", self._node(op)) for op in ops),
            ("name", _only(graph, "name")),
            *inputs,
            *outputs,
        ]

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
            yield from _translated(_only(attribute, "key"), _only(attribute, "value"))
        # no field of ONNX's NodeProto holds what follows
        yield _single("id", "i", _only(op, "id"))
        yield _single("stream_id", "i", _only(op, "stream_id", 0))
        for side in ("input_desc", "output_desc"):
            for slot, described in enumerate(_all(op, side)):
                yield from _description(side, slot, described)
        for name in _all(op, "subgraph_name"):
            yield [("name", name), ("g", self.graph(self._graphs[name])), ("type", Symbol("GRAPH"))]


def _translated(key: str, value: Message) -> Iterator[Message]:
    (field, content), *_ = value
    if field == "list":
        yield from _listed(key, content)
    elif field == "t":
        yield [("name", key), ("t", _tensor(content)), ("type", Symbol("TENSOR"))]
    # ONNX's attributes know no truth values
    elif field == "b":
        yield _single(key, "i", int(content))
    else:
        yield _single(key, field, content)


def _listed(key: str, listed: Message) -> Iterator[Message]:
    items = [(field, item) for field, item in listed if field != "val_type"]
    # an empty list does not say what it would hold
    kind = items[0][0] if items else "s"
    name, symbol = _LISTS["i" if kind == "b" else kind]
    shown = [(name, int(item) if kind == "b" else item) for _, item in items]
    yield [("name", key), *shown, ("type", Symbol(symbol))]


def _single(key: str, kind: str, value: Any) -> Message:
    field, symbol = _SINGLES[kind]
    return [("name", key), (field, value), ("type", Symbol(symbol))]


def _description(side: str, slot: int, described: Message) -> Iterator[Message]:
    origin = {_only(attribute, "key"): _only(attribute, "value") for attribute in _all(described, "attr")}
    yield _single(f"{side}_dtype:{slot}", "s", str(_only(described, "dtype")))
    yield _ints(f"{side}_shape:{slot}", _all(_only(described, "shape"), "dim"))
    yield _ints(f"{side}_origin_shape:{slot}", _all(_only(origin[ge_names.HOST_SHAPE], "list"), "i"))
    yield _single(f"{side}_layout:{slot}", "s", _only(described, "layout"))
    yield _single(f"{side}_origin_layout:{slot}", "s", _only(origin[ge_names.HOST_FORMAT], "s"))
    yield _single(f"{side}_size:{slot}", "i", _only(described, "size", 0))


def _ints(key: str, values: Iterator[int]) -> Message:
    return [("name", key), *(("ints", value) for value in values), ("type", Symbol("INTS"))]


def _tensor(tensor: Message) -> Message:
    described, data = _only(tensor, "desc"), _only(tensor, "data")
    dims = [("dims", size) for size in _all(_only(described, "shape"), "dim")]
    return [*dims, ("data_type", _element(described)), ("raw_data", data)]


def _value(name: str, op: Message) -> Message:
    described = next(_all(op, "output_desc"))
    sizes = (("dim", [("dim_value", size)]) for size in _all(_only(described, "shape"), "dim"))
    tensor = [("elem_type", _element(described)), ("shape", list(sizes))]
    return [("name", f"{name}:0"), ("type", [("tensor_type", tensor)])]


def _element(described: Message) -> int:
    return _ELEMENTS.get(str(_only(described, "dtype")), 0)


def _producer(source: str) -> str:
    """Return the operator of a value ``operator:slot``."""
    return source.rpartition(":")[0]


def _all(message: Message, name: str) -> Iterator[Any]:
    """Yield the values of a repeated field."""
    return (value for field, value in message if field == name)


def _only(message: Message, name: str, default: Any = None) -> Any:
    """Return the value of a field that stands once, a default where it is missing."""
    return next(_all(message, name), default)
