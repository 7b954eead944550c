"""Quantised numbers in graphs: scales, the real numbers that integers stand for, steps of weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import ml_dtypes
import numpy as np

from msdump.graph import Graph, Node
from msdump.judge.pair import is_quantised as are_quantised
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
"""Inputs that are scale and zero point of the output, by operator; of ONNX and of onnxruntime's domain."""

_READING: Final[Mapping[str, tuple[tuple[int, int, int], ...]]] = {
    **dict.fromkeys(_SCALED, ((0, 1, 2),)),
    "QuantizeLinear": (),
    "QLinearConcat": (),
    "DequantizeLinear": ((0, 1, 2),),
    **dict.fromkeys(("QLinearMatMul", "QLinearAdd", "QLinearMul", "QGemm"), ((0, 1, 2), (3, 4, 5))),
}
"""Inputs of integers, each with those of its scale and zero point, by operator."""

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


def apart(mine: Graph, golden: Graph) -> str:
    """Return why the integers of two models are not the same numbers, in words; "" where they may be."""
    kinds = [is_quantised(graph) for graph in (mine, golden)]
    if kinds[0] != kinds[1]:
        return "one model is quantised"
    sizes = [
        {
            _scale(graph, node).size > 1
            for graph in model.walk()
            for node in graph.nodes
            if _is_weight(graph, node)
        }
        for model in (mine, golden)
    ]
    if sizes[0] == sizes[1]:
        return ""
    return "one model has a scale for each channel of a weight, the other one for each weight"


def fewest_bits(*models: Graph) -> int:
    """Return the fewest bits of the numbers that models are quantised to."""
    nodes = [(graph, node) for model in models for graph in model.walk() for node in graph.nodes]
    types = [graph.weights[node.inputs[0]].dtype for graph, node in nodes if _is_weight(graph, node)]
    packed = [node.attributes.get("bits", _BITS) for _, node in nodes if node.op_type == _PACKED]
    return min([_BITS, *(ml_dtypes.iinfo(each).bits for each in types), *map(int, packed)])  # type: ignore[arg-type, no-untyped-call]


def steps(graph: Graph, node: Node, name: str) -> float | None:
    """Return the mean step of a quantised weight that an operator reads; None of other inputs.

    Args:
        graph: The graph of the operator.
        node: The operator.
        name: The input: a weight that was converted to real numbers before, or is in the operator.
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


def unlike_scales(graph: Graph) -> dict[str, str]:
    """Return a sentence on each operator that reads integers by another scale than they were written with."""
    made: dict[str, tuple[Node, list[np.ndarray]]] = {}
    found: dict[str, str] = {}

    def how(node: Node, slots: Sequence[int]) -> list[np.ndarray]:
        names = [node.inputs[slot] if slot < len(node.inputs) else "" for slot in slots]
        return [
            np.asarray(graph.weights[name]).reshape(-1) if name in graph.weights else _NONE for name in names
        ]

    for node in graph.nodes:
        for slot, *slots in _READING.get(node.op_type, ()):
            if node.inputs[slot] not in made:
                continue
            writer, written = made[node.inputs[slot]]
            pairs = zip(("scale", "zero point"), how(node, slots), written, strict=True)
            for kind, own, other in pairs:
                if own.size == other.size == 1 and own[0] != other[0]:
                    found[node.name] = (
                        f"{kind} {own[0]:.3g} of input {slot}, which {writer.operator.full_name}"
                        f" wrote with {other[0]:.3g}"
                    )
        if node.op_type in _SCALED:
            made[node.outputs[0]] = node, how(node, _SCALED[node.op_type])
        elif node.op_type in _MOVING and node.inputs[0] in made:
            made |= dict.fromkeys(filter(None, node.outputs), made[node.inputs[0]])
    return found


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
