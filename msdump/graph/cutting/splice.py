"""A network in which some values are computed by operators of another network for the same task.

Or in which some operators compute in float16, with casts at their borders.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper

from msdump import dtypes
from msdump.dtypes import DType
from msdump.graph import compilation
from msdump.graph.functions import callees, function_key, renamed_calls
from msdump.graph.graph import Graph, Node, Shape, Value, ValueType
from msdump.graph.kernel import onenode
from msdump.graph.kernel.emulation import FLOAT16, FLOAT32, PREFIX, Rounding
from msdump.graph.kernel.onenode import OLDEST_IR, Bindings, RuntimeLimits, contiguous
from msdump.graph.order import external_values, reads, rename_values, subgraphs, used_values

_Item = TypeVar("_Item")


def with_names(node: Node, names: Mapping[str, str]) -> Node:
    """Return a node with other names of values; values inside its bodies keep theirs."""
    proto = deepcopy(node.proto)
    rename_values(proto, names)
    return replace(
        node,
        inputs=tuple(names.get(name, name) for name in node.inputs),
        outputs=tuple(proto.output),
        proto=proto,
        bodies={key: _body(body, names) for key, body in node.bodies.items()},
    )


def with_prefix(node: Node, prefix: str) -> Node:
    """Return a node with a prefix before its name and the names of operators in its bodies."""
    bodies = {
        key: replace(body, nodes=tuple(with_prefix(each, prefix) for each in body.nodes))
        for key, body in node.bodies.items()
    }
    return replace(node, name=f"{prefix}{node.name}", bodies=bodies)


def _body(body: Graph, names: Mapping[str, str]) -> Graph:
    free = {name: new for name, new in names.items() if name in body.outer}
    return replace(
        body,
        nodes=tuple(with_names(node, free) for node in body.nodes),
        inputs=tuple(Value(free.get(each.name, each.name), each.type) for each in body.inputs),
        outputs=tuple(Value(free.get(each.name, each.name), each.type) for each in body.outputs),
        weights=_keyed(body.weights, free),
        constants=tuple(free.get(name, name) for name in body.constants),
        overridable=frozenset(free.get(name, name) for name in body.overridable),
        types=_keyed(body.types, free),
        outer=frozenset(free.get(name, name) for name in body.outer),
        variables=frozenset(free.get(name, name) for name in body.variables),
    )


def _keyed(items: Mapping[str, _Item], names: Mapping[str, str]) -> dict[str, _Item]:
    return {names.get(name, name): item for name, item in items.items()}


_MADE_UP: Final = "msdump_narrow:"
"""Begins the names of values in types that numpy lacks; under their own names they are of a wider type."""


@dataclass(frozen=True, slots=True)
class ValueShape:
    """Element type and shape of a value."""

    dtype: DType
    shape: Shape | None = None


@dataclass(frozen=True, slots=True)
class RegionModel:
    """A model of some operators."""

    data: bytes  # the serialised model
    inputs: Mapping[str, DType]
    outputs: Mapping[str, DType | None]  # element type of each model output, by name; None: not known


@dataclass(frozen=True, slots=True)
class EmulatingRuntime:
    """How a device computes operators, and the runtime that emulates it."""

    # returns the device's arithmetic for an operator; None: as the model says
    roundings: Callable[[Node], Sequence[Rounding] | None]
    # returns by name the weights of an operator that the device rounds, after rounding
    rounded: Callable[[Node], Mapping[str, np.ndarray]]
    limits: RuntimeLimits  # newest versions that the runtime reads


def region_model(
    graph: Graph,
    nodes: Sequence[Node],
    fed: Mapping[str, ValueShape],
    outputs: Sequence[str],
    device: EmulatingRuntime | None = None,
) -> RegionModel:
    """Return the model of some operators of a graph, as the model says or with a device's casts around them.

    Fed values become inputs, other weights initializers. Inputs and outputs of
    types that numpy lacks (bfloat16, int4, ...) are of the type in which dumps hold them, and cast inside.
    """
    if device is None:
        model = onnx.ModelProto(ir_version=max(graph.ir_version, OLDEST_IR))
        versions = graph.opsets.items()
        model.opset_import.extend(helper.make_opsetid(domain, number) for domain, number in versions)
        protos = [part.proto for node in nodes for part in node.members]
        model.functions.extend(callees(protos, graph.proto.functions))
    else:
        model = onenode.empty_model(graph, nodes[0], device.limits)
        protos = _emulated(model, graph, nodes, fed, device)
    body = model.graph
    body.name = "region"
    used = {name for proto in protos for name in used_values(proto)}
    inputs: dict[str, DType] = {}
    renamed: dict[str, str] = {}
    for name in external_values(nodes):
        if name in fed:
            form = fed[name]
            dtype = host_type(form.dtype)
            assert dtype is not None
            body.input.append(helper.make_tensor_value_info(name, dtype.onnx, form.shape))
            if dtype is not form.dtype:
                renamed[name] = f"{_MADE_UP}{name}"
                body.node.append(helper.make_node("Cast", [name], [renamed[name]], to=form.dtype.onnx))
            inputs[name] = dtype
        elif name in graph.weights and name in used:
            body.initializer.append(numpy_helper.from_array(contiguous(graph.weights[name]), name))
    narrow = {name: graph.type_of(name).dtype for name in outputs}
    renamed |= {name: f"{_MADE_UP}{name}" for name, dtype in narrow.items() if host_type(dtype) is not dtype}
    for proto in protos:
        node = body.node.add()
        node.CopyFrom(proto)
        rename_values(node, renamed)
    results: dict[str, DType | None] = {}
    for name in outputs:
        dtype = results[name] = host_type(narrow[name])
        if dtype is None:
            body.output.append(helper.make_empty_tensor_value_info(name))
            continue
        if name in renamed:
            body.node.append(helper.make_node("Cast", [renamed[name]], [name], to=dtype.onnx))
        body.output.append(helper.make_tensor_value_info(name, dtype.onnx, None))
    return RegionModel(model.SerializeToString(), inputs, results)


def _emulated(
    model: onnx.ModelProto,
    graph: Graph,
    nodes: Sequence[Node],
    fed: Mapping[str, ValueShape],
    device: EmulatingRuntime,
) -> list[onnx.NodeProto]:
    """Return operators with a device's casts around them; functions and constants are added to ``model``."""
    protos: list[onnx.NodeProto] = []
    constants: dict[str, onnx.TensorProto] = {}
    for number, node in enumerate(nodes):
        names = {name: name for part in node.members for name in (*reads(part), *part.outputs, "")}
        # some kernels take constants alone
        rounded = device.rounded(node)
        for name, array in rounded.items():
            names[name] = f"{PREFIX}{number}:{name}"
            model.graph.initializer.append(numpy_helper.from_array(contiguous(array), names[name]))
        forms = {name: fed[name].dtype if name in fed else graph.type_of(name).dtype for name in reads(node)}
        types = {name: onenode.type_text(dtype) for name, dtype in forms.items() if dtype}
        roundings = device.roundings(node)
        if roundings is not None:  # the model has no output for the overflow status
            roundings = [replace(each, reports=False) for each in roundings]
        computation = onenode.computation(
            graph,
            node,
            names,
            Bindings(types, {}, {}, {}, rounded=dict.fromkeys(rounded, False)),
            roundings=roundings,
            opset=onenode.onnx_opset(model),
            prefix=f"{PREFIX}{number}",
        )
        protos += computation.protos
        constants |= {constant.name: constant for constant in computation.constants}
    model.graph.initializer.extend(constants.values())
    model.functions.extend(renamed_calls(protos, callees(protos, graph.proto.functions)))
    return protos


def host_type(dtype: DType | None) -> DType | None:
    """Return the element type in which dumps store another one: the same, unless numpy lacks it."""
    if dtype is None or dtype is dtypes.STRING or dtype.numpy.isbuiltin == 1:
        return dtype
    return dtypes.from_numpy(dtype.saved)


_PREFIX: Final = "other:"
"""Begins the names of values and nodes of the other network, unless both have the value."""

CAST: Final = f"{_PREFIX}cast:"
"""Begins the names of the casts where the two networks hold a value in different element types."""

Scales = Mapping[str, tuple[float, int]]
"""Scale and zero point of the values that hold integers in the place of real numbers, by name."""

_FLOAT32: Final = dtypes.from_name("float32")


@dataclass(frozen=True, slots=True)
class Spliced:
    """A network with parts of another one."""

    graph: Graph
    # operators that come from the other network, with the casts around them, in order
    taken: tuple[Node, ...]
    given: tuple[Node, ...]  # operators of the first network that are replaced


def splice(
    graph: Graph,
    other: Graph,
    values: Mapping[str, str],
    chosen: Collection[str],
    scales: tuple[Scales, Scales],
) -> Spliced:
    """Return a network in which operators of another network compute some values.

    Operators of the other network read the first network's value wherever both have it; values that only
    the other network has are computed by its operators, too. Where element types differ, a Cast is added;
    where one network holds quantised integers, QuantizeLinear or DequantizeLinear.

    Args:
        graph: The network.
        other: The other network.
        values: The corresponding value of ``graph``, by value of ``other``; if several values of
            ``other`` have the same, the last one written counts.
        chosen: Values of ``graph`` that operators of ``other`` shall compute.
        scales: Scales and zero points of the quantised values of ``graph``, and of ``other``.
    """
    splicer = _Splicer(graph, other, values, frozenset(chosen), scales)
    for node in graph.nodes:  # in execution order, so that operands are mostly added before
        for name in filter(None, node.outputs):
            splicer.add(name)
    return splicer.result()


def exchangeable(graph: Graph, other: Graph, node: Node) -> bool:
    """Return whether an operator of ``other`` has the same definition under the opsets of ``graph``."""
    own, theirs = graph.opsets.get(node.domain), other.opsets.get(node.domain)
    if own == theirs:
        return True
    if theirs is None or any(True for _ in subgraphs(node.proto)):
        return False
    if own is None:  # the domain is added with the operator
        return True
    try:
        versions = {
            defs.get_schema(node.op_type, version, node.domain).since_version for version in (own, theirs)
        }
    except defs.SchemaError:
        return False
    return len(versions) == 1


def is_taken(node: Node) -> bool:
    """Return whether an operator of a spliced network, or of a body, is the other network's and no cast."""
    return node.name.startswith(_PREFIX) and not node.name.startswith(CAST)


def forms(other: Graph, values: Mapping[str, str]) -> dict[str, str]:
    """Return the value of ``other`` for each value of the network: of several, the last one written."""
    written = (name for node in other.nodes for name in node.outputs if name)
    return {values[name]: name for name in written if name in values}


class _Form(NamedTuple):
    """Type of a value, and scale and zero point of its integers (None: they are no quantised numbers)."""

    type: ValueType
    scale: tuple[float, int] | None


@dataclass(slots=True)
class _Splicer:
    graph: Graph
    other: Graph
    values: Mapping[str, str]
    chosen: frozenset[str]
    scales: tuple[Scales, Scales]
    nodes: list[Node] = field(default_factory=list)
    taken: list[Node] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    types: dict[str, ValueType] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    makers: dict[str, Node] = field(init=False)
    other_makers: dict[str, Node] = field(init=False)
    forms: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.makers = {name: node for node in self.graph.nodes for name in node.outputs if name}
        self.other_makers = {name: node for node in self.other.nodes for name in node.outputs if name}
        self.forms = forms(self.other, self.values)

    def add(self, name: str) -> None:
        if name in self.chosen and name in self.forms:
            self._add_other(self.forms[name])
            return
        node = self.makers.get(name)
        if node is None or node.name in self.done:
            return
        self.done.add(node.name)
        for read in used_values(node.proto):
            self.add(read)
        renamed = {output: f"{_PREFIX}unused:{output}" for output in node.outputs if output in self.chosen}
        self.nodes.append(with_names(node, renamed) if renamed else node)

    def _add_other(self, name: str) -> None:
        node = self.other_makers[name]
        if f"{_PREFIX}{node.name}" in self.done:
            return
        self.done.add(f"{_PREFIX}{node.name}")
        names = {read: self._input(read) for read in used_values(node.proto)}
        results: list[Node] = []
        for output in filter(None, node.outputs):
            names[output] = self._output(output, results)
        own = with_prefix(with_names(node, names), _PREFIX)
        self.nodes += (own, *results)
        self.taken += (own, *results)

    def _input(self, name: str) -> str:
        """Return the value of this network that an operator of the other network reads."""
        if name in self.other.weights:
            self.weights[f"{_PREFIX}{name}"] = self.other.weights[name]
            self.types[f"{_PREFIX}{name}"] = self.other.type_of(name)
            return f"{_PREFIX}{name}"
        common = self.values.get(name)
        if common is None or self._is_private(name, common):
            if name in self.other_makers:
                self._add_other(name)
            self.types[f"{_PREFIX}{name}"] = self.other.type_of(name)
            return f"{_PREFIX}{name}"
        self.add(common)
        own, theirs = self._form_of(common), self._other_form_of(name)
        if not _differs(own, theirs):
            return common
        target = f"{_PREFIX}read:{name}"
        if target not in self.done:
            self.done.add(target)
            converting = self._converted(common, target, own, theirs)
            self.nodes += converting
            self.taken += converting
        return target

    def _is_private(self, name: str, common: str) -> bool:
        """Return whether another value of the other network, not this one, replaces ``common``."""
        return common in self.chosen and self.forms.get(common, name) != name and name in self.other_makers

    def _output(self, name: str, results: list[Node]) -> str:
        """Return the value of this network that an operator of the other network writes."""
        common = self.values.get(name)
        if common is None or common not in self.chosen or self._is_private(name, common):
            self.types[f"{_PREFIX}{name}"] = self.other.type_of(name)
            return f"{_PREFIX}{name}"
        theirs, own = self._other_form_of(name), self._form_of(common)
        if not _differs(theirs, own):
            return common
        written = f"{_PREFIX}{name}"
        self.types[written] = theirs.type
        results += self._converted(written, common, theirs, own)
        return written

    def _form_of(self, name: str) -> _Form:
        return _Form(self.graph.type_of(name), self.scales[0].get(name))

    def _other_form_of(self, name: str) -> _Form:
        return _Form(self.other.type_of(name), self.scales[1].get(name))

    def _converted(self, source: str, target: str, before: _Form, after: _Form) -> list[Node]:
        """Return the operators that bring a value from one network's form into the other's."""
        steps: list[tuple[str, DType | None, _Form]] = []
        held = before.type.dtype
        if before.scale is not None:
            steps.append(("DequantizeLinear", held := _FLOAT32, before))
        wanted = after.type.dtype if after.scale is None else _FLOAT32
        if held is not wanted:
            steps.append(("Cast", wanted, after))
        if after.scale is not None:
            steps.append(("QuantizeLinear", after.type.dtype, after))
        nodes = []
        for number, (op_type, dtype, form) in enumerate(steps, 1):
            made = target if number == len(steps) else f"{target}:{number}"
            nodes.append(self._step(op_type, source, made, dtype, form))
            self.types[made] = replace(after.type, dtype=dtype)
            source = made
        return nodes

    def _step(self, op_type: str, source: str, target: str, dtype: DType | None, form: _Form) -> Node:
        name = f"{CAST}{target}"
        if form.scale is None or op_type == "Cast":
            return replace(compilation.cast(name, source, target, dtype), is_added=False)
        scale, zero = form.scale
        integers = form.type.dtype or dtype or _FLOAT32
        for suffix, array in (
            ("scale", np.array(scale, np.float32)),
            ("zero", np.array(zero).astype(integers.numpy)),
        ):
            self.weights[f"{name}:{suffix}"] = array
            self.types[f"{name}:{suffix}"] = replace(
                form.type, dtype=dtypes.from_numpy(array.dtype), shape=()
            )
        proto = helper.make_node(op_type, [source, f"{name}:scale", f"{name}:zero"], [target], name=name)
        return replace(compilation.added_node(proto, op_type, {}), is_added=False)

    def result(self) -> Spliced:
        needed = {value.name for value in self.graph.outputs}
        live: list[Node] = []
        for node in reversed(self.nodes):
            if not needed.isdisjoint(node.outputs):
                live.append(node)
                needed.update(used_values(node.proto))
        nodes = tuple(reversed(live))
        graph = replace(
            self.graph,
            nodes=nodes,
            weights={**self.graph.weights, **self.weights},
            opsets={**self.other.opsets, **self.graph.opsets},
            types={**self.graph.types, **self.types},
            proto=_with_functions(self.graph.proto, self.other.proto),
        )
        kept = {node.name for node in nodes}
        taken = tuple(node for node in self.taken if node.name in kept)
        return Spliced(graph, taken, tuple(node for node in self.graph.nodes if node.name not in kept))


def _differs(before: _Form, after: _Form) -> bool:
    """Return whether a value must change its form; an unknown element type stays."""
    types = before.type.dtype, after.type.dtype
    return before.scale != after.scale or (types[0] is not types[1] and None not in types)


def _with_functions(proto: onnx.ModelProto, other: onnx.ModelProto) -> onnx.ModelProto:
    keys = set(map(function_key, proto.functions))
    more = [function for function in other.functions if function_key(function) not in keys]
    if not more:
        return proto
    joined = deepcopy(proto)
    joined.functions.extend(more)
    return joined


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
