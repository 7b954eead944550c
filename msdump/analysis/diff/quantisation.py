"""Quantised models: the real numbers that integers stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump.analysis.align import is_quantised as are_quantised
from msdump.graph import Graph, Node
from msdump.observer import Array, Arrays

_SCALED: Final[Mapping[str, tuple[int, int]]] = {
    "QuantizeLinear": (1, 2),
    "QLinearConv": (6, 7),
    "QLinearMatMul": (6, 7),
    "QLinearAdd": (6, 7),
    "QLinearMul": (6, 7),
    "QGemm": (7, 8),
    "QLinearConcat": (0, 1),
    "QLinearSigmoid": (3, 4),
    "QLinearLeakyRelu": (3, 4),
    "QLinearSoftmax": (3, 4),
    "QLinearAveragePool": (3, 4),
    "QLinearGlobalAveragePool": (3, 4),
    "QLinearReduceMean": (3, 4),
}
"""Inputs that tell scale and zero point of the output, by operator; of ONNX and of onnxruntime's domain."""

_MOVING: Final = frozenset(
    {"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "DepthToSpace", "SpaceToDepth"}
    | {"Slice", "Split", "Gather", "Expand", "Tile", "MaxPool", "Relu", "Clip"}
)
"""Operators that return elements of their first input, and so have its scale."""


@dataclass(frozen=True, slots=True)
class Quantisation:
    """Scale and zero point of a quantised tensor."""

    scale: float
    zero: int

    def real(self, array: np.ndarray) -> np.ndarray:
        """Return the real numbers that integers stand for, as float32.

        >>> Quantisation(0.5, 128).real(np.uint8([128, 129, 126])).tolist()
        [0.0, 0.5, -1.0]
        """
        return (array.astype(np.float32) - np.float32(self.zero)) * np.float32(self.scale)


def is_quantised(graph: Graph) -> bool:
    """Return whether a model, or a branch or body in it, computes with quantised numbers."""
    return are_quantised(node.op_type for inner in graph.walk() for node in inner.nodes)


def quantisations(graph: Graph) -> dict[str, Quantisation]:
    """Return the scales of a graph's quantised values, by name, if they are weights of one element."""
    known: dict[str, Quantisation] = {}
    for node in graph.nodes:
        found = _of_output(graph, node, known)
        if found is not None:
            known |= {name: found for name in node.outputs if name}
    return known


def _of_output(graph: Graph, node: Node, known: Mapping[str, Quantisation]) -> Quantisation | None:
    if node.op_type in _MOVING:
        return known.get(node.inputs[0])
    slots = _SCALED.get(node.op_type)
    if slots is None:
        return None
    scale, zero = (
        graph.weights.get(node.inputs[slot]) if slot < len(node.inputs) else None for slot in slots
    )
    if scale is None or scale.size != 1 or (zero is not None and zero.size != 1):
        return None
    return Quantisation(float(scale.reshape(-1)[0]), 0 if zero is None else int(zero.reshape(-1)[0]))


def as_real(names: Sequence[str], arrays: Arrays, known: Mapping[str, Quantisation]) -> list[Array]:
    """Return tensors; quantised ones as real numbers.

    Args:
        names: Names of the tensors.
        arrays: The tensors, None for an absent one.
        known: Scales of quantised values, by name.
    """
    return [
        known[name].real(array) if array is not None and name in known and array.dtype.kind in "iu" else array
        for name, array in zip(names, arrays, strict=True)
    ]
