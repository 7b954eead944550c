"""Nodes of ONNX that stand for operators without a body while types and shapes are inferred.

They are collectives and the operators of the device's overflow status, of which ONNX knows nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import onnx
from onnx import helper

from msdump import dtypes
from msdump.graph.collectives.calls import Collective, collective
from msdump.graph.operator_types import canonical_domain, uses_float_status
from msdump.graph.order import subgraphs

Nodes = Iterator[onnx.NodeProto]

_FARTHEST: Final = (1 << 63) - 1  # Slice: to the end of the axis
_COUNTS: Final = ("rank_size", "group_size", "split_count")


def with_standins(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose operators without a body are replaced by nodes that give the same types.

    Others stay as they are. Sizes that follow from a number of ranks which the model does not tell stay
    unknown.
    """
    if not any(_has_no_body(node) for graph in _graphs(model.graph) for node in graph.node):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for graph in _graphs(copy.graph):
        nodes = [part for node in graph.node for part in _standins(node)]
        del graph.node[:]
        graph.node.extend(nodes)
    return copy


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from _graphs(inner)


def _has_no_body(node: onnx.NodeProto) -> bool:
    return _kind(node) is not None or uses_float_status(node.domain, node.op_type)


def _kind(node: onnx.NodeProto) -> Collective | None:
    return collective(canonical_domain(node.domain), node.op_type)


def _standins(node: onnx.NodeProto) -> Nodes:
    kind = _kind(node)
    if kind is not None:
        yield from _STANDINS[kind](node)
    elif uses_float_status(node.domain, node.op_type):
        yield from _same(node)
    else:
        yield node


def _same(node: onnx.NodeProto) -> Nodes:
    for position, (source, target) in enumerate(zip(node.input, node.output, strict=False)):
        yield helper.make_node("Identity", [source], [target], name=f"{node.name}/{position}")


def _gathered(node: onnx.NodeProto) -> Nodes:
    yield from _joined(node, node.input[0], _number(node, ("axis",)))


def _scattered(node: onnx.NodeProto) -> Nodes:
    yield from _cut(node, node.output[0], 0)


def _exchanged(node: onnx.NodeProto) -> Nodes:
    part = f"{node.output[0]}/part"
    yield from _cut(node, part, _number(node, ("split_dim",)))
    yield from _joined(node, part, _number(node, ("concat_dim",)))


def _received(node: onnx.NodeProto) -> Nodes:
    shape = next((list(item.ints) for item in node.attribute if item.name == "shape"), [])
    told = next((helper.get_attribute_value(item) for item in node.attribute if item.name == "dtype"), 1)
    dtype = told if isinstance(told, int) else dtypes.from_name(told.decode()).onnx
    value = helper.make_tensor("value", onnx.TensorProto.FLOAT, [1], [0.0])
    filled = f"{node.output[0]}/filled"
    yield from _constant(f"{node.output[0]}/shape", shape)
    yield helper.make_node("ConstantOfShape", [f"{node.output[0]}/shape"], [filled], value=value)
    yield helper.make_node("Cast", [filled], [node.output[0]], name=node.name, to=dtype)


def _joined(node: onnx.NodeProto, source: str, axis: int) -> Nodes:
    """Yield what gives as many copies of a value as there are ranks along an axis."""
    count, target = _number(node, _COUNTS), node.output[0]
    if count:
        yield helper.make_node("Concat", [source] * count, [target], name=node.name, axis=axis)
    else:
        yield from _some(source, target, axis)


def _cut(node: onnx.NodeProto, target: str, axis: int) -> Nodes:
    """Yield what gives the part of a value that each of the ranks gets of an axis."""
    count = _number(node, _COUNTS)
    if not count:
        yield from _some(node.input[0], target, axis)
        return
    names = [f"{target}/{name}" for name in ("begin", "end", "axis", "step")]
    for name, value in zip(names, (0, _FARTHEST, axis, count), strict=True):
        yield from _constant(name, [value])
    # every count-th element: as many as each rank gets
    yield helper.make_node("Slice", [node.input[0], *names], [target])


def _some(source: str, target: str, axis: int) -> Nodes:
    """Yield what gives a value as long as nobody knows along an axis."""
    numbers, flags = f"{target}/numbers", f"{target}/flags"
    yield from _constant(numbers, [0])
    yield helper.make_node("Cast", [numbers], [flags], to=onnx.TensorProto.BOOL)
    yield helper.make_node("Compress", [source, flags], [target], axis=axis)


def _constant(name: str, numbers: list[int]) -> Nodes:
    tensor = helper.make_tensor(name, onnx.TensorProto.INT64, [len(numbers)], numbers)
    yield helper.make_node("Constant", [], [name], value=tensor)


def _number(node: onnx.NodeProto, names: tuple[str, ...]) -> int:
    """Return the first of some attributes that a node has, 0 where it has none of them."""
    return next((item.i for name in names for item in node.attribute if item.name == name), 0)


_STANDINS: Final[Mapping[Collective, Callable[[onnx.NodeProto], Nodes]]] = {
    Collective.ALL_REDUCE: _same,
    Collective.BROADCAST: _same,
    Collective.SEND: _same,
    Collective.ALL_GATHER: _gathered,
    Collective.REDUCE_SCATTER: _scattered,
    Collective.ALL_TO_ALL: _exchanged,
    Collective.RECEIVE: _received,
}
