"""Collectives in the loop: tensors of a run go to the other ranks and come back as the runtime's values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from msdump.communication.collectives import Collectives
from msdump.communication.fingerprints import fingerprint
from msdump.communication.world import current
from msdump.device.float_status import FloatStatus
from msdump.errors import RankError
from msdump.execute import values
from msdump.execute.control import Frame
from msdump.execute.initializers import tells_overflow
from msdump.execute.runtime import OrtValue
from msdump.graph.collectives.calls import CollectiveCall, collective
from msdump.graph.graph import Graph, Node
from msdump.graph.kernel.emulation import FLOAT16, FLOAT16_MOST, Rounding
from msdump.observer import Array, Observer
from msdump.plan import Context, DumpPlan

Read = Callable[[str, Frame], Array]
"""Returns a tensor of a frame by its name, None for anything else."""

_OVERFLOWN, _SOUND = (np.array(flag, np.float32) for flag in (1, 0))


class Exchange:
    """A collective operator; it runs in the place of control flow, in the frame around it."""

    def __init__(
        self,
        position: int,
        node: Node,
        call: CollectiveCall,
        *,
        collectives: Collectives,
        read: Read,
        roundings: Sequence[Rounding] | None,
        float_status: FloatStatus | None,
    ) -> None:
        """Join an operator with the ranks that take part.

        Args:
            position: Its place in the graph's execution order.
            node: The operator.
            call: What it asks for.
            collectives: The collectives of the network.
            read: Returns a tensor of a frame.
            roundings: The emulated device's arithmetic; of a collective only its saturation counts.
            float_status: The register that saturation raises; None: none.
        """
        self._position = position
        self._node = node
        self._name = node.operator.full_name
        self._call = call
        self._collectives = collectives
        self._read = read
        self._saturates = roundings is not None and roundings[0].saturates
        self._float_status = float_status
        self.has_status: Final = tells_overflow(roundings)

    def __call__(self, frame: Frame, observer: Observer | None) -> Frame:
        """Run the collective; return its outputs in order, and the overflow status where it is told.

        Raises:
            RankError: The other ranks do not take part, or an input is no tensor.
        """
        inputs = [self._read(name, frame) for name in self._node.inputs]
        if observer is not None and observer.watched[self._position]:
            observer.starting(self._position, inputs if observer.wants_inputs else ())
        made: dict[int, OrtValue] = {}

        def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
            value, array = values.space(shape, dtype)
            if value is not None:
                made[id(array)] = value
            return array

        try:
            outputs = self._collectives.run(self._call, self._name, self._tensors(inputs), empty)
        except Exception:
            if observer is not None:
                observer.failed(self._position, inputs)
            raise
        is_overflown = self._saturates and [_saturated(array) for array in outputs].count(True) > 0
        if is_overflown and self._float_status is not None:
            self._float_status.note_saturation()
        results: Frame = [
            made.get(id(array)) or values.owned(array)
            for array, name in zip(outputs, self._node.outputs, strict=False)
            if name
        ]
        if self.has_status:
            results.append(values.from_array(_OVERFLOWN if is_overflown else _SOUND))
        return results

    def _tensors(self, inputs: Sequence[Array]) -> list[np.ndarray]:
        tensors = [array for array in inputs if array is not None]
        if len(tensors) < len(inputs):
            raise RankError(self._name, "an input is absent, or no tensor")
        return tensors


def collectives_of(graph: Graph, plan: DumpPlan | None, context: Context) -> Collectives | None:
    """Return what a network exchanges tensors with other ranks by, None for a network that exchanges none."""
    if not any(collective(node.domain, node.op_type) for each in graph.walk() for node in each.nodes):
        return None
    world = current()
    return Collectives(world, fingerprint(graph, plan, context, world.identity.rank))


def _saturated(array: np.ndarray) -> bool:
    """Bound a float16 result by the type's largest number, turn NaN into 0; tell whether that changed it."""
    if array.dtype != FLOAT16.numpy or np.isfinite(array).all():
        return False
    np.nan_to_num(array, copy=False, nan=0.0, posinf=FLOAT16_MOST, neginf=-FLOAT16_MOST)
    return True
