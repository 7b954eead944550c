"""What the network of a rank is, in a few texts that others can be compared with."""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict

from msdump.communication.agreement import Fingerprint
from msdump.graph.graph import IN_MEMORY, Graph
from msdump.plan import Context, DumpPlan


def fingerprint(graph: Graph, plan: DumpPlan | None, context: Context, rank: int) -> Fingerprint:
    """Return what a network is.

    Args:
        graph: The model; its weights do not count, since ranks may hold parts of them.
        plan: What is dumped.
        context: Where it runs; its device does not count, since each rank has its own.
        rank: The rank whose network it is.
    """
    operators = [
        (node.domain, node.op_type, node.operator.full_name) for each in graph.walk() for node in each.nodes
    ]
    where = {name: value for name, value in asdict(context).items() if name != "device_id"}
    settings = (sorted(where.items()), b"" if plan is None else plan.source_bytes)
    return Fingerprint(
        source=graph.source,
        families=() if graph.source == IN_MEMORY else families(graph.source, rank),
        operators=_digest(operators),
        settings=_digest(settings),
        settings_source="" if plan is None else plan.source,
    )


def families(source: str, rank: int) -> tuple[str, ...]:
    """Return the path of a file with ``{rank}`` in the place of the rank's number, for each such place.

    >>> families("models/rank1.onnx", 1), families("v1/stage_1.onnx", 1)
    (('models/rank{rank}.onnx',), ('v{rank}/stage_1.onnx', 'v1/stage_{rank}.onnx'))
    >>> families("rank10.onnx", 1)
    ()
    """
    places = re.finditer(rf"(?<!\d){rank}(?!\d)", source)
    return tuple(f"{source[: place.start()]}{{rank}}{source[place.end() :]}" for place in places)


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]
