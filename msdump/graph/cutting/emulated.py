"""The model of some operators with the casts of an emulated device around each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx
from onnx import helper

from msdump.dtypes import DType
from msdump.graph.cutting.region import RegionModel, ValueShape, host_type
from msdump.graph.graph import Graph, Node
from msdump.graph.kernel import linked, onenode
from msdump.graph.kernel.emulation import Rounding
from msdump.graph.kernel.linked import LinkedOperator, SegmentEdges, UnlinkableError
from msdump.graph.kernel.onenode import Bindings, RuntimeLimits
from msdump.graph.order import reads


def emulated_model(
    graph: Graph,
    nodes: Sequence[Node],
    fed: Mapping[str, ValueShape],
    outputs: Sequence[str],
    device: tuple[Callable[[Node], Sequence[Rounding] | None], RuntimeLimits],
) -> RegionModel | None:
    """Return the model of some operators as a device computes them; None where they cannot stand together.

    Args:
        graph: Their graph.
        nodes: The operators in execution order.
        fed: Element types and shapes of the values that are given from outside.
        outputs: The values that come back.
        device: How the device computes an operator, and what the runtime that emulates it reads.
    """
    roundings, limits = device
    feeds = {name: onenode.type_text(form.dtype) for name, form in fed.items()}
    parts = [LinkedOperator(node, _bindings(graph, node, feeds), roundings(node)) for node in nodes]
    try:
        made = linked.link(graph, parts, SegmentEdges(feeds, {}, outputs), limits)
    except UnlinkableError:
        return None
    model = onnx.load_from_string(made.data)
    _rename(model.graph, dict((*made.feeds, *made.outputs)))
    _rename(model.graph, dict((*made.feeds, *made.outputs)))
    inputs = {name: form.dtype for name, form in fed.items()}
    results = {name: graph.type_of(name).dtype for name in outputs}
    for name, dtype in inputs.items():
        _widen(model.graph, name, dtype, is_input=True)
    for name, result in results.items():
        _widen(model.graph, name, result, is_input=False)
    return RegionModel(
        model.SerializeToString(),
        {name: host_type(dtype) or dtype for name, dtype in inputs.items()},
        {name: host_type(dtype) for name, dtype in results.items()},
    )


def _bindings(graph: Graph, node: Node, feeds: Mapping[str, str]) -> Bindings:
    names = [*reads(node)]
    declared = {name: graph.type_of(name).dtype for name in names}
    types = {name: feeds.get(name) or onenode.type_text(dtype) for name, dtype in declared.items() if dtype}
    return Bindings(types, {}, {name: graph.weights[name] for name in names if name in graph.weights}, {})


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    for node in graph.node:
        for side in (node.input, node.output):
            side[:] = [names.get(name, name) for name in side]
    for value in (*graph.input, *graph.output):
        value.name = names.get(value.name, value.name)


def _widen(graph: onnx.GraphProto, name: str, dtype: DType | None, *, is_input: bool) -> None:
    """Let an input or output of a type that numpy lacks be of the one in which dumps hold it."""
    host = host_type(dtype)
    if dtype is None or host is None or host is dtype:
        return
    inner = f"msdump_narrow:{name}"
    _rename(graph, {name: inner})
    value = next(each for each in (graph.input if is_input else graph.output) if each.name == inner)
    value.name = name
    if is_input:
        value.type.tensor_type.elem_type = host.onnx
        graph.node.insert(0, helper.make_node("Cast", [name], [inner], to=dtype.onnx))
    else:
        graph.node.append(helper.make_node("Cast", [inner], [name], to=host.onnx))
