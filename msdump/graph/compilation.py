"""Compilation of graphs as Ascend O1 and O2 do it: folding, rewiring, fusion, kernels."""

from __future__ import annotations

import logging
import math
import os.path
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper

from msdump import dtypes
from msdump.dtypes import DType
from msdump.errors import MsdumpError
from msdump.graph.bodies import rewritten
from msdump.graph.collectives import collective
from msdump.graph.graph import Graph, Node, Value, ValueType, uses_float_status
from msdump.graph.operators import (
    CONVERTED_TYPES,
    GE_TYPES,
    PASSING,
    WITH_MEMORY,
    Fusion,
    facts_of,
    is_elementwise,
)
from msdump.graph.order import reads, subgraphs
from msdump.record import OperatorRef

_ON_DEVICE: Final = ":device"  # suffix of a value in device form; the original name is for its host form


def model_names(graph: Graph) -> dict[str, str]:
    """Return the name in the model for each value of a compiled graph; all forms of a value share it."""
    sources = {node.outputs[0]: node.inputs[0] for node in graph.nodes if node.is_added}
    forms: dict[str, list[str]] = {}
    for value in dict.fromkeys(_values(graph)):
        first = value
        while first in sources:
            first = sources[first]
        forms.setdefault(first, []).append(value)
    names: dict[str, str] = {}
    for first, members in forms.items():
        plain = first.rstrip("'").removesuffix(_ON_DEVICE)
        names |= dict.fromkeys(members, plain if plain in members else first)
    return names


def with_model_types(graph: Graph) -> Graph:
    """Return a compiled graph with the model's declared types for values behind TransData and Cast, too."""
    types = {form: graph.type_of(name) for form, name in model_names(graph).items()}
    return replace(graph, types={**graph.types, **types})


def _values(graph: Graph) -> Iterator[str]:
    yield from (value.name for value in graph.inputs)
    yield from graph.weights
    for node in graph.nodes:
        yield from filter(None, node.inputs)
        yield from filter(None, node.outputs)


TRANS_DATA: Final = "TransData"
CAST: Final = "Cast"


def trans_data(name: str, source: str, target: str, attributes: Mapping[str, Any]) -> Node:
    """Return an operator that changes a tensor's format on the device; on the host nothing moves."""
    return added_node(helper.make_node("Identity", [source], [target], name=name), TRANS_DATA, attributes)


def cast(name: str, source: str, target: str, dtype: DType | None) -> Node:
    """Return an operator that changes a tensor's element type on the device; None: it only rounds."""
    if dtype is None:
        return added_node(helper.make_node("Identity", [source], [target], name=name), CAST, {})
    proto = helper.make_node("Cast", [source], [target], name=name, to=dtype.onnx)
    return added_node(proto, CAST, {"to": dtype.onnx})


def added_node(proto: onnx.NodeProto, primitive: str, attributes: Mapping[str, Any]) -> Node:
    """Return a node that the model lacks, under a primitive and decoded attributes."""
    return Node(
        name=proto.name,
        op_type=proto.op_type,
        domain="",
        inputs=tuple(proto.input),
        outputs=tuple(proto.output),
        attributes=attributes,
        operator=OperatorRef(primitive, proto.name),
        source=(),
        proto=proto,
        is_added=True,
    )


def rewired(node: Node, inputs: Sequence[str], outputs: Mapping[str, str]) -> Node:
    """Return a node with other inputs and renamed outputs; parts of a fused node are changed as well."""
    if not node.parts:
        return _renamed(node, inputs, outputs)
    inner = {name for part in node.parts for name in part.outputs}
    names = {old: new for old, new in zip(node.inputs, inputs, strict=True) if old not in inner}
    parts = tuple(
        _renamed(part, [names.get(name, name) for name in part.inputs], outputs) for part in node.parts
    )
    return replace(
        node,
        inputs=tuple(inputs),
        outputs=tuple(outputs.get(name, name) for name in node.outputs),
        proto=parts[-1].proto,
        parts=parts,
    )


def _renamed(node: Node, inputs: Sequence[str], outputs: Mapping[str, str]) -> Node:
    results = [outputs.get(name, name) for name in node.outputs]
    if list(node.inputs) == list(inputs) and list(node.outputs) == results:
        return node
    # the message belongs to the loaded model, which other compilations read
    proto = deepcopy(node.proto)
    proto.input[:] = [new or old for new, old in zip(inputs, proto.input, strict=True)]
    proto.output[:] = results
    return replace(node, inputs=tuple(inputs), outputs=tuple(results), proto=proto)


_log = logging.getLogger("msdump.graph")

Compute = Callable[[Graph], Sequence[np.ndarray]]
"""Runs a graph without inputs; returns its outputs in order."""

_LARGEST: Final = 1 << 20  # bytes; a larger result would take memory as long as the network lives

_OF_SHAPES: Final[Mapping[str, Callable[[tuple[int, ...], Mapping[str, Any]], Any]]] = {
    "Shape": lambda shape, attributes: shape[attributes.get("start", 0) : attributes.get("end")],
    "Size": lambda shape, _attributes: math.prod(shape),
}
"""Functions that compute the result of an operator from a static shape."""


def fold(graph: Graph, compute: Compute) -> Graph:
    """Return the graph with operators of constants replaced by their results, as weights.

    Results come from the kernels that would compute them in the network, so that folding changes no bit.
    Not folded are operators that make graph outputs or values for branches and loops, and operators that the
    runtime refuses, which must fail when the network runs, not before.
    """
    search = _Search(graph)
    search.run()
    if not search.folded:
        return graph
    try:
        arrays = search.values(compute)
    except MsdumpError as error:
        _log.debug("%s: constants are not folded: %s", graph.source, error)
        return graph
    nodes = tuple(node for node in graph.nodes if node.name not in search.folded)
    read = {name for node in search.folded.values() for name in reads(node)}
    # a caller may feed an overridable weight, training writes a variable: both stay
    read -= {name for node in nodes for name in reads(node)} | {value.name for value in graph.outputs}
    own = {name: array for name, array in graph.weights.items() if name not in read - graph.changeable}
    new = {name: _frozen(array) for name, array in arrays.items()}
    types = {name: ValueType(dtypes.from_numpy(array.dtype), array.shape) for name, array in new.items()}
    return replace(
        graph,
        nodes=nodes,
        weights={**own, **new},
        constants=(*(name for name in graph.constants if name in own), *new),
        types={**graph.types, **types},
    )


@dataclass(slots=True)
class _Search:
    """Finds the operators of a graph that can be folded."""

    graph: Graph
    folded: dict[str, Node] = field(default_factory=dict)
    # results of operators that read only a static shape, by value name
    shape_results: dict[str, np.ndarray] = field(default_factory=dict)
    # size of each value that does not depend on inputs, in bytes, by name
    constant_bytes: dict[str, int] = field(default_factory=dict)

    def run(self) -> None:
        graph = self.graph
        self.constant_bytes = {
            name: array.nbytes for name, array in graph.weights.items() if name not in graph.changeable
        }
        kept = set(_needed_values(graph))
        for node in graph.nodes:
            if kept.isdisjoint(node.outputs) and self._folds(node):
                self.folded[node.name] = node
                self.constant_bytes |= {
                    name: _tensor_bytes(graph.type_of(name)) or 0 for name in node.outputs if name
                }

    def values(self, compute: Compute) -> dict[str, np.ndarray]:
        remaining = (node for node in self.graph.nodes if node.name not in self.folded)
        wanted = set().union(*map(reads, remaining))
        results = [name for node in self.folded.values() for name in node.outputs if name in wanted]
        part = self._part([name for name in results if name not in self.shape_results])
        computed = zip((value.name for value in part.outputs), compute(part), strict=True)
        return {name: array for name, array in self.shape_results.items() if name in wanted} | dict(computed)

    def _part(self, outputs: Iterable[str]) -> Graph:
        graph = self.graph
        nodes = (node for node in self.folded.values() if self.shape_results.keys().isdisjoint(node.outputs))
        return replace(
            graph,
            nodes=tuple(nodes),
            inputs=(),
            outputs=tuple(Value(name, graph.type_of(name)) for name in outputs),
            # nothing can be fed to the part: its weights are constants
            weights={**graph.weights, **self.shape_results},
            overridable=frozenset(),
            variables=frozenset(),
        )

    def _folds(self, node: Node) -> bool:
        # operators of other domains may give other results in each run
        is_opaque = node.domain or node.op_type in WITH_MEMORY or subgraphs(node.proto)
        if is_opaque or collective(node.domain, node.op_type) is not None:
            return False
        if self._folds_by_shape(node):
            return True
        if any(name not in self.constant_bytes for name in reads(node)):
            return False
        sizes = [_tensor_bytes(self.graph.type_of(name)) for name in node.outputs if name]
        # results may be as large as the inputs: folding makes these superfluous
        most = max(_LARGEST, sum(self.constant_bytes[name] for name in reads(node)))
        return all(size is not None for size in sizes) and sum(filter(None, sizes)) <= most

    def _folds_by_shape(self, node: Node) -> bool:
        """Return whether an operator reads only a static shape; its result is added to ``shape_results``."""
        if node.op_type not in _OF_SHAPES:
            return False
        data = self.graph.type_of(node.inputs[0])
        shape = data.sizes
        if data.kind != "tensor" or shape is None:
            return False
        self.shape_results[node.outputs[0]] = _frozen(
            np.array(_OF_SHAPES[node.op_type](shape, node.attributes), np.int64)
        )
        return True


def _needed_values(graph: Graph) -> Iterator[str]:
    yield from (value.name for value in graph.outputs)
    for node in graph.nodes:
        yield from (name for name in reads(node) if node.bodies or name not in node.inputs)


def _tensor_bytes(value_type: ValueType) -> int | None:
    """Return the size of a tensor, None where it is not known before the run."""
    dtype, sizes = value_type.dtype, value_type.sizes
    if value_type.kind != "tensor" or dtype is None or dtype is dtypes.STRING or sizes is None:
        return None
    return math.prod(sizes) * dtype.numpy.itemsize


def _frozen(array: np.ndarray) -> np.ndarray:
    array = array.view()
    array.flags.writeable = False
    return array


Joins = Callable[[Sequence[Node], Node, str], bool]
"""Returns whether an operator continues a chain through a value that it reads."""


def fuse_elementwise(graph: Graph) -> Graph:
    """Return the graph with its elementwise chains fused, in branches and loops as well.

    The fused operator runs at the place of the last one. Its name joins the last components of the original
    names, ``Default/Add-op0ReLU-op0``; where another chain has that name, it joins the whole names.
    """
    taken: set[str] = set()

    def fuse(inner: Graph) -> Graph:
        parts = chains(inner, meet_elementwise)
        nodes = (chain[0] if len(chain) == 1 else _fused(chain, taken) for chain in parts)
        return replace(inner, nodes=tuple(nodes))

    return rewritten(graph, fuse)


def chains(graph: Graph, joins: Joins) -> list[list[Node]]:
    """Return the operators in chains, each chain at the position of its last operator.

    A value between two parts of a chain has no other reader and is no graph output. No
    chain reaches across an operator of the device's overflow status, which depends on earlier ones.
    """
    uses = Counter(name for node in graph.nodes for name in reads(node))
    kept = {value.name for value in graph.outputs}
    # Chains by the name of their last node. A chain that grows is put in again behind all others: a dict
    # keeps the order of insertion, so each chain stands where its last operator did.
    open_chains: dict[str, list[Node]] = {}
    ends: dict[str, str] = {}
    for node in graph.nodes:
        chain = [node]
        for name in node.inputs:
            end = ends.get(name, "")
            before = open_chains.get(end, [])
            # one reader, no graph output: the value may disappear
            is_near = bool(before) and before[-1].kernel_graph == node.kernel_graph
            if is_near and uses[name] == 1 and name not in kept and joins(before, node, name):
                chain = [*open_chains.pop(end), node]
                break
        open_chains[node.name] = chain
        if uses_float_status(node.domain, node.op_type):
            ends.clear()
        ends |= dict.fromkeys(filter(None, node.outputs), node.name)
    return list(open_chains.values())


def meet_elementwise(chain: Sequence[Node], node: Node, _name: str) -> bool:
    """Return whether an operator and the last one of a chain are both elementwise (a rule for ``chains``)."""
    return _is_elementwise(chain[-1]) and _is_elementwise(node)


def _is_elementwise(node: Node) -> bool:
    return not node.domain and is_elementwise(node.op_type) and len(node.outputs) == 1


def _fused(chain: Sequence[Node], taken: set[str]) -> Node:
    # operators of two scopes may have equal last components, and their chains then equal names
    names = [part.operator.full_name for part in chain]
    scope = os.path.commonpath([name.rpartition("/")[0] for name in names])
    name = f"{scope}/{''.join(name.rpartition('/')[2] for name in names)}"
    if name in taken:
        name = "".join(part.operator.full_name for part in chain)
    taken.add(name)
    return fused_node(chain, OperatorRef("".join(part.operator.op_type for part in chain), name))


def fused_node(chain: Sequence[Node], operator: OperatorRef) -> Node:
    """Return the operators of a chain as one, with the node name of the last one."""
    inner = {name for part in chain for name in part.outputs}
    outside = dict.fromkeys(name for part in chain for name in reads(part) if name not in inner)
    return replace(
        chain[-1],
        op_type="+".join(part.op_type for part in chain),
        inputs=tuple(outside),
        attributes={},
        operator=operator,
        source=tuple(dict.fromkeys(line for part in chain for line in part.source)),
        parts=tuple(chain),
    )


_FOLLOWERS: Final[Mapping[Fusion, frozenset[Fusion]]] = {
    Fusion.CONVOLUTION: frozenset({Fusion.BIAS, Fusion.NORMALIZATION, Fusion.ACTIVATION}),
    Fusion.PRODUCT: frozenset({Fusion.BIAS, Fusion.ACTIVATION}),
    Fusion.BIAS: frozenset({Fusion.NORMALIZATION, Fusion.ACTIVATION}),
    Fusion.NORMALIZATION: frozenset({Fusion.ACTIVATION}),
}
"""Roles that can follow each part of a kernel."""

Join = Callable[[Sequence[Node]], str]
"""Returns the name of the operators of a kernel."""

Note = Callable[[str, Graph], None]
"""Takes the graph after a stage of the compilation."""

BEGUN: Final = "PreRunBegin"
FOLDED: Final = "PrepareAfterPrepareOptimize"
FUSED: Final = "OptimizeOriginalGraph_FeGraphFusionAfter"
INSERTED: Final = "OptimizeOriginalGraph_FeInsertTransNodeAfter"
BUILT: Final = "Build"
ENDED: Final = "PreRunAfterBuild"
"""GE's names of the stages; the device has a part in the last three."""


def compile_graph(
    graph: Graph,
    *,
    fuses: bool = True,
    compute: Compute | None = None,
    keeps_node_names: bool = False,
    note: Note | None = None,
) -> Graph:
    """Return the graph with GE's types, constants folded and operators fused, also in branches and loops.

    A fused operator (kernel) is a cube operator with bias, batch normalization and activation behind it, a
    batch normalization with its activation, or an elementwise chain. Its parts run one after the other, each
    rounded as it would be alone; no normalization is multiplied into a convolution's weights. So results of a
    compiled network equal the uncompiled network's bit by bit.

    Args:
        graph: The graph.
        fuses: Whether operators are fused (``fusion_switch``).
        compute: Runs a graph of constant operators and returns the results; None: no folding.
        keeps_node_names: Operators are called by the model's node names, not by full names.
        note: Called with the name of each stage and the graph after it.
    """
    note = note or (lambda _stage, _graph: None)
    # first: fused operators get their types and names from GE's types
    taken = _names(graph)
    graph = _with_nodes(graph, lambda node: _with_ge_type(node, taken))
    if keeps_node_names:
        graph = _with_nodes(graph, _with_node_name)
    note(BEGUN, graph)
    if compute is not None:
        graph = rewritten(graph, lambda inner: fold(inner, compute))
        note(FOLDED, graph)
    if fuses:
        join, taken = _node_names if keeps_node_names else _full_names, _names(graph)
        graph = rewritten(graph, lambda inner: _with_kernels(inner, join, taken))
        note(FUSED, graph)
    return graph


def _with_nodes(graph: Graph, change: Callable[[Node], Node]) -> Graph:
    return rewritten(graph, lambda inner: replace(inner, nodes=tuple(map(change, inner.nodes))))


def _with_ge_type(node: Node, taken: set[str]) -> Node:
    op_type = GE_TYPES.get(node.operator.op_type)
    if op_type is None:
        return node
    # Default/Div-op0 becomes Default/RealDiv-op0
    last = node.operator.full_name.rpartition("/")[2]
    full_name = _free(f"{node.scope}/{last.replace(node.operator.op_type, op_type, 1)}", taken)
    taken.add(full_name)
    return replace(node, operator=OperatorRef(op_type, full_name))


def _with_node_name(node: Node) -> Node:
    op_type = CONVERTED_TYPES.get(node.operator.op_type, node.operator.op_type)
    return replace(node, operator=OperatorRef(op_type, node.name))


def _names(graph: Graph) -> set[str]:
    nodes = [node for inner in graph.walk() for node in inner.nodes]
    return {node.name for node in nodes} | {node.operator.full_name for node in nodes}


def _with_kernels(graph: Graph, join: Join, taken: set[str]) -> Graph:
    # kernels of cube operators first: an activation behind a convolution belongs to it, not to a chain
    for joins in (_continues, meet_elementwise):
        nodes = (node for chain in chains(graph, joins) for node in _kernels(chain, join, taken))
        graph = replace(graph, nodes=tuple(nodes))
    return graph


def _continues(chain: Sequence[Node], node: Node, name: str) -> bool:
    """Return whether an operator can be the next part of a kernel.

    A bias joins by either operand, an activation by its first input only: others are slopes or bounds.
    """
    role = _role(node)
    if role not in _FOLLOWERS.get(_role(chain[-1]), ()):
        return False
    return role is Fusion.BIAS or (name == node.inputs[0] and name not in node.inputs[1:])


def _role(node: Node) -> Fusion:
    # parts of a fused operator pass one value to the next part
    if node.domain or len(node.outputs) != 1:
        return Fusion.NONE
    return Fusion.BIAS if node.operator.op_type == "BiasAdd" else facts_of(node.op_type).fusion


def _kernels(chain: Sequence[Node], join: Join, taken: set[str]) -> Sequence[Node]:
    """Return a chain as one fused operator; a chain with nothing but ``PASSING`` operators stays as it is."""
    named_after = next((part for part in chain if part.operator.op_type not in PASSING), None)
    if len(chain) == 1 or named_after is None:
        return chain
    return (_kernel(chain, named_after, join, taken),)


def _kernel(chain: Sequence[Node], named_after: Node, join: Join, taken: set[str]) -> Node:
    """Return a chain as one operator, with type and arguments of its first part that is no Cast.

    Node names are joined as they are, ``conv1conv1_relu``; full names keep the first scope alone, since all
    scopes would make file names too long: ``Default/conv1-Conv2d/Conv2D-op0ReLU-op0``.
    """
    full_name = _free(join(chain), taken)
    kernel = fused_node(chain, OperatorRef(named_after.operator.op_type, full_name))
    name = _free(_node_names(chain), taken)
    taken |= {full_name, name}
    return replace(kernel, name=name, attributes=named_after.attributes)


def _node_names(chain: Sequence[Node]) -> str:
    return "".join(part.name for part in chain)


def _full_names(chain: Sequence[Node]) -> str:
    first, *others = (part.operator.full_name for part in chain)
    return "".join((first, *(name.rpartition("/")[2] for name in others)))


def _free(name: str, taken: set[str]) -> str:
    candidate, number = name, 0
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    return candidate
