"""A network with some operators in float16, as a model of its own with casts at their borders."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper

from msdump.graph.cutting.splice import ValueShape, region_model
from msdump.graph.graph import Graph
from msdump.graph.kernel.emulation import FLOAT16, FLOAT32
from msdump.graph.order import subgraphs, used_values


def mixed_model(graph: Graph, narrow: Collection[str]) -> bytes:
    """Return a model of a network in which operators of given names compute in float16.

    Inputs and outputs keep their types. An operator that ONNX does not define for float16 stays in float32,
    and so does one with branches.
    """
    given = {value.name: value.type for value in graph.inputs}
    fed = {name: ValueShape(kind.dtype or FLOAT32, kind.shape) for name, kind in given.items()}
    outputs = [value.name for value in graph.outputs]
    model = onnx.ModelProto.FromString(region_model(graph, graph.nodes, fed, outputs).data)
    body, versions = model.graph, {each.domain: each.version for each in model.opset_import}
    weights = {tensor.name: tensor for tensor in body.initializer}
    floats = {name for name, kind in graph.types.items() if kind.dtype is FLOAT32}
    floats |= {name for name, tensor in weights.items() if tensor.data_type == FLOAT32.onnx}
    short: dict[str, str] = {}
    nodes: list[onnx.NodeProto] = []

    def narrowed(name: str) -> str:
        """Return a float32 value in float16."""
        if name in floats and name not in short:
            short[name] = f"{name}:float16"
            if name in weights:
                with np.errstate(over="ignore"):
                    array = numpy_helper.to_array(weights[name]).astype(np.float16)
                body.initializer.append(numpy_helper.from_array(array, short[name]))
            else:
                nodes.append(helper.make_node("Cast", [name], [short[name]], to=FLOAT16.onnx))
        return short.get(name, name)

    for node in body.node:
        if node.name in narrow and _takes_float16(node, versions.get(node.domain, 1), floats):
            node.input[:] = [narrowed(name) for name in node.input]
            written = [name for name in node.output if name in floats]
            short |= {name: f"{name}:float16" for name in written}
            node.output[:] = [short.get(name, name) for name in node.output]
            widened = [helper.make_node("Cast", [short[name]], [name], to=FLOAT32.onnx) for name in written]
            nodes += [node, *widened]
        else:
            nodes.append(node)
    needed, live = {*outputs}, []
    for node in reversed(nodes):
        if not needed.isdisjoint(node.output):
            live.append(node)
            needed.update(used_values(node))
    kept = [tensor for tensor in body.initializer if tensor.name in needed]
    del body.node[:], body.initializer[:], body.value_info[:]
    body.node.extend(reversed(live))
    body.initializer.extend(kept)
    return model.SerializeToString()


def _takes_float16(node: onnx.NodeProto, version: int, floats: Collection[str]) -> bool:
    """Return whether an operator may have float16 for its float32 inputs, and then has it for its outputs."""
    try:
        schema = defs.get_schema(node.op_type, version, node.domain)
    except defs.SchemaError:
        return False

    def kinds(slots: Sequence[Any], names: Sequence[str]) -> set[str]:
        places = (min(place, len(slots) - 1) for place, name in enumerate(names) if name in floats)
        return {slots[place].type_str for place in places}

    read, written = kinds(schema.inputs, node.input), kinds(schema.outputs, node.output)
    allowed = {
        each.type_param_str for each in schema.type_constraints if "tensor(float16)" in each.allowed_type_strs
    }
    return bool(read) and read <= allowed and written <= read and not any(True for _ in subgraphs(node))
