"""Operators that no kernel computes: each runs in the place of control flow, in the frame of its graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from msdump.communication.agreement import Fingerprint
from msdump.communication.collectives import Collectives
from msdump.communication.world import current
from msdump.device.float_status import FloatStatus, check_float_status
from msdump.execute import values
from msdump.execute.control import Control
from msdump.execute.host.exchange import Exchange, Read
from msdump.graph.collectives.calls import call_of
from msdump.graph.graph import Graph, Node
from msdump.graph.kernel.emulation import Rounding
from msdump.graph.operator_types import uses_float_status


@dataclass(frozen=True, slots=True)
class HostSite:
    """An operator of a graph, and what running it may take.

    Attributes:
        position: Its place in the graph's execution order.
        node: The operator.
        graph: The graph.
        read: Returns a tensor of a frame.
        roundings: The emulated device's arithmetic for it, None: as the model says.
        collectives: What exchanges tensors with other ranks; None: as a network that nobody knows.
        float_status: The device's overflow status; None: nothing raises it.
    """

    position: int
    node: Node
    graph: Graph
    read: Read
    roundings: Sequence[Rounding] | None
    collectives: Collectives | None
    float_status: FloatStatus | None


@dataclass(frozen=True, slots=True)
class HostOperator:
    """An operator that the host runs.

    Attributes:
        run: Returns its outputs that have names, in order, and the overflow status behind them.
        has_status: Whether it tells the overflow status.
    """

    run: Control
    has_status: bool = False


def host_operator(site: HostSite) -> HostOperator | None:
    """Return how the host runs an operator, None for one that a kernel computes.

    Raises:
        UnsupportedOpError: The overflow status is asked for in a way that MindSpore does not know.
    """
    return next((made for make in _HOST_OPERATORS if (made := make(site)) is not None), None)


def _collective(site: HostSite) -> HostOperator | None:
    call = call_of(site.node)
    if call is None:
        return None
    exchange = Exchange(
        site.position,
        site.node,
        call,
        collectives=site.collectives or Collectives(current(), Fingerprint()),
        read=site.read,
        roundings=site.roundings,
        float_status=site.float_status,
    )
    return HostOperator(exchange, has_status=exchange.has_status)


def _float_status(site: HostSite) -> HostOperator | None:
    node = site.node
    if not uses_float_status(node.domain, node.op_type):
        return None
    check_float_status(node, site.graph.type_of(node.inputs[0] if node.inputs else ""))
    register = site.float_status or FloatStatus()
    return HostOperator(lambda _frame, _observer: [values.owned(register.run(node.op_type))])


_HOST_OPERATORS: Final[Sequence[Callable[[HostSite], HostOperator | None]]] = (_collective, _float_status)
