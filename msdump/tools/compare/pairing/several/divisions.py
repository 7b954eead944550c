"""Whether two dumps divide a network into graphs in the same way.

MindSpore's compiler makes a graph of the condition of a loop, of its body, of what follows it, and of each
branch; msdump makes one of all that stands around branches and bodies. Their numbers do not correspond.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msdump.errors import DumpReadError
from msdump.store.read.reader import open_dump


def differ(dumped: str, golden: str) -> bool:
    """Tell whether a rank of two dumps has another number of graphs, which all belong to one network.

    Graphs of several networks, or of a training step and an evaluation, have operators of the same names.

    Args:
        dumped: Path of a dump, or of a part of it.
        golden: Path of another one.
    """
    mine, theirs = _orders(dumped), _orders(golden)
    return any(
        len(mine[rank]) != len(theirs[rank]) and _is_one_network(mine[rank]) and _is_one_network(theirs[rank])
        for rank in mine.keys() & theirs.keys()
    )


def _orders(path: str) -> Mapping[int, Sequence[tuple[str, ...]]]:
    """Return the operators of each graph that was compiled, by rank."""
    try:
        ranks = open_dump(path).ranks
        return {
            number: [rank.order_unless_damaged(graph) or () for graph in rank.compiled_graphs]
            for number, rank in ranks.items()
            if rank.is_known and rank.compiled_graphs
        }
    except DumpReadError:  # golden tensors, several dumps, or a list that cannot be read
        return {}


def _is_one_network(orders: Sequence[tuple[str, ...]]) -> bool:
    counts = Counter(name for order in orders for name in order)
    return bool(counts) and max(counts.values()) == 1
