"""The functions of a file and of its module: which operators compute a golden value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.graph import Node, reads
from msdump.judge import errors
from msdump.judge.diff import Side, models
from msdump.judge.rerun import OperatorRunners
from msdump.judge.torch.golden import Golden
from msdump.judge.torch.hooks import HookedModule, pair_scopes
from msdump.judge.torch.pairing import Cone, call_name, call_of, cones_of, pair_values
from msdump.judge.verdict import FEW_BITS, QUANTISED, Limits, OwnError, coarser

_ROUNDINGS: Final = {"float32": 2.0**-16, "float16": 2.0**-8, "bfloat16": 2.0**-5, "float64": 2.0**-40}
"""Largest own error of a function, relative to its largest element, that rounding in a type explains.

A function is a dozen operators at most. Sound ones reach a tenth of it, and the smallest wrong attribute
(the other formula of GELU) four times."""

_QUANTISING: Final = ("Quantize", "QLinear", "Integer", "NBits")
"""Parts of the types of operators that compute with quantised numbers."""


class Functions:
    """The functions of a file that compute a value of a module.

    Attributes:
        graph: The file's graph.
        module: The module.
        places: The places of the file's operators.
        limits: The limits of agreement.
        partners: Golden's names of the file's values, by the file's names.
        cones: The operators that compute an operator's outputs of golden values, by its name.
        inner: The golden values without a partner between a paired one and the paired ones before it.
        has_names: Whether inner values of the file have partners.
        has_metadata: Whether the exporter's metadata are still at most operators, so that the ones without
            are added.
    """

    def __init__(
        self, side: Side, module: Golden, runners: OperatorRunners, places: models.Places, limits: Limits
    ) -> None:
        """Pair the values of both.

        Args:
            side: The file and its arithmetic.
            module: The module.
            runners: Runs its operators.
            places: The places of its operators.
            limits: The limits of agreement.
        """
        self.graph, self.module, self.places, self.limits = side.graph, module, places, limits
        self._side, self._runners = side, runners
        if module.partners is not None:
            self.partners = {**module.partners}
        elif isinstance(module, HookedModule):
            self.partners = pair_scopes(self.graph, module)
        else:
            self.partners = pair_values(self.graph, module)
        given = {value.name for value in (*self.graph.inputs, *self.graph.outputs)}
        inner = {name for node in self.graph.nodes for name in node.outputs} - given
        self.has_names = not inner or not inner.isdisjoint(self.partners)
        self.part(())
        nodes = [node for node in self.graph.nodes if not node.is_added]
        self.has_metadata = 2 * sum(bool(node.proto.metadata_props) for node in nodes) > len(nodes)

    def part(self, names: Iterable[str]) -> None:
        """Take some values' partners from them, and find the functions between the other pairs."""
        for name in names:
            del self.partners[name]
        self.cones = cones_of(self.graph, self.partners)
        paired, module = {*self.partners.values()}, self.module
        self.inner = {name: module.border(name, paired)[2] for name in module.names if name in paired}

    def more_calls(self) -> list[str]:
        """Return the calls of which the exporter wrote more into the file than the module has, in words."""
        named = {call_name(node): call for node in self.graph.nodes if (call := call_of(node)) is not None}
        mine = Counter((each.module, each.target) for each in named.values() if "." in each.target)
        mine -= Counter((each.module, each.target) for each in self.module.calls)
        more = [
            f"{path or 'the network'} has {count} {target} more" for (path, target), count in mine.items()
        ]
        return more if self.module.calls else []

    def outputs(self, node: Node, values: Mapping[str, Any]) -> list[Any]:
        """Run an operator on some values."""
        given = {name: values[name] for name in reads(node) if name in values}
        return [*self._runners.outputs(self.graph, node, given, self._side.computes_in)]

    def weights(self, nodes: Iterable[Node]) -> dict[str, np.ndarray]:
        """Return the tensors of float weights that operators read."""
        read = dict.fromkeys(name for node in nodes for name in reads(node))
        found = {name: self.graph.weights[name] for name in read if name in self.graph.weights}
        return {name: each for name, each in found.items() if each.dtype.kind == "f" and each.size > 1}

    def own_error(self, slot: int, array: np.ndarray, golden: np.ndarray, cone: Cone) -> OwnError:
        """Return the error of a result of golden's inputs, and whether rounding explains it."""
        error = errors.measure(array, golden)
        allowed = _ROUNDINGS.get(self.coarsest(cone, dtypes.from_numpy(array.dtype).name), 2.0**-16)
        allowed = quantised({node.op_type for node in cone.nodes}) or allowed
        is_close = array.dtype.kind in "fV" and not error.misplaced and error.scaled <= allowed
        return OwnError(slot, error, allowed, error.is_same or is_close, self.module.values)

    def agrees(self, array: Any, golden: np.ndarray | None, cone: Cone) -> bool:
        """Return whether rounding explains the difference of a result from golden's value."""
        if not isinstance(array, np.ndarray) or golden is None or array.size != golden.size:
            return False
        return self.own_error(0, array, golden.reshape(array.shape), cone).is_explained

    def coarsest(self, cone: Cone, *types: str) -> str:
        """Return the coarsest element type that rounds among a function's values and other types."""
        names = (name for node in cone.nodes for name in (*node.inputs, *node.outputs) if name)
        declared = (dtype.name for dtype in (self.graph.type_of(name).dtype for name in names) if dtype)
        every = (self.limits.precision or "float32", *types, *declared)
        return coarser(*(each for each in every if each in _ROUNDINGS))


def rounding(array: np.ndarray) -> float:
    """Return the error that rounding in an array's type explains, 0 of integers."""
    return _ROUNDINGS.get(dtypes.from_numpy(array.dtype).name, 0.0)


def quantised(kinds: Collection[str]) -> float:
    """Return the error that quantisation by operators of some types explains, 0 without any."""
    if any("NBits" in kind for kind in kinds):
        return FEW_BITS
    return QUANTISED if any(part in kind for kind in kinds for part in _QUANTISING) else 0.0
