"""``torchair.scope``: selects operators for the dump in the source of a network."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

from torch.fx import traceback

from msdump.errors import NotAvailableError
from msdump.plan import DumpPlan

_MARK: Final = "msdump_data_dump"
"""Key of a captured node's ``meta["custom"]``."""


def data_dump() -> AbstractContextManager[None]:
    """Return a context manager that selects captured operators for the dump, in addition to ``dump_layer``.

    ::

        with torchair.scope.data_dump():
            x = torch.relu(x)

    Raises:
        NotAvailableError: This version of torch has no annotations of captured code.
    """
    if not hasattr(traceback, "annotate"):
        raise NotAvailableError(
            "torchair.scope.data_dump needs torch.fx.traceback.annotate, which this PyTorch lacks:"
            " update PyTorch, or name the operators in dump_layer"
        )
    marking: AbstractContextManager[None] = traceback.annotate({_MARK: True})
    return marking


def with_marked(plan: DumpPlan, gm: Any, origins: Mapping[str, str]) -> DumpPlan:
    """Return the plan for one captured graph: marked operators are dumped with the ``dump_layer``.

    ``origins`` has the name of the captured node of each operator. With marks, and without ``dump_layer``,
    only the marked operators of the graph are dumped.
    """
    marked = {node.name for node in gm.graph.nodes if (node.meta.get("custom") or {}).get(_MARK)}
    names = tuple(operator for operator, origin in origins.items() if origin in marked)
    if not names or plan.compiled.models is None:
        return plan
    # an item without layers dumps every operator: with the marks as its layers it dumps these alone
    models = tuple(dataclasses.replace(item, layers=(*item.layers, *names)) for item in plan.compiled.models)
    return dataclasses.replace(plan, compiled=dataclasses.replace(plan.compiled, models=models))
