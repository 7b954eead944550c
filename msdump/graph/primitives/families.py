"""The bodies of all operators: importing the families registers them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx

from msdump.errors import UnsupportedOpError
from msdump.graph.primitives import (  # noqa: F401 - they fill the table
    dense,
    elementwise,
    indexing,
    losses,
    normalization,
    plain,
    recurrent,
    reductions,
    sampling,
    shapes,
    special,
    updates,
    windows,
)
from msdump.graph.primitives.body import OPERATORS, Body, Value, op, writing
from msdump.graph.primitives.call import ARGUMENTS, PLAIN, Call

__all__ = ["ARGUMENTS", "OPERATORS", "PLAIN", "written", "written_on"]


def written(call: Call, read: Sequence[Any]) -> Sequence[Any]:
    """Write the operator of a call, or its body, with values of all slots; return the results."""
    alike, entry = PLAIN.get(call.op_type), OPERATORS.get(call.op_type)
    found = alike(call) if alike is not None else None
    if found is not None:
        op_type, attributes = found
        return [getattr(op, op_type)(*read, **attributes)]
    if entry is None:
        raise UnsupportedOpError(f"primitive {call.op_type} is not known")
    return entry.results(read, *call.keywords(entry))


def written_on(call: Call, read: Sequence[str | Any | None], opset: int) -> tuple[list[onnx.NodeProto], str]:
    """Return the operators of a call, given names of values and arrays by slot, and its first result."""
    pattern = next(item for item in read if isinstance(item, str))
    entry = OPERATORS.get(call.op_type)
    element = next(kind.dtype for kind in call.types if kind is not None and kind.dtype is not None)
    body = Body(element if entry is None else call.element(entry), pattern, opset)
    with writing(body):
        values = [Value(body, item) if isinstance(item, str) else item for item in read]
        values = [item if item is None or isinstance(item, Value) else op.constant(item) for item in values]
        result = written(call, values)[0]
    return body.nodes, result.name
