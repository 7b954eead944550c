"""Consecutive operators as one model; each computes as it does in a model of its own.

Values are renamed by the order in which they appear, so that equal sequences of operators give equal
bytes. A node's name is the number of its operator, which the runtime's errors show.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper, inliner, numpy_helper

from msdump import dtypes
from msdump.errors import UnsupportedOpError
from msdump.graph.functions import callees, renamed_calls
from msdump.graph.graph import NO_UPDATE, Graph, Node, Shape, canonical_domain
from msdump.graph.kernel import onenode
from msdump.graph.kernel.emulation import Rounding
from msdump.graph.kernel.onenode import Bindings, RuntimeLimits
from msdump.graph.order import bound_names, reads, subgraphs
from msdump.graph.weights import constant, decoded_attribute
from msdump.record import OperatorRef
from msdump.statistics import NOTHING, StatisticNeed, insession


@dataclass(frozen=True, slots=True)
class Expansion:
    """Standard operators that together compute one operator of the graph."""

    # the standard operators; inputs and outputs have the names that they have in the graph
    nodes: tuple[Node, ...]
    constants: Mapping[str, np.ndarray]  # arrays of constants inside, by name
    opsets: Mapping[str, int]  # version of each domain


def expanded(graph: Graph, node: Node) -> Expansion:
    """Return an operator as standard operators: calls of the model's functions inlined, fused ones as parts.

    An operator that is no function of the model stays as it is.
    """
    protos = [part.proto for part in node.members]
    functions = callees(protos, graph.proto.functions)
    if not functions:
        return Expansion(node.members, {}, graph.opsets)
    opsets = {**graph.opsets, **{each.domain: each.version for each in functions[0].opset_import}}
    functions = [_at_version(function, opsets) for function in functions]
    replaced = replace(graph, opsets=opsets)
    model = onenode.untyped_model(replaced, protos, reads(node), node.outputs, functions)
    inlined = inliner.inline_local_functions(model).graph.node
    constants = {proto.output[0]: constant(proto) for proto in inlined if proto.output}
    nodes = tuple(
        replace(
            node,
            name=f"{node.name}/{proto.name or proto.output[0]}",
            op_type=proto.op_type,
            domain=canonical_domain(proto.domain),
            inputs=tuple(proto.input),
            outputs=tuple(proto.output),
            attributes={attribute.name: decoded_attribute(attribute) for attribute in proto.attribute},
            operator=OperatorRef(proto.op_type, node.operator.full_name),
            proto=proto,
            parts=(),
            bodies={},
            update=NO_UPDATE,
        )
        for proto in inlined
        if constants.get(proto.output[0]) is None
    )
    return Expansion(nodes, {name: array for name, array in constants.items() if array is not None}, opsets)


def _at_version(function: onnx.FunctionProto, opsets: Mapping[str, int]) -> onnx.FunctionProto:
    """Return a copy of a function that imports the caller's opset versions.

    The inliner skips functions with other versions; functions for GE's operators have another on purpose.
    """
    copy = deepcopy(function)
    for opset in copy.opset_import:
        opset.version = opsets.get(opset.domain, opset.version)
    return copy


def rename_body_values(node: onnx.NodeProto, names: Mapping[str, str], prefix: str) -> None:
    """Rename the values in the subgraphs of a node, in place, and name their nodes after it.

    Outer values are renamed by ``names``; names of inner values begin with ``prefix``, the node's.
    """
    for number, graph in enumerate(subgraphs(node)):
        own = f"{prefix}_{number}"
        renamed = {**names, **{name: f"{own}_{place}" for place, name in enumerate(bound_names(graph))}}
        renamed[""] = ""  # an absent input, an unused output
        for value in (*graph.input, *graph.output):
            value.name = renamed[value.name]
        for initializer in graph.initializer:
            initializer.name = renamed[initializer.name]
        for value in graph.value_info:  # may list values that do not exist in the graph
            value.name = renamed.get(value.name, value.name)
        for tensor in graph.sparse_initializer:
            tensor.values.name = renamed[tensor.values.name]
        for place, inner in enumerate(graph.node):
            inner.name = f"{node.name}.{number}.{place}"
            inner.input[:] = [renamed[name] for name in inner.input]
            inner.output[:] = [renamed[name] for name in inner.output]
            rename_body_values(inner, renamed, f"{own}n{place}")


@dataclass(frozen=True, slots=True)
class LinkedOperator:
    """An operator of a linked model."""

    node: Node
    bindings: Bindings  # types of its inputs, if casts need them, and initializers of this operator alone
    # the emulated device's arithmetic for each member; None: as the model says
    roundings: Sequence[Rounding] | None
    # rounded initializers in the place of which a run may feed another value, and its rounding
    defaults: Mapping[str, Rounding] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SessionHooks:
    """Values inside a model that the session measures: statistics, without handing the values out."""

    measured: tuple[str, ...] = ()  # names of the values, in the order of the results
    need: StatisticNeed = NOTHING  # statistics to compute

    def __bool__(self) -> bool:
        """Return whether any value is measured."""
        return bool(self.measured)


NO_HOOKS: Final = SessionHooks()


@dataclass(frozen=True, slots=True)
class SegmentEdges:
    """Inputs and outputs of a linked model."""

    feeds: Mapping[str, str]  # onnxruntime's type text of every value that is fed
    # weights that become inputs with a default, so that no kernel takes them for constant
    defaults: Mapping[str, np.ndarray]
    outputs: Sequence[str]  # values that the model returns
    # shapes of fed values, if equal in every run; onnxruntime uses them to plan memory and fuse
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    looks: SessionHooks = NO_HOOKS  # values inside the model that are measured


@dataclass(frozen=True, slots=True)
class LinkedModel:
    """A serialised model of several operators, and the names of its values."""

    data: bytes
    feeds: tuple[tuple[str, str], ...]  # (name in the model, value of the graph) for every fed input
    # the external initializers in the order of their numbers: array and weight of the graph
    shared: tuple[tuple[np.ndarray, str], ...]
    outputs: tuple[tuple[str, str], ...]  # (name in the model, value of the graph) for every output
    # (name in the model, weight of the graph, its rounding) for inputs that need not be fed
    defaults: tuple[tuple[str, str, Rounding], ...] = ()


class UnlinkableError(Exception):
    """An operator cannot be linked into one model with others.

    Attributes:
        number: Position of the operator in the list of operators to link.
    """

    def __init__(self, number: int, reason: object) -> None:
        super().__init__(f"operator {number}: {reason}")
        self.number = number


def link(
    graph: Graph, parts: Sequence[LinkedOperator], around: SegmentEdges, limits: RuntimeLimits
) -> LinkedModel:
    """Return the model of operators in order; UnlinkableError for another opset or an overflow status."""
    writer = _Writer(graph, onenode.empty_model(graph, parts[0].node, limits), limits)
    for part in parts:
        writer.add(part)
    return writer.finish(around)


@dataclass(slots=True)
class _Writer:
    """Builds a linked model, operator by operator."""

    graph: Graph
    model: onnx.ModelProto
    limits: RuntimeLimits
    count: int = 0
    # the name in the model of each value of the graph, except initializers
    names: dict[str, str] = field(default_factory=dict)
    # names of initializers, by weight and identity of the array
    initializers: dict[tuple[str, int], str] = field(default_factory=dict)
    shared: list[tuple[np.ndarray, str]] = field(default_factory=list)
    # constants of the device's casts by name
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)
    # weight and rounding by the name of an initializer that is an input, too
    defaults: dict[str, tuple[str, Rounding]] = field(default_factory=dict)

    def add(self, part: LinkedOperator) -> None:
        number, opset = self.count, onenode.onnx_opset(self.model)
        if not (self.graph.opsets.get("", 0) <= opset):
            if part.node.bodies:
                raise UnlinkableError(self.count, "the bodies may have another meaning in an older opset")
            try:
                for member in part.node.members:
                    onenode.lowered_opset(member, self.graph.opsets[""], self.limits.opset)
            except UnsupportedOpError as error:
                raise UnlinkableError(self.count, error) from error
        names = {"": ""}
        bindings = part.bindings
        for name in reads(part.node):
            array = bindings.embedded.get(name, bindings.shared.get(name))
            names[name] = self._value(name) if array is None else self._initializer(name, array, bindings)
            if name in part.defaults:
                self.defaults[names[name]] = name, part.defaults[name]
        for name in filter(None, part.node.outputs):
            names[name] = self._value(name)
        for inner in part.node.parts:
            for name in inner.outputs:
                names.setdefault(name, f"t{self.count}_{len(names)}")

        written = onenode.computation(
            self.graph,
            part.node,
            names,
            part.bindings,
            roundings=part.roundings,
            opset=opset,
            prefix=f"c{number}",
        )
        if written.has_status:
            raise UnlinkableError(number, "the operator returns an overflow status")
        for place, proto in enumerate(written.protos):
            proto.name = f"{number}.{place}"
            rename_body_values(proto, names, f"b{number}_{place}")
        self.model.graph.node.extend(written.protos)
        self.constants |= {constant.name: constant for constant in written.constants}
        self.count += 1

    def _value(self, name: str) -> str:
        return self.names.setdefault(name, f"v{len(self.names)}")

    def _initializer(self, name: str, array: np.ndarray, bindings: Bindings) -> str:
        key = (name, id(array))
        if key not in self.initializers:
            inner = self.initializers[key] = f"w{len(self.initializers)}"
            if name in bindings.shared:
                number = len(self.shared)
                self.model.graph.initializer.append(onenode.placeholder(inner, array, number))
                self.shared.append((array, name))
            else:
                self._embed(inner, array)
        return self.initializers[key]

    def _embed(self, inner: str, array: np.ndarray) -> None:
        self.model.graph.initializer.append(numpy_helper.from_array(onenode.contiguous(array), inner))

    def finish(self, around: SegmentEdges) -> LinkedModel:
        graph = self.model.graph
        graph.initializer.extend(self.constants.values())
        functions = renamed_calls(graph.node, callees(graph.node, self.graph.proto.functions))
        self.model.functions.extend(functions)
        for name, array in around.defaults.items():
            # kernels neither pack an initializer that is an input as well, nor take it for constant
            kind = onenode.type_proto(onenode.type_text(dtypes.from_numpy(array.dtype)))
            graph.input.append(helper.make_value_info(self.names[name], kind))
            self._embed(self.names[name], array)
        graph.input.extend(
            helper.make_tensor_value_info(inner, TensorProto.FLOAT, None) for inner in self.defaults
        )
        feeds = tuple((self.names[name], name) for name in around.feeds)
        graph.input.extend(
            onenode.input_info(self.names[name], onenode.type_proto(text), around.shapes.get(name))
            for name, text in around.feeds.items()
        )
        graph.output.extend(helper.make_empty_tensor_value_info(self.names[name]) for name in around.outputs)
        if around.looks:
            measured = {self.names[name]: slot for slot, name in enumerate(around.looks.measured)}
            add_measures(self.model, measured, around.looks.need)
        outputs = tuple(
            (output.name, name) for output, name in zip(graph.output, around.outputs, strict=True)
        )
        data = self.model.SerializeToString(deterministic=True)  # equal bytes may share a session
        defaults = tuple((inner, *default) for inner, default in self.defaults.items())
        return LinkedModel(data, feeds, tuple(self.shared), outputs, defaults)


ADDRESSES: Final = "measurements"
"""The input of a model, int64, with the addresses of results."""


def add_measures(model: onnx.ModelProto, values: Mapping[str, int], need: StatisticNeed) -> None:
    """Add nodes to a model that measure values: a node Measure behind each producer, in front of the readers.

    ``values`` are slots of the results by name of an output of a top-level node. Outputs of the model are
    taken from the producers, so that no Measure copies them.
    """
    graph = model.graph
    nodes = []
    for node in graph.node:
        nodes.append(node)
        for number, name in enumerate(node.output):
            if name in values:
                node.output[number] = made_name(name)
                attributes = insession.attributes(values[name], need)
                nodes.append(_measure(f"{node.name}.{number}", name, attributes))
    del graph.node[:]
    graph.node.extend(nodes)
    for output in graph.output:
        if output.name in values:
            output.name = made_name(output.name)
    graph.input.append(helper.make_tensor_value_info(ADDRESSES, TensorProto.INT64, (insession.ADDRESSES,)))
    model.opset_import.append(helper.make_opsetid(insession.DOMAIN, 1))


def made_name(name: str) -> str:
    """Return the new name of the producer's output; the output of Measure has the value's name."""
    return f"{name}~"


def _measure(name: str, value: str, attributes: Mapping[str, int]) -> onnx.NodeProto:
    inputs = [made_name(value), ADDRESSES]
    node = helper.make_node(insession.MEASURE, inputs, [value], name=name, domain=insession.DOMAIN)
    node.attribute.extend(itertools.starmap(helper.make_attribute, attributes.items()))
    return node


def probe_model(need: StatisticNeed) -> bytes:
    """Return a model ``y = x`` with a Measure of y, which runs only if the runtime has this operator."""
    model = onnx.load_from_string(onenode.identity_model())
    model.graph.node[0].name = "0"
    add_measures(model, {"y": 0}, need)
    return bytes(model.SerializeToString())
