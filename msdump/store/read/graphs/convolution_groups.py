"""The groups by which a device lays out the weights of convolutions, as a graph tells them.

The name of a file tells the memory format of a weight, FRACTAL_Z, but not the groups that it was laid out by.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msdump.store.read.graphs import arguments
from msdump.store.read.graphs.operator_graph import GraphOperator, OperatorGraph, ValueSource

_NAMES: Final = ("groups", "group")
"""What the attribute is called: ``group`` by the user's operators, ``groups`` by the device's kernels."""

_WEIGHT: Final = slice(1, 2)


def of_operators(graph: OperatorGraph) -> Mapping[str, int]:
    """Return the number of groups of the operators whose weights are laid out by several, by full name.

    A convolution tells it itself. What else reads the weight, as an optimizer does, holds it, and the tensors
    beside it, as the convolution does.
    """
    own = {name: groups for name, each in graph.operators.items() if (groups := _told(each)) is not None}
    weights: dict[ValueSource, int] = {}
    for name, groups in own.items():
        if groups > 1:
            weights |= dict.fromkeys(graph.operators[name].inputs[_WEIGHT], groups)
    others = {
        name: max((weights.get(source, 1) for source in each.inputs), default=1)
        for name, each in graph.operators.items()
        if weights and name not in own
    }
    return {name: groups for name, groups in {**own, **others}.items() if groups > 1}


def _told(operator: GraphOperator) -> int | None:
    """Return the groups that an operator's own attribute tells; None without one."""
    if not any(name in operator.attributes for name in _NAMES):  # most operators: nothing is parsed
        return None
    attributes = arguments.attributes(operator.attributes)
    told = (attributes.get(name) for name in _NAMES)
    return next((groups for groups in told if isinstance(groups, int) and groups > 0), None)
