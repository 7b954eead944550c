"""bfloat16 precision in models whose opset has no Cast to it: inputs are rounded in numpy before a kernel."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from msdump.device import precision
from msdump.dtypes import BFLOAT16
from msdump.execute import values
from msdump.execute.runtime import OrtValue
from msdump.graph.graph import Graph, Node
from msdump.graph.kernel.emulation import FLOAT32, Rounding
from msdump.graph.kernel.onenode import type_text

_CAST_SINCE: Final = 13  # the opset whose Cast knows bfloat16
_ROUNDED: Final = type_text(FLOAT32)


def read_by(graph: Graph, node: Node, roundings: Sequence[Rounding] | None) -> frozenset[str]:
    """Return the names of values that an operator reads as bfloat16, where its model cannot round them.

    The set is empty where the parts of a fused operator disagree about a value, or one reads a result of
    another as bfloat16: rounding around the kernel cannot reach that.
    """
    if roundings is None or graph.opsets.get("", _CAST_SINCE) >= _CAST_SINCE:
        return frozenset()
    parts = list(zip(node.members, roundings, strict=True))
    narrow = {name for part, rounding in parts for name in part.inputs if rounding.reads is BFLOAT16}
    wide = {name for part, rounding in parts for name in part.inputs if rounding.reads is not BFLOAT16}
    return frozenset(narrow - {""}) if narrow.isdisjoint(wide | _inner_values(node)) else frozenset()


def _inner_values(node: Node) -> set[str]:
    """Return the values that parts of a fused operator hand on to other parts."""
    return {name for part in node.parts for name in part.outputs}


def left(roundings: Sequence[Rounding]) -> tuple[Rounding, ...]:
    """Return the roundings that remain for the operator's model: all but those to bfloat16."""
    return tuple(
        replace(rounding, reads=FLOAT32) if rounding.reads is BFLOAT16 else rounding for rounding in roundings
    )


def rounding_before(run: Any, names: Collection[str]) -> Any:
    """Return a run that rounds float32 values of some feed names first."""

    def rounding(fed: Mapping[str, OrtValue], outputs: list[str], options: None) -> Any:
        inputs = {name: _rounded(value) if name in names else value for name, value in fed.items()}
        return run(inputs, outputs, options)

    return rounding


def _rounded(value: OrtValue) -> OrtValue:
    if values.kind_of(value) != _ROUNDED:
        return value
    narrow = precision.cast(values.to_array(value), BFLOAT16)
    return values.owned(precision.cast(narrow, FLOAT32))
