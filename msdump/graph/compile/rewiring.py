"""Makes the nodes that compilation adds (TransData, Cast), and nodes with other inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import onnx
from onnx import helper

from msdump.dtypes import DType
from msdump.graph.graph import Node
from msdump.record import OperatorRef

TRANS_DATA: Final = "TransData"
CAST: Final = "Cast"


def trans_data(name: str, source: str, target: str, attributes: Mapping[str, Any]) -> Node:
    """Return an operator that changes a tensor's format on the device; on the host nothing moves.

    Args:
        name: Its name.
        source: The value that it reads.
        target: The value that it makes.
        attributes: The formats before and after, by GE's names.
    """
    return added(helper.make_node("Identity", [source], [target], name=name), TRANS_DATA, attributes)


def cast(name: str, source: str, target: str, dtype: DType | None) -> Node:
    """Return an operator that changes a tensor's element type on the device.

    Args:
        name: Its name.
        source: The value that it reads.
        target: The value that it makes.
        dtype: The host's new element type; None: it stays, and the operator only rounds.
    """
    if dtype is None:
        return added(helper.make_node("Identity", [source], [target], name=name), CAST, {})
    proto = helper.make_node("Cast", [source], [target], name=name, to=dtype.onnx)
    return added(proto, CAST, {"to": dtype.onnx})


def added(proto: onnx.NodeProto, primitive: str, attributes: Mapping[str, Any]) -> Node:
    """Return the node of a message that no model has.

    Args:
        proto: The message, of ONNX's domain.
        primitive: Its type in dumps.
        attributes: Its attributes, decoded.
    """
    return Node(
        name=proto.name,
        op_type=proto.op_type,
        domain="",
        inputs=tuple(proto.input),
        outputs=tuple(proto.output),
        attributes=attributes,
        operator=OperatorRef(primitive, proto.name),
        source=(),
        proto=proto,
        is_added=True,
    )


def rewired(node: Node, inputs: Sequence[str], outputs: Mapping[str, str]) -> Node:
    """Return a node with other inputs and outputs; parts of a fused one are changed with it.

    Args:
        node: The operator.
        inputs: The name of each input.
        outputs: New names of outputs, by the old ones.
    """
    if not node.parts:
        return _renamed(node, inputs, outputs)
    inner = {name for part in node.parts for name in part.outputs}
    names = {old: new for old, new in zip(node.inputs, inputs, strict=True) if old not in inner}
    parts = tuple(
        _renamed(part, [names.get(name, name) for name in part.inputs], outputs) for part in node.parts
    )
    return replace(
        node,
        inputs=tuple(inputs),
        outputs=tuple(outputs.get(name, name) for name in node.outputs),
        proto=parts[-1].proto,
        parts=parts,
    )


def _renamed(node: Node, inputs: Sequence[str], outputs: Mapping[str, str]) -> Node:
    results = [outputs.get(name, name) for name in node.outputs]
    if list(node.inputs) == list(inputs) and list(node.outputs) == results:
        return node
    # the message belongs to the loaded model, which other compilations read
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    del proto.input[:], proto.output[:]
    proto.input.extend(inputs)
    proto.output.extend(results)
    return replace(node, inputs=tuple(inputs), outputs=tuple(results), proto=proto)
