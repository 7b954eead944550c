"""One graph on the emulated Ascend: how its operators compute and hold their tensors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from msdump.device import formats, transfers
from msdump.device.mixed_precision import roundings
from msdump.device.placement import DeviceTensor, Placement, View, device_view, place
from msdump.device.precision import rounded, rounding
from msdump.device.tasks import Task, assign
from msdump.device.transfers import Numbers
from msdump.dtypes import DType
from msdump.graph.bodies import with_bodies
from msdump.graph.graph import Graph, Node
from msdump.graph.kernel.emulation import FLOAT16, Rounding
from msdump.plan import OverflowMode, PrecisionMode
from msdump.precision.operator_dtypes import NO_OPERATOR_DTYPES, OperatorDtypes
from msdump.record import IO


class Ascend:
    """The device's view of a graph.

    Attributes:
        graph: The graph, fused where the level fuses, with what the device adds to it.
        placement: Formats and device types of every input and output.
        bodies: The same of the graphs directly inside branches and loops, by their index.
        tasks: The task of each operator, None where the device runs none for it.
        is_compiled: Whether the graph was compiled as a whole (O2, acl): its weights lie ready.
    """

    def __init__(
        self,
        graph: Graph,
        precision: PrecisionMode,
        overflow: OverflowMode,
        *,
        reports: bool = False,
        numbers: Numbers | None = None,
        operator_dtypes: OperatorDtypes = NO_OPERATOR_DTYPES,
    ) -> None:
        """Place a graph on the device.

        Args:
            graph: The graph.
            precision: How float32 operators compute.
            overflow: What float16 results beyond the range become.
            reports: Whether saturation is to be told (``op_debug_mode`` 3, ``NPUGetFloatStatusV2``).
            numbers: Numbers of TransData and Cast operators, which are inserted then (O2, acl).
            operator_dtypes: Operators that compute in other types than the precision mode says.
        """
        # bodies first: the graph takes theirs in, with the operators that the device adds
        self.bodies = {
            body.index: type(self)(
                body, precision, overflow, reports=reports, numbers=numbers, operator_dtypes=operator_dtypes
            )
            for body in graph.bodies
        }
        self.graph = with_bodies(graph, lambda body: self.bodies[body.index].graph)
        self._saturates = overflow is OverflowMode.SATURATION
        self._roundings = roundings(graph, precision, overflow, operator_dtypes, reports=reports)
        # Control flow computes nothing: its bodies do.
        self._roundings |= {node.name: (Rounding(),) for node in graph.nodes if node.bodies}
        for inner in self.bodies.values():
            self._roundings |= inner._roundings  # noqa: SLF001 - names of nodes are unique in a model
        # before transfers, which follow from how operators hold their tensors
        self.placement: Placement = place(self.graph, self.dtype_of)
        self.is_compiled = numbers is not None
        if numbers is not None:
            # an inserted Cast is no cube operator: under force_fp32 it only saturates
            self._insert_transfers(rounding("", PrecisionMode.FORCE_FP32, overflow, reports=reports), numbers)
        self.tasks: tuple[Task | None, ...] = assign(self.graph)

    def _insert_transfers(self, rounding_of_casts: Rounding, numbers: Numbers) -> None:
        inserted = transfers.insert(self.graph, self.placement, rounding_of_casts, numbers)
        self.graph, self.placement = inserted.graph, inserted.placement
        self._roundings |= inserted.roundings

    def walk(self) -> Iterator[Ascend]:
        """Yield the device's view of the graph and, in order of index, of those inside it."""
        yield self
        for inner in self.bodies.values():
            yield from inner.walk()

    def roundings(self, node: Node) -> tuple[Rounding, ...]:
        """Return the rounding of each original operator of a node of the model, in a body or not."""
        return self._roundings[node.name]

    def dtype_of(self, node: Node, io: IO, slot: int) -> DType | None:
        """Return the element type in which a node holds an input or output."""
        value = (node.inputs if io is IO.INPUT else node.outputs)[slot]
        host = self.graph.type_of(value).dtype
        if host is None:
            return None
        roundings = self._roundings[node.name]
        if io is IO.OUTPUT:
            # the last part of a kernel writes
            return roundings[-1].write_type(host)
        readers = (index for index, part in enumerate(node.members) if value in part.inputs)
        return roundings[next(readers, 0)].read_type(host)

    def view(self) -> View:
        """Return the function that tells the device line of .ir texts how a value lies."""
        return device_view(self.graph, self.placement)

    def tensor(self, position: int, io: IO, slot: int) -> DeviceTensor | None:
        """Return how the node at a position in execution order holds an input or output, None if absent."""
        placed = self.placement.nodes[position]
        return (placed.inputs if io is IO.INPUT else placed.outputs)[slot]

    def held(self, array: np.ndarray, dtype: DType) -> np.ndarray:
        """Return a host array in the element type in which the device holds it, rounded to nearest even."""
        return rounded(array, dtype, saturates=self.saturates(dtype))

    def saturates(self, dtype: DType) -> bool:
        """Tell whether values are kept within the range of an element type that the device holds them in."""
        return self._saturates and dtype is FLOAT16

    def laid_out(self, array: np.ndarray, tensor: DeviceTensor) -> np.ndarray:
        """Return an array as it lies in device memory.

        Raises:
            FormatError: The format cannot hold it.
        """
        return formats.encode(tensor.format, array, tensor.groups)
