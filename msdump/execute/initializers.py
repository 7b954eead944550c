"""The choice of weights that an operator's session gets as initializers; all others are fed in every run.

A kernel packs a weight once, when its session is created, only if it is an initializer: a MatMul whose weight
is fed takes up to 1.4 times as long. Weights that are fed let equal operators share one session.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.dtypes import STRING
from msdump.execute.runtime import public_value
from msdump.execute.weights import WeightStore
from msdump.graph.graph import Node
from msdump.graph.kernel.emulation import FLOAT16, FLOAT32, HALVES, Rounding
from msdump.graph.kernel.onenode import NodeModel
from msdump.graph.message.split_model import SMALL_BYTES

_PACKED_SLOTS: Final[Mapping[str, frozenset[int]]] = {
    "MatMul": frozenset({0, 1}),
    "Gemm": frozenset({0, 1}),
    "LSTM": frozenset({1, 2}),
    "GRU": frozenset({1, 2}),
    "RNN": frozenset({1, 2}),
    "MatMulInteger": frozenset({1}),
}
"""Inputs of which the runtime's kernel keeps a packed copy when they are initializers."""

_BOUND_OPS: Final = frozenset(
    {*_PACKED_SLOTS, "ConvTranspose", "ConvInteger", "QLinearConv", "QLinearMatMul"}
)
"""Operators that are faster, or only possible, with their weights as initializers."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The initializers of one operator's session.

    Attributes:
        arrays: By the weight's name, in the type that the operator reads.
        rounded: Those that were rounded before, and whether rounding met values beyond float16's range.
    """

    arrays: Mapping[str, np.ndarray]
    rounded: Mapping[str, bool]

    @property
    def embedded(self) -> dict[str, np.ndarray]:
        """Those that are copied into the model."""
        return {name: array for name, array in self.arrays.items() if _is_small(array)}

    @property
    def shared(self) -> dict[str, np.ndarray]:
        """Those that the session is given beside the model."""
        return {name: array for name, array in self.arrays.items() if not _is_small(array)}


class Initializers:
    """Chooses which weights of a network its kernels get as initializers, and in which type."""

    def __init__(
        self,
        weights: WeightStore,
        changeable: Container[str],
        roundings: Callable[[Node], Sequence[Rounding] | None],
        distant: Container[str],
    ) -> None:
        """Set the weights and the rules that hold for every operator.

        Args:
            weights: The weights of the graph.
            changeable: Weights that may have other values in another run.
            roundings: The emulated device's arithmetic, by operator.
            distant: Weights of a body that the graph around it takes from outside as well.
        """
        self._weights = weights
        self._changeable = changeable
        self._roundings = roundings
        self._distant = distant

    def of(self, node: Node, roundings: Sequence[Rounding] | None) -> Bound:
        """Return the initializers of an operator that computes with some roundings."""
        arrays = {name: self._bound_array(node, name, roundings) for name in self._bound(node)}
        rounded = {
            name: _saturates_inputs(node, name, roundings) and self._weights.overflows(name)
            for name in arrays
            if arrays[name] is not self._weights.array(name)
        }
        return Bound(arrays, rounded)

    def values(self, node: Node, model: NodeModel, bound: Bound) -> dict[str, Any]:
        """Return the values of shared initializers by their names in the model."""
        return {inner: self.shared_value(node, name, bound.arrays[name]) for inner, name in model.shared}

    def shared_value(self, node: Node, name: str, array: np.ndarray) -> Any:
        """Return the value of an initializer that an operator's session is given beside the model.

        Args:
            node: The operator.
            name: The weight.
            array: The weight in the type that the operator reads.
        """
        if array is not self._weights.array(name):
            return public_value(array)
        return self._weights.packable(name) if name in packed(node) else self._weights.public(name)

    def _bound_array(self, node: Node, name: str, roundings: Sequence[Rounding] | None) -> np.ndarray:
        """Return a weight in the type that the operator reads, rounded once and for all."""
        array = self._weights.array(name)
        if roundings is None or node.domain:
            return array
        dtype = dtypes.from_numpy(array.dtype)
        rounding = roundings[_readers(node, name)[0]]
        reads = rounding.read_type(dtype)
        if reads in HALVES:
            return self._weights.rounded(name, reads, saturates=rounding.saturates)
        return array

    def _bound(self, node: Node) -> tuple[str, ...]:
        """Return the weights that the session gets as initializers; of a fused operator those of one part."""
        free = self._changeable
        names = dict.fromkeys(name for name in node.inputs if name in self._weights and name not in free)
        readers = {name: _readers(node, name) for name in names}
        parts = list(self._computing(node))
        single = {name: parts[indices[0]] for name, indices in readers.items() if len(indices) == 1}
        return tuple(
            name for name, part in single.items() if self._binds(*part) and not self._is_distant(name, *part)
        )

    def _is_distant(self, name: str, part: Node, rounding: Rounding | None) -> bool:
        """Tell whether the runtime would not pack a weight: it looks for weights one graph out, no further.

        A kernel without a packed copy may differ in the last bit from one that has it. Weights
        that are rounded become initializers all the same, once and not in every run.
        """
        is_rounded = rounding is not None and rounding.reads in HALVES
        return name in self._distant and part.op_type in _PACKED_SLOTS and not is_rounded

    def _computing(self, node: Node) -> Iterator[tuple[Node, Rounding | None]]:
        roundings = self._roundings(node)
        return zip(node.members, roundings or (None,) * len(node.members), strict=True)

    @staticmethod
    def _binds(part: Node, rounding: Rounding | None) -> bool:
        """Tell whether an operator's weights become initializers.

        Those of a convolution do where they are rounded, once and not in every run. Elsewhere they
        are fed, so that equal convolutions share one session and its threads.
        """
        if binds_weights(part):
            return True
        return part.op_type == "Conv" and rounding is not None and rounding.reads is not FLOAT32


def binds_weights(part: Node) -> bool:
    """Tell whether an operator's weights become initializers on every device."""
    return part.op_type in _BOUND_OPS or bool(part.domain)


def packed(node: Node) -> frozenset[str]:
    """Return the names of an operator's weights of which the runtime keeps a packed copy."""
    return frozenset(
        name
        for part in node.members
        for slot, name in enumerate(part.inputs)
        if slot in _PACKED_SLOTS.get(part.op_type, ()) and not part.domain
    )


def _readers(node: Node, name: str) -> list[int]:
    """Return which parts of an operator read a value."""
    return [index for index, part in enumerate(node.members) if name in part.inputs]


def _is_small(array: np.ndarray) -> bool:
    """Tell whether a weight is copied into the model: small ones, and types that cannot be shared.

    The runtime infers shapes from the values of small weights (axes, sizes), which it must find in the model.
    """
    return array.nbytes <= SMALL_BYTES or array.dtype == STRING.numpy or array.dtype.isbuiltin != 1


def _saturates_inputs(node: Node, name: str, roundings: Sequence[Rounding] | None) -> bool:
    """Tell whether an operator's inputs saturate, and the overflow status is to say so."""
    if roundings is None or not tells_overflow(roundings):
        return False
    return roundings[_readers(node, name)[0]].reads is FLOAT16


def tells_overflow(roundings: Sequence[Rounding] | None) -> bool:
    """Tell whether an operator's kernel is to give the device's overflow status."""
    return roundings is not None and any(rounding.reports for rounding in roundings)
