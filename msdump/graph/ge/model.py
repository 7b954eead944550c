"""Models of one GE operator: an ONNX operator where one does, else a function of several.

A function stays one operator: it has the operator's inputs and outputs and no others, so an
attribute of GE does not appear as an input.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import onnx
from onnx import helper

from msdump.errors import InputError, UnsupportedOpError
from msdump.graph.body import BodyValue as Value
from msdump.graph.ge import arrays, elementwise, networks
from msdump.graph.ge.body import REQUIRED, CallBody, CallOperand, GeOperator
from msdump.graph.graph import GE_DOMAIN, GE_PREFIX
from msdump.graph.operators import OPERATORS as ONNX_OPERATORS

_log = logging.getLogger("msdump.graph")

OPSET: Final = 20
_APART: Final = 19
"""Version of the operators in a function; another one than the model's, so that it stays a function."""

OPERATORS: Final[Mapping[str, GeOperator]] = MappingProxyType(
    elementwise.TABLE | arrays.TABLE | arrays.REDUCTIONS | networks.TABLE
)
"""GE's operators by name."""


_ALSO_ATTRIBUTE: Final[Mapping[str, str]] = MappingProxyType({"Concat": "concat_dim"})
"""Attributes that show that ONNX's operator is meant: in GE's operator of the name they are inputs."""


class InputCountError(InputError):
    """A call with fewer or more inputs than the operator has."""


def find(op_type: str, inputs: int, attributes: Mapping[str, Any]) -> GeOperator | None:
    """Return GE's operator of a name; None if GE has none or the call means ONNX's operator of that name.

    A call means ONNX's operator if it has an attribute that only ONNX defines, or if its inputs or
    attributes do not fit GE's operator and all attributes that ONNX requires are given.
    """
    operator = OPERATORS.get(op_type)
    if operator is None or not onnx.defs.has(op_type, OPSET, ""):
        return operator
    if _ALSO_ATTRIBUTE.get(op_type, "") in attributes:
        return None
    schema = onnx.defs.get_schema(op_type, OPSET, "")
    if attributes.keys() & schema.attributes.keys() - operator.attributes.keys():
        return None
    fits = operator.inputs[0] <= inputs <= operator.inputs[1]
    lacks = any(
        default is REQUIRED and name not in attributes for name, default in operator.attributes.items()
    )
    lacks_in_onnx = any(item.required and name not in attributes for name, item in schema.attributes.items())
    return operator if (fits and not lacks) or lacks_in_onnx else None


def constant_slots(operator: GeOperator, inputs: int) -> frozenset[int]:
    """Return the slots of inputs with elements that the operator's builder reads."""
    return frozenset(slot % inputs for slot in operator.constants if -inputs <= slot < inputs)


def parts(
    op_type: str,
    operator: GeOperator,
    inputs: Sequence[CallOperand],
    outputs: Sequence[CallOperand],
    attributes: Mapping[str, Any],
) -> tuple[onnx.NodeProto, list[onnx.FunctionProto], list[int]]:
    """Return a call's node, the functions that it needs, and the element types of its results."""
    low, high = operator.inputs
    if not low <= len(inputs) <= high:
        count = str(low) if low == high else f"{low} to {high}"
        raise InputCountError(f"operator {op_type!r} has {count} inputs, {len(inputs)} are given")
    body = CallBody(op_type, inputs, outputs, complete(op_type, operator.attributes, attributes))
    body.kind = operator.kind
    # callers may leave out the last outputs
    try:
        built = operator.build(body)
    except (TypeError, ValueError, IndexError, OverflowError, ZeroDivisionError) as error:
        raise body.fault(f"its attributes do not fit its inputs: {error}") from error
    results = [value.name for value in ((built,) if isinstance(built, Value) else built)][: len(outputs)]
    types = [body.types.get(name, inputs[0].dtype).onnx for name in results]
    given = [value.name for value in body.x]
    names = [f"y{index}" for index in range(len(results))]
    # a single ONNX operator on the call's inputs needs no function
    if len(body.nodes) == 1 and list(body.nodes[0].input) == given and len(results) == 1:
        (node,) = body.nodes
        node.output[:] = names
        node.name = op_type
        return node, [], types
    # the function's name is the key in the device's tables
    kind = body.kind or next(node.op_type for node in body.nodes if node.op_type != "Constant")
    opsets = [helper.make_opsetid("", _APART)]
    name = f"{GE_PREFIX}{kind}"
    function = helper.make_function(GE_DOMAIN, name, given, results, body.nodes, opsets)
    return helper.make_node(name, given, names, name=op_type, domain=GE_DOMAIN), [function], types


def complete(op_type: str, defaults: Mapping[str, Any], attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return all attributes of an operator: from the call, else the default; unknown ones are logged."""
    names = ", ".join(defaults) or "none"
    missing = [name for name, default in defaults.items() if default is REQUIRED and name not in attributes]
    if missing:
        raise InputError(f"operator {op_type!r}: attribute {missing[0]!r} is missing; it has {names}")
    for name in attributes.keys() - defaults.keys():
        _log.warning("operator %r has no attribute %r, which is ignored; it has %s", op_type, name, names)
    return {name: attributes.get(name, default) for name, default in defaults.items()}


_IR: Final = 10

_NAMES: Final = {
    **{row.name: name for name, row in ONNX_OPERATORS.items() if row.name and isinstance(row.name, str)},
    # its row in OPERATORS has a function in place of the name
    "TensorScatterUpdate": "ScatterND",
}
"""ONNX operators by their names in MindSpore and GE; every other name is ONNX's own."""

_RENAMED: Final[Mapping[str, Mapping[str, str]]] = {
    "Concat": {"concat_dim": "axis"},
    "Gemm": {"transpose_a": "transA", "transpose_b": "transB"},
}
"""ONNX's names of GE's attributes, by ONNX operator, where GE's operator is ONNX's."""


def onnx_name(op_type: str) -> str:
    """Return the ONNX operator of a name in GE, MindSpore or ONNX.

    >>> onnx_name("ReLU"), onnx_name("Maximum"), onnx_name("Add")
    ('Relu', 'Max', 'Add')
    """
    for name in (op_type, _NAMES.get(op_type)):
        if name is not None and onnx.defs.has(name, OPSET, ""):
            return name
    raise UnsupportedOpError(
        f"operator {op_type!r} is unknown; must be a name of ONNX, MindSpore or GE, such as 'Add', 'ReLU' or"
        " 'MatMulV2'"
    )


def needed_values(op_type: str, inputs: int, attributes: Mapping[str, Any]) -> frozenset[int]:
    """Return the inputs that ``single_operator`` needs the elements of: axes, shapes and the like."""
    operator = find(op_type, inputs, attributes)
    return frozenset() if operator is None else constant_slots(operator, inputs)


def single_operator(
    op_type: str, inputs: Sequence[CallOperand], outputs: Sequence[CallOperand], attributes: Mapping[str, Any]
) -> bytes:
    """Return a serialised model of one operator; its inputs are x0, x1, ..., its outputs y0, y1, ...

    Raises:
        UnsupportedOpError: No such operator.
        InputCountError: Inputs that are too few or too many.
        InputError: An attribute is missing, or its value is impossible.
    """
    operator = find(op_type, len(inputs), attributes)
    if operator is None:
        node = _onnx_node(op_type, inputs, len(outputs), attributes)
        functions: list[onnx.FunctionProto] = []
        results = [helper.make_empty_tensor_value_info(name) for name in node.output]
    else:
        node, functions, types = parts(op_type, operator, inputs, outputs, attributes)
        results = [
            helper.make_tensor_value_info(name, number, None)
            for name, number in zip(node.output, types, strict=True)
        ]
    values = [
        helper.make_tensor_value_info(f"x{index}", item.dtype.onnx, item.shape)
        for index, item in enumerate(inputs)
    ]
    graph = helper.make_graph([node], op_type, values, results)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(GE_DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=_IR)
    return bytes(model.SerializeToString())


def _onnx_node(
    op_type: str, inputs: Sequence[CallOperand], outputs: int, attributes: Mapping[str, Any]
) -> onnx.NodeProto:
    target = onnx_name(op_type)
    renamed = dict(attributes)
    # ONNX's operators have no such attribute: their data are NCHW
    renamed.pop("data_format", None)
    for old, new in _RENAMED.get(target, {}).items():
        if old in renamed:
            renamed[new] = renamed.pop(old)
    defaults = {
        name: REQUIRED if item.required else None
        for name, item in onnx.defs.get_schema(target, OPSET).attributes.items()
    }
    completed = complete(op_type, defaults, renamed)
    kept = {name: value for name, value in completed.items() if value is not None}
    names = [f"x{index}" for index in range(len(inputs))]
    return helper.make_node(target, names, [f"y{index}" for index in range(outputs)], name=op_type, **kept)
