"""Nodes that measure values where a session makes them, and hand them on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Final

import onnx
from onnx import TensorProto, helper

from msdump.statistics import insession
from msdump.statistics.totals import StatisticNeed

ADDRESSES: Final = "measurements"
"""The input of a model that says where to write what is found: int64."""


def add_measures(model: onnx.ModelProto, values: Mapping[str, int], need: StatisticNeed) -> None:
    """Let a model measure values; who reads one reads it behind its node.

    Args:
        model: Gets a node behind each producer, and the input ``ADDRESSES``.
        values: The slot of each value by its name; a node of the model itself makes it.
        need: What to find out.
    """
    graph = model.graph
    nodes = [written for node in graph.node for written in _measured(node, values, need)]
    del graph.node[:]
    graph.node.extend(nodes)
    graph.input.append(helper.make_tensor_value_info(ADDRESSES, TensorProto.INT64, (insession.ADDRESSES,)))
    model.opset_import.append(helper.make_opsetid(insession.DOMAIN, 1))


def _measured(
    node: onnx.NodeProto, values: Mapping[str, int], need: StatisticNeed
) -> Iterator[onnx.NodeProto]:
    """Yield a node and those that measure what it makes, which are named after it."""
    measures = []
    for number, name in enumerate(node.output):
        if name in values:
            node.output[number] = f"{name}~"
            measures.append(
                helper.make_node(
                    insession.MEASURE,
                    [node.output[number], ADDRESSES],
                    [name],
                    name=f"{node.name}.{number}",
                    domain=insession.DOMAIN,
                )
            )
            attributes = insession.attributes(values[name], need)
            measures[-1].attribute.extend(itertools.starmap(helper.make_attribute, attributes.items()))
    yield node
    yield from measures


def probe_model(need: StatisticNeed) -> bytes:
    """Return the model that shows whether a runtime has the operator: ``y = x``, which is measured."""
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"], name="0")],
        "probe",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
        [helper.make_empty_tensor_value_info("y")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    add_measures(model, {"y": 0}, need)
    return bytes(model.SerializeToString())
