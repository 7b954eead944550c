"""Scales and zero points of quantised tensors: their noise, and operators that disagree on them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

import numpy as np

_MOST: Final = 4.0
"""Times the noise of a scale from the tensor's own range that calibration on other inputs explains."""

_APART: Final = 3.0
"""Times the noise of a model's other tensors: an input as none of calibration makes all of them noisier."""

_BEYOND: Final = 0.15
"""Share of its range by which inputs beyond the calibration's exceed it."""

_CLIPPED: Final = 0.002
"""Share of a tensor's elements that a calibration by percentiles cuts off on purpose."""

_MANY: Final = 0.05
"""Share of elements that no calibration cuts off, by however little."""


def scale_noise(
    numbers: np.ndarray, how: Sequence[np.ndarray], dtype: np.dtype, clamp: str
) -> tuple[float, str] | None:
    """Return the noise of an operator that quantises a tensor by one scale (None: by several), in words, too.

    Args:
        numbers: Its input.
        how: Its scale and, where it has one, its zero point.
        dtype: Type of the integers that it writes.
        clamp: Type of the golden operator that clamps as the range of the integers does, "" for none.
    """
    if any(each.size != 1 for each in how):
        return None
    scale, zero = [*(float(each.reshape(-1)[0]) for each in how), 0.0][:2]
    limits, numbers = np.iinfo(dtype), numbers.astype(np.float64).reshape(-1)
    if clamp or zero == limits.min:  # a ReLU in the operator before cuts off negative numbers
        numbers = np.clip(numbers, 0, 6.0 if clamp == "ReLU6" else None)
    noise, low, high = _noise(numbers, (limits.min - zero) * scale, (limits.max - zero) * scale, scale)
    text = f"scale {scale:.3g} and zero point {zero:g} make {noise:.3g} times the noise of its range"
    return noise, f"{text} {low:.3g} to {high:.3g}"


def wrong_scales(scales: Mapping[int, tuple[float, str]]) -> Iterable[int]:
    """Yield the operators, by place, with more noise than the tensor and the other scales explain."""
    for place, (noise, _) in scales.items():
        others = [each for other, (each, _) in scales.items() if other != place]
        usual, most = statistics.median(others or [0.0]), max([noise, *others])
        if noise >= max(_MOST, _APART * usual, most / 2):
            yield place


def _noise(numbers: np.ndarray, lowest: float, highest: float, scale: float) -> tuple[float, float, float]:
    """Return the noise of quantisation, relative to that of a scale fitted to the tensor, and its range.

    ``lowest`` and ``highest`` are the range of the integers, ``scale`` is one step.
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


SCALED: Final[Mapping[str, tuple[int, int]]] = {
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
    **dict.fromkeys(SCALED, ((0, 1, 2),)),
    "QuantizeLinear": (),
    "QLinearConcat": (),
    "DequantizeLinear": ((0, 1, 2),),
    **dict.fromkeys(("QLinearMatMul", "QLinearAdd", "QLinearMul", "QGemm"), ((0, 1, 2), (3, 4, 5))),
}
"""Inputs of integers, each with those of its scale and zero point, by operator."""

MOVING: Final = frozenset(
    {"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "DepthToSpace", "SpaceToDepth"}
    | {"Slice", "Split", "Gather", "Expand", "Tile", "MaxPool", "Relu", "ReLU", "Clip", "ExpandDims"}
    | {"StridedSlice", "BroadcastTo"}
)
"""Operators that return elements of their first input, and so have its scale."""


def unlike_numbers(quantised: Sequence[bool], several: Sequence[AbstractSet[bool]]) -> str:
    """Return why equal integers of two models are other real numbers; "" if they may be the same ones.

    Args:
        quantised: Whether each model computes with quantised numbers.
        several: Whether the quantised weights of each model have several scales.
    """
    if quantised[0] != quantised[1]:
        return "one model is quantised"
    if several[0] == several[1]:
        return ""
    forms = ("per channel" if True in each else "per tensor" for each in several)
    return "the weights of mine are quantised {}, golden's {}".format(*forms)


class ScaledOperator(NamedTuple):
    """An operator that may read or write quantised tensors."""

    name: str  # its name
    full_name: str  # its scoped name
    op_type: str  # its type, in ONNX
    inputs: Sequence[Hashable]  # keys of the values that it reads
    outputs: Sequence[Hashable]  # keys of the values that it writes
    # returns the elements of a constant input by number; None where they are not known
    constant: Callable[[int], np.ndarray | None]


class UnlikeScale(NamedTuple):
    """Integers that one operator reads by another scale than another one wrote them with."""

    reader: tuple[str, str]  # name of the operator that reads them, and a sentence on it
    writer: tuple[str, str]  # name of the operator that writes them, and a sentence on it
    scales: tuple[float, float]  # the scale by which they are read, and by which they are written
    zero: float  # the zero point by which they are written

    def at_fault(self, numbers: np.ndarray, dtype: np.dtype) -> tuple[str, str]:
        """Return the operator with the scale that fits the range of the numbers less, else the reader."""
        spread = float(np.ptp(np.append(numbers, 0.0)))
        steps = np.iinfo(dtype).max - np.iinfo(dtype).min
        if not (spread and math.isfinite(spread) and min(self.scales) > 0):
            return self.reader
        read, written = (abs(math.log(steps * scale / spread)) for scale in self.scales)
        return self.writer if written > read else self.reader


def unlike_scales(operators: Iterable[ScaledOperator]) -> Iterator[UnlikeScale]:
    """Yield pairs of operators of which one reads the other's integers by another scale."""
    made: dict[Hashable, tuple[ScaledOperator, list[np.ndarray]]] = {}

    def how(operator: ScaledOperator, slots: Sequence[int]) -> list[np.ndarray]:
        arrays = [operator.constant(slot) if slot < len(operator.inputs) else None for slot in slots]
        return [np.zeros(0) if each is None else np.asarray(each).reshape(-1) for each in arrays]

    for operator in operators:
        for slot, *slots in _READING.get(operator.op_type, ()):
            if slot >= len(operator.inputs) or operator.inputs[slot] not in made:
                continue
            writer, written = made[operator.inputs[slot]]
            read = how(operator, slots)
            for kind, own, other in zip(("scale", "zero point"), read, written, strict=True):
                if own.size == other.size == 1 and own[0] != other[0]:
                    one, two = f"{own[0]:.3g}", f"{other[0]:.3g}"
                    yield UnlikeScale(
                        (
                            operator.name,
                            f"{kind} {one} of input {slot}, which {writer.full_name} wrote with {two}",
                        ),
                        (
                            writer.name,
                            f"{kind} {two} of output 0, which {operator.full_name} reads with {one}",
                        ),
                        (float(read[0][0]), float(written[0][0])),
                        float(written[1].sum()),
                    )
        if operator.op_type in SCALED:
            made[operator.outputs[0]] = operator, how(operator, SCALED[operator.op_type])
        elif operator.op_type in MOVING and operator.inputs and operator.inputs[0] in made:
            made |= dict.fromkeys(filter(None, operator.outputs), made[operator.inputs[0]])


PACKED: Final = "MatMulNBits"
"""Operator of onnxruntime with a weight of few bits, packed in bytes."""

_ROUNDED: Final = 0.4
"""Steps by which weights that are rounded to the nearest number may be off: 0.29, and few are cut off."""


def packed_fault(read: Sequence[np.ndarray], attributes: Mapping[str, Any], golden: np.ndarray) -> str:
    """Return a sentence on a weight of few bits that is not golden's rounded to them; "" where it is.

    Args:
        read: Packed integers, scales and, where there are some, zero points.
        attributes: Attributes of the operator that reads them.
        golden: Golden's weight, K x N.
    """
    size, count, bits = (int(attributes[name]) for name in ("K", "N", "bits"))

    def integers(packed: np.ndarray) -> np.ndarray:
        each = np.unpackbits(packed.reshape(count, -1), axis=1, bitorder="little").reshape(count, -1, bits)
        return (each @ (1 << np.arange(bits))).astype(np.float64)

    packed, scales, *points = read
    scales = scales.reshape(count, -1).astype(np.float64)
    zero = np.full_like(scales, 1 << (bits - 1))
    if points:
        zero = integers(points[0]) if points[0].dtype == np.uint8 else points[0].reshape(count, -1)
    block = int(attributes["block_size"])
    spread = (np.repeat(each[:, : scales.shape[1]], block, axis=1)[:, :size] for each in (zero, scales))
    zero, scales = spread
    if golden.shape != (size, count):
        return ""
    off = (integers(packed)[:, :size] - zero) * scales - golden.T
    steps = float(np.sqrt(np.mean(np.square(off)) / np.mean(np.square(scales))))
    text = f"input 1 is off golden's weight by {steps:.2g} of its steps, 0.29 by rounding"
    return "" if steps <= _ROUNDED else text
