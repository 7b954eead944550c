"""Operator graphs from ``.ir`` and ``.pb`` files: msdump's and MindSpore's.

    %para4_x: <Tensor[Float32], (2, 3, 8, 8)> : [2, 3, 8, 8]  :  <...>  :  IsWeight: false
    subgraph @kernel_graph0() {
      %1(output) = PrimFunc_ReLU(%para4_x) {instance name: relu} primitive_attrs: {...} cnode_attrs: {...}
          : (<Tensor[Float32], (2, 3, 8, 8)>) -> (<Tensor[Float32], (2, 3, 8, 8)>)
          # Fullname with scope: (Default/relu-ReLU/ReLU-op0)
          # In file net.py:13, 12~21/        x = self.relu(x)/
      Return(%2)

In the form of MindSpore's documents the full name stands in a line ``: full_name_with_scope: (...)``. Other
statements are looked through: tuples and their items, loaded parameters, and monads (``UpdateState``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final

from msdump import dtypes
from msdump.errors import DumpReadError
from msdump.graph import SourceLine
from msdump.graph.files import ir_proto, ir_text
from msdump.read import files
from msdump.read.operator_graph import (
    ABSENT,
    GraphOperator,
    OperatorGraph,
    SourceKind,
    ValueForm,
    ValueSource,
    split,
    top_level_places,
)
from msdump.record import DEFAULT_FORMAT

_REFERENCE: Final = re.compile(r"%para(\d+)_")
_TENSOR: Final = re.compile(r"<(?:Ref\[)?Tensor\[(?P<dtype>\w+)\]\]?, \((?P<dims>[-0-9, ]*)\)")
_TUPLE: Final = re.compile(
    r"<(?:Tuple|List)\[(?P<types>.*?)\](?:, (?:Tuple|List)Shape\((?P<shapes>.*)\).*)?>$"
)
_TYPE: Final = re.compile(r"(?:Tensor\[(?P<tensor>\w+)\]|(?P<other>\w+))(?:\*(?P<count>\d+))?$")
_DEVICE: Final = re.compile(
    r"<(?P<dtype>[A-Z]\w*?)x(?P<format>[A-Z]\w*)(?:\[const vector\][\[{](?P<dims>[-0-9, ]*)[\]}])?>"
)
"""``<Float16xFRACTAL_NZ[const vector][4, 1, 16, 16]>``"""
_HELD: Final = re.compile(r".+[0-9]|Bool")
_UNKNOWN_RANK: Final = (-2,)


def parse_operands(line: str, start: int, names: Mapping[int, str]) -> tuple[tuple[str, ...], int]:
    """Return the operands of a statement, and where the text behind them begins.

    >>> parse_operands("%1(y) = Concat(%0, (I64(1), I64(2)), %para1_x) {}", 15, {1: "x"})
    (('%0', '(I64(1), I64(2))', '%para1_x'), 46)

    The first operand begins at ``start``; names of parameters, by number, may hold any character.
    """
    texts = []
    place = start
    while True:
        end = _operand_end(line, place, names)
        if end > place:
            texts.append(line[place:end])
        if line[end : end + 1] != ",":
            return tuple(texts), min(end + 1, len(line))
        place = end + 1
        while line[place : place + 1] == " ":
            place += 1


def _operand_end(line: str, start: int, names: Mapping[int, str]) -> int:
    """Return where an operand ends: at the comma or bracket behind it, or at the end of the line."""
    parameter = _REFERENCE.match(line, start)
    if parameter is not None:
        end = parameter.end() + len(names.get(int(parameter[1]), ""))
        if line[end : end + 1] in {",", ")"}:
            return end
    return next(top_level_places(line, start), len(line))


def forms(text: str) -> tuple[ValueForm, ...]:
    """Return element types and shapes of the values in a text of types, tuples one by one.

    >>> forms("<Tensor[Float32], (2, 8)>")
    (ValueForm(dtype='float32', shape=(2, 8)),)
    >>> forms("<Tuple[Tensor[Bool]*2], TupleShape((), (-1))>")
    (ValueForm(dtype='bool', shape=()), ValueForm(dtype='bool', shape=(-1,)))
    """
    tensor = _TENSOR.match(text)
    if tensor is not None:
        return (ValueForm(tensor["dtype"].lower(), _shape(tensor["dims"])),)
    items = _TUPLE.match(text)
    if items is None:
        return (ValueForm(),)
    dtypes = [dtype for part in split(items["types"]) for dtype in _repeated(part)]
    shapes = [_shape(part[1:-1]) if part.startswith("(") else None for part in split(items["shapes"] or "")]
    shapes += [None] * (len(dtypes) - len(shapes))
    return tuple(ValueForm(dtype, shape) for dtype, shape in zip(dtypes, shapes, strict=False))


def device_forms(text: str) -> tuple[ValueForm, ...]:
    """Return element types and shapes that a device holds values in, by a line of its memory formats.

    >>> device_forms("<Float16xFRACTAL_NZ[const vector][4, 1, 16, 16]>, <BoolxDefaultFormat[const vector]{}>")
    (ValueForm(dtype='float16', shape=None), ValueForm(dtype='bool', shape=()))
    """
    return tuple(
        ValueForm(
            each["dtype"].lower() if _HELD.fullmatch(each["dtype"]) else "",
            _shape(each["dims"]) if each["format"] == DEFAULT_FORMAT and each["dims"] is not None else None,
        )
        for each in _DEVICE.finditer(text)
    )


def _repeated(text: str) -> list[str]:
    match = _TYPE.match(text)
    if match is None:
        return [""]
    return [(match["tensor"] or match["other"]).lower()] * int(match["count"] or 1)


def _dims(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split(",") if size.strip())


def _shape(text: str) -> tuple[int, ...] | None:
    dims = _dims(text)
    return None if dims == _UNKNOWN_RANK else dims


_PARAMETER_LINE: Final = re.compile(r"%para(?P<number>\d+)_(?P<name>.*?): +(?P<type><.*)$")
_STATEMENT: Final = re.compile(r"  %(?P<number>\d+)\((?P<label>.*?)\) = (?P<type>[^\s(]+)\(")
_RETURN: Final = "  Return("
_GRAPH: Final = re.compile(r"subgraph @kernel_graph(?P<number>\d+)\(")
_FULL_NAME: Final = re.compile(r"(?:Fullname with scope|full_name_with_scope): \((?P<name>.+)\)$")
_SOURCE: Final = re.compile(
    r" +# In file (?P<file>.*?)(?::(?P<line>\d+)(?:~\d+)?(?:, \d+~\d+)?|\((?P<number>\d+)\))/(?P<code>.*)/$"
)
_INSTANCE: Final = re.compile(r" \{instance name: (?P<name>.*?)\}(?= \w+: \{|$)")
_ATTRIBUTES: Final = " primitive_attrs: {"
_BEHIND_ATTRIBUTES: Final = re.compile(r"\} (?:cnode_attrs|cnode_primal_attrs): \{")
_PRIMITIVE_FUNCTION: Final = "PrimFunc_"
_ARROW: Final = ") -> ("
_NO_ADDRESS: Final = " : 0x0"
"""MindSpore prints the address of its graph; msdump has none."""
_PASSING: Final = frozenset({"Load", "Depend"})
_ORDERING: Final = frozenset({"UpdateState"})
_ITEMS: Final = frozenset({"TupleGetItem", "RealTupleGetItem"})
_TUPLES: Final = frozenset({"MakeTuple", "RealMakeTuple", "MakeList"})
_VALUE: Final = re.compile(r"%(\d+)$")
_MONAD: Final = re.compile(r"(?:UMonad|IOMonad)\[")
_NUMBER: Final = re.compile(r"\d+(?=\)?$)")
_CALLED: Final = re.compile(r"(?:^|[{ ])(\w+): @kernel_graph([0-9]{1,18})(?=,|\}|$)")

_TYPES_ARROW: Final = " -> "

Sources = tuple[ValueSource, ...]
"""The sources of an operand or of a statement's values, of tuples one by one."""

ListedForms = tuple[tuple[ValueForm, ...], tuple[ValueForm, ...]]
"""Inputs and outputs of an operator: titles of element types, negative sizes that only the run shows."""


class _Program:
    """The part of a program that has been read, without tuples and operators that only pass values on."""

    def __init__(self) -> None:
        self.operators: dict[str, GraphOperator] = {}
        self.inputs: dict[str, ValueForm] = {}
        self.weights: dict[str, ValueForm] = {}
        self.names: dict[int, str] = {}  # names of the parameters by number
        self.returned: Sources = ()
        self.number = 0
        self.is_ours = False  # whether msdump wrote the file
        self.is_whole = False
        self._parameters: dict[int, Sources] = {}
        self._values: dict[int, Sources] = {}

    def add_parameter(self, number: int, name: str, form: ValueForm, kind: SourceKind | None) -> Sources:
        """Add a weight, an input, or a monad (kind None), which only orders side effects and is no value."""
        name = name or f"para{number}"  # MindSpore has parameters without a name
        self.names[number] = name
        if kind is not None:
            (self.weights if kind is SourceKind.WEIGHT else self.inputs)[name] = form
        self._parameters[number] = () if kind is None else (ValueSource(kind, name),)
        return self._parameters[number]

    def add(self, number: int, operands: Sequence[Sources], operator: GraphOperator) -> Sources:
        """Add a statement, given the sources of each operand (a tuple has several); return its values."""
        sources = tuple(chain.from_iterable(operands))
        if operator.op_type in _TUPLES:
            values = sources
        elif operator.op_type in _ORDERING or (operator.op_type in _PASSING | _ITEMS and not operands):
            values = ()
        elif operator.op_type in _PASSING:
            values = operands[0]
        elif operator.op_type in _ITEMS:
            index = _NUMBER.search(operands[-1][0].name) if operands[-1] else None
            place = int(index[0]) if index else 0
            values = operands[0][place : place + 1] or (ABSENT,)
        else:
            name = operator.full_name
            self.operators[name] = replace(operator, inputs=sources, place=number)
            slots = range(max(len(operator.outputs), 1))
            values = tuple(ValueSource(SourceKind.OPERATOR, name, slot) for slot in slots)
        self._values[number] = values
        return values

    def sources(self, operand: str) -> Sources:
        """Return the sources of an operand, given as text; a tuple has one for each item."""
        parameter = _REFERENCE.match(operand)
        if parameter is not None:
            unknown = ValueSource(SourceKind.INPUT, operand[parameter.end() :])
            return self._parameters.get(int(parameter[1]), (unknown,))
        value = _VALUE.match(operand)
        if value is not None:
            return self._values.get(int(value[1]), (ABSENT,))
        if operand.startswith("(") and "%" in operand:
            return tuple(source for part in split(operand[1:-1]) for source in self.sources(part))
        if _MONAD.match(operand):
            return ()
        return (ABSENT if operand == "None" else ValueSource(SourceKind.CONSTANT, operand),)

    def graph(self, path: str) -> OperatorGraph:
        """Return the graph; DumpReadError with the path where there is none."""
        if not (self._values or self._parameters or self.returned):
            raise DumpReadError(path, "the file has no graph: neither parameters nor statements")
        return OperatorGraph(
            self.operators,
            self.inputs,
            self.weights,
            self.returned,
            self.number,
            is_whole=self.is_whole,
            is_ours=self.is_ours,
        )


def read_ir(path: str) -> OperatorGraph:
    """Return the graph of an .ir file, its operators in the order of the file.

    Of a file that breaks off, the graph has all operators before its end.

    Raises:
        DumpReadError: The file cannot be read, or there is no graph in it.
    """
    program = _Program()
    statement: _Statement | None = None
    for line in files.read_lines(path):
        if line.startswith("   "):
            if statement is not None:
                statement.add_line(line)
        elif line.startswith(("  %", _RETURN)):
            if statement is not None:
                statement.finish(program)
            statement = _statement(line, program)
            if statement is None and line.startswith(_RETURN):
                operands, _ = parse_operands(line, len(_RETURN), program.names)
                program.returned = tuple(chain.from_iterable(map(program.sources, operands)))
                program.is_whole = True
        elif line.startswith("%para"):
            match = _PARAMETER_LINE.match(line)
            if match is not None:
                text = match["type"]
                is_weight = text.rstrip().endswith("IsWeight: true")
                kind = SourceKind.WEIGHT if is_weight else SourceKind.INPUT
                is_monad = text.startswith(("<UMonad", "<IOMonad"))
                program.add_parameter(
                    int(match["number"]), match["name"], forms(text)[0], None if is_monad else kind
                )
        elif line.startswith("subgraph "):
            graph = _GRAPH.match(line)
            program.number = int(graph["number"]) if graph else program.number
            program.is_ours |= line.endswith(_NO_ADDRESS)
    if statement is not None:
        statement.finish(program)
    return program.graph(path)


@dataclass(slots=True)
class _Statement:
    """A statement, its operator without inputs, and the fields that the lines below it add."""

    number: int
    operands: tuple[str, ...]
    instance: str
    operator: GraphOperator
    fields: dict[str, Any] = field(default_factory=dict)

    def add_line(self, line: str) -> None:
        words, fields = line.lstrip(), self.fields
        if words.startswith("# In file"):
            fields["source"] = fields.get("source", ()) + source_lines(line)
        elif words.startswith(ir_text.FUSED_FROM):
            with suppress(ValueError, RecursionError):  # the line breaks off, or is no list of names
                fields["onnx_names"] = tuple(map(str, json.loads(words.removeprefix(ir_text.FUSED_FROM))))
        elif words.startswith(ir_text.FILES):
            fields["dumped_as"] = words.removeprefix(ir_text.FILES)[1:-1]
        elif words.startswith(": (<"):
            read, arrow, written = words.rpartition(_ARROW)
            # the first such line is the host's; the one below it has formats of the device
            if arrow and not fields.get("outputs"):
                outputs = split(written.removesuffix(")"))
                fields["outputs"] = tuple(form for part in outputs for form in forms(part))
            elif arrow and not fields.get("device_outputs"):
                fields["device_inputs"] = device_forms(read)
                fields["device_outputs"] = device_forms(written)
        elif "ull" in words and (name := _FULL_NAME.search(line)):
            fields["full_name"] = name["name"]

    def finish(self, program: _Program) -> None:
        # MindSpore's instances are attributes of a cell: several operators may be of one
        instance = (self.instance,) if self.instance else ()
        names = (self.fields.get("onnx_names") or instance) if program.is_ours else ()
        operator = replace(self.operator, **{**self.fields, "onnx_names": names})
        program.add(self.number, [*map(program.sources, self.operands)], operator)


def _statement(line: str, program: _Program) -> _Statement | None:
    match = _STATEMENT.match(line)
    if match is None:
        return None
    operands, end = parse_operands(line, match.end(), program.names)
    rest = line[end:]
    instance = _INSTANCE.match(rest)
    _, _, attributes = rest.partition(_ATTRIBUTES)
    behind = _BEHIND_ATTRIBUTES.search(attributes)
    attributes = attributes[: behind.start()] if behind else attributes.removesuffix("}")
    operator = GraphOperator(
        match["label"],  # replaced by the full name of a later line, which a torn file may lack
        match["type"].removeprefix(_PRIMITIVE_FUNCTION),
        label=match["label"],
        attributes=attributes,
        bodies={attribute: int(number) for attribute, number in _CALLED.findall(attributes)},
    )
    return _Statement(int(match["number"]), operands, "" if instance is None else instance["name"], operator)


def source_lines(line: str) -> tuple[SourceLine, ...]:
    """Return the source line in a line of a graph file; empty for any other line."""
    match = _SOURCE.match(line)
    if match is None:
        return ()
    return (SourceLine(match["file"], int(match["line"] or match["number"]), match["code"].strip()),)


def read_parameters(path: str) -> tuple[str, ...]:
    """Return the plain names of weights and inputs in a .ir file; DumpReadError if it cannot be read."""
    matches = map(_PARAMETER_LINE.match, files.read_lines(path))
    return tuple(dict.fromkeys(match["name"] for match in matches if match))


def read_called(path: str) -> frozenset[int]:
    """Return the numbers of the graphs that a .ir file calls; DumpReadError if it cannot be read."""
    calls = (line for line in files.read_lines(path) if line.startswith("  %"))
    return frozenset(int(number) for line in calls for _, number in _CALLED.findall(line))


def read_listed_operators(path: str) -> dict[str, ListedForms]:
    """Return types and shapes of operators' inputs and outputs, by full name, from the last line of types.

        %1(res) = PrimFunc_Split(%para1_x, I64(1)) ...
            : (<Float32xDefaultFormat[const vector]{0, 3}>, <Int64xDefaultFormat[const vector]{}>) -> ...
            # Fullname with scope: (Default/Split-op0)

    Raises:
        DumpReadError: The file cannot be read.
    """
    operators: dict[str, ListedForms] = {}
    last: ListedForms | None = None
    for line in files.read_lines(path):
        name = _FULL_NAME.search(line)
        if name is not None and last is not None:
            operators[name["name"]] = last
            last = None
        elif line.lstrip().startswith(": (") and _TYPES_ARROW in line:
            inputs, _, outputs = line.partition(_TYPES_ARROW)
            listed = _listed_forms(inputs), _listed_forms(outputs)
            last = listed if any(listed) else last
    return operators


def _listed_forms(text: str) -> tuple[ValueForm, ...]:
    listed = (match for match in _DEVICE.finditer(text) if match["dims"] is not None)
    return tuple(ValueForm(match["dtype"], _dims(match["dims"])) for match in listed)


_GRAPH_NAME: Final = re.compile(r"kernel_graph(\d+)$")
_DTYPES: Final = {dtype.ir: dtype.title.lower() for dtype in dtypes.DTYPES}


def read_pb(path: str) -> OperatorGraph:
    """Return the graph of a .pb file, its operators in the order of the file.

    It is the program of an ``.ir`` file as a protobuf message (anf_ir.proto), which does not separate weights
    from inputs of the graph: all of its parameters are inputs, unless an ``.ir`` file beside it has them.

    Raises:
        DumpReadError: The file cannot be read, is no such message, or there is no graph in it.
    """
    return replace(_read_message(path, frozenset()), separates_weights=False, is_ours=True)


def restore_graph(path: str, torn: OperatorGraph) -> OperatorGraph:
    """Return the graph of a .pb file in place of ``torn``, the graph of an .ir file that breaks off.

    Return ``torn`` itself if its file breaks off among the parameters, which come first, or if the .pb file
    is torn, too.
    """
    try:
        graph = _read_message(path, frozenset(torn.weights))
    except DumpReadError:
        return torn
    is_known = {*graph.weights, *graph.inputs} == {*torn.weights, *torn.inputs}
    return replace(_with_shapes(graph), is_ours=torn.is_ours) if is_known else torn


def _with_shapes(graph: OperatorGraph) -> OperatorGraph:
    """Return a graph with the declared shapes as the device's shapes of all inputs and outputs."""
    operators = {
        name: replace(
            each,
            device_inputs=tuple(ValueForm(shape=graph.form_of(source).shape) for source in each.inputs),
            device_outputs=tuple(ValueForm(shape=output.shape) for output in each.outputs),
        )
        for name, each in graph.operators.items()
    }
    return replace(graph, operators=operators)


def _read_message(path: str, weights: Collection[str]) -> OperatorGraph:
    from google.protobuf.message import DecodeError

    try:
        program = _message_program(ir_proto.decode(files.read_bytes(path)).graph, weights)
    except (DecodeError, UnicodeDecodeError) as error:
        raise DumpReadError(path, f"not a graph file of MindSpore: {error}") from error
    return program.graph(path)


def _message_program(graph: Any, weights: Collection[str]) -> _Program:
    program = _Program()
    name = _GRAPH_NAME.match(graph.name)
    program.number, program.is_whole = int(name[1]) if name else 0, True
    values: dict[str, Sources] = {}
    for number, parameter in enumerate(graph.parameters, 1):
        form = (*_message_forms(parameter.type), ValueForm())[0]
        kind = SourceKind.WEIGHT if parameter.name in weights else SourceKind.INPUT
        values[parameter.name] = program.add_parameter(number, parameter.name, form, kind)
    for constant in graph.const_vals:
        values[constant.key] = program.sources(_message_literal(constant.value))
    for number, node in enumerate(graph.node):
        lines = [line for text in node.source_address.splitlines() for line in source_lines(text)]
        attributes = ", ".join(f"{each.name}: {_message_literal(each.value)}" for each in node.attribute)
        operator = GraphOperator(
            node.full_name or node.name,
            node.op_type.removeprefix(_PRIMITIVE_FUNCTION),
            outputs=_message_forms(node.output_type),
            attributes=attributes,
            source=tuple(reversed(lines)),  # the innermost call comes first here
            bodies={attribute: int(graph) for attribute, graph in _CALLED.findall(attributes)},
        )
        operands = [values.get(each.name, (ABSENT,)) for each in node.input]
        values[node.name] = program.add(number, operands, operator)
    program.returned = tuple(chain.from_iterable(values.get(each.name, (ABSENT,)) for each in graph.outputs))
    return program


def _message_forms(kind: Any) -> tuple[ValueForm, ...]:
    """Return element types and shapes of a TypeProto: of one tensor, or of each in a sequence."""
    if kind.sequence_type.elem_types:
        return tuple(form for item in kind.sequence_type.elem_types for form in _message_forms(item))
    if not kind.HasField("tensor_type"):
        return ()
    tensor = kind.tensor_type
    # a tensor of unknown rank has no shape, as a scalar has none
    shape = tuple(dim.size for dim in tensor.shape.dim) if tensor.HasField("shape") else None
    return (ValueForm(_DTYPES.get(tensor.elem_type, ""), shape),)


def _message_literal(value: Any) -> str:
    for name in ("int_val", "uint_val", "bool_val"):
        if value.HasField(name):
            return str(getattr(value, name)).lower()
    return f"({', '.join(map(_message_literal, value.values))})" if value.values else value.str_val
