"""An operator as the standard operators that define it: the bodies of functions, in execution order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, inliner

from msdump.graph.graph import Graph, Node
from msdump.graph.kernel.callees import callees
from msdump.graph.operator_types import canonical_domain
from msdump.graph.order import used_values
from msdump.graph.updates import NO_UPDATE
from msdump.graph.weights import constant
from msdump.record import OperatorRef


@dataclass(frozen=True, slots=True)
class Expansion:
    """The standard operators that stand for one operator.

    Attributes:
        nodes: The operators; they read and write values of the names that the operator has, and inner ones.
        constants: Values of inner constants by name.
        opsets: Version of each domain that they are of.
    """

    nodes: tuple[Node, ...]
    constants: Mapping[str, np.ndarray]
    opsets: Mapping[str, int]


def expanded(graph: Graph, node: Node) -> Expansion:
    """Return an operator as standard operators; one that is no function of the model stays as it is.

    A fused operator gives its parts, each expanded.

    Args:
        graph: The operator's graph.
        node: The operator.
    """
    protos = [part.proto for part in node.members]
    functions = callees(protos, graph.proto.functions)
    if not functions:
        return Expansion(node.members, {}, graph.opsets)
    opsets = {**graph.opsets, **{each.domain: each.version for each in functions[0].opset_import}}
    model = helper.make_model(
        helper.make_graph(
            protos,
            "node",
            [helper.make_empty_tensor_value_info(name) for name in _read(protos)],
            [helper.make_empty_tensor_value_info(name) for name in node.outputs if name],
        ),
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in opsets.items()],
        ir_version=graph.ir_version,
        functions=[_at_version(function, opsets) for function in functions],
    )
    inlined = inliner.inline_local_functions(model).graph.node
    constants = {proto.output[0]: constant(proto) for proto in inlined if proto.output}
    nodes = tuple(_node(proto, node) for proto in inlined if constants.get(proto.output[0]) is None)
    return Expansion(nodes, {name: array for name, array in constants.items() if array is not None}, opsets)


def _read(protos: list[onnx.NodeProto]) -> tuple[str, ...]:
    written = {name for proto in protos for name in proto.output}
    names = (name for proto in protos for name in used_values(proto))
    return tuple(dict.fromkeys(name for name in names if name not in written))


def _at_version(function: onnx.FunctionProto, opsets: Mapping[str, int]) -> onnx.FunctionProto:
    """Return a function that says of its operators that they have the caller's version.

    The inliner leaves calls of functions of another version alone, as those of GE are on purpose.
    """
    copy = onnx.FunctionProto()
    copy.CopyFrom(function)
    for opset in copy.opset_import:
        opset.version = opsets.get(opset.domain, opset.version)
    return copy


def _node(proto: onnx.NodeProto, whole: Node) -> Node:
    return replace(
        whole,
        name=f"{whole.name}/{proto.name or proto.output[0]}",
        op_type=proto.op_type,
        domain=canonical_domain(proto.domain),
        inputs=tuple(proto.input),
        outputs=tuple(proto.output),
        attributes={attribute.name: _attribute(attribute) for attribute in proto.attribute},
        operator=OperatorRef(proto.op_type, whole.operator.full_name),
        proto=proto,
        parts=(),
        bodies={},
        update=NO_UPDATE,
    )


def _attribute(attribute: onnx.AttributeProto) -> Any:
    value: Any = helper.get_attribute_value(attribute)
    return value.decode(errors="replace") if isinstance(value, bytes) else value
