"""Nodes that look at values where a session makes them, and hand them on: they measure or write them."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import onnx
from onnx import TensorProto, helper

from msdump.statistics import insession
from msdump.statistics.totals import StatisticNeed

ADDRESSES: Final = {insession.MEASURE: "measurements", insession.SAVE: "files"}
"""The inputs of a model that say where to write what is found, or what became of files: int64."""


def add_measures(model: onnx.ModelProto, values: Mapping[str, int], need: StatisticNeed) -> None:
    """Let a model measure values; who reads one reads it behind its node.

    What the model gives of these values it gives as they are made: no node hands it on, so none copies it.

    Args:
        model: Gets a node behind each producer, and an input of ``ADDRESSES``.
        values: The slot of each value by its name; a node of the model itself makes it.
        need: What to find out.
    """
    slots = {name: insession.attributes(slot, need) for name, slot in values.items()}
    _add(model, insession.MEASURE, slots, {})


class ReadValue(NamedTuple):
    """A value that is written to a file in front of a node that reads it.

    Attributes:
        reader: Name of the node.
        name: Name of the value.
        slot: Its slot.
    """

    reader: str
    name: str
    slot: int


def add_saves(
    model: onnx.ModelProto,
    made: Mapping[str, int],
    read: Sequence[ReadValue] = (),
    waiting: Container[int] = (),
) -> None:
    """Let a model write values to files; see ``add_measures``.

    They are named in the order of nodes: each node that writes hands the addresses on to the next one. The
    files of nodes between which nothing else runs are written together.

    Args:
        model: Gets the nodes, and an input of ``ADDRESSES``.
        made: The slot of each value that is written behind its producer, by its name.
        read: Values that are written in front of who reads them.
        waiting: Slots whose files may be written together with those behind, although others run in between.
    """
    in_front: dict[str, list[onnx.NodeProto]] = {}
    for value in read:
        before = in_front.setdefault(value.reader, [])
        name = f"{value.reader}.i{len(before)}"
        before.append(_look(insession.SAVE, name, value.name, f"{name}.v", {"slot": value.slot}))
    _add(model, insession.SAVE, {name: {"slot": slot} for name, slot in made.items()}, in_front)
    nodes = list(_joined(model.graph.node, waiting))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    addresses = ADDRESSES[insession.SAVE]
    for node in filter(_is_writing, model.graph.node):
        place = 1 if node.op_type == insession.SAVE else 0
        node.input[place], addresses = addresses, f"{node.name}~"
        node.output.append(addresses)


def _joined(nodes: Iterable[onnx.NodeProto], waiting: Container[int]) -> Iterator[onnx.NodeProto]:
    """Yield nodes, and behind those whose files are written together one that writes them."""
    group: list[onnx.NodeProto] = []
    for node in nodes:
        if _is_writing(node):
            group.append(node)
        elif group and _slot(group[-1]) not in waiting:
            yield from _write(group)
            group = []
        yield node
    yield from _write(group)


def _write(group: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield what writes the files of nodes, where they do not so themselves."""
    waits = len(group) > 1
    for node in group:
        node.attribute.append(helper.make_attribute("waits", int(waits)))
    if waits:  # it is given the values, so that they live until then
        given = [ADDRESSES[insession.SAVE], *(node.output[0] for node in group)]
        yield helper.make_node(
            insession.WRITE, given, [], name=f"{group[-1].name}.w", domain=insession.DOMAIN
        )


def _is_writing(node: onnx.NodeProto) -> bool:
    return node.domain == insession.DOMAIN and node.op_type in {insession.SAVE, insession.WRITE}


def _slot(node: onnx.NodeProto) -> int:
    (slot,) = (attribute.i for attribute in node.attribute if attribute.name == "slot")
    return slot


def made_name(name: str) -> str:
    """Return the name of a value in front of the node that looks at it."""
    return f"{name}~"


def _add(
    model: onnx.ModelProto,
    op_type: str,
    made: Mapping[str, Mapping[str, int]],
    in_front: Mapping[str, Sequence[onnx.NodeProto]],
) -> None:
    """Add nodes in front of those of a name, and, with attributes, behind the producers of values."""
    graph = model.graph
    nodes = [
        added for node in graph.node for added in (*in_front.get(node.name, ()), *_seen(node, op_type, made))
    ]
    del graph.node[:]
    graph.node.extend(nodes)
    for output in graph.output:
        if output.name in made:
            output.name = made_name(output.name)
    shape = (insession.ADDRESSES[op_type],)
    graph.input.append(helper.make_tensor_value_info(ADDRESSES[op_type], TensorProto.INT64, shape))
    if all(opset.domain != insession.DOMAIN for opset in model.opset_import):
        model.opset_import.append(helper.make_opsetid(insession.DOMAIN, 1))


def _seen(
    node: onnx.NodeProto, op_type: str, values: Mapping[str, Mapping[str, int]]
) -> Iterator[onnx.NodeProto]:
    """Yield a node and those that look at what it makes, which are named after it."""
    behind = []
    for number, name in enumerate(node.output):
        if name in values:
            node.output[number] = made_name(name)
            behind.append(_look(op_type, f"{node.name}.{number}", node.output[number], name, values[name]))
    yield node
    yield from behind


def _look(
    op_type: str, name: str, value: str, handed_on: str, attributes: Mapping[str, int]
) -> onnx.NodeProto:
    """Return a node that looks at a value and hands it on under another name."""
    inputs = [value, ADDRESSES[op_type]]
    node = helper.make_node(op_type, inputs, [handed_on], name=name, domain=insession.DOMAIN)
    node.attribute.extend(itertools.starmap(helper.make_attribute, attributes.items()))
    return node


def probe_model(need: StatisticNeed) -> bytes:
    """Return the model that shows whether a runtime has the operators: ``y = x``, which is measured."""
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"], name="0")],
        "probe",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
        [helper.make_empty_tensor_value_info("y")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    add_measures(model, {"y": 0}, need)
    return bytes(model.SerializeToString())
