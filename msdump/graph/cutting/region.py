"""A model of some operators of a graph, which any runtime runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import onnx
from onnx import helper, numpy_helper

from msdump import dtypes
from msdump.dtypes import DType
from msdump.graph.graph import Graph, Node
from msdump.graph.kernel.callees import callees
from msdump.graph.kernel.onenode import OLDEST_IR, contiguous
from msdump.graph.order import used_values

_MADE_UP: Final = "msdump_narrow:"
"""Begins the names of values in types that numpy lacks; under their own names they are of a wider type."""


@dataclass(frozen=True, slots=True)
class ValueShape:
    """Element type and shape of a value.

    Attributes:
        dtype: Element type.
        shape: Dimensions, None where they are not known.
    """

    dtype: DType
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class RegionModel:
    """A model of some operators.

    Attributes:
        data: The serialised model.
        inputs: Element type of each input as the model takes it, by name.
        outputs: Element type of each output as the model gives it, by name; None where it is not known.
    """

    data: bytes
    inputs: Mapping[str, DType]
    outputs: Mapping[str, DType | None]


def external_values(nodes: Iterable[Node]) -> tuple[str, ...]:
    """Return the values that some operators read and none of them writes, in order, without repeats."""
    members = [part for node in nodes for part in node.members]
    written = {name for part in members for name in part.proto.output}
    names = (name for part in members for name in used_values(part.proto))
    return tuple(dict.fromkeys(name for name in names if name not in written))


def region_model(
    graph: Graph, nodes: Sequence[Node], fed: Mapping[str, ValueShape], outputs: Sequence[str]
) -> RegionModel:
    """Return the model of some operators of a graph.

    What is fed becomes an input; a weight that is not becomes an initializer. Inputs and outputs of
    types that numpy lacks (bfloat16, int4, ...) are of the type in which dumps hold them, and cast inside.

    Args:
        graph: The graph.
        nodes: The operators in execution order.
        fed: Element types and shapes of the values that are given from outside.
        outputs: The values that come back.
    """
    protos = [part.proto for node in nodes for part in node.members]
    model = onnx.ModelProto(ir_version=max(graph.ir_version, OLDEST_IR))
    model.opset_import.extend(helper.make_opsetid(domain, number) for domain, number in graph.opsets.items())
    model.functions.extend(callees(protos, graph.proto.functions))
    body = model.graph
    body.name = "region"
    inputs: dict[str, DType] = {}
    renamed: dict[str, str] = {}
    for name in external_values(nodes):
        if name in fed:
            inputs[name] = _add_input(body, name, fed[name], renamed)
        elif name in graph.weights:
            body.initializer.append(numpy_helper.from_array(contiguous(graph.weights[name]), name))
    narrow = {name: graph.type_of(name).dtype for name in outputs}
    renamed |= {name: f"{_MADE_UP}{name}" for name, dtype in narrow.items() if host_type(dtype) is not dtype}
    body.node.extend(_with_names(proto, renamed) for proto in protos)
    results: dict[str, DType | None] = {}
    for name in outputs:
        dtype = results[name] = host_type(narrow[name])
        if name in renamed and dtype is not None:
            body.node.append(helper.make_node("Cast", [renamed[name]], [name], to=dtype.onnx))
        body.output.append(
            helper.make_empty_tensor_value_info(name)
            if dtype is None
            else helper.make_tensor_value_info(name, dtype.onnx, None)
        )
    return RegionModel(model.SerializeToString(), inputs, results)


def _add_input(body: onnx.GraphProto, name: str, form: ValueShape, renamed: dict[str, str]) -> DType:
    """Declare an input, and cast it to the type of the value where numpy lacks that."""
    dtype = host_type(form.dtype)
    assert dtype is not None
    body.input.append(helper.make_tensor_value_info(name, dtype.onnx, form.shape))
    if dtype is not form.dtype:
        renamed[name] = f"{_MADE_UP}{name}"
        body.node.append(helper.make_node("Cast", [name], [renamed[name]], to=form.dtype.onnx))
    return dtype


def host_type(dtype: DType | None) -> DType | None:
    """Return the element type in which dumps hold one that numpy lacks; every other one as it is."""
    if dtype is None or dtype is dtypes.STRING or dtype.numpy.isbuiltin == 1:
        return dtype
    return dtypes.from_numpy(dtype.saved)


def _with_names(proto: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(proto)
    for values in (copy.input, copy.output):
        for position, name in enumerate(values):
            values[position] = names.get(name, name)
    return copy
