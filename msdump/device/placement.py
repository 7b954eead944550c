"""How each operator of a graph holds its tensors on the device.

Graph inputs and weights arrive as on the host. A format travels through the
operators that can compute in it; a value may be read in another format than it
was made in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from msdump.device import formats
from msdump.device.blocks import DYNAMIC, Cell, Dims, blocks, onnx_cell, product
from msdump.device.operators import FORMATS_OF, HOST, Elementwise, Fixed, Follows, OperatorFormats
from msdump.dtypes import DType
from msdump.errors import FormatError
from msdump.graph import UNKNOWN_RANK, Graph, Node
from msdump.record import DEFAULT_FORMAT, IO


def operator_formats(node: Node) -> OperatorFormats:
    """Return the formats of an operator.

    A fused operator has the formats of its first part; parameters of the other parts are as on the host.
    A chain of elementwise operators has the formats that all of its parts accept.
    """
    if not node.parts:
        return FORMATS_OF.get(node.operator.op_type, HOST)
    # a fused operator: only in chains of elementwise operators all parts count
    first = operator_formats(node.parts[0])
    if first == HOST or isinstance(first, Follows):
        return first
    if isinstance(first, Fixed):
        last = len(first.inputs) - 1
        format_of = {name: first.inputs[min(slot, last)] for slot, name in enumerate(node.parts[0].inputs)}
        inputs = tuple(format_of.get(name, DEFAULT_FORMAT) for name in node.inputs)
        return Fixed(inputs, first.outputs, first.rank)
    formats: tuple[str, ...] | None = None
    for part in map(operator_formats, node.parts):
        if not isinstance(part, Elementwise):
            return HOST
        if part.formats is not None:
            formats = (
                part.formats if formats is None else tuple(name for name in formats if name in part.formats)
            )
    return Elementwise(formats)


SlotDType = Callable[[Node, IO, int], DType | None]
"""Returns the element type in which an operator holds an input or output; None where unknown."""

View = Callable[[str, Node], tuple[str, str, Dims]]
"""Returns dtype title, format and dimensions of a value of an operator, for .ir texts."""


@dataclass(frozen=True, slots=True)
class DeviceTensor:
    """How a tensor lies in device memory."""

    format: str
    dtype: DType | None
    shape: Dims  # device dimensions, -1 where one is not known, ``(-2,)`` where the rank is not
    groups: int = 1  # groups that a FRACTAL_Z weight is laid out for
    cell: Cell | None = None

    @property
    def nbytes(self) -> int | None:
        """Size in bytes, packed; None where it is not known."""
        count = DYNAMIC if self.shape == UNKNOWN_RANK else product(self.shape)
        if self.dtype is None or count < 0:
            return None
        return blocks(count, self.dtype.per_byte) * self.dtype.numpy.itemsize


Shape = tuple[int | str | None, ...]
"""Host dimensions of a value, as a graph knows them."""

Slots = tuple[DeviceTensor | None, ...]
"""One entry for each input or output, None for an absent one."""


@dataclass(frozen=True, slots=True)
class NodePlacement:
    """Formats and types of one operator's tensors on the device, by slot of inputs and outputs."""

    inputs: Slots
    outputs: Slots


@dataclass(frozen=True, slots=True)
class Placement:
    """How a graph lies on the device."""

    nodes: tuple[NodePlacement, ...]


def host_dtype(graph: Graph) -> SlotDType:
    """Return the element types of the host."""

    def dtype_of(node: Node, io: IO, slot: int) -> DType | None:
        return graph.type_of((node.inputs if io is IO.INPUT else node.outputs)[slot]).dtype

    return dtype_of


def host_tensor(graph: Graph, name: str) -> DeviceTensor:
    """Return a value in the host's format and element type, the form before any conversion."""
    shape = host_shape(graph, name)
    return DeviceTensor(DEFAULT_FORMAT, graph.type_of(name).dtype, UNKNOWN_RANK if shape is None else shape)


def host_shape(graph: Graph, name: str) -> Dims | None:
    """Return the dimensions of a value, -1 where one is not known; None where the rank is not."""
    shape = graph.type_of(name).shape
    return None if shape is None else tuple(size if isinstance(size, int) else DYNAMIC for size in shape)


def place(graph: Graph, dtype_of: SlotDType | None = None) -> Placement:
    """Return how the operators of a graph hold their tensors, by default in the host's element types."""
    return _Placer(graph, dtype_of or host_dtype(graph)).run()


def device_view(graph: Graph, placement: Placement) -> View:
    """Return the placement as .ir texts show it, with their spelling of formats.

    A value that an operator reads twice is shown as its first reading.
    """
    positions = {node.operator.full_name: position for position, node in enumerate(graph.nodes)}

    def view(value: str, node: Node) -> tuple[str, str, Dims]:
        placed = placement.nodes[positions[node.operator.full_name]]
        is_input = value in node.inputs
        names, slots = (node.inputs, placed.inputs) if is_input else (node.outputs, placed.outputs)
        tensor = slots[names.index(value)]
        assert tensor is not None, value
        title = tensor.dtype.title if tensor.dtype else "Unknown"
        return title, formats.find(tensor.format).ir, tensor.shape

    return view


_OF_CELLS: Final = frozenset({formats.FRACTAL_ZN_RNN, formats.ND_RNN_BIAS})
"""Formats with shapes that depend on the sizes of a recurrent operator."""


class _Placer:
    """Chooses the formats of one graph, operator by operator in execution order."""

    def __init__(self, graph: Graph, dtype_of: SlotDType) -> None:
        self._graph = graph
        self._dtype_of = dtype_of
        self._produced: dict[str, DeviceTensor] = {}

    def run(self) -> Placement:
        return Placement(tuple(map(self._place, self._graph.nodes)))

    def _place(self, node: Node) -> NodePlacement:
        chosen = self._formats(node, operator_formats(node))
        groups: Any = node.attributes.get("group", 1)
        if formats.FRACTAL_ZN_RNN not in chosen.inputs:
            cell = None
        else:
            names = (*node.inputs, "", "", "")[1:3]
            weight, state = (self._graph.type_of(name).shape for name in names)
            cell = onnx_cell(weight, state)
        inputs = self._slots(node, IO.INPUT, chosen.inputs, groups, cell)
        outputs = self._slots(node, IO.OUTPUT, chosen.outputs, groups, cell)
        self._produced |= {name: tensor for name, tensor in zip(node.outputs, outputs, strict=True) if tensor}
        return NodePlacement(inputs, outputs)

    def _arriving(self, name: str) -> DeviceTensor:
        """Return the form in which a value was made; inputs and weights lie as on the host."""
        return self._produced.get(name) or host_tensor(self._graph, name)

    def _slots(self, node: Node, io: IO, wanted: tuple[str, ...], groups: int, cell: Cell | None) -> Slots:
        names = node.inputs if io is IO.INPUT else node.outputs
        return tuple(
            self._tensor(
                name, self._dtype_of(node, io, slot), wanted[min(slot, len(wanted) - 1)], groups, cell
            )
            if name
            else None
            for slot, name in enumerate(names)
        )

    def _tensor(
        self, name: str, dtype: DType | None, wanted: str, groups: int = 1, cell: Cell | None = None
    ) -> DeviceTensor:
        """Return a tensor in a format, or as on the host if the format cannot hold it."""
        host = host_shape(self._graph, name)
        if host is None:
            return DeviceTensor(wanted, dtype, UNKNOWN_RANK)
        groups = groups if wanted == formats.FRACTAL_Z else 1
        cell = cell if wanted in _OF_CELLS else None
        try:
            shape = formats.shape(wanted, host, dtype, groups, cell=cell)
            return DeviceTensor(wanted, dtype, shape, groups, cell)
        # a shape that the format cannot hold, such as five dimensions in NC1HWC0
        except FormatError:
            return DeviceTensor(DEFAULT_FORMAT, dtype, host)

    def _formats(self, node: Node, rule: OperatorFormats) -> Fixed:
        if isinstance(rule, Fixed):
            first = host_shape(self._graph, node.inputs[0]) if node.inputs else None
            # an unknown rank counts as the required one
            return rule if rule.rank == 0 or first is None or len(first) == rule.rank else HOST
        if isinstance(rule, Follows):
            arriving = self._arriving(node.inputs[0]).format if node.inputs else DEFAULT_FORMAT
            # one tensor that the format cannot hold makes the operator compute as on the host
            values = (value for value in (*node.inputs, *node.outputs) if value)
            if arriving not in rule.formats or any(
                self._tensor(value, None, arriving).format != arriving for value in values
            ):
                return HOST
            return Fixed((arriving,), (arriving,))
        return self._elementwise(node, rule)

    def _elementwise(self, node: Node, rule: Elementwise) -> Fixed:
        arriving_formats = (self._arriving(name).format for name in node.inputs if name)
        arriving = next((name for name in arriving_formats if name != DEFAULT_FORMAT), DEFAULT_FORMAT)
        if arriving == DEFAULT_FORMAT or (rule.formats is not None and arriving not in rule.formats):
            return HOST
        shapes = [self._graph.type_of(value).shape for value in node.inputs if value]
        result = self._graph.type_of(node.outputs[0]).shape
        # one input: nothing is broadcast
        is_fit = len(shapes) == 1 or all(_broadcasts(shape, result, arriving) for shape in shapes)
        if not is_fit or not self._has_one_c0(node):
            return HOST
        # one element fits every format, but would be padded to a block: it stays as on the host
        singles = (not name or _is_single(self._graph.type_of(name).shape) for name in node.inputs)
        inputs = tuple(DEFAULT_FORMAT if is_single else arriving for is_single in singles)
        return Fixed(inputs, (arriving,))

    def _has_one_c0(self, node: Node) -> bool:
        """Return whether all tensors of a node have the same C0; a cast from float16 to int8 has not."""
        sides = ((IO.INPUT, node.inputs), (IO.OUTPUT, node.outputs))
        block_lengths = {
            formats.c0(self._dtype_of(node, io, slot))
            for io, names in sides
            for slot, name in enumerate(names)
            if name and not _is_single(self._graph.type_of(name).shape)
        }
        return len(block_lengths) <= 1


def _is_single(shape: Shape | None) -> bool:
    return shape is not None and all(size == 1 for size in shape)


_CUT_AXES: Final = {formats.NC1HWC0: (1,), formats.NDC1HWC0: (1,), formats.FRACTAL_NZ: (-2, -1)}
"""Axes that a format of activations cuts into blocks; formats of weights, not listed, mix them all."""


def _broadcasts(shape: Shape | None, result: Shape | None, name: str) -> bool:
    """Return whether an input in a device format can be broadcast to a result in the same format.

    A single element always can. Other inputs need the result's rank, and the result's size on every
    axis that the format cuts; in formats of weights, the result's shape.
    """
    if shape is None or result is None:
        return False
    if _is_single(shape):
        return len(shape) <= len(result)
    if len(shape) != len(result):
        return False
    axes = _CUT_AXES.get(name, range(len(shape)))
    if not all(-len(shape) <= axis < len(shape) for axis in axes):
        return False  # too few axes: the value that arrives has an unknown rank
    return all(shape[axis] == result[axis] and shape[axis] is not None for axis in axes)
