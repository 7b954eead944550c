"""Runs operators of a graph in float64, and as kernels may run them that round in between.

Own definitions where onnxruntime has no kernel of float64 (convolutions, Erf, Gelu, poolings, ...) or is no
judge of itself; elsewhere onnxruntime's kernels of float64, and ONNX's reference as the last resort.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from msdump.device.precision import numpy_cast, rounded
from msdump.errors import MsdumpError, UnsupportedOpError
from msdump.execute.operators.float64 import conversions, elementwise, normalizations, products, windows
from msdump.execute.operators.float64.conversions import doubled
from msdump.execute.operators.float64.definitions import Array, Call, Definition, Kind
from msdump.execute.operators.float64.noise import Noise
from msdump.execute.operators.runner import OperatorRunner
from msdump.graph.graph import Graph, Node
from msdump.graph.kernel.emulation import FLOAT16, FLOAT32, MOVES, Rounding
from msdump.graph.kernel.expansion import Expansion, expanded
from msdump.graph.order import reads

_DEFINITIONS: Final[Mapping[str, Definition]] = {
    **elementwise.DEFINITIONS,
    **windows.DEFINITIONS,
    **products.DEFINITIONS,
    **normalizations.DEFINITIONS,
    **conversions.DEFINITIONS,
}
_CHOICES: Final = frozenset({"ArgMax", "ArgMin", "TopK", "IsInf", "Hardmax", "Mod", "NonMaxSuppression"})
"""Operators without a definition that choose among their inputs, as ``MOVES`` do."""

_REDUCING: Final = frozenset({"add", "mul"})
"""Reductions of scattering operators that round, in any order of the updates."""

Change = Callable[[Node, Mapping[str, Array]], Mapping[str, Array]]
"""Takes an original operator and its results by name; returns what those that read it get."""


class Float64Runner:
    """Runs operators of one graph in float64 on arrays of any floating point type."""

    def __init__(self, graph: Graph) -> None:
        """Compile nothing yet.

        Args:
            graph: The graph, or a body in it.
        """
        self._graph = graph
        self._expansions: dict[str, Expansion] = {}

    def run(
        self,
        node: Node,
        given: Mapping[str, Array],
        roundings: Sequence[Rounding] | None = None,
        noise: Noise | None = None,
        change: Change | None = None,
    ) -> tuple[Array | None, ...]:
        """Run an operator once.

        Args:
            node: An operator of the graph, fused ones included.
            given: What it reads, by the names of values; weights that are not given are the graph's.
            roundings: The arithmetic that is judged: inputs and results of each original operator are
                rounded as it says. None: nothing is.
            noise: Disturbs every result as far as a kernel may be from it; None: not at all.
            change: Makes something else of the results of each original operator; None: nothing.

        Returns:
            An array for each output of the node, None for an unused one.

        Raises:
            MsdumpError: Nothing can run it in float64.
        """
        weights = self._graph.weights
        names = (name for name in reads(node) if name in given or name in weights)
        known = {name: doubled(given[name] if name in given else weights[name]) for name in names}
        with np.errstate(all="ignore"):
            for part, rounding in zip(node.members, roundings or (None,) * len(node.members), strict=True):
                results = self._member(part, known, rounding, noise)
                known |= results if change is None else change(part, results)
        return tuple(known.get(name) for name in node.outputs)

    def _member(
        self, part: Node, known: Mapping[str, Array], rounding: Rounding | None, noise: Noise | None
    ) -> dict[str, Array]:
        expansion = self._expansions.get(part.name)
        if expansion is None:
            expansion = self._expansions[part.name] = expanded(self._graph, part)
        values = {name: doubled(array) for name, array in expansion.constants.items()}
        values |= {name: self._read(name, known[name], rounding) for name in reads(part) if name in known}
        for step in expansion.nodes:
            values |= self._step(step, values, expansion, noise)
        moves = part.op_type in MOVES and not part.domain
        return {
            name: values[name] if moves else self._written(name, values[name], rounding)
            for name in part.outputs
            if name and name in values
        }

    def _read(self, name: str, array: Array, rounding: Rounding | None) -> Array:
        if rounding is None or rounding.reads is FLOAT32 or not self._is_float32(name, array):
            return array
        return _in_type(array, rounding.reads, rounding)

    def _written(self, name: str, array: Array, rounding: Rounding | None) -> Array:
        if rounding is None or rounding.writes is FLOAT32 or not self._is_float32(name, array):
            return array
        return _in_type(array, rounding.writes, rounding)

    def _is_float32(self, name: str, array: Array) -> bool:
        # values inside a fused operator are mostly not declared
        return array.dtype == np.float64 and self._graph.type_of(name).dtype in {FLOAT32, None}

    def _step(
        self, step: Node, values: Mapping[str, Array], expansion: Expansion, noise: Noise | None
    ) -> dict[str, Array]:
        call = Call(
            [values[name] if name else None for name in step.inputs],
            step.attributes,
            expansion.opsets.get("", 1),
            max((slot + 1 for slot, name in enumerate(step.outputs) if name), default=0),
        )
        definition = _DEFINITIONS.get(step.op_type) if not step.domain else None
        for way in filter(None, (definition, self._other_definition(step, expansion))):
            try:
                results = way.compute(call)
            except (NotImplementedError, MsdumpError):
                continue
            if noise is not None:
                results = noise.added(way, call, results)
            return {name: array for name, array in zip(step.outputs, results, strict=False) if name}
        raise UnsupportedOpError(f"{step.operator.full_name}: {step.op_type} cannot run in float64")

    def _other_definition(self, step: Node, expansion: Expansion) -> Definition:
        """Return a definition that runs an operator in the runtime, or else in ONNX's reference."""
        empty: Mapping[str, Any] = {}
        graph = replace(self._graph, weights=empty, types=empty, opsets=expansion.opsets)

        def compute(call: Call) -> tuple[Array, ...]:
            given = dict(zip(step.inputs, call.inputs, strict=True))
            given.pop("", None)
            results = OperatorRunner(graph, is_quiet=True).run(step, given)
            return tuple(np.zeros(0) if array is None else doubled(array) for array in results)

        if step.attributes.get("reduction") in _REDUCING:
            return Definition(compute, Kind.LINEAR, _updates)
        is_exact = step.op_type in MOVES or step.op_type in _CHOICES
        return Definition(compute, Kind.EXACT if is_exact else Kind.SMOOTH, _width, disturbed=1)


def _updates(call: Call) -> float:
    """Return how many updates one element of a scattering operator may get."""
    return 1.0 + call[1].size


def _width(call: Call) -> float:
    return float(
        max((array.shape[-1] for array in call.inputs if array is not None and array.ndim), default=1)
    )


def _in_type(array: Array, dtype: Any, rounding: Rounding) -> Array:
    saturates = rounding.saturates and dtype is FLOAT16
    single = numpy_cast(array, FLOAT32)
    return rounded(single, dtype, saturates=saturates).astype(np.float64)
