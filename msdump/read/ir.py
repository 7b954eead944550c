"""Operator graphs from ``.ir`` and ``.pb`` files: msdump's own, and those of MindSpore itself.

    %para4_x: <Tensor[Float32], (2, 3, 8, 8)> : [2, 3, 8, 8]  :  <...>  :  IsWeight: false
    subgraph @kernel_graph0() {
      %1(output) = PrimFunc_ReLU(%para4_x) {instance name: relu} primitive_attrs: {...} cnode_attrs: {...}
          : (<Tensor[Float32], (2, 3, 8, 8)>) -> (<Tensor[Float32], (2, 3, 8, 8)>)
          # Fullname with scope: (Default/relu-ReLU/ReLU-op0)
          # In file net.py:13, 12~21/        x = self.relu(x)/
      Return(%2)

In the form of MindSpore's documents the full name stands in a line ``: full_name_with_scope: (...)``. Other
statements are looked through: tuples and their items, loaded parameters, and states of an order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from msdump import dtypes
from msdump.errors import DumpReadError
from msdump.graph import SourceLine
from msdump.graph.files import ir_text
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
from msdump.wire import Span, WireError, fields

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

    The first operand begins at ``start``; names of parameters, by number, may hold any sign.
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


def _shape(dims: str) -> tuple[int, ...] | None:
    shape = tuple(int(size) for size in dims.split(",") if size.strip())
    return None if shape == _UNKNOWN_RANK else shape


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


@dataclass(frozen=True, slots=True)
class IrParameter:
    """A weight or an input of the graph."""

    name: str
    form: ValueForm
    is_weight: bool
    is_monad: bool


@dataclass(slots=True)
class IrStatement:
    """A statement.

    Attributes:
        full_name: Scoped name, the label where the file breaks off before it.
        device_inputs: Element types and shapes in which a device holds its inputs; none where the file does
            not tell.
        source: Source lines, outermost call first.
        parts: Names of the ONNX nodes that a kernel of several computes.
    """

    number: int
    label: str
    op_type: str
    operands: tuple[str, ...]
    instance: str
    attributes: str
    full_name: str
    outputs: tuple[ValueForm, ...] = ()
    device_inputs: tuple[ValueForm, ...] = ()
    device_outputs: tuple[ValueForm, ...] = ()
    source: list[SourceLine] = field(default_factory=list)
    parts: tuple[str, ...] = ()


@dataclass(slots=True)
class IrProgram:
    """All of a file.

    Attributes:
        parameters: Weights and inputs by number.
        statements: Statements by number, in order.
        is_ours: Whether msdump wrote the file.
        is_whole: Whether the file goes to the end of the graph.
    """

    parameters: dict[int, IrParameter] = field(default_factory=dict)
    statements: dict[int, IrStatement] = field(default_factory=dict)
    returned: tuple[str, ...] = ()
    graph: int = 0
    is_ours: bool = False
    is_whole: bool = False


def read_program(path: str) -> IrProgram:
    """Return the statements of an .ir file; of a file that breaks off, all before its end.

    Raises:
        DumpReadError: The file cannot be read.
    """
    program = IrProgram()
    names: Mapping[int, str] = {}
    last: IrStatement | None = None
    for line in files.read_lines(path):
        if line.startswith("   "):
            if last is not None:
                _add_line(last, line)
        elif line.startswith("  %"):
            last = _statement(line, names)
            if last is not None:
                program.statements[last.number] = last
        elif line.startswith(_RETURN):
            program.returned, last = parse_operands(line, len(_RETURN), names)[0], None
            program.is_whole = True
        elif line.startswith("%para"):
            _add_parameter(program, line)
        elif line.startswith("subgraph "):
            names = {number: each.name for number, each in program.parameters.items()}
            _add_graph(program, line)
    return program


def _add_graph(program: IrProgram, line: str) -> None:
    graph = _GRAPH.match(line)
    if graph is not None:
        program.graph = int(graph["number"])
    elif line.endswith(_NO_ADDRESS):
        program.is_ours = True


def _add_parameter(program: IrProgram, line: str) -> None:
    match = _PARAMETER_LINE.match(line)
    if match is None:
        return
    kind = match["type"]
    program.parameters[int(match["number"])] = IrParameter(
        # MindSpore has parameters without a name
        match["name"] or f"para{match['number']}",
        forms(kind)[0],
        is_weight=kind.rstrip().endswith("IsWeight: true"),
        is_monad=kind.startswith(("<UMonad", "<IOMonad")),
    )


def _statement(line: str, names: Mapping[int, str]) -> IrStatement | None:
    match = _STATEMENT.match(line)
    if match is None:
        return None
    operands, end = parse_operands(line, match.end(), names)
    rest = line[end:]
    instance = _INSTANCE.match(rest)
    _, _, attributes = rest.partition(_ATTRIBUTES)
    behind = _BEHIND_ATTRIBUTES.search(attributes)
    return IrStatement(
        int(match["number"]),
        match["label"],
        match["type"].removeprefix(_PRIMITIVE_FUNCTION),
        operands,
        "" if instance is None else instance["name"],
        attributes[: behind.start()] if behind else attributes.removesuffix("}"),
        match["label"],
    )


def _add_line(statement: IrStatement, line: str) -> None:
    words = line.lstrip()
    if words.startswith("# In file"):
        statement.source += source_lines(line)
    elif words.startswith(ir_text.FUSED_FROM):
        with suppress(ValueError):  # the line breaks off
            statement.parts = tuple(map(str, json.loads(words.removeprefix(ir_text.FUSED_FROM))))
    elif words.startswith(": (<"):
        # the first such line is the host's; the one below it has formats of the device
        if not statement.outputs and _ARROW in words:
            outputs = words.rpartition(_ARROW)[2].removesuffix(")")
            statement.outputs = tuple(form for part in split(outputs) for form in forms(part))
        elif not statement.device_outputs and _ARROW in words:
            read, _, written = words.rpartition(_ARROW)
            statement.device_inputs = device_forms(read)
            statement.device_outputs = device_forms(written)
    elif "ull" in words:
        name = _FULL_NAME.search(line)
        statement.full_name = statement.full_name if name is None else name["name"]


def source_lines(line: str) -> tuple[SourceLine, ...]:
    """Return the source line in a line of a graph file; none where it holds another thing."""
    match = _SOURCE.match(line)
    if match is None:
        return ()
    return (SourceLine(match["file"], int(match["line"] or match["number"]), match["code"].strip()),)


_PASSING: Final = frozenset({"Load", "Depend"})
_ORDERING: Final = frozenset({"UpdateState"})
_ITEMS: Final = frozenset({"TupleGetItem", "RealTupleGetItem"})
_TUPLES: Final = frozenset({"MakeTuple", "RealMakeTuple", "MakeList"})
_IN_FILES_ALONE: Final = _PASSING | _ORDERING | _ITEMS | _TUPLES
_VALUE: Final = re.compile(r"%(\d+)$")
_MONAD: Final = re.compile(r"(?:UMonad|IOMonad)\[")
_NUMBER: Final = re.compile(r"\d+(?=\)?$)")
_CALLED: Final = re.compile(r"(?:^|[{ ])(\w+): @kernel_graph([0-9]{1,18})(?=,|\}|$)")


def read_parameters(path: str) -> tuple[str, ...]:
    """Return the plain names of a graph's weights and inputs, which its .ir file lists.

    Raises:
        DumpReadError: The file cannot be read.
    """
    matches = map(_PARAMETER_LINE.match, files.read_lines(path))
    return tuple(dict.fromkeys(match["name"] for match in matches if match))


def read_called(path: str) -> frozenset[int]:
    """Return the numbers of the graphs that a graph calls: branches and bodies, as its .ir file names them.

    Raises:
        DumpReadError: The file cannot be read.
    """
    calls = (line for line in files.read_lines(path) if line.startswith("  %"))
    return frozenset(int(number) for line in calls for _, number in _CALLED.findall(line))


def read_ir(path: str) -> OperatorGraph:
    """Return the graph of an .ir file, its operators in the order of the file.

    Raises:
        DumpReadError: The file cannot be read, or there is no graph in it.
    """
    return graph_of(read_program(path), path)


def graph_of(program: IrProgram, path: str) -> OperatorGraph:
    """Return the graph that a program describes; its path stands in messages.

    Raises:
        DumpReadError: There is no graph in it.
    """
    if not (program.statements or program.parameters or program.returned):
        raise DumpReadError(path, "no graph in it: neither parameters nor statements")
    sources = _Sources(program)
    for statement in program.statements.values():
        sources.add(statement)
    parameters = [each for each in program.parameters.values() if not each.is_monad]
    return OperatorGraph(
        operators=sources.operators,
        inputs={each.name: each.form for each in parameters if not each.is_weight},
        weights={each.name: each.form for each in parameters if each.is_weight},
        outputs=sources.of_all(program.returned),
        number=program.graph,
        is_whole=program.is_whole,
    )


class _Sources:
    """The sources of a program's values, through tuples and operators that only pass values on."""

    def __init__(self, program: IrProgram) -> None:
        self._program = program
        self._values: dict[int, tuple[ValueSource, ...]] = {}
        self.operators: dict[str, GraphOperator] = {}

    def add(self, statement: IrStatement) -> None:
        sources = self.of_all(statement.operands)
        self._values[statement.number] = (
            self._passed_on(statement, sources)
            if statement.op_type in _IN_FILES_ALONE
            else self._operator(statement, sources)
        )

    def _operator(self, statement: IrStatement, sources: tuple[ValueSource, ...]) -> tuple[ValueSource, ...]:
        name = statement.full_name
        bodies = _CALLED.findall(statement.attributes)
        # MindSpore's instances are attributes of a cell: several operators may be of one
        instance = (statement.instance,) if statement.instance else ()
        onnx_names = (statement.parts or instance) if self._program.is_ours else ()
        self.operators[name] = GraphOperator(
            full_name=name,
            op_type=statement.op_type,
            inputs=sources,
            outputs=statement.outputs,
            onnx_names=onnx_names,
            label=statement.label,
            attributes=statement.attributes,
            device_inputs=statement.device_inputs,
            device_outputs=statement.device_outputs,
            source=tuple(statement.source),
            bodies={attribute: int(number) for attribute, number in bodies},
        )
        count = max(len(statement.outputs), 1)
        return tuple(ValueSource(SourceKind.OPERATOR, name, slot) for slot in range(count))

    def _passed_on(self, statement: IrStatement, sources: tuple[ValueSource, ...]) -> tuple[ValueSource, ...]:
        if statement.op_type in _TUPLES:
            return sources
        if statement.op_type in _PASSING and statement.operands:
            return self._of(statement.operands[0])
        if statement.op_type in _ITEMS and statement.operands:
            index = _NUMBER.search(statement.operands[-1])
            items = self._of(statement.operands[0])
            number = int(index[0]) if index else 0
            return items[number : number + 1] or (ABSENT,)
        return ()

    def of_all(self, operands: Iterable[str]) -> tuple[ValueSource, ...]:
        """Return the sources of operands, of tuples one by one."""
        return tuple(source for operand in operands for source in self._of(operand))

    def _of(self, operand: str) -> tuple[ValueSource, ...]:
        parameter = _REFERENCE.match(operand)
        if parameter is not None:
            return self._of_parameter(int(parameter[1]), operand[parameter.end() :])
        value = _VALUE.match(operand)
        if value is not None:
            return self._values.get(int(value[1]), (ABSENT,))
        if operand.startswith("(") and "%" in operand:
            return self.of_all(split(operand[1:-1]))
        if _MONAD.match(operand):
            return ()
        return (ABSENT if operand == "None" else ValueSource(SourceKind.CONSTANT, operand),)

    def _of_parameter(self, number: int, name: str) -> tuple[ValueSource, ...]:
        parameter = self._program.parameters.get(number)
        if parameter is None:
            return (ValueSource(SourceKind.INPUT, name),)
        if parameter.is_monad:
            return ()
        kind = SourceKind.WEIGHT if parameter.is_weight else SourceKind.INPUT
        return (ValueSource(kind, parameter.name),)


_DEVICE_TENSOR: Final = re.compile(r"<(?P<dtype>\w+?)x\w+\[const vector\][\[{](?P<dims>[-0-9, ]*)[\]}]>")
_TYPES_ARROW: Final = " -> "


@dataclass(frozen=True, slots=True)
class ListedTensor:
    """An input or output of an operator.

    Attributes:
        dtype: MindSpore's name of the element type, ``Float32``.
        shape: Its dimensions; negative where only the run shows them.
    """

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ListedOperator:
    """An operator as an .ir file lists it."""

    inputs: tuple[ListedTensor, ...]
    outputs: tuple[ListedTensor, ...]


def read_listed_operators(path: str) -> dict[str, ListedOperator]:
    """Return the operators of a graph by full name, with the tensors of their last line of types.

        %1(res) = PrimFunc_Split(%para1_x, I64(1)) ...
            : (<Float32xDefaultFormat[const vector]{0, 3}>, <Int64xDefaultFormat[const vector]{}>) -> ...
            # Fullname with scope: (Default/Split-op0)

    Raises:
        DumpReadError: The file cannot be read.
    """
    operators: dict[str, ListedOperator] = {}
    last: ListedOperator | None = None
    for line in files.read_lines(path):
        name = _FULL_NAME.search(line)
        if name is not None and last is not None:
            operators[name["name"]] = last
            last = None
        elif line.lstrip().startswith(": (") and _TYPES_ARROW in line:
            inputs, _, outputs = line.partition(_TYPES_ARROW)
            listed = ListedOperator(_tensors(inputs), _tensors(outputs))
            last = listed if listed.inputs or listed.outputs else last
    return operators


def _tensors(text: str) -> tuple[ListedTensor, ...]:
    return tuple(
        ListedTensor(match["dtype"], tuple(int(size) for size in match["dims"].split(",") if size.strip()))
        for match in _DEVICE_TENSOR.finditer(text)
    )


_GRAPH_NAME: Final = re.compile(r"kernel_graph(\d+)$")
_DTYPES: Final = {dtype.ir: dtype.title.lower() for dtype in dtypes.DTYPES}
_TOP: Final = 1 << 63
_FIELD_OF_GRAPH: Final = 4  # ModelProto.graph


def read_pb(path: str) -> OperatorGraph:
    """Return the graph of a .pb file, its operators in the order of the file.

    It is the program of an ``.ir`` file as a protobuf message (anf_ir.proto), which does not tell weights
    from inputs of the graph: all of its parameters are inputs, unless an ``.ir`` file beside it has them.

    Raises:
        DumpReadError: The file cannot be read, is no such message, or there is no graph in it.
    """
    return replace(_read_message(path, frozenset()), tells_weights=False)


def restore_graph(path: str, torn: OperatorGraph) -> OperatorGraph:
    """Return the graph of a .pb file that stands for an .ir file which breaks off, ``torn``.

    ``torn`` comes back where it breaks off among its parameters, which come first, or this file is torn,
    too.
    """
    try:
        graph = _read_message(path, frozenset(torn.weights))
    except DumpReadError:
        return torn
    is_known = {*graph.weights, *graph.inputs} == {*torn.weights, *torn.inputs}
    return _with_shapes(graph) if is_known else torn


def _with_shapes(graph: OperatorGraph) -> OperatorGraph:
    """Return a graph with operators that hold their tensors in the declared shapes."""
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
    message = _Message(memoryview(files.read_bytes(path)))
    try:
        program = _message_program(message.inner(_FIELD_OF_GRAPH), weights)
    except (WireError, UnicodeDecodeError) as error:
        raise DumpReadError(path, f"no graph of MindSpore: {error}") from error
    return graph_of(program, path)


class _Message:
    """The fields of a message, by number."""

    def __init__(self, view: memoryview, span: Span | None = None) -> None:
        self._view = view
        self._span = span or (0, len(view))

    def each(self, number: int) -> Iterator[_Message]:
        for tag, _, _, start, end in fields(self._view, *self._span):
            if tag >> 3 == number:
                yield _Message(self._view, (start, end))

    def inner(self, number: int) -> _Message:
        """Return the last message of a field, an empty one where it is absent."""
        return next(reversed([*self.each(number)]), _Message(self._view, (0, 0)))

    def text(self, number: int) -> str:
        start, end = self.inner(number)._span  # noqa: SLF001 - of the same class
        return bytes(self._view[start:end]).decode()

    def number(self, number: int) -> int | None:
        values = [value for tag, value, *_ in fields(self._view, *self._span) if tag >> 3 == number]
        return values[-1] if values else None


def _message_program(graph: _Message, weights: Collection[str]) -> IrProgram:
    """Return the program of a GraphProto: node 1, name 2, parameters 3, outputs 4, const_vals 5."""
    name = _GRAPH_NAME.match(graph.text(2))
    program = IrProgram(graph=int(name[1]) if name else 0, is_whole=True)
    # as in the text, an operand is a statement, a parameter or the text of a constant
    operands: dict[str, str] = {}
    for number, parameter in enumerate(graph.each(3), 1):
        own = parameter.text(1)
        form = (_message_forms(parameter.inner(2)) or (ValueForm(),))[0]
        program.parameters[number] = IrParameter(
            own or f"para{number}", form, is_weight=own in weights, is_monad=False
        )
        operands[own] = f"%para{number}_{own}"
    operands |= {constant.text(1): _message_literal(constant.inner(2)) for constant in graph.each(5)}
    for node in graph.each(1):
        statement = _message_statement(node, operands)
        program.statements[statement.number] = statement
        operands[node.text(2)] = f"%{statement.number}"
    program.returned = tuple(operands.get(output.text(1), "None") for output in graph.each(4))
    return program


def _message_statement(node: _Message, operands: Mapping[str, str]) -> IrStatement:
    """Return a NodeProto: input 1, name 2, op_type 3, attribute 5, output_type 6, full_name 8, source 9."""
    number = int(node.text(2)) if node.text(2).isdecimal() else len(operands)
    lines = (line for text in node.text(9).splitlines() for line in source_lines(text))
    return IrStatement(
        number,
        label="",
        op_type=node.text(3).removeprefix(_PRIMITIVE_FUNCTION),
        operands=tuple(operands.get(each.text(1), "None") for each in node.each(1)),
        instance="",
        attributes=", ".join(f"{each.text(1)}: {_message_literal(each.inner(2))}" for each in node.each(5)),
        full_name=node.text(8) or node.text(2),
        outputs=_message_forms(node.inner(6)),
        source=[*lines][::-1],  # the innermost call comes first here
    )


def _message_forms(kind: _Message) -> tuple[ValueForm, ...]:
    """Return element types and shapes of a TypeProto: tensor_type 2, or sequence_type 3 of several."""
    items = [*kind.inner(3).each(1)]
    if items:
        return tuple(form for item in items for form in _message_forms(item))
    tensors = [*kind.each(2)]
    if not tensors:
        return ()
    element, shapes = tensors[-1].number(1), [*tensors[-1].each(2)]
    sizes = [size.number(1) or 0 for shape in shapes for size in shape.each(1)]
    shape = tuple(size - 2 * _TOP if size >= _TOP else size for size in sizes)
    # a tensor of unknown rank has no shape, as a scalar has none
    return (ValueForm(_DTYPES.get(element or 0, ""), shape if shapes else None),)


def _message_literal(value: _Message) -> str:
    """Return the text of a ValueProto: bool 2, integers 3 and 4, text 7, tensor 8, items of a tuple 18."""
    numbers = (value.number(field) for field in (3, 4))
    number = next((each for each in numbers if each is not None), None)
    if number is not None:
        return str(number - 2 * _TOP if number >= _TOP else number)
    truth = value.number(2)
    if truth is not None:
        return str(bool(truth)).lower()
    items = [_message_literal(item) for item in value.each(18)]
    return f"({', '.join(items)})" if items else value.text(7)
