"""Quantised numbers in graphs: scales, the real numbers that integers stand for, steps of weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import ml_dtypes
import numpy as np

from msdump.graph import Graph, Node
from msdump.judge.pair import is_quantised as are_quantised
from msdump.judge.verdict import MOVING, SCALED, ScaledOperator, unlike_numbers
from msdump.observer import Array, Arrays


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


def apart(mine: Graph, golden: Graph) -> str:
    """Return why the integers of two models are not the same numbers, in words; "" where they may be."""
    sides = [[(graph, node) for graph in model.walk() for node in graph.nodes] for model in (mine, golden)]
    several = [{_scale(*each).size > 1 for each in side if _is_weight(*each)} for side in sides]
    return unlike_numbers([is_quantised(graph) for graph in (mine, golden)], several)


def fewest_bits(*models: Graph) -> int:
    """Return the fewest bits of the numbers that models are quantised to."""
    nodes = [(graph, node) for model in models for graph in model.walk() for node in graph.nodes]
    types = [graph.weights[node.inputs[0]].dtype for graph, node in nodes if _is_weight(graph, node)]
    packed = [node.attributes.get("bits", _BITS) for _, node in nodes if node.op_type == _PACKED]
    return min([_BITS, *(ml_dtypes.iinfo(each).bits for each in types), *map(int, packed)])  # type: ignore[arg-type, no-untyped-call]


def steps(graph: Graph, node: Node, name: str) -> float | None:
    """Return the mean step of a quantised weight that an operator reads; None of other inputs.

    ``name`` is a weight that was converted to real numbers before, or is in the operator.
    """
    maker: Node | None = node if node.op_type == _PACKED else None
    if maker is None:
        maker = next((each for each in graph.nodes if name in each.outputs and _is_weight(graph, each)), None)
    if maker is None:
        return None
    scales = graph.weights.get(maker.inputs[2]) if maker.op_type == _PACKED else _scale(graph, maker)
    return None if scales is None else float(np.sqrt(np.mean(np.square(scales, dtype=np.float64))))


_BITS: Final = 8
_PACKED: Final = "MatMulNBits"
_NONE: Final = np.zeros(0)


def _scale(graph: Graph, node: Node) -> np.ndarray:
    return np.asarray(graph.weights.get(node.inputs[1], _NONE))


def _is_weight(graph: Graph, node: Node) -> bool:
    return node.op_type == "DequantizeLinear" and node.inputs[0] in graph.weights


def scaled_operators(graph: Graph) -> Iterator[ScaledOperator]:
    """Yield the operators of a graph, with the values of their scales."""
    for node in graph.nodes:
        weights = [graph.weights.get(name) for name in node.inputs]
        operator = node.operator.full_name, node.op_type
        yield ScaledOperator(node.name, *operator, node.inputs, node.outputs, weights.__getitem__)


def quantisations(graph: Graph) -> dict[str, Quantisation]:
    """Return the scales of a graph's quantised values, by name, if they are weights of one element."""
    known: dict[str, Quantisation] = {}
    for node in graph.nodes:
        found = known.get(node.inputs[0]) if node.op_type in MOVING else None
        if node.op_type in SCALED and node.op_type not in MOVING:
            scale, zero = (
                graph.weights.get(node.inputs[slot]) if slot < len(node.inputs) else None
                for slot in SCALED[node.op_type]
            )
            if scale is not None and scale.size == 1 and (zero is None or zero.size == 1):
                numbers = float(scale.reshape(-1)[0]), 0 if zero is None else int(zero.reshape(-1)[0])
                found = Quantisation(*numbers)
        if found is not None:
            known |= {name: found for name in node.outputs if name}
    return known


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
