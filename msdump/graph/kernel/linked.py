"""Operators that run one after the other as one model; each computes as it does in a model of its own.

Values are renamed by the order in which they appear, so that equal stretches of operators give equal bytes. A
node is named by the number of its operator, which the runtime's errors show.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

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
    functions = [_at_version(function, opsets) for function in functions]
    replaced = replace(graph, opsets=opsets)
    model = onenode.untyped_model(replaced, protos, reads(node), node.outputs, functions)
    inlined = inliner.inline_local_functions(model).graph.node
    constants = {proto.output[0]: constant(proto) for proto in inlined if proto.output}
    nodes = tuple(_node(proto, node) for proto in inlined if constants.get(proto.output[0]) is None)
    return Expansion(nodes, {name: array for name, array in constants.items() if array is not None}, opsets)


def _at_version(function: onnx.FunctionProto, opsets: Mapping[str, int]) -> onnx.FunctionProto:
    """Return a function that says of its operators that they have the caller's version.

    The inliner leaves calls of functions of another version alone, GE's on purpose.
    """
    copy = deepcopy(function)
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
        attributes={attribute.name: decoded_attribute(attribute) for attribute in proto.attribute},
        operator=OperatorRef(proto.op_type, whole.operator.full_name),
        proto=proto,
        parts=(),
        bodies={},
        update=NO_UPDATE,
    )


def rename_body_values(node: onnx.NodeProto, names: Mapping[str, str], prefix: str) -> None:
    """Rename the values in the subgraphs of a node, in place, and name their nodes after it.

    Args:
        node: The node; its own inputs and outputs stay.
        names: The new name of each value that stands around it.
        prefix: Begins the new names of values in its subgraphs: no other node of the model has it.
    """
    for number, graph in enumerate(subgraphs(node)):
        own = f"{prefix}_{number}"
        renamed = {**names, **{name: f"{own}_{place}" for place, name in enumerate(bound_names(graph))}}
        renamed[""] = ""  # an absent input, an unused output
        for value in (*graph.input, *graph.output):
            value.name = renamed[value.name]
        for initializer in graph.initializer:
            initializer.name = renamed[initializer.name]
        for value in graph.value_info:  # it may tell of values that are nowhere
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
    """One of the operators.

    Attributes:
        node: The operator.
        bindings: Types of its inputs, where casts need them, and its own initializers.
        roundings: The emulated device's arithmetic for each member; None: as the model says.
    """

    node: Node
    bindings: Bindings
    roundings: Sequence[Rounding] | None


class SavedValue(NamedTuple):
    """A value that a session writes to a file.

    Attributes:
        name: The value.
        reader: Number of the operator in front of which it is written; None: behind its producer.
        waits: Whether its file may be written together with those of values behind it.
    """

    name: str
    reader: int | None = None
    waits: bool = False


@dataclass(frozen=True, slots=True)
class SessionHooks:
    """Values that a session measures or writes to files where it makes them.

    Attributes:
        measured: Values that are measured, in the order of the results.
        need: Statistics of them.
        saved: Values that are written to files, in the order of the results.
    """

    measured: tuple[str, ...] = ()
    need: StatisticNeed = NOTHING
    saved: tuple[SavedValue, ...] = ()

    def __bool__(self) -> bool:
        """Tell whether it looks at any."""
        return bool(self.measured or self.saved)


NO_HOOKS: Final = SessionHooks()


@dataclass(frozen=True, slots=True)
class SegmentEdges:
    """Inputs and outputs of the operators.

    Attributes:
        feeds: onnxruntime's type text of every value that is fed.
        defaults: Weights in the model that no kernel takes for constant, since they could be fed.
        outputs: Values that are given back.
        shapes: Shapes of fed values that hold in every run; the runtime plans memory, and fuses, by them.
        looks: Values inside that are measured or written.
    """

    feeds: Mapping[str, str]
    defaults: Mapping[str, np.ndarray]
    outputs: Sequence[str]
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    looks: SessionHooks = NO_HOOKS


@dataclass(frozen=True, slots=True)
class LinkedModel:
    """A serialised model of several operators, and the names of its values.

    Attributes:
        data: The model.
        feeds: (name in the model, value of the graph) for every fed input.
        shared: The array of each initializer that the session is given beside the model, the weight that it
            is, and the number of the first operator that reads it, by its name in the model.
        outputs: (name in the model, value of the graph) for everything that is given back.
    """

    data: bytes
    feeds: tuple[tuple[str, str], ...]
    shared: Mapping[str, tuple[np.ndarray, str, int]]
    outputs: tuple[tuple[str, str], ...]


class UnlinkableError(Exception):
    """An operator cannot stand in a model with others.

    Attributes:
        number: Which one.
    """

    def __init__(self, number: int, reason: object) -> None:
        """Tell the number of the operator, and why."""
        super().__init__(f"operator {number}: {reason}")
        self.number = number


def link(
    graph: Graph, parts: Sequence[LinkedOperator], around: SegmentEdges, limits: RuntimeLimits
) -> LinkedModel:
    """Return the model of some operators.

    Args:
        graph: Their graph.
        parts: The operators in order, at least one.
        around: Their inputs and outputs.
        limits: Newest versions that the runtime reads.

    Raises:
        UnlinkableError: An operator needs another version of the runtime, or gives an overflow status.
    """
    writer = _Writer(graph, onenode.empty_model(graph, parts[0].node, limits), limits)
    for part in parts:
        writer.add(part)
    return writer.finish(around)


@dataclass(slots=True)
class _Writer:
    """Collects operators.

    Attributes:
        graph: Their graph.
        model: The model so far.
        limits: Newest versions that the runtime reads.
        count: Number of operators so far.
        names: The name in the model of each value of the graph, but of initializers.
        initializers: Names of those, by weight and identity of the array.
        shared: See ``LinkedModel``.
        constants: Constants of the device's casts by name.
        read: By operator, the name in the model of every value that it reads.
    """

    graph: Graph
    model: onnx.ModelProto
    limits: RuntimeLimits
    count: int = 0
    names: dict[str, str] = field(default_factory=dict)
    initializers: dict[tuple[str, int], str] = field(default_factory=dict)
    shared: dict[str, tuple[np.ndarray, str, int]] = field(default_factory=dict)
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)
    read: list[Mapping[str, str]] = field(default_factory=list)

    def add(self, part: LinkedOperator) -> None:
        number, opset = self.count, onenode.onnx_opset(self.model)
        self._check_versions(part.node, opset)
        names = self._names(part)
        self.read.append(names)
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
            raise UnlinkableError(number, "it tells an overflow status")
        for place, proto in enumerate(written.protos):
            proto.name = f"{number}.{place}"
            rename_body_values(proto, names, f"b{number}_{place}")
        self.model.graph.node.extend(written.protos)
        self.constants |= {constant.name: constant for constant in written.constants}
        self.count += 1

    def _check_versions(self, node: Node, opset: int) -> None:
        if self.graph.opsets.get("", 0) <= opset:
            return
        if node.bodies:
            raise UnlinkableError(self.count, "its bodies may not mean the same in an older opset")
        try:
            for member in node.members:
                onenode.lowered_opset(member, self.graph.opsets[""], self.limits.opset)
        except UnsupportedOpError as error:
            raise UnlinkableError(self.count, error) from error

    def _names(self, part: LinkedOperator) -> dict[str, str]:
        """Return the name in the model of every value that an operator reads or writes; "" stays ""."""
        names = {"": ""}
        bindings = part.bindings
        for name in reads(part.node):
            array = bindings.embedded.get(name, bindings.shared.get(name))
            names[name] = self._value(name) if array is None else self._initializer(name, array, bindings)
        for name in filter(None, part.node.outputs):
            names[name] = self._value(name)
        for inner in part.node.parts:
            for name in inner.outputs:
                names.setdefault(name, f"t{self.count}_{len(names)}")
        return names

    def _value(self, name: str) -> str:
        return self.names.setdefault(name, f"v{len(self.names)}")

    def _initializer(self, name: str, array: np.ndarray, bindings: Bindings) -> str:
        key = (name, id(array))
        if key not in self.initializers:
            inner = self.initializers[key] = f"w{len(self.initializers)}"
            if name in bindings.shared:
                self.model.graph.initializer.append(onenode.placeholder(inner, array))
                self.shared[inner] = (array, name, self.count)
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
            # an initializer that is an input as well is none that a kernel may pack or take for constant
            kind = onenode.type_proto(onenode.type_text(dtypes.from_numpy(array.dtype)))
            graph.input.append(helper.make_value_info(self.names[name], kind))
            self._embed(self.names[name], array)
        feeds = tuple((self.names[name], name) for name in around.feeds)
        graph.input.extend(
            onenode.input_info(self.names[name], onenode.type_proto(text), around.shapes.get(name))
            for name, text in around.feeds.items()
        )
        graph.output.extend(helper.make_empty_tensor_value_info(self.names[name]) for name in around.outputs)
        if around.looks:
            self._look(around.looks)
        outputs = tuple(
            (output.name, name) for output, name in zip(graph.output, around.outputs, strict=True)
        )
        data = self.model.SerializeToString(deterministic=True)  # equal stretches may share a session
        return LinkedModel(data, feeds, self.shared, outputs)

    def _look(self, looks: SessionHooks) -> None:
        """Add the nodes that look at values."""
        if looks.measured:
            measured = {self.names[name]: slot for slot, name in enumerate(looks.measured)}
            add_measures(self.model, measured, looks.need)
        if looks.saved:
            made, read = {}, []
            for slot, (name, reader, _) in enumerate(looks.saved):
                if reader is None:
                    made[self.names[name]] = slot
                else:
                    read.append(ReadValue(f"{reader}.0", self.read[reader][name], slot))
            waiting = {slot for slot, value in enumerate(looks.saved) if value.waits}
            add_saves(self.model, made, read, waiting)


ADDRESSES: Final = {insession.MEASURE: "measurements", insession.SAVE: "files"}
"""The inputs of a model that say where to write what is found, or what became of files: int64."""


def add_measures(model: onnx.ModelProto, values: Mapping[str, int], need: StatisticNeed) -> None:
    """Let a model measure values; who reads one reads it behind its node.

    What the model gives of these values it gives as they are made: no node hands it on, so none copies it.

    Args:
        model: Gets a node behind each producer, and an input of ``ADDRESSES``.
        values: The slot of each value by its name; a node of the model itself makes it.
        need: Statistics to measure.
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
    model = onnx.load_from_string(onenode.identity_model())
    model.graph.node[0].name = "0"
    add_measures(model, {"y": 0}, need)
    return bytes(model.SerializeToString())
