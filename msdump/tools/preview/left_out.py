"""How many operators, inputs and outputs of a model a plan leaves out, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from msdump.capture.refusals import GraphRefusals, refusals
from msdump.execute.compilation import emulated
from msdump.graph.graph import Graph
from msdump.plan import DumpPlan
from msdump.reasons import Reason


def left_out(graph: Graph, plan: DumpPlan) -> Mapping[tuple[str, Reason], int]:
    """Count what a plan leaves out of a model, branches and loops included; ``set_dump`` marks nothing.

    Returns:
        How many there are, by what they are ("operator", "input" or "output") and the reason. The
        inputs and outputs are those of operators that are dumped.
    """
    tables = refusals(graph, emulated(graph, plan, plan.context), plan, file_name=graph.file_stem)
    return Counter(_refused(tables))


def _refused(tables: Iterable[GraphRefusals]) -> Iterator[tuple[str, Reason]]:
    for table in tables:
        for position, refusal in enumerate(table.operators):
            if refusal is not None:
                yield "operator", refusal
            else:
                for (io, _), reason in table.slots(position):
                    if reason is not None and reason is not Reason.ABSENT:
                        yield io, reason
