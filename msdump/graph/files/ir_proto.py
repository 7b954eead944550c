"""The ``ms_output_trace_code_graph_{graph_id}.pb`` file: the executed graph for MindInsight.

A ``debugger.ModelProto`` (proto2). Its messages are built from the table below when
they are first needed, in a descriptor pool of their own, so that no generated module
ties the program to one version of protobuf. Enumerations are declared as int32, which
has the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.graph.files.arguments import arguments
from msdump.graph.files.ir_text import (
    FORWARD_LINES,
    Constant,
    Parameter,
    Statement,
    Type,
    body_names,
    graph_name,
    program,
    source_line,
)
from msdump.graph.graph import Graph, ValueType
from msdump.graph.operators import Argument

# message: fields with number and type; a type in brackets repeats
_MESSAGES: Final[Mapping[str, str]] = {
    "ModelProto": (
        "ir_version 1: int64, domain 2: string, model_version 3: int64, graph 4: GraphProto,"
        " metadata_operators 5: OperatorSetProto"
    ),
    "OperatorSetProto": "operators 1: [OperatorProto], summary 2: string",
    "OperatorProto": "name 1: string, config 2: bytes, obj_info 3: bytes",
    "GraphProto": (
        "node 1: [NodeProto], name 2: string, parameters 3: [ParameterProto], outputs 4: [OutputProto],"
        " const_vals 5: [NamedValueProto], root_name 6: string"
    ),
    "NodeProto": (
        "input 1: [InputProto], name 2: string, op_type 3: string, scope 4: string,"
        " attribute 5: [AttributeProto], output_type 6: TypeProto, output_i 7: uint64, full_name 8: string,"
        " source_address 9: string"
    ),
    "InputProto": "name 1: string, type 2: int32",
    "ParameterProto": "name 1: string, type 2: TypeProto, default_val 3: ValueProto",
    "OutputProto": "name 1: string, type 2: TypeProto",
    "AttributeProto": "name 1: string, value 2: ValueProto",
    "NamedValueProto": "key 1: string, value 2: ValueProto, full_name 3: string",
    "TypeProto": "data_type 1: int32, tensor_type 2: TensorTypeProto, sequence_type 3: SequenceTypeProto",
    "TensorTypeProto": "elem_type 1: int32, shape 2: TensorShapeProto",
    "SequenceTypeProto": "elem_types 1: [TypeProto]",
    "TensorShapeProto": "dim 1: [DimensionProto]",
    "DimensionProto": "size 1: int64, name 2: string",
    "ValueProto": (
        "dtype 1: int32, bool_val 2: bool, int_val 3: int64, uint_val 4: uint64, float_val 5: float,"
        " double_val 6: double, str_val 7: string, tensor_val 8: TensorProto, graph 9: GraphProto,"
        " bool_vals 10: [bool], int_vals 11: [int64], uint_vals 12: [uint64], float_vals 13: [float],"
        " double_vals 14: [double], str_vals 15: [string], tensor_vals 16: [TensorProto],"
        " graphs 17: [GraphProto], values 18: [ValueProto], dict_val 19: [NamedValueProto],"
        " type_val 20: TypeProto"
    ),
    "TensorProto": (
        "node_name 1: string, slot 2: string, tensor_content 3: bytes, dims 4: [int64], data_type 5: int32,"
        " finished 6: bool, iter 7: string, truncate 8: bool"
    ),
}

# numbers of the DataType enumeration that are no element types
_UNDEFINED: Final = 0
_TUPLE: Final = 31
_LIST: Final = 32
_KINDS: Final = {"sequence": _TUPLE, "map": _TUPLE}  # MindInsight accepts no list or dictionary type

_BOOL: Final = dtypes.from_name("bool").ir
_INT64: Final = dtypes.from_name("int64").ir
_FLOAT32: Final = dtypes.from_name("float32").ir
_STRING: Final = dtypes.STRING.ir

_DATA_EDGE: Final = 0
_PACKAGE: Final = "debugger"


def encode(graph: Graph, graph_id: int) -> bytes:
    """Return the .pb file of a graph.

    Tensor contents are left out. Statements are named "1", "2", ... in the order of the
    .ir text; inputs name a statement, a parameter or a constant ("cst1").
    """
    code = program(graph)
    model = _classes()["ModelProto"](ir_version=1)
    target = model.graph
    target.name = graph_name(graph_id)
    target.root_name = str(graph_id)
    for parameter in code.parameters:
        _set_type(target.parameters.add(name=parameter.name).type, parameter.type)
    for statement in code.statements:
        _add_node(target, statement, graph, graph_id)
    last = code.statements[-1]
    _set_type(target.outputs.add(name=_statement_name(last.number)).type, last.type)
    for constant in code.constants:
        full_name = f"Default_data-{constant.number - 1}"
        named = target.const_vals.add(key=f"cst{constant.number}", full_name=full_name)
        _set_value(named.value, constant.value)
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def decode(data: bytes) -> Any:
    """Return the ModelProto of a .pb file; protobuf's DecodeError if the bytes are no such message."""
    return _classes()["ModelProto"].FromString(data)


def _add_node(target: Any, statement: Statement, graph: Graph, graph_id: int) -> None:
    node = target.node.add(
        name=_statement_name(statement.number),
        op_type=statement.op_type,
        scope=statement.scope,
        full_name=statement.full_name,
        source_address="",
    )
    for operand in statement.operands:
        if operand is not None:
            node.input.add(name=_operand_name(operand), type=_DATA_EDGE)
    _set_type(node.output_type, statement.type)
    if statement.node is None:
        return
    values = arguments(statement.node, graph) | body_names(statement.node, graph, graph_id)
    for name, value in values.items():
        _set_value(node.attribute.add(name=name).value, value)
    if statement.node.update.new_values:
        _set_value(node.attribute.add(name="side_effect_mem").value, value=True)
    # MindInsight reads line numbers behind a colon; the .ir text has parentheses
    lines = [source_line(line, f":{line.line}") for line in reversed(statement.node.source)]
    if statement.node.forward and lines:
        lines.insert(0, FORWARD_LINES)
    node.source_address = "".join(f"{line}\n" for line in lines)


def _operand_name(operand: Statement | Parameter | Constant) -> str:
    match operand:
        case Parameter():
            return operand.name
        case Constant():
            return f"cst{operand.number}"
        case Statement():
            return _statement_name(operand.number)


def _statement_name(number: int) -> str:
    return str(number + 1)


def _set_type(target: Any, value_type: Type) -> None:
    if isinstance(value_type, tuple):
        target.data_type = _TUPLE
        # sets the field of an empty tuple, too
        target.sequence_type.SetInParent()
        for item in value_type:
            _set_type(target.sequence_type.elem_types.add(), item)
    elif value_type.kind == "tensor":
        target.data_type = dtypes.IR_TENSOR
        # a scalar and a tensor of unknown rank have no shape
        tensor = target.tensor_type
        tensor.elem_type = value_type.dtype.ir if value_type.dtype else _UNDEFINED
        for size in () if value_type.shape is None else value_type.shown_shape:
            tensor.shape.dim.add(size=size)
    else:
        target.data_type = _KINDS.get(value_type.kind, _UNDEFINED)
        if value_type.kind == "sequence" and value_type.dtype is not None:
            _set_type(target.sequence_type.elem_types.add(), ValueType(value_type.dtype, value_type.shape))


def _set_value(target: Any, value: Argument) -> None:
    if isinstance(value, np.ndarray):
        target.dtype = dtypes.IR_TENSOR
        target.tensor_val.dims.extend(value.shape)
        target.tensor_val.data_type = dtypes.from_numpy(value.dtype).ir
    elif isinstance(value, (tuple, list)):
        target.dtype = _TUPLE if isinstance(value, tuple) else _LIST
        for item in value:
            _set_value(target.values.add(), item)
    else:
        kind, field = _SCALARS[type(value)]
        target.dtype = kind
        setattr(target, field, value)


_SCALARS: Final[Mapping[type, tuple[int, str]]] = {
    bool: (_BOOL, "bool_val"),
    int: (_INT64, "int_val"),
    float: (_FLOAT32, "float_val"),
    str: (_STRING, "str_val"),
}


@cache
def _classes() -> dict[str, Any]:
    from google.protobuf import descriptor_pool, message_factory

    # a pool of its own: another library's debugger.ModelProto must not clash
    pool = descriptor_pool.DescriptorPool()
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

    file = FileDescriptorProto(name="debug_graph.proto", package=_PACKAGE, syntax="proto2")
    for message, fields in _MESSAGES.items():
        target = file.message_type.add(name=message)
        for name, number, kind in re.findall(r"(\w+) (\d+): (\S+?)(?:, |$)", fields):
            repeats, plain = kind.startswith("["), kind.strip("[]")
            label = FieldDescriptorProto.LABEL_REPEATED if repeats else FieldDescriptorProto.LABEL_OPTIONAL
            field = target.field.add(name=name, number=int(number), label=label)
            if plain in _MESSAGES:
                field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{_PACKAGE}.{plain}"
            else:
                field.type = FieldDescriptorProto.Type.Value(f"TYPE_{plain.upper()}")
    pool.AddSerializedFile(file.SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _MESSAGES
    }
