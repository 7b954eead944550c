"""Rehearses which files a run writes of an operator: its own selection and steps, on unfilled tensors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from msdump import dtypes
from msdump.capture.refusals import GraphRefusals, dropping
from msdump.capture.steps.step import walk
from msdump.dtypes import STRING
from msdump.reasons import Reason
from msdump.record import TensorRecord
from msdump.store.read.graph_texts import ListedTensor
from msdump.tools.explain.account import SlotAccount
from msdump.tools.preview.forecast import UnfilledTensors


def slots(table: GraphRefusals, position: int) -> Iterator[SlotAccount]:
    """Yield the inputs and outputs of an operator, with the reasons that hold before anything runs.

    Args:
        table: Operators and tensors that the configuration leaves out of the operator's graph.
        position: The operator's place among the nodes of that graph.
    """
    node = table.graph.nodes[position]
    drop_steps = dropping(table.plan)
    for io, slot in (place for place, _ in table.slots(position)):
        name = (node.inputs if io == "input" else node.outputs)[slot]
        reason = table.refusal(position, io, slot)
        array = None if reason is not None else unfilled(table, name)
        if array is not None:
            record = TensorRecord(node.operator, io, slot, dtypes.from_numpy(array.dtype), array, 0)
            outcome = walk(record, drop_steps)
            reason = outcome if isinstance(outcome, Reason) else None
        yield SlotAccount(io, slot, name, reason=reason)


def listed_reason(tensor: ListedTensor) -> Reason | None:
    """Return why a tensor that an .ir file lists has no .npy file, as far as type and shape tell."""
    if tensor.dtype == STRING.title:
        return Reason.TEXT
    return Reason.NO_ELEMENTS if 0 in tensor.shape else None


def unfilled(table: GraphRefusals, name: str) -> np.ndarray | None:
    """Return a tensor of the type and shape of a value, None where the model does not declare them."""
    return UnfilledTensors(table.graph, table.graph).of([name], [])[0]
