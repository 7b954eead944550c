"""Bodies of composites: the CPU's kernels inlined into one, as Ascend has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from msdump.graph.body import BodyValue
from msdump.graph.graph import ValueType
from msdump.graph.kernel.emulation import FLOAT32, HALVES
from msdump.graph.mindir.expansions import expanded
from msdump.graph.mindir.kernels import TUPLES, Constant, Kernel, Operand
from msdump.graph.primitives import COMPUTED, Call, OperatorBody, op, written

_Results = Sequence[Any]
"""Values of a body; None for an operand that is no tensor."""


def composite(kernel: Kernel) -> OperatorBody | None:
    """Return the body of a composite: the bodies of its kernels in order; None for no composite."""
    kernels = expanded(kernel)
    if kernels is None:
        return None
    operands = kernel.operands()

    def build(*slots: BodyValue) -> tuple[BodyValue, ...]:
        values: dict[Operand, _Results] = {}
        for item, value in zip(operands, slots, strict=False):
            values[item] = (value,)
        for each in kernels:
            if each.runs:
                values[each] = _inlined(each, values)
            elif each.op_type in TUPLES:
                values[each] = [value for item in each.inputs for value in _read(item, values)]
        return tuple(value for value in values[kernels[-1]] if value is not None)

    return OperatorBody(kernel.op_type, build, 0)


def _inlined(kernel: Kernel, values: dict[Operand, _Results]) -> _Results:
    """Write the operator of a kernel, or its body; return the results."""
    operands: list[Operand] = []
    for item in kernel.operands():
        members = item.inputs if isinstance(item, Kernel) and item.op_type == "RealMakeTuple" else ()
        constants = [each.value for each in members if isinstance(each, Constant)]
        is_whole = members and len(constants) == len(members)  # a tuple of constants is one constant
        operands.append(Constant(tuple(constants)) if is_whole else item)
    read = [value for item in operands for value in _read(item, values)]
    call = Call(
        kernel.op_type,
        ["" if value is None else value.name for value in read],
        [item.value if isinstance(item, Constant) else COMPUTED for item in operands],
        [_wide(item.type) for item in operands],
        [_wide(kind) for kind in kernel.outputs],
        kernel.attributes,
    )
    return read if kernel.op_type == "RealMakeTuple" else written(call, read)


def _read(item: Operand, values: dict[Operand, _Results]) -> _Results:
    if item in values:
        return values[item]
    array = item.array() if isinstance(item, Constant) else None
    if array is None:
        return (None,)
    # an element type of half size is float32 in bodies
    is_half = item.type is not None and item.type.dtype in HALVES
    return (op.constant(array.astype(np.float32) if is_half else array),)


def _wide(kind: ValueType | None) -> ValueType | None:
    """Return a type as bodies have it: half types are float32."""
    return replace(kind, dtype=FLOAT32) if kind is not None and kind.dtype in HALVES else kind
