"""Counts the operators, inputs and outputs of a model that a plan leaves out, by reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from msdump.capture.refusals import GraphRefusals, refusals
from msdump.device.ascend import Ascend
from msdump.graph.graph import Graph
from msdump.plan import DumpPlan
from msdump.reasons import Reason


def left_out(graph: Graph, plan: DumpPlan, device: Ascend | None) -> Mapping[tuple[str, Reason], int]:
    """Return how many operators, inputs and outputs of a model a plan leaves out.

    Branches and loops count, too. Operators that only ``set_dump`` marks count as left out.

    Args:
        graph: The model.
        plan: The plan.
        device: The emulated device of the plan with the model, None on CPU and GPU.

    Returns:
        Numbers by noun ("operator", "input" or "output") and reason. Inputs and outputs are counted of
        dumped operators only.
    """
    tables = refusals(graph, device, plan, file_name=graph.file_stem)
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
