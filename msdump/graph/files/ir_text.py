"""The ``ms_output_trace_code_graph_{graph_id}.ir`` file: the executed graph as text.

The form is that of the MindSpore dump documents, "Data Analysis Sample"::

    %0(y) = ReLU(%para1_x) {instance name: relu} primitive_attrs: {}
        : (<Tensor[Float32], (1, 8)>) -> (<Tensor[Float32], (1, 8)>)
        : (<Float32xDefaultFormat[const vector][1, 8]>) -> (<Float32xDefaultFormat[const vector][1, 8]>)
        : full_name_with_scope: (Default/relu-ReLU/ReLU-op0)
        # In file net.py(12)/        x = self.relu(x)/

The first line below a statement tells types and shapes on the host, the second the
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

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Final

import numpy as np

from msdump.graph.files import primal
from msdump.graph.files.arguments import Argument, arguments, number_text, tensor_text
from msdump.graph.files.ir_model import (
    Constant,
    GraphStatements,
    Parameter,
    Statement,
    StatementOperand,
    Type,
    body_names,
    graph_name,
    one_line,
    outputs_of,
    program,
    source_line,
)
from msdump.graph.graph import UNKNOWN_RANK, Graph, Node, ValueType
from msdump.record import DEFAULT_FORMAT

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
    """Return the text of a graph.

    Args:
        graph: The graph.
        graph_id: Its number in the process; the graph is called ``kernel_graph{graph_id}``.
        device: How operators hold values on the device; as on the host by default.
    """
    view = device or host_view(graph)
    code = program(graph)
    name = graph_name(graph_id)
    return "\n".join((*_head(code, name), *_body(code, graph, graph_id, view), *_tail(code, name)))


def host_view(graph: Graph) -> DeviceView:
    """Return the device view that shows every value as it is on the host."""

    def view(value: str, _node: Node) -> tuple[str, str, tuple[int, ...]]:
        value_type = graph.type_of(value)
        return _title(value_type), DEFAULT_FORMAT, _dims(value_type)

    return view


def _head(code: GraphStatements, name: str) -> Iterator[str]:
    statements = len(code.statements) + 1  # Return is one of them
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
    yield f"subgraph instance: {name} : 0x0"  # vendor: an address
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
    tensor, shape = f"Tensor[{_title(value_type)}]", _tuple(_dims(value_type))
    device = _device(_title(value_type), DEFAULT_FORMAT, _dims(value_type))
    name = one_line(parameter.name)
    if parameter.is_weight:
        inplace = ", is_inplace" * parameter.is_inplace
        host = f"<Ref[{tensor}], {shape}, ref_key={name}, is_parameter{inplace}>  :  has_default"
    else:
        host = f"{_host(value_type)} : {list(_dims(value_type))}"
    flag = str(parameter.is_weight).lower()
    return f"%para{parameter.number}_{name}: {host}  :  {device}  :  IsWeight: {flag}"


def _body(code: GraphStatements, graph: Graph, graph_id: int, view: DeviceView) -> Iterator[str]:
    primal_attributes = primal.primal_attributes(graph)
    for statement in code.statements:
        own = primal_attributes.get(statement.node.name, {}) if statement.node else {}
        yield f"  {_call(code, statement)}{_attributes(statement, graph, graph_id)}{_primal(own)}"
        types = [_host(operand.type) for operand in statement.operands]
        operands = ", ".join([*types, "<UMonad, NoShape>"] if _has_side_effect(statement) else types)
        yield f"{_INDENT}: ({operands}) -> ({_host(statement.type)})"
        yield from _device_line(statement.node, view)
        yield f"{_INDENT}: full_name_with_scope: ({one_line(statement.full_name)})"
        yield from _source_lines(statement.node)


def _call(code: GraphStatements, statement: Statement) -> str:
    label = one_line(statement.label) or f"CNode_{statement.number}"
    operands = [_operand(code, operand) for operand in statement.operands]
    if _has_side_effect(statement):
        operands.append("UMonad[U]")
    return f"%{statement.number}({label}) = {statement.op_type}({', '.join(operands)})"


def _has_side_effect(statement: Statement) -> bool:
    """Tell whether an operator writes inputs: a monad, which is no tensor, stands behind its operands."""
    return statement.node is not None and bool(statement.node.update.new_values)


def _operand(code: GraphStatements, operand: StatementOperand) -> str:
    if operand.kind == "statement":
        return f"%{operand.number}"
    if operand.kind == "parameter":
        return f"%para{operand.number}_{one_line(operand.name)}"
    if operand.kind == "constant":
        return _literal(code.constant(operand.number))
    return "None"


def _literal(constant: Constant) -> str:
    value = constant.value
    return one_line(tensor_text(value)) if isinstance(value, np.ndarray) else str(value)


def _attributes(statement: Statement, graph: Graph, graph_id: int) -> str:
    node = statement.node
    if node is None:
        return ""
    pairs = shown_arguments(node, graph, graph_id)
    return f" {{instance name: {one_line(node.name)}}} primitive_attrs: {{{pairs}}}"


def shown_arguments(node: Node, graph: Graph, graph_id: int) -> str:
    """Return the arguments of an operator as the file shows them, ``axis: 1, keep_dims: true``.

    Args:
        node: The operator.
        graph: The graph that it stands in.
        graph_id: Number of that graph.
    """
    values = arguments(node, graph) | body_names(node, graph, graph_id)
    pairs = [f"{name}: {_value(value)}" for name, value in values.items()]
    if node.update.new_values:  # it writes inputs
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
        yield primal.FORWARD_LINES
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
        return f"<Tuple[{_repeats(value_type)}], TupleShape({shapes})>"
    return f"<{_type(value_type)}, {_shape(value_type)}>"


def _repeats(types: tuple[ValueType, ...]) -> str:
    """Join the types of a tuple, neighbours that are equal as ``Tensor[Float32]*3``."""
    runs = [(name, len(list(run))) for name, run in groupby(map(_type, types))]
    return ",".join(name if count == 1 else f"{name}*{count}" for name, count in runs)


def _type(value_type: ValueType) -> str:
    if value_type.kind == "tensor":
        return f"Tensor[{_title(value_type)}]"
    return _title(value_type) if value_type.kind == "scalar" else _KINDS.get(value_type.kind, "Unknown")


def _shape(value_type: ValueType) -> str:
    return _tuple(_dims(value_type)) if value_type.kind == "tensor" else "NoShape"


def _title(value_type: ValueType) -> str:
    return value_type.dtype.title if value_type.dtype else "Unknown"


def _dims(value_type: ValueType) -> tuple[int, ...]:
    if value_type.shape is None:
        return UNKNOWN_RANK
    return tuple(size if isinstance(size, int) else -1 for size in value_type.shape)


def _tuple(items: Iterable[object]) -> str:
    return f"({', '.join(map(str, items))})"
