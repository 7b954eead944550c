"""Inserts TransData and Cast where a tensor is read in another format or element type than it was written in.

A compiled graph has these conversions as operators of their own. Constants need none: they are
brought into the form in which they are read when the graph is compiled. Tensors
stay in the host's layout, so a TransData moves nothing here; a Cast rounds. On the
way to a smaller type the Cast comes first, on the way to a larger one last, so that
TransData has less to move. Two device formats need two TransData, by way of the host's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from msdump.device.operators import CUBE_OPS
from msdump.device.placement import DeviceTensor, NodePlacement, Placement, host_tensor
from msdump.device.tasks import INSERTED_PREFIX
from msdump.dtypes import BFLOAT16
from msdump.graph import UNKNOWN, Graph, Node, compilation, outer_values
from msdump.graph.kernel import FLOAT32, HALVES, Rounding
from msdump.record import DEFAULT_FORMAT

_BFLOAT16_SINCE: Final = 13  # opset
_TENSORS: Final = ("tensor", "")  # "": a value of unknown type counts as a tensor
_FLOATS: Final = frozenset({FLOAT32, *HALVES})

Numbers = Iterator[int]
"""Gives the numbers in the names of inserted operators; all graphs of a model share one."""


@dataclass(frozen=True, slots=True)
class Inserted:
    """A graph with its TransData and Cast operators."""

    graph: Graph
    placement: Placement
    roundings: Mapping[str, tuple[Rounding, ...]]


def insert(graph: Graph, placement: Placement, rounding: Rounding, numbers: Numbers) -> Inserted:
    """Return a graph with TransData and Cast in front of operators that read another form of a value.

    Graph outputs, and values that branches and loops read from outside, are converted to the host's form.
    """
    return _Inserter(graph, placement, rounding, numbers).run()


class _Inserter:
    """Rewrites one graph in execution order, with conversions before the operators that need them."""

    def __init__(self, graph: Graph, placement: Placement, rounding: Rounding, numbers: Numbers) -> None:
        self._graph = graph
        self._placed = placement.nodes
        self._rounding = rounding
        self._numbers = numbers
        self._types = dict(graph.types)
        self._read_on_host = {value.name for value in graph.outputs} | set().union(
            *map(_inner_reads, graph.nodes)
        )
        self._widened = set(_widened(graph, placement))
        self._taken = {node.name for node in graph.nodes} | set(self._types)
        self._nodes: list[Node] = []
        self._places: list[NodePlacement] = []
        self._roundings: dict[str, tuple[Rounding, ...]] = {}
        self._forms: dict[tuple[str, DeviceTensor], str] = {}
        # sequences and optionals have no format
        tensors = (value.name for value in graph.inputs if value.type.kind in _TENSORS)
        self._produced = {name: host_tensor(graph, name) for name in tensors}

    def run(self) -> Inserted:
        for node, placed in zip(self._graph.nodes, self._placed, strict=True):
            inputs = [  # constants are not converted
                name
                if tensor is None or name not in self._produced
                else self._in_form(name, host_tensor(self._graph, name) if node.bodies else tensor)
                for name, tensor in zip(node.inputs, placed.inputs, strict=True)
            ]
            # bodies read the host's form, too; their own graphs convert it
            for name in _inner_reads(node):
                self._hand_out(name)
            outputs = dict(self._renamed(node, placed))
            self._nodes.append(compilation.rewired(node, inputs, outputs))
            self._places.append(placed)
        # graph outputs that no operator read in the host's form
        for value in self._graph.outputs:
            self._hand_out(value.name)
        graph = replace(self._graph, nodes=tuple(self._nodes), types=self._types)
        return Inserted(graph, Placement(tuple(self._places)), self._roundings)

    def _renamed(self, node: Node, placed: NodePlacement) -> Iterator[tuple[str, str]]:
        """Note the forms of an operator's outputs; yield (old name, new name) of renamed ones.

        A value that graph outputs or bodies read has the host's form under its own name, so an operator
        that makes it in another form gets a new name for it.
        """
        for name, tensor in zip(node.outputs, placed.outputs, strict=True):
            if tensor is None or self._graph.type_of(name).kind not in _TENSORS:
                continue
            self._produced[name] = tensor
            # the original name is for the value in the host's form
            if name in self._read_on_host and tensor != host_tensor(self._graph, name):
                value = f"{name}:device"
                while value in self._taken:
                    value += "'"
                self._taken.add(value)
                self._forms[name, tensor] = value
                self._types[value] = self._graph.type_of(name)
                yield name, value

    def _hand_out(self, name: str) -> None:
        if name in self._produced:
            self._in_form(name, host_tensor(self._graph, name))

    def _in_form(self, name: str, wanted: DeviceTensor) -> str:
        """Return the name of a value in a form; the conversion is inserted before its first reader."""
        produced = self._produced[name]
        value = self._forms.get((name, produced), name)
        for before, after in _steps(produced, wanted, host_tensor(self._graph, name)):
            if (name, after) not in self._forms:
                is_cast = before.dtype is not after.dtype
                primitive = compilation.CAST if is_cast else compilation.TRANS_DATA
                # all graphs of a model share the numbers; a node of the model may already have such a name
                names = (f"{INSERTED_PREFIX}{primitive}_{number}" for number in self._numbers)
                node_name = next(name for name in names if self._taken.isdisjoint((name, f"{name}:0")))
                # the operator that brings the value back to the host's form takes over its name
                is_last = name in self._read_on_host and after == host_tensor(self._graph, name)
                target = name if is_last else f"{node_name}:0"
                if is_cast:
                    node = self._cast(node_name, name, value, target, after)
                else:
                    self._types.setdefault(target, self._types.get(value, UNKNOWN))
                    self._roundings[node_name] = (Rounding(),)
                    node = compilation.trans_data(
                        node_name,
                        value,
                        target,
                        {
                            "src_format": before.format,
                            "dst_format": after.format,
                            "groups": max(before.groups, after.groups),
                        },
                    )
                self._nodes.append(node)
                self._places.append(NodePlacement((before,), (after,)))
                self._forms[name, after] = target
            value = self._forms[name, after]
        return value

    def _cast(self, node_name: str, name: str, source: str, target: str, after: DeviceTensor) -> Node:
        assert after.dtype is not None
        host_type = self._types.get(source, UNKNOWN)
        if after.dtype is FLOAT32:
            self._types.setdefault(target, replace(host_type, dtype=FLOAT32))
            self._roundings[node_name] = (Rounding(),)
            return compilation.cast(node_name, source, target, FLOAT32)
        # with other readers than cube operators the value keeps its type on the host; the Cast only rounds
        stays = name in self._widened
        self._types.setdefault(target, host_type if stays else replace(host_type, dtype=after.dtype))
        reads_as = after.dtype if stays else FLOAT32
        self._roundings[node_name] = (replace(self._rounding, reads=reads_as, writes=FLOAT32),)
        return compilation.cast(node_name, source, target, None if stays else after.dtype)


def _inner_reads(node: Node) -> set[str]:
    return set().union(*(outer_values(part.proto) for part in node.members))


def _widened(graph: Graph, placement: Placement) -> Iterator[str]:
    """Yield values that stay float32 on the host behind a Cast, because not only cube operators read them.

    onnxruntime computes in float32: only cube operators are sure to have kernels for the half types, and
    bfloat16 inputs are allowed only since opset 13.
    """
    # ONNX's operators take bfloat16 since opset 13
    is_old = graph.opsets.get("", 1) < _BFLOAT16_SINCE
    for node, placed in zip(graph.nodes, placement.nodes, strict=True):
        for name, tensor in zip(node.inputs, placed.inputs, strict=True):
            if tensor is None or tensor.dtype not in HALVES or graph.type_of(name).dtype is not FLOAT32:
                continue
            readers = (part.operator.op_type for part in node.members if name in part.inputs)
            if not CUBE_OPS.issuperset(readers) or (is_old and tensor.dtype is BFLOAT16):
                yield name


def _steps(
    produced: DeviceTensor, wanted: DeviceTensor, host: DeviceTensor
) -> Iterator[tuple[DeviceTensor, DeviceTensor]]:
    """Yield (form before, form after) of each operator on the way from one form to another."""
    has_cast = produced.dtype is not wanted.dtype and _FLOATS.issuperset((produced.dtype, wanted.dtype))
    before = produced
    if has_cast and wanted.dtype in HALVES:
        after = replace(before, dtype=wanted.dtype)
        yield before, after
        before = after
    for layout in _layouts(produced, wanted, host):
        after = replace(layout, dtype=before.dtype)
        yield before, after
        before = after
    if has_cast and wanted.dtype not in HALVES:
        yield before, replace(before, dtype=wanted.dtype)


def _layouts(produced: DeviceTensor, wanted: DeviceTensor, host: DeviceTensor) -> Iterator[DeviceTensor]:
    if (produced.format, produced.groups, produced.cell) == (wanted.format, wanted.groups, wanted.cell):
        return
    if DEFAULT_FORMAT not in {produced.format, wanted.format}:  # no TransData goes between device formats
        yield host
    yield wanted
