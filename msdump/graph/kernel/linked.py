"""Operators that run one after the other as one model; each computes as it does in a model of its own.

Values are renamed by the order in which they appear, so that equal stretches of operators give equal bytes. A
node is named by the number of its operator, by which the runtime's errors tell what it cannot run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from msdump import dtypes
from msdump.errors import UnsupportedOpError
from msdump.graph.graph import Graph, Node, Shape
from msdump.graph.kernel import onenode
from msdump.graph.kernel.callees import callees, renamed_calls
from msdump.graph.kernel.emulation import Rounding
from msdump.graph.kernel.onenode import Bindings, RuntimeLimits
from msdump.graph.kernel.subgraphs import rename_values
from msdump.graph.order import reads
from msdump.statistics.totals import NOTHING, StatisticNeed


@dataclass(frozen=True, slots=True)
class LinkedOperator:
    """One of the operators.

    Attributes:
        node: The operator.
        bindings: Types of what it reads, where casts must know them, and the initializers of its own.
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
class SessionLooks:
    """What a session does about values where it makes them.

    Attributes:
        measured: Values that are measured, in the order in which this is told.
        need: What is found out of them.
        saved: Values that are written to files, in the order in which this is told.
    """

    measured: tuple[str, ...] = ()
    need: StatisticNeed = NOTHING
    saved: tuple[SavedValue, ...] = ()

    def __bool__(self) -> bool:
        """Tell whether it looks at any."""
        return bool(self.measured or self.saved)


NO_LOOKS: Final = SessionLooks()


@dataclass(frozen=True, slots=True)
class SegmentEdges:
    """What the operators get from outside, and give.

    Attributes:
        feeds: onnxruntime's type text of every value that is fed.
        defaults: Weights in the model that no kernel takes for constant, since they could be fed.
        outputs: Values that are given back.
        shapes: Shapes of fed values that hold in every run; the runtime plans memory, and fuses, by them.
        looks: What is done about values inside.
    """

    feeds: Mapping[str, str]
    defaults: Mapping[str, np.ndarray]
    outputs: Sequence[str]
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    looks: SessionLooks = NO_LOOKS


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
        around: What they read and give.
        limits: What the runtime reads.

    Raises:
        UnlinkableError: An operator needs another version of the runtime, or tells an overflow status.
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
        limits: What the runtime reads.
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
        number, opset = self.count, onenode.opset_of(self.model)
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
            rename_values(proto, names, f"b{number}_{place}")
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
        graph.input.extend(self._inputs(around))
        graph.output.extend(helper.make_empty_tensor_value_info(self.names[name]) for name in around.outputs)
        if around.looks:
            self._look(around.looks)
        outputs = tuple(
            (output.name, name) for output, name in zip(graph.output, around.outputs, strict=True)
        )
        data = self.model.SerializeToString(deterministic=True)  # equal stretches may share a session
        return LinkedModel(data, feeds, self.shared, outputs)

    def _look(self, looks: SessionLooks) -> None:
        """Add the nodes that look at values."""
        from msdump.graph.kernel import measuring
        from msdump.graph.kernel.measuring import ReadValue

        if looks.measured:
            measured = {self.names[name]: slot for slot, name in enumerate(looks.measured)}
            measuring.add_measures(self.model, measured, looks.need)
        if looks.saved:
            made, read = {}, []
            for slot, (name, reader, _) in enumerate(looks.saved):
                if reader is None:
                    made[self.names[name]] = slot
                else:
                    read.append(ReadValue(f"{reader}.0", self.read[reader][name], slot))
            waiting = {slot for slot, value in enumerate(looks.saved) if value.waits}
            measuring.add_saves(self.model, made, read, waiting)

    def _inputs(self, around: SegmentEdges) -> Iterator[onnx.ValueInfoProto]:
        for name, text in around.feeds.items():
            kind = onenode.type_proto(text)
            yield onenode.input_info(self.names[name], kind, around.shapes.get(name))
