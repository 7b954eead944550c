"""Operator graphs from GE's graph files: ``ge_proto_*.txt``, and the JSON that atc makes of a model.

    graph { name: "net"  op { name: "conv1"  type: "Conv2D"  input: "x:0"  input: "w:0"  output_desc {...} } }

Branches and bodies of loops are graphs of their own, which the control flow operator names. Operators
that the compiler added (``TransData``, ``Cast``) count, too: they run and are dumped.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from msdump import dtypes
from msdump.encode import dump_message, ge
from msdump.errors import DAMAGED, DumpReadError, FormatError, cause_of
from msdump.read import files
from msdump.read.operator_graph import (
    ABSENT,
    GraphOperator,
    OperatorGraph,
    SourceKind,
    ValueForm,
    ValueSource,
    connected,
)
from msdump.store import GraphFileKind, graph_names

_FIELD: Final = re.compile(r"\s*(?P<name>\w+)\s*(?:(?P<open>\{)|:\s*(?P<value>.*?))\s*$")
_ESCAPED: Final = re.compile(rb"\\([0-7]{1,3}|.)", re.DOTALL)
_LETTERS: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_WEIGHTS: Final = frozenset({"Const", "Constant", "Variable"})
_CONTROL: Final = "-1"  # number of an output that only orders two operators
_JSON: Final = ".json"

Message = Mapping[str, Sequence[Any]]
"""Fields by name, each with all of its values."""

_log = logging.getLogger("msdump.store")


def read_ge(path: str) -> dict[int, OperatorGraph]:
    """Return the graphs of a file by their place, main one first; DumpReadError if there is none."""
    message = _of_json(files.read_json(path)) if Path(path).suffix == _JSON else _of_text(path)
    graphs = message.get("graph", ())
    if not graphs or not all(isinstance(graph, dict) for graph in graphs):
        raise DumpReadError(path, "the file has no graph of GE")
    numbers = {_text(graph, "name"): number for number, graph in enumerate(graphs)}
    try:
        return connected(_graph(graph, number, numbers) for number, graph in enumerate(graphs))
    except (AttributeError, TypeError, ValueError) as error:  # a text or a number in place of a message
        raise DumpReadError(path, f"not a graph file of GE: {error}") from error


def _of_json(value: Any) -> Any:
    """Return a JSON message with a list for every field; JSON itself has lists for repeated fields only."""
    if not isinstance(value, dict):
        return value
    items = ((name, each if isinstance(each, list) else [each]) for name, each in value.items())
    return {name: [_of_json(each) for each in values] for name, values in items}


def _of_text(path: str) -> Message:
    """Return the message of protobuf's text form, one field or bracket in a line."""
    top: dict[str, list[Any]] = {}
    open_messages = [top]
    for line in files.read_lines(path):
        field = _FIELD.match(line)
        if field is None:
            if line.strip() == "}" and len(open_messages) > 1:
                open_messages.pop()
            continue
        inner: dict[str, list[Any]] = {}
        open_messages[-1].setdefault(field["name"], []).append(
            inner if field["open"] else _value(field["value"])
        )
        if field["open"]:
            open_messages.append(inner)
    return top


def _value(text: str) -> str:
    if not text.startswith('"'):
        return text
    return _ESCAPED.sub(_unescaped, text[1:-1].encode()).decode(errors="replace")


def _unescaped(match: re.Match[bytes]) -> bytes:
    code = match[1]
    return bytes([int(code, 8) & 0xFF]) if code[:1].isdigit() else _LETTERS.get(code, code)


def _graph(graph: Message, number: int, numbers: Mapping[str, int]) -> OperatorGraph:
    ops = {_text(op, "name"): op for op in graph.get("op", ())}
    kinds = {name: _kind(_text(op, "type")) for name, op in ops.items()}

    def of_kind(kind: SourceKind) -> dict[str, ValueForm]:
        forms = ((name, _forms(op)) for name, op in ops.items() if kinds[name] is kind)
        return {name: form[0] if form else ValueForm() for name, form in forms}

    ends = [op for op in ops.values() if _text(op, "type") == ge.NET_OUTPUT]
    return OperatorGraph(
        {
            name: _operator(name, op, kinds, numbers)
            for name, op in ops.items()
            if kinds[name] is SourceKind.OPERATOR and _text(op, "type") != ge.NET_OUTPUT
        },
        of_kind(SourceKind.INPUT),
        of_kind(SourceKind.WEIGHT),
        tuple(source for op in ends for source in _sources(op, kinds)),
        number,
        name=_text(graph, "name"),
    )


def _operator(
    name: str, op: Message, kinds: Mapping[str, SourceKind], numbers: Mapping[str, int]
) -> GraphOperator:
    bodies = enumerate(op.get("subgraph_name", ()))
    return GraphOperator(
        name,
        _text(op, "type"),
        tuple(_sources(op, kinds)),
        _forms(op),
        onnx_names=_originals(op, name),
        bodies={str(place): numbers[body] for place, body in bodies if body in numbers},
    )


def _forms(op: Message) -> tuple[ValueForm, ...]:
    return tuple(map(_form, op.get("output_desc", ())))


def _kind(op_type: str) -> SourceKind:
    if op_type == ge.DATA:
        return SourceKind.INPUT
    return SourceKind.WEIGHT if op_type in _WEIGHTS else SourceKind.OPERATOR


def _sources(op: Message, kinds: Mapping[str, SourceKind]) -> Iterator[ValueSource]:
    for text in op.get("input", ()):
        name, _, slot = str(text).rpartition(":")
        if slot != _CONTROL:
            kind = kinds.get(name)
            is_known = kind is not None and slot.isdecimal()
            yield ValueSource(kind, name, int(slot)) if is_known and kind else ABSENT


def _originals(op: Message, name: str) -> tuple[str, ...]:
    """Return the names of the original operators; without the attribute, the operator's own name."""
    for attribute in op.get("attr", ()):
        if _text(attribute, "key") == ge.ORIGINAL_NAMES:
            return tuple(str(text) for value in _values(attribute) for text in value.get("s", ()))
    return (name,)


def _values(attribute: Message) -> Iterable[Message]:
    for value in attribute.get("value", ()):
        yield value
        yield from value.get("list", ())


def _form(described: Message) -> ValueForm:
    """Return element type and host shape of an output; the device's shape if the host's is missing."""
    try:
        dtype = dtypes.from_dump(_DUMP_TYPES[_text(described, "dtype")]).title.lower()
    except (FormatError, KeyError):
        dtype = ""
    for attribute in described.get("attr", ()):
        if _text(attribute, "key") == ge.HOST_SHAPE:
            return ValueForm(
                dtype, tuple(int(size) for value in _values(attribute) for size in value.get("i", ()))
            )
    sizes = (size for shape in described.get("shape", ()) for size in shape.get("dim", ()))
    return ValueForm(dtype, tuple(map(int, sizes)))


def _text(message: Message, name: str) -> str:
    values = message.get(name, ())
    return str(values[0]) if values else ""


_DUMP_TYPES: Final = {
    dump_message.data_type_name(row.dump): row.dump for row in dtypes.DTYPES if row.dump is not None
}


_LAST_STAGE: Final = "Build"


def compiled_graph(model: str, beside: Iterable[str]) -> OperatorGraph | None:
    """Return the graph of a model from GE's graph files; None without a file of the model.

    GE writes ``ge_proto_*_Build.txt`` into the working directory of its program, or into
    ``DUMP_GRAPH_PATH``: a user who sets that to the path of the dump has both in one place. ``beside`` are
    paths below the dump's root that are not files of the dump itself.
    """
    graphs = [graph for path in _files(beside) if (graph := _read(path)) is not None]
    named = [graph for graph in graphs if graph.name == model]
    chosen = named or graphs
    # of several graphs of one name the newest one: a program compiles anew each time it starts
    return chosen[-1] if named or len(graphs) == 1 else None


def _files(beside: Iterable[str]) -> Iterator[str]:
    """Yield the files of last stages, the oldest first."""
    for path in sorted(beside):
        name = graph_names.parse(Path(path).name)
        if name is None:
            continue
        if name.kind is GraphFileKind.GE_DIRECTORY and os.path.isdir(path):
            try:
                with os.scandir(path) as entries:
                    inside = [entry.path for entry in entries]
            except OSError as error:
                _log.log(DAMAGED, "%s: %s; its graph files are left out", path, cause_of(error))
            else:
                yield from _files(inside)
        elif name.kind is GraphFileKind.GE_PROTO and name.stage == _LAST_STAGE:
            yield path


def _read(path: str) -> OperatorGraph | None:
    """Return the operators of a file as one graph: branches and bodies are dumped like others."""
    try:
        main, *bodies = read_ge(path).values()
    except DumpReadError:  # graph files are optional: an unreadable one is ignored
        return None
    for body in bodies:
        main = replace(
            main,
            operators={**main.operators, **body.operators},
            inputs={**body.inputs, **main.inputs},
            weights={**body.weights, **main.weights},
        )
    return main
