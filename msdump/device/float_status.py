"""The emulated device's overflow status: a register that an operator raises whose float16 results saturate.

``NPUClearFloatStatusV2`` lowers it, ``NPUGetFloatStatusV2`` tells it. Only a device in SATURATION_MODE has
one: elsewhere infinities and NaNs themselves show an overflow.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

import numpy as np

from msdump.dtypes import from_name
from msdump.errors import GraphError
from msdump.graph.graph import Graph, Node, ValueType
from msdump.graph.operator_types import CLEAR_FLOAT_STATUS, uses_float_status
from msdump.plan import Context, DeviceTarget, OverflowMode

_log = logging.getLogger("msdump.device")

_SHAPE: Final = (8,)
_DTYPE: Final = from_name("int32")


class FloatStatus(threading.local):
    """The register, one for each thread that runs a network.

    Attributes:
        is_raised: Whether an operator has saturated since the register was lowered.
    """

    def __init__(self) -> None:
        """Begin lowered."""
        self.is_raised = False

    def note_saturation(self) -> None:
        """Raise the register."""
        self.is_raised = True

    def run(self, op_type: str) -> np.ndarray:
        """Run an operator of the status; return its output, int32 of shape (8,).

        Args:
            op_type: ``NPUClearFloatStatusV2`` gives zeros, ``NPUGetFloatStatusV2`` ones where the register is
                raised, else zeros.
        """
        if op_type == CLEAR_FLOAT_STATUS:
            self.is_raised = False
        return np.full(_SHAPE, self.is_raised, _DTYPE.numpy)


def has_float_status(graph: Graph) -> bool:
    """Tell whether a graph has operators of the status, in its branches and loops as well."""
    return any(uses_float_status(node.domain, node.op_type) for inner in graph.walk() for node in inner.nodes)


def float_status_of(graph: Graph, context: Context) -> FloatStatus | None:
    """Return the register of a network, None for a network that never asks for it.

    Warns of a network that asks where nothing raises it.
    """
    if not has_float_status(graph):
        return None
    if context.device_target is not DeviceTarget.ASCEND or context.overflow_mode is OverflowMode.INFNAN:
        _log.warning(
            "%s: NPUGetFloatStatusV2 finds no overflow here: only Ascend in %s has an overflow status",
            graph.source,
            OverflowMode.SATURATION,
        )
    return FloatStatus()


def check_float_status(node: Node, type_of_input: ValueType) -> None:
    """Refuse an operator of the status that has other inputs and outputs than MindSpore's.

    Raises:
        GraphError: It has not one input and one output, or its input is not int32 of shape (8,).
    """
    inputs, outputs = len(node.inputs), len(node.outputs)
    if (inputs, outputs) != (1, 1):
        raise GraphError(
            f"node {node.name!r} ({node.op_type}): {inputs} inputs and {outputs} outputs; it has one of each"
        )
    dtype, shape = type_of_input.dtype, type_of_input.shape
    if dtype not in {None, _DTYPE} or shape not in {None, _SHAPE}:
        raise GraphError(f"node {node.name!r} ({node.op_type}): its input is not int32 of shape (8,)")
