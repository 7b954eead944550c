"""Operators implemented in Python instead of an onnxruntime kernel: collectives, overflow status."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

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
class HostSite:
    """An operator of a graph, with everything that running it may take.

    Attributes:
        position: Its place in the graph's execution order.
        node: The operator.
        graph: The graph.
        read: Returns a tensor of a frame.
        roundings: The emulated device's arithmetic for it, None: as the model says; of a collective only its
            saturation counts.
        collectives: The exchange of tensors with other ranks; None: that of an unnamed network.
        float_status: The device's overflow status; None: nothing raises it.
    """

    position: int
    node: Node
    graph: Graph
    read: Read
    roundings: Sequence[Rounding] | None
    collectives: Collectives | None
    float_status: FloatStatus | None


class Exchange:
    """A collective operator; it runs in the place of control flow, in the frame around it.

    Attributes:
        has_status: Whether it gives the overflow status.
    """

    def __init__(self, site: HostSite, call: CollectiveCall) -> None:
        """Join an operator and its call with the ranks that take part."""
        self._site = site
        self._name = site.node.operator.full_name
        self._call = call
        self._collectives = site.collectives or Collectives(current(), Fingerprint())
        self.has_status: Final = tells_overflow(site.roundings)

    def __call__(self, frame: Frame, observer: Observer | None) -> Frame:
        """Run the collective; return its outputs in order, and the overflow status where it is given.

        Raises:
            RankError: The other ranks do not take part, or an input is no tensor.
        """
        site = self._site
        inputs = [site.read(name, frame) for name in site.node.inputs]
        if observer is not None and observer.interest.shows(site.position):
            observer.starting(site.position, inputs if observer.interest.inputs else ())
        made: dict[int, OrtValue] = {}

        def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
            value, array = values.space(shape, dtype)
            if value is not None:
                made[id(array)] = value
            return array

        try:
            outputs = self._collectives.run(self._call, self._name, self._tensors(inputs), empty)
        except Exception as error:
            if observer is not None and not is_foreign(error):
                observer.failed(site.position, inputs)
            raise
        saturates = site.roundings is not None and site.roundings[0].saturates
        is_overflown = saturates and [_saturated(array) for array in outputs].count(True) > 0
        if is_overflown and site.float_status is not None:
            site.float_status.note_saturation()
        results: Frame = [
            made.get(id(array)) or values.owned(array)
            for array, name in zip(outputs, site.node.outputs, strict=False)
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


@dataclass(frozen=True, slots=True)
class HostOperator:
    """An operator that the host runs.

    Attributes:
        run: Returns its outputs that have names, in order, and the overflow status behind them.
        has_status: Whether it gives the overflow status.
    """

    run: Control
    has_status: bool = False


def host_operator(site: HostSite) -> HostOperator | None:
    """Return how the host runs an operator, None for one that a kernel computes.

    Raises:
        UnsupportedOpError: The operator reads the overflow status in a form that MindSpore does not have.
    """
    return _collective(site) or _float_status(site)


def _collective(site: HostSite) -> HostOperator | None:
    call = collective_call(site.node)
    if call is None:
        return None
    exchange = Exchange(site, call)
    return HostOperator(exchange, has_status=exchange.has_status)


def _float_status(site: HostSite) -> HostOperator | None:
    node = site.node
    if not uses_float_status(node.domain, node.op_type):
        return None
    check_float_status(node, site.graph.type_of(node.inputs[0] if node.inputs else ""))
    register = site.float_status or FloatStatus()
    return HostOperator(lambda _frame, _observer: [values.owned(register.run(node.op_type))])
