"""Compiles a whole graph as GE does (Ascend O2, acl, torchair): constants folded, operators fused.

A kernel is a cube operator with what follows it - bias, batch normalization,
activation -, a batch normalization with its activation, or a chain of elementwise
operators. It has the type of the first operator, of the next one behind a Cast (see
``PASSING``), is called after all of them, and keeps them (``Node.parts``). Node names
are joined as they are, ``conv1conv1_relu``; of full names the scope is that of the
first operator, since the scopes of all would make file names too long:
``Default/conv1-Conv2d/Conv2D-op0ReLU-op0``.

The parts of a kernel run one after the other, each rounded as it would be alone: a
batch normalization is not multiplied into the weights of its convolution. So a
compiled network gives the bits of the one that is not compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from msdump.graph.bodies import with_bodies
from msdump.graph.compile.folding import Compute, fold
from msdump.graph.compile.fusion import chains, joined, meet_elementwise
from msdump.graph.graph import Graph, Node
from msdump.graph.primitives import GE_TYPES, PASSING
from msdump.record import OperatorRef

_CUBE: Final = "cube"
_CONV: Final = "convolution"
_BIAS: Final = "bias"
_NORM: Final = "normalization"
_ACTIVATION: Final = "activation"

_ROLES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("Conv", "ConvTranspose"), _CONV),
    **dict.fromkeys(("MatMul", "Gemm"), _CUBE),
    "BatchNormalization": _NORM,
    **dict.fromkeys(
        (
            *("Relu", "LeakyRelu", "PRelu", "Elu", "Selu", "Celu", "Clip", "Sigmoid", "HardSigmoid"),
            *("HardSwish", "Mish", "Tanh", "Softplus", "Softsign", "Gelu", "ThresholdedRelu", "Swish"),
        ),
        _ACTIVATION,
    ),
}
"""What an ONNX operator can be in a kernel."""

_BIAS_PRIMITIVE: Final = "BiasAdd"

_FOLLOWERS: Final[Mapping[str, frozenset[str]]] = {
    _CONV: frozenset({_BIAS, _NORM, _ACTIVATION}),
    _CUBE: frozenset({_BIAS, _ACTIVATION}),
    _BIAS: frozenset({_NORM, _ACTIVATION}),
    _NORM: frozenset({_ACTIVATION}),
    _ACTIVATION: frozenset(),
}
"""What can follow each part of a kernel."""

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
    """Return the graph in GE's terms, with constants folded and operators fused, branches and loops as well.

    Args:
        graph: The graph.
        fuses: Whether operators are fused (``fusion_switch``).
        compute: Runs what is folded; None: nothing is.
        keeps_node_names: Operators are called by the model's node names, not by full names.
        note: Takes the graph after each stage.
    """
    note = note or _ignore
    # first: kernels are typed and named after GE's types
    graph = _with_ge_types(graph, _names(graph))
    if keeps_node_names:
        graph = _with_node_names(graph)
    note(BEGUN, graph)
    if compute is not None:
        graph = _folded(graph, compute)
        note(FOLDED, graph)
    if fuses:
        graph = _fused(graph, _node_names if keeps_node_names else _full_names, _names(graph))
        note(FUSED, graph)
    return graph


def _ignore(_stage: str, _graph: Graph) -> None:
    """Ignore a stage (the default of ``note``)."""


def _with_ge_types(graph: Graph, taken: set[str]) -> Graph:
    nodes = tuple(_with_ge_type(node, taken) for node in graph.nodes)
    return with_bodies(replace(graph, nodes=nodes), lambda body: _with_ge_types(body, taken))


def _with_ge_type(node: Node, taken: set[str]) -> Node:
    """Return an operator under the type that it has in a compiled graph; its number stays."""
    op_type = GE_TYPES.get(node.operator.op_type)
    if op_type is None:
        return node
    # Default/Div-op0 becomes Default/RealDiv-op0
    last = node.operator.full_name.rpartition("/")[2]
    full_name = _free(f"{node.scope}/{last.replace(node.operator.op_type, op_type, 1)}", taken)
    taken.add(full_name)
    return replace(node, operator=OperatorRef(op_type, full_name))


def _with_node_names(graph: Graph) -> Graph:
    nodes = tuple(
        replace(node, operator=OperatorRef(node.operator.op_type, node.name)) for node in graph.nodes
    )
    return with_bodies(replace(graph, nodes=nodes), _with_node_names)


def _folded(graph: Graph, compute: Compute) -> Graph:
    return with_bodies(fold(graph, compute), lambda body: _folded(body, compute))


def _names(graph: Graph) -> set[str]:
    nodes = [node for inner in graph.walk() for node in inner.nodes]
    return {node.name for node in nodes} | {node.operator.full_name for node in nodes}


def _fused(graph: Graph, join: Join, taken: set[str]) -> Graph:
    # kernels of cube operators first: an activation behind a convolution belongs to it, not to a chain
    for joins in (_continues, meet_elementwise):
        nodes = (node for chain in chains(graph, joins) for node in _kernels(chain, join, taken))
        graph = replace(graph, nodes=tuple(nodes))
    return with_bodies(graph, lambda body: _fused(body, join, taken))


def _continues(chain: Sequence[Node], node: Node, name: str) -> bool:
    """Tell whether an operator can be the next part of the kernel that a chain becomes.

    A bias joins by either operand, an activation by its first input only: others are slopes or bounds.
    """
    role = _role(node)
    if role not in _FOLLOWERS.get(_role(chain[-1]), ()):
        return False
    return role == _BIAS or (name == node.inputs[0] and name not in node.inputs[1:])


def _role(node: Node) -> str:
    # a kernel hands one value from part to part
    if node.domain or len(node.outputs) != 1:
        return ""
    return _BIAS if node.operator.op_type == _BIAS_PRIMITIVE else _ROLES.get(node.op_type, "")


def _kernels(chain: Sequence[Node], join: Join, taken: set[str]) -> Sequence[Node]:
    """Return the kernel of a chain; operators that no kernel may be typed after stay alone."""
    named_after = next((part for part in chain if part.operator.op_type not in PASSING), None)
    if len(chain) == 1 or named_after is None:
        return chain
    return (_kernel(chain, named_after, join, taken),)


def _kernel(chain: Sequence[Node], named_after: Node, join: Join, taken: set[str]) -> Node:
    """Return a chain as one operator, with the type and the arguments of one of its parts."""
    full_name = _free(join(chain), taken)
    kernel = joined(chain, OperatorRef(named_after.operator.op_type, full_name))
    name = _free(_node_names(chain), taken)
    taken |= {full_name, name}
    return replace(kernel, name=name, attributes=named_after.attributes)


def _node_names(chain: Sequence[Node]) -> str:
    return "".join(part.name for part in chain)


def _full_names(chain: Sequence[Node]) -> str:
    first, *others = (part.operator.full_name for part in chain)
    return "".join((first, *(name.rpartition("/")[2] for name in others)))


def _free(name: str, taken: set[str]) -> str:
    """Return the name, with a number behind it where it is taken."""
    candidate, number = name, 0
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    return candidate
