"""Operators implemented in Python instead of an onnxruntime kernel: collectives, overflow status."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from msdump.communication import Collectives, Fingerprint, current, fingerprint
from msdump.device import FloatStatus, check_float_status
from msdump.errors import RankError, is_foreign
from msdump.execute import values
from msdump.execute.control import Control, Frame
from msdump.execute.runtime import OrtValue
from msdump.execute.weights import tells_overflow
from msdump.graph import CollectiveCall, Graph, Node, collective, collective_call, uses_float_status
from msdump.graph.kernel import FLOAT16, FLOAT16_MOST, Rounding
from msdump.observer import Array, Observer
from msdump.plan import Context, DumpPlan

Read = Callable[[str, Frame], Array]
"""Returns a tensor of a frame by its name, None for anything else."""

_OVERFLOWN, _SOUND = (np.array(flag, np.float32) for flag in (1, 0))


@dataclass(frozen=True, slots=True)
class Exchange:
    """A collective operator as a callable that reads its inputs from a frame, as control flow does."""

    position: int  # its place in the graph's execution order
    node: Node  # the operator
    call: CollectiveCall  # the collective with its attributes
    read: Read  # returns the tensor of a name from a frame
    # the emulated device's arithmetic, of which only saturation is used; None: no saturation
    roundings: Sequence[Rounding] | None
    collectives: Collectives  # the exchange of tensors with other ranks
    float_status: FloatStatus | None  # the device's overflow status; None: nothing raises it

    def __call__(self, frame: Frame, observer: Observer | None) -> Frame:
        """Run the collective; return its outputs in order, and, if it has one, the overflow status last.

        Raises:
            RankError: The other ranks do not take part, or an input is no tensor.
        """
        inputs = [self.read(name, frame) for name in self.node.inputs]
        if observer is not None and observer.interest.shows(self.position):
            observer.starting(self.position, inputs if observer.interest.inputs else ())
        made: dict[int, OrtValue] = {}

        def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
            value, array = values.space(shape, dtype)
            if value is not None:
                made[id(array)] = value
            return array

        try:
            outputs = self.collectives.run(
                self.call, self.node.operator.full_name, self._tensors(inputs), empty
            )
        except Exception as error:
            if observer is not None and not is_foreign(error):
                observer.failed(self.position, inputs)
            raise
        saturates = self.roundings is not None and self.roundings[0].saturates
        is_overflown = saturates and [_saturated(array) for array in outputs].count(True) > 0
        if is_overflown and self.float_status is not None:
            self.float_status.note_saturation()
        results: Frame = [
            made.get(id(array)) or values.owned(array)
            for array, name in zip(outputs, self.node.outputs, strict=False)
            if name
        ]
        if tells_overflow(self.roundings):
            results.append(values.from_array(_OVERFLOWN if is_overflown else _SOUND))
        return results

    def _tensors(self, inputs: Sequence[Array]) -> list[np.ndarray]:
        tensors = [array for array in inputs if array is not None]
        if len(tensors) < len(inputs):
            raise RankError(self.node.operator.full_name, "an input is absent, or no tensor")
        return tensors


def collectives_of(graph: Graph, plan: DumpPlan | None, context: Context) -> Collectives | None:
    """Return the collectives of a network, None for a network that exchanges no tensors with other ranks."""
    if not any(collective(node.domain, node.op_type) for each in graph.walk() for node in each.nodes):
        return None
    world = current()
    return Collectives(world, fingerprint(graph, plan, context, world.identity.rank))


def _saturated(array: np.ndarray) -> bool:
    """Bound a float16 result by the largest number, turn NaN into 0; return whether it changed."""
    if array.dtype != FLOAT16.numpy or np.isfinite(array).all():
        return False
    np.nan_to_num(array, copy=False, nan=0.0, posinf=FLOAT16_MOST, neginf=-FLOAT16_MOST)
    return True


def host_operator(
    position: int,
    node: Node,
    graph: Graph,
    read: Read,
    roundings: Sequence[Rounding] | None,
    *,
    collectives: Collectives | None,
    float_status: FloatStatus | None,
) -> Control | None:
    """Return the function that runs an operator in Python; None for operators with a kernel.

    The function returns the named outputs in order and, for a collective that reports overflows, the
    overflow status last. Arguments as of ``Exchange``; ``collectives`` None: without the network's name.

    Raises:
        UnsupportedOpError: The operator reads the overflow status in a form that MindSpore does not have.
    """
    call = collective_call(node)
    if call is not None:
        ranks = collectives or Collectives(current(), Fingerprint())
        return Exchange(position, node, call, read, roundings, ranks, float_status)
    if not uses_float_status(node.domain, node.op_type):
        return None
    check_float_status(node, graph.type_of(node.inputs[0] if node.inputs else ""))
    register = float_status or FloatStatus()
    return lambda _frame, _observer: [values.owned(register.run(node.op_type))]
