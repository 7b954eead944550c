"""The ``ms_output_trace_code_graph_{graph_id}.ir`` file: the executed graph as text.

The form is that of the MindSpore dump documents, "Data Analysis Sample"::

    %0(y) = ReLU(%para1_x) {instance name: relu} primitive_attrs: {}
        : (<Tensor[Float32], (1, 8)>) -> (<Tensor[Float32], (1, 8)>)
        : (<Float32xDefaultFormat[const vector][1, 8]>) -> (<Float32xDefaultFormat[const vector][1, 8]>)
        : full_name_with_scope: (Default/relu-ReLU/ReLU-op0)
        # In file net.py(12)/        x = self.relu(x)/

The first line below a statement has types and shapes on the host, the second the
same with formats on the device, which control flow lacks; source lines run from the
outermost call inwards. An unknown dimension is -1, an unknown rank (-2).

    >>> import onnx.parser
    >>> from msdump.graph import loader
    >>> head = '<ir_version: 10, opset_import: ["": 20]> relu_net (float[1, 8] x) => (float[1, 8] y)'
    >>> model = onnx.parser.parse_model(head + "{ [relu] y = Relu(x) }")
    >>> lines = text(loader.load(model), graph_id=0).splitlines()
    >>> print(*next(line for line in lines if line.startswith("%para1")).split("  :  "), sep=chr(10))
    %para1_x: <Tensor[Float32], (1, 8)> : [1, 8]
    <Float32xDefaultFormat[const vector][1, 8]>
    IsWeight: false
    >>> start = lines.index("subgraph @kernel_graph0() {")
    >>> for line in lines[start : start + 5]:
    ...     print(line)
    subgraph @kernel_graph0() {
      %0(y) = ReLU(%para1_x) {instance name: relu} primitive_attrs: {}
          : (<Tensor[Float32], (1, 8)>) -> (<Tensor[Float32], (1, 8)>)
          : (<Float32xDefaultFormat[const vector][1, 8]>) -> (<Float32xDefaultFormat[const vector][1, 8]>)
          : full_name_with_scope: (Default/ReLU-op0)
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

import numpy as np

from msdump.dtypes import from_numpy
from msdump.graph.files.arguments import arguments, number_text, tensor_text
from msdump.graph.graph import UNKNOWN, Graph, Node, SourceLine, ValueType
from msdump.graph.operators import Argument
from msdump.graph.order import reads
from msdump.record import DEFAULT_FORMAT

FUSED_FROM: Final = "# Fused from "
FILES: Final = "# Files: "
"""Comments of msdump's own: names of an operator's parts; the full name that its files have, if another."""
"""Stands before the names of the ONNX nodes that a kernel computes; other readers skip comments."""

FORWARD_LINES: Final = "      # Corresponding forward node candidate:"
"""Stands above the source lines of a gradient operator, which are its forward operator's."""


def primal_attributes(graph: Graph) -> dict[str, Mapping[str, str]]:
    """Return the primal attributes of operators by node name; {} for a graph without training.

    A forward operator has ``unique_id``, each operator of its gradient the forward operator's name and
    id; optimizers and sums of gradients have no attributes.
    """
    if not graph.bindings:
        return {}
    after_gradient: set[str] = set()
    for node in graph.nodes:
        if node.forward or not after_gradient.isdisjoint(reads(node)):
            after_gradient.update(filter(None, node.outputs))
    needed = {value.name for value in graph.results}
    forward = {}
    for position, node in reversed(list(enumerate(graph.nodes))):
        if not needed.isdisjoint(node.outputs):
            needed.update(reads(node))
            if after_gradient.isdisjoint(node.outputs):
                forward[position] = node

    numbers = {part.name: (node, number) for number, node in forward.items() for part in (node, *node.parts)}
    attributes: dict[str, Mapping[str, str]] = {
        node.name: {"unique_id": str(number)} for number, node in forward.items()
    }
    for node in graph.nodes:
        if node.forward in numbers:
            origin, number = numbers[node.forward]
            attributes[node.name] = {
                "forward_node_name": f"{origin.operator.op_type}_{number}",
                "forward_unique_id": str(number),
            }
    return attributes


def dot_text(graph: Graph, name: str) -> str:
    """Return a digraph: a box for each operator and parameter, an arrow for each value that is read."""
    code = program(graph)
    return "\n".join((f"digraph {_quoted(name)} {{", *_boxes(code), "}", ""))


def _boxes(code: GraphStatements) -> Iterator[str]:
    for parameter in code.parameters:
        yield f"  para{parameter.number} [label={_quoted(parameter.name)}, shape=octagon];"
    for statement in code.statements:
        label = f"{statement.op_type}\n{statement.full_name}"
        yield f"  node{statement.number} [label={_quoted(label)}, shape=box];"
    for statement in code.statements:
        for slot, operand in enumerate(statement.operands):
            if isinstance(operand, Parameter | Statement):
                source = "para" if isinstance(operand, Parameter) else "node"
                yield f"  {source}{operand.number} -> node{statement.number} [label={slot}];"


def _quoted(words: str) -> str:
    escaped = words.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


ABSENT = ValueType(kind="none")
"""Type of an optional input that is not there."""

INDEX = ValueType(from_numpy(np.dtype("<i8")), kind="scalar")
"""Type of the index of a TupleGetItem."""

Type = ValueType | tuple[ValueType, ...]
"""Type of a value or of a tuple of values."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A weight or a graph input."""

    number: int  # position among the parameters, from 1
    name: str
    type: ValueType
    is_weight: bool
    is_inplace: bool = False  # a weight that a training step writes


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant: a weight from a Constant node, or the index of a TupleGetItem."""

    number: int  # position among the constants, from 1
    type: ValueType
    value: np.ndarray | int

    @property
    def text(self) -> str:
        """The value as graph files print it."""
        return tensor_text(self.value) if isinstance(self.value, np.ndarray) else str(self.value)


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """One line of the program."""

    number: int  # position among the statements, from 0
    label: str  # name of its first output; the variable name in MindSpore's files
    op_type: str
    full_name: str
    # the values that it reads: results of earlier statements, parameters, constants
    operands: tuple[Operand, ...] = field(repr=False)
    type: Type  # type of its value; a tuple where it has several outputs
    node: Node | None = None  # the operator, None for the ones that exist in the files only

    @property
    def scope(self) -> str:
        """Full name without its last component."""
        return self.full_name.rpartition("/")[0]


Operand = Statement | Parameter | Constant | None
"""Source of a value that a statement reads; None: an absent optional input."""


@dataclass(frozen=True, slots=True)
class GraphStatements:
    """A graph as parameters, constants and statements; the last statement is the tuple of graph outputs."""

    parameters: tuple[Parameter, ...]
    constants: tuple[Constant, ...]
    statements: tuple[Statement, ...]


def parameters(graph: Graph) -> tuple[Parameter, ...]:
    """Return the parameters in order: the weights, then the graph inputs."""
    constants = set(graph.constants)
    weights = [(name, graph.shown_type(name), True) for name in graph.weights if name not in constants]
    inputs = [(value.name, value.type, False) for value in graph.inputs]
    return tuple(
        Parameter(number, name, value_type, is_weight, name in graph.bindings)
        for number, (name, value_type, is_weight) in enumerate((*weights, *inputs), start=1)
    )


def graph_name(graph_id: int) -> str:
    """Return the name of a graph in its .ir file, by number."""
    return f"kernel_graph{graph_id}"


def body_names(node: Node, graph: Graph, graph_id: int) -> dict[str, str]:
    """Return the names of a control flow node's bodies, by attribute; a model's graphs have adjacent ids."""
    return {
        attribute: f"@{graph_name(graph_id + body.index - graph.index)}"
        for attribute, body in node.bodies.items()
    }


def outputs_of(node: Node) -> tuple[str, ...]:
    """Return the outputs that a node declares, without unused ones at the end; "" for other unused ones."""
    count = len(node.declared_outputs)
    # exporters write trailing optional outputs as empty names
    while count and not node.outputs[count - 1]:
        count -= 1
    return node.outputs[:count]


def source_line(line: SourceLine, place: str) -> str:
    """Return a source line as graph files show it; the place is ``(7)`` or ``:7``."""
    return f"      # In file {one_line(line.file)}{place}/{' ' * 8}{one_line(line.code.strip())}/"


def one_line(words: str) -> str:
    """Escape line breaks, which a name of a model may hold."""
    return words.replace("\n", "\\n").replace("\r", "\\r")


def program(graph: Graph) -> GraphStatements:
    """Return the program of a graph.

    Three operators stand in files alone, as in MindSpore, and never run: TupleGetItem takes one of several
    outputs, MakeTuple gathers the graph's outputs, Return ends the graph.
    """
    own_parameters = parameters(graph)
    names = enumerate(graph.constants, start=1)
    constants = {
        name: Constant(number, graph.shown_type(name), graph.weights[name]) for number, name in names
    }
    listed = list(constants.values())
    values: dict[str, Operand] = {**{each.name: each for each in own_parameters}, **constants}
    read = {value.name for value in graph.results}.union(*map(operand_names, graph.nodes))
    statements: list[Statement] = []
    counts: Counter[str] = Counter()

    def add_virtual(op_type: str, label: str, scope: str, operands: tuple[Operand, ...], kind: Type) -> None:
        stem = f"{scope or 'Default'}/{op_type}"
        full_name = f"{stem}-op{counts[stem]}"
        counts[stem] += 1
        statements.append(Statement(len(statements), label, op_type, full_name, operands, kind))

    for node in graph.nodes:
        outputs = outputs_of(node)
        types = tuple(graph.shown_type(name) if name else UNKNOWN for name in outputs)
        statement = Statement(
            len(statements),
            next(filter(None, outputs), ""),
            node.operator.op_type,
            node.operator.listed_name,
            tuple(map(values.get, operand_names(node))),
            types[0] if len(types) == 1 else types,
            node,
        )
        statements.append(statement)
        # files show the input written in place instead of an undeclared output with its new value
        values |= {name: values.get(written) for name, written in node.undeclared_outputs.items()}
        if len(outputs) == 1:
            values[outputs[0]] = statement
            continue
        for slot, name in enumerate(outputs):
            if name and name in read:  # as in MindSpore, outputs without readers have no statement
                listed.append(Constant(len(listed) + 1, INDEX, slot))
                operands = (statement, listed[-1])
                add_virtual("TupleGetItem", name, statement.scope, operands, graph.shown_type(name))
                values[name] = statements[-1]
    results = tuple(values.get(value.name) for value in graph.results)
    # a single output is a tuple of one, too
    add_virtual("MakeTuple", "", "", results, tuple(map(_element_type, results)))
    return GraphStatements(own_parameters, tuple(listed), tuple(statements))


def operand_type(operand: Operand) -> Type:
    """Return the type of an operand."""
    return ABSENT if operand is None else operand.type


def _element_type(operand: Operand) -> ValueType:
    kind = operand_type(operand)
    return UNKNOWN if isinstance(kind, tuple) else kind


def operand_names(node: Node) -> tuple[str, ...]:
    """Return the values that a statement reads: a node's inputs, then values that only its bodies read."""
    if not node.bodies:
        return node.inputs
    return (*node.inputs, *(name for name in reads(node) if name not in node.inputs))


DeviceView = Callable[[str, Node], tuple[str, str, tuple[int, ...]]]
"""Returns how an operator holds a value on the device: title of the element type, format, dimensions."""

_INDENT: Final = " " * 6
_KINDS: Final = {
    "": "Unknown",
    "none": "None",
    "sequence": "List",
    "map": "Dictionary",
    "optional": "Optional",
}


def text(graph: Graph, graph_id: int, device: DeviceView | None = None) -> str:
    """Return the text of the graph ``kernel_graph{graph_id}``, by default with the host's formats."""
    view = device or host_view(graph)
    code = program(graph)
    name = graph_name(graph_id)
    return "\n".join((*_head(code, name), *_body(code, graph, graph_id, view), *_tail(code, name)))


def host_view(graph: Graph) -> DeviceView:
    """Return the device view that shows every value as it is on the host."""

    def view(value: str, _node: Node) -> tuple[str, str, tuple[int, ...]]:
        value_type = graph.shown_type(value)
        return _title(value_type), DEFAULT_FORMAT, value_type.shown_shape

    return view


def _head(code: GraphStatements, name: str) -> Iterator[str]:
    statements = len(code.statements) + 1  # and the statement Return
    yield f"# IR entry: @{name}"
    yield "# Total subgraphs: 1"
    yield ""
    yield "# Attrs:"
    yield ""
    yield f"# Total params: {len(code.parameters)}"
    yield "# Params:"
    yield from map(_parameter, code.parameters)
    yield ""
    yield "Node counting information:"
    # an operator counts twice, as a call and as the primitive that it calls
    yield f"Total number of nodes: {len(code.parameters) + len(code.constants) + 2 * statements}"
    yield f"Total number of cnodes: {statements}"
    yield ""
    yield "subgraph attr:"
    yield f"subgraph instance: {name} : 0x0"  # vendor: MindSpore prints an address here
    yield ""
    yield f"subgraph @{name}() {{"


def _tail(code: GraphStatements, name: str) -> Iterator[str]:
    outputs = code.statements[-1]
    yield f"  Return(%{outputs.number})"
    yield f"{_INDENT}: ({_host(outputs.type)})"
    yield f"{_INDENT}: full_name_with_scope: (Default/Return-op0)"
    yield "}"
    yield "# Order:"
    yield f"#   1: @{name}:Return{{[0]: ValueNode<Primitive> Return, [1]: %{outputs.number}}}"
    yield ""


def _parameter(parameter: Parameter) -> str:
    value_type = parameter.type
    tensor, shape = f"Tensor[{_title(value_type)}]", _tuple(value_type.shown_shape)
    device = _device(_title(value_type), DEFAULT_FORMAT, value_type.shown_shape)
    name = one_line(parameter.name)
    if parameter.is_weight:
        inplace = ", is_inplace" * parameter.is_inplace
        host = f"<Ref[{tensor}], {shape}, ref_key={name}, is_parameter{inplace}>  :  has_default"
    else:
        host = f"{_host(value_type)} : {list(value_type.shown_shape)}"
    flag = str(parameter.is_weight).lower()
    return f"%para{parameter.number}_{name}: {host}  :  {device}  :  IsWeight: {flag}"


def _body(code: GraphStatements, graph: Graph, graph_id: int, view: DeviceView) -> Iterator[str]:
    primals = primal_attributes(graph)
    for statement in code.statements:
        own = primals.get(statement.node.name, {}) if statement.node else {}
        yield f"  {_call(statement)}{_attributes(statement, graph, graph_id)}{_primal(own)}"
        types = [_host(operand_type(operand)) for operand in statement.operands]
        operands = ", ".join([*types, "<UMonad, NoShape>"] if _has_side_effect(statement) else types)
        yield f"{_INDENT}: ({operands}) -> ({_host(statement.type)})"
        yield from _device_line(statement.node, view)
        yield f"{_INDENT}: full_name_with_scope: ({one_line(statement.full_name)})"
        if statement.node is not None and len(statement.node.members) > 1:
            parts = [part.name for part in statement.node.members]
            yield f"{_INDENT}{FUSED_FROM}{json.dumps(parts, ensure_ascii=False)}"
        if statement.node is not None and statement.node.operator.full_name != statement.full_name:
            yield f"{_INDENT}{FILES}({one_line(statement.node.operator.full_name)})"
        yield from _source_lines(statement.node)


def _call(statement: Statement) -> str:
    label = one_line(statement.label) or f"CNode_{statement.number}"
    operands = list(map(_operand, statement.operands))
    if _has_side_effect(statement):
        operands.append("UMonad[U]")
    return f"%{statement.number}({label}) = {statement.op_type}({', '.join(operands)})"


def _has_side_effect(statement: Statement) -> bool:
    """Return whether an operator writes inputs in place; its last operand is then a monad, ``UMonad[U]``."""
    return statement.node is not None and bool(statement.node.update.new_values)


def _operand(operand: Operand) -> str:
    match operand:
        case Statement():
            return f"%{operand.number}"
        case Parameter():
            return f"%para{operand.number}_{one_line(operand.name)}"
        case Constant():
            return one_line(operand.text)
        case None:
            return "None"


def _attributes(statement: Statement, graph: Graph, graph_id: int) -> str:
    node = statement.node
    if node is None:
        return ""
    pairs = shown_arguments(node, graph, graph_id)
    return f" {{instance name: {one_line(node.name)}}} primitive_attrs: {{{pairs}}}"


def shown_arguments(node: Node, graph: Graph, graph_id: int) -> str:
    """Return the arguments of an operator as the file shows them, ``axis: 1, keep_dims: true``."""
    values = arguments(node, graph) | body_names(node, graph, graph_id)
    pairs = [f"{name}: {_value(value)}" for name, value in values.items()]
    if node.update.new_values:  # writes inputs in place
        pairs.append("side_effect_mem: Bool(1)")
    return ", ".join(pairs)


def _value(value: Argument) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return number_text(value)
    if isinstance(value, tuple):
        return _tuple(_value(item) for item in value)
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return one_line(tensor_text(value) if isinstance(value, np.ndarray) else str(value))


def _primal(attributes: Mapping[str, str]) -> str:
    pairs = ", ".join(f'{name}: "{one_line(value)}"' for name, value in attributes.items())
    return f" cnode_primal_attrs: {{{pairs}}}" if pairs else ""


def _source_lines(node: Node | None) -> Iterator[str]:
    if node is None:
        return
    if node.forward and node.source:
        yield FORWARD_LINES
    for line in node.source:
        yield source_line(line, f"({line.line})")


def _device_line(node: Node | None, view: DeviceView) -> Iterator[str]:
    if node is None or node.bodies:
        return

    def side(names: tuple[str, ...]) -> str:
        return ", ".join(
            _device(*view(name, node)) if name else _device("None", DEFAULT_FORMAT, ()) for name in names
        )

    yield f"{_INDENT}: ({side(node.inputs)}) -> ({side(outputs_of(node))})"


def _device(title: str, layout: str, dims: tuple[int, ...]) -> str:
    return f"<{title}x{layout}[const vector]{list(dims)}>"


def _host(value_type: Type) -> str:
    if isinstance(value_type, tuple):
        shapes = ", ".join(map(_shape, value_type))
        # runs of equal types as Tensor[Float32]*3
        runs = [(name, len(list(run))) for name, run in groupby(map(_type, value_type))]
        types = ",".join(name if count == 1 else f"{name}*{count}" for name, count in runs)
        return f"<Tuple[{types}], TupleShape({shapes})>"
    return f"<{_type(value_type)}, {_shape(value_type)}>"


def _type(value_type: ValueType) -> str:
    if value_type.kind == "tensor":
        return f"Tensor[{_title(value_type)}]"
    return _title(value_type) if value_type.kind == "scalar" else _KINDS.get(value_type.kind, "Unknown")


def _shape(value_type: ValueType) -> str:
    return _tuple(value_type.shown_shape) if value_type.kind == "tensor" else "NoShape"


def _title(value_type: ValueType) -> str:
    return value_type.dtype.title if value_type.dtype else "Unknown"


def _tuple(items: Iterable[object]) -> str:
    return f"({', '.join(map(str, items))})"
