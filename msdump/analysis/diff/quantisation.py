"""Quantised models: the real numbers that integers stand for, and scales that do not fit their tensors."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from msdump import dtypes
from msdump.analysis.judge import Finding
from msdump.graph import Graph, Node
from msdump.observer import Array, Arrays
from msdump.record import IO

if TYPE_CHECKING:
    from msdump.analysis.diff.lockstep import Ran

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
"""Operators whose results are elements of their first input, and so have its scale."""

_WORDS: Final = ("quant", "qlinear", "qgemm", "integer")
"""Parts of the types of quantised operators, in lower case."""


@dataclass(frozen=True, slots=True)
class Quantisation:
    """How the integers of a tensor stand for real numbers.

    Attributes:
        scale: What one step is.
        zero: The integer that stands for 0.
    """

    scale: float
    zero: int

    def real(self, array: np.ndarray) -> np.ndarray:
        """Return the numbers that integers stand for, as float32.

        >>> Quantisation(0.5, 128).real(np.uint8([128, 129, 126])).tolist()
        [0.0, 0.5, -1.0]
        """
        return (array.astype(np.float32) - np.float32(self.zero)) * np.float32(self.scale)


def is_quantised(graph: Graph) -> bool:
    """Return whether a model, or a branch or body in it, computes with quantised numbers."""
    types = {node.op_type for inner in graph.walk() for node in inner.nodes}
    return any(word in op_type.lower() for op_type in types for word in _WORDS)


def quantisations(graph: Graph) -> dict[str, Quantisation]:
    """Return how the quantised values of a graph stand for real numbers, by name.

    Values whose scale is not a weight of one element are left out.
    """
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
    """Return tensors, of quantised ones the numbers that they stand for.

    Args:
        names: Their names.
        arrays: The tensors, None for what is absent.
        known: How quantised values stand for real numbers, by name.
    """
    return [
        known[name].real(array) if array is not None and name in known and array.dtype.kind in "iu" else array
        for name, array in zip(names, arrays, strict=True)
    ]


CLAMPS: Final = frozenset({"ReLU", "ReLU6"})
"""Golden operators that the range of quantised numbers stands for."""

_MOST: Final = 4.0
"""Times the noise of a scale that is the tensor's own range: what calibration on other inputs explains."""

_APART: Final = 3.0
"""Times the noise of a model's other tensors: an input as none of calibration makes all of them noisier."""

_BEYOND: Final = 0.15
"""Share of its range by which other inputs than those of calibration exceed it."""

_CLIPPED: Final = 0.002
"""Share of a tensor's elements that a calibration by percentiles cuts off on purpose."""

_MANY: Final = 0.05
"""Share of elements that no calibration cuts off, by however little."""

_LIKE: Final = 0.5
"""Relative distance from golden's tensor up to which an input has a range to tell a wrong scale by."""


@dataclass(frozen=True, slots=True)
class _Quantiser:
    """An operator that quantised a tensor.

    Attributes:
        finding: Number of its verdict in the run.
        noise: How many times more noise its scale and zero point make than those of the tensor's own range.
        note: What they are, in words.
    """

    finding: int
    noise: float
    note: str


class Quantisers:
    """The operators of one run that quantise tensors which the other model computes with as they are."""

    def __init__(self, clamped: Mapping[str, str]) -> None:
        """Begin without operators.

        Args:
            clamped: Types of golden operators that clamp, as the range of quantised numbers does, by the
                names of integers that stand for what these write.
        """
        self._known: list[_Quantiser] = []
        self._clamped = clamped

    def add(self, ran: Ran, number: int, finding: Finding) -> None:
        """Take in an operator that has run, if it quantises a tensor by one scale.

        Args:
            ran: The operator.
            number: Number of its verdict in the run.
            finding: The verdict.
        """
        if ran.node.op_type != "QuantizeLinear" or ran.inputs[0] is None:
            return
        weights = [ran.graph.weights.get(name) for name in ran.node.inputs[1:]]
        errors = [each.evidence.error for each in finding.inputs if each.io is IO.INPUT and not each.slot]
        is_like = all(error is None or error.distance <= _LIKE for error in errors)
        dtype = ran.graph.type_of(ran.node.outputs[0]).dtype
        if not is_like or dtype is None or any(each is None or each.size != 1 for each in weights):
            return
        scale, zero = (float(each.reshape(-1)[0]) for each in (*weights, np.zeros(1))[:2] if each is not None)
        limits = np.iinfo(dtypes.from_numpy(dtype.saved).numpy)
        numbers = ran.inputs[0].astype(np.float64).reshape(-1)
        if ran.node.outputs[0] in self._clamped:
            numbers = np.clip(numbers, 0, 6.0 if self._clamped[ran.node.outputs[0]] == "ReLU6" else None)
        noise, low, high = _noise(numbers, (limits.min - zero) * scale, (limits.max - zero) * scale, scale)
        note = f"scale {scale:.3g} and zero point {zero:g} make {noise:.3g} times the noise of"
        self._known.append(_Quantiser(number, noise, f"{note} its range {low:.3g} to {high:.3g}"))

    def wrong(self) -> Iterator[tuple[int, str]]:
        """Yield the numbers of the verdicts on operators with a wrong scale or zero point, and why."""
        worst = max((each.noise for each in self._known), default=0.0)
        for each in self._known:
            others = [other.noise for other in self._known if other is not each]
            least = max(_MOST, _APART * statistics.median(others or [0.0]), worst / 2)
            if each.noise >= least:
                yield each.finding, each.note


def _noise(numbers: np.ndarray, lowest: float, highest: float, scale: float) -> tuple[float, float, float]:
    """Return the noise of quantisation, in that of a scale from the tensor's own range, and that range.

    Args:
        numbers: Its elements.
        lowest: The least number that the integers stand for.
        highest: The largest one.
        scale: What one step is.
    """
    if not numbers.size or not np.isfinite(numbers).all():
        return 0.0, 0.0, 0.0
    low, high = min(0.0, float(numbers.min())), max(0.0, float(numbers.max()))
    least = scale * (high - low) / (highest - lowest)
    beyond = [(lowest - low) / (highest - lowest), (high - highest) / (highest - lowest)]
    if max(beyond) > _BEYOND and min(beyond) < -_BEYOND:  # shifted: no calibration chooses such a range
        return max(beyond) * (highest - lowest) / least, low, high
    clipped = np.maximum(lowest - numbers, 0) + np.maximum(numbers - highest, 0)
    share = np.count_nonzero(clipped) / numbers.size
    if share < (_MANY if max(beyond) < _BEYOND else _CLIPPED):
        clipped = np.zeros(1)
    noise = math.hypot(scale, math.sqrt(12 * float(np.mean(np.square(clipped)))))
    return (noise / least if least else 0.0), low, high
