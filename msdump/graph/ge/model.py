"""Models of one GE operator: an ONNX operator where one does, else a function of several.

A function stays one operator: it has the operator's inputs and outputs and no others, so what GE
has as an attribute does not appear as an input.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import onnx
from onnx import helper

from msdump.errors import InputError
from msdump.graph.ge import arrays, convolutions, elementwise, networks, reductions
from msdump.graph.ge.body import REQUIRED, CallBody, CallOperand, GeOperator
from msdump.graph.operator_types import GE_DOMAIN, GE_PREFIX

_log = logging.getLogger("msdump.graph")

OPSET: Final = 20
_APART: Final = 19
"""Version of the operators in a function; another one than the model's, so that it stays a function."""

OPERATORS: Final[Mapping[str, GeOperator]] = MappingProxyType(
    elementwise.TABLE | arrays.TABLE | reductions.TABLE | networks.TABLE | convolutions.TABLE
)
"""GE's operators by name."""


_ALSO_ATTRIBUTE: Final[Mapping[str, str]] = MappingProxyType({"Concat": "concat_dim"})
"""Attributes that show that ONNX's operator is meant: in GE's operator of the name they are inputs."""


class InputCountError(InputError):
    """A call with fewer or more inputs than the operator has."""


def find(op_type: str, inputs: int, attributes: Mapping[str, Any]) -> GeOperator | None:
    """Return GE's operator of a name, None where there is none or where a call means ONNX's of that name.

    A call means ONNX's operator where it has an attribute that only ONNX's has, and where its inputs or
    attributes do not fit GE's while ONNX's lacks none.

    Args:
        op_type: The name.
        inputs: How many inputs the call has.
        attributes: Its attributes.
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
    """Return the slots of the inputs whose elements must be known to build a call."""
    return frozenset(slot % inputs for slot in operator.constants if -inputs <= slot < inputs)


def parts(
    op_type: str,
    operator: GeOperator,
    inputs: Sequence[CallOperand],
    outputs: Sequence[CallOperand],
    attributes: Mapping[str, Any],
) -> tuple[onnx.NodeProto, list[onnx.FunctionProto], list[int]]:
    """Return a call's node, the functions that it needs, and the element types of its results.

    Args:
        op_type: Name of the operator, which the node gets.
        operator: The operator.
        inputs: What it reads.
        outputs: What the caller expects.
        attributes: Attributes as GE names them.

    Raises:
        InputCountError: Inputs that are too few or too many.
        InputError: An attribute is missing, or its value is impossible.
    """
    low, high = operator.inputs
    if not low <= len(inputs) <= high:
        count = str(low) if low == high else f"{low} to {high}"
        raise InputCountError(f"operator {op_type!r} has {count} inputs, {len(inputs)} are given")
    body = CallBody(op_type, inputs, outputs, complete(op_type, operator.attributes, attributes))
    body.kind = operator.kind
    # callers may leave out the last outputs
    results = _built(body, operator)[: len(outputs)]
    types = [body.types.get(name, inputs[0].dtype).onnx for name in results]
    names = [f"y{index}" for index in range(len(results))]
    # one operator on the call's own inputs needs no function around it
    if len(body.nodes) == 1 and tuple(body.nodes[0].input) == body.x and len(results) == 1:
        (node,) = body.nodes
        node.output[:] = names
        node.name = op_type
        return node, [], types
    # the function bears the name by which the device's tables know it
    kind = body.kind or next(node.op_type for node in body.nodes if node.op_type != "Constant")
    opsets = [helper.make_opsetid("", _APART)]
    name = f"{GE_PREFIX}{kind}"
    function = helper.make_function(GE_DOMAIN, name, list(body.x), list(results), body.nodes, opsets)
    return helper.make_node(name, list(body.x), names, name=op_type, domain=GE_DOMAIN), [function], types


def complete(op_type: str, defaults: Mapping[str, Any], attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return all attributes of an operator: those of a call, else defaults; unknown ones are logged.

    Raises:
        InputError: One without a default is missing.
    """
    names = ", ".join(defaults) or "none"
    missing = [name for name, default in defaults.items() if default is REQUIRED and name not in attributes]
    if missing:
        raise InputError(f"operator {op_type!r}: attribute {missing[0]!r} is missing; it has {names}")
    for name in attributes.keys() - defaults.keys():
        _log.warning("operator %r has no attribute %r, which is ignored; it has %s", op_type, name, names)
    return {name: attributes.get(name, default) for name, default in defaults.items()}


def _built(body: CallBody, operator: GeOperator) -> tuple[str, ...]:
    try:
        results = operator.build(body)
    except (TypeError, ValueError, IndexError, OverflowError, ZeroDivisionError) as error:
        raise InputError(
            f"operator {body.op_type!r}: its attributes do not fit its inputs: {error}"
        ) from error
    return (results,) if isinstance(results, str) else results
