"""One graph on the emulated Ascend: arithmetic of its operators, formats and types of their tensors.

The emulated device's overflow status: a register that saturating float16 results raise.

``NPUClearFloatStatusV2`` lowers it, ``NPUGetFloatStatusV2`` reads it. Only a device in SATURATION_MODE has
this register: elsewhere infinities and NaNs themselves show an overflow.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Final

import numpy as np

from msdump.device import formats, transfers
from msdump.device.placement import DeviceTensor, Placement, View, device_view, place
from msdump.device.precision import rounded, rounding, roundings
from msdump.device.tasks import Task, assign
from msdump.device.transfers import Numbers
from msdump.dtypes import DType, from_name
from msdump.errors import GraphError
from msdump.graph import CLEAR_FLOAT_STATUS, Graph, Node, ValueType, uses_float_status, with_bodies
from msdump.graph.kernel import FLOAT16, Rounding
from msdump.plan import NO_OPERATOR_DTYPES, Context, DeviceTarget, OperatorDtypes, OverflowMode, PrecisionMode
from msdump.record import IO

_log = logging.getLogger("msdump.device")

_SHAPE: Final = (8,)
_DTYPE: Final = from_name("int32")


class FloatStatus(threading.local):
    """The overflow status register; each thread that runs a network has a register of its own."""

    def __init__(self) -> None:
        self.is_raised = False  # whether an operator has saturated since the register was lowered

    def note_saturation(self) -> None:
        """Raise the register."""
        self.is_raised = True

    def run(self, op_type: str) -> np.ndarray:
        """Run an operator of the status: int32 of shape (8,), ones if NPUGetFloatStatusV2 finds it raised."""
        if op_type == CLEAR_FLOAT_STATUS:
            self.is_raised = False
        return np.full(_SHAPE, self.is_raised, _DTYPE.numpy)


def has_float_status(graph: Graph) -> bool:
    """Return whether a graph has operators of the status, in its branches and loops as well."""
    return any(uses_float_status(node.domain, node.op_type) for inner in graph.walk() for node in inner.nodes)


def float_status_of(graph: Graph, context: Context) -> FloatStatus | None:
    """Return the register of a network, None for a network without operators of the status.

    Warns if the network reads the register on a device without SATURATION_MODE, which never raises it.
    """
    if not has_float_status(graph):
        return None
    if context.device_target is not DeviceTarget.ASCEND or context.overflow_mode is OverflowMode.INFNAN:
        _log.warning(
            "%s: NPUGetFloatStatusV2 finds no overflow: only Ascend in %s has an overflow status",
            graph.source,
            OverflowMode.SATURATION,
        )
    return FloatStatus()


def check_float_status(node: Node, type_of_input: ValueType) -> None:
    """Refuse an operator of the status with other inputs and outputs than MindSpore's."""
    inputs, outputs = len(node.inputs), len(node.outputs)
    if (inputs, outputs) != (1, 1):
        raise GraphError(
            f"node {node.name!r} ({node.op_type}): {inputs} inputs and {outputs} outputs; must be one of each"
        )
    dtype, shape = type_of_input.dtype, type_of_input.shape
    if dtype not in {None, _DTYPE} or shape not in {None, _SHAPE}:
        raise GraphError(f"node {node.name!r} ({node.op_type}): the input must be int32 of shape (8,)")


class Ascend:
    """A graph on the emulated device: formats, element types, roundings and tasks of its operators."""

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
        """Place a graph on the device; with ``numbers``, insert TransData and Cast operators (O2, acl)."""
        # bodies first: the graph takes in the bodies with the operators that the device adds
        # the ``Ascend`` of each branch and loop body directly inside the graph, by index of the body
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
        # before TransData and Cast are inserted: the placement decides where they are needed
        self.placement: Placement = place(self.graph, self.dtype_of)
        # whether the graph was compiled as a whole (O2, acl): weights have their readers' format
        self.is_compiled = numbers is not None
        if numbers is not None:
            # an inserted Cast is no cube operator: under force_fp32 it only saturates
            inserted = transfers.insert(
                self.graph,
                self.placement,
                rounding("", PrecisionMode.FORCE_FP32, overflow, reports=reports),
                numbers,
            )
            self.graph, self.placement = inserted.graph, inserted.placement
            self._roundings |= inserted.roundings
        # the task of each operator, None where the device runs none for it
        self.tasks: tuple[Task | None, ...] = assign(self.graph)

    def walk(self) -> Iterator[Ascend]:
        """Yield the graph on the device, then the graphs inside it in order of index."""
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
            # of a fused operator, the last part writes the output
            return roundings[-1].write_type(host)
        readers = (index for index, part in enumerate(node.members) if value in part.inputs)
        return roundings[next(readers, 0)].read_type(host)

    def view(self) -> View:
        """Return the formats and types on the device, as .ir texts show them."""
        return device_view(self.graph, self.placement)

    def tensor(self, position: int, io: IO, slot: int) -> DeviceTensor | None:
        """Return how the node at a position in execution order holds an input or output, None if absent."""
        placed = self.placement.nodes[position]
        return (placed.inputs if io is IO.INPUT else placed.outputs)[slot]

    def held(self, array: np.ndarray, dtype: DType) -> np.ndarray:
        """Return a host array in the element type in which the device holds it, rounded to nearest even."""
        return rounded(array, dtype, saturates=self.saturates(dtype))

    def saturates(self, dtype: DType) -> bool:
        """Return whether values are kept within the range of the element type on the device."""
        return self._saturates and dtype is FLOAT16

    def laid_out(self, array: np.ndarray, tensor: DeviceTensor) -> np.ndarray:
        """Return an array as it lies in device memory."""
        return formats.encode(tensor.format, array, tensor.groups)
