"""The limits of agreement: how far apart two tensors may be, by the element types they were computed in."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, Final

import ml_dtypes
import numpy as np

from msdump import dtypes as element_types
from msdump.errors import DumpReadError, ToolError
from msdump.read import read_json
from msdump.return_codes import ReturnCode
from msdump.statistics import BY_CATEGORY


@dataclass(frozen=True, slots=True)
class TypeLimits:
    """Limits of an element type."""

    distance: float  # largest relative Euclidean distance
    # units of the last place; if no element differs by more, tensors agree whatever their distance, which
    # subnormal numbers make large
    ulps: float
    source: str  # origin of the distance


_KIT: Final = "the vendor's Accuracy Test Kit, for a single operator"  # single_benchmark_config.py
_CLOSE: Final = "PyTorch's `assert_close`"
_EPSILON: Final = "its epsilon"

# float16: four times its epsilon, as the vendor's tests of chains of operators allow, and about the error of
# a tensor that 360 operators have rounded. For each type of 16 bits and more, the limit still detects 2 % of
# noise on a weight.
TYPES: Final[Mapping[str, TypeLimits]] = {
    "float64": TypeLimits(1e-7, 2, _CLOSE),
    "complex128": TypeLimits(1e-7, 2, _CLOSE),
    "float32": TypeLimits(2**-13, 2, _KIT),
    "complex64": TypeLimits(2**-13, 2, _KIT),
    "float16": TypeLimits(2**-8, 2, "four times its epsilon: many operators that round"),
    "tfloat32": TypeLimits(2**-8, 2, "four times its epsilon, which is float16's"),
    "bfloat16": TypeLimits(2**-6, 2, _CLOSE),
    "float8_e4m3fn": TypeLimits(2**-3, 1, _KIT),
    "float8_e4m3fnuz": TypeLimits(2**-3, 1, _KIT),
    "float8_e5m2": TypeLimits(2**-2, 1, _KIT),
    "float8_e5m2fnuz": TypeLimits(2**-2, 1, _KIT),
    "float4_e2m1": TypeLimits(2**-1, 1, _EPSILON),
}
"""Limits of the types that are rounded, the finest first; elements of all others must be the same."""

TENSOR_FLOAT: Final = "tfloat32"
"""Type of 10 bits to which a GPU rounds the float32 inputs of products; no tensor has it."""

COSINE: Final = 0.99
"""Least cosine similarity, as in msprobe, msaccucmp's advisor and the vendor's guides."""

PEAK: Final = 64.0
"""Largest difference of an element, relative to the largest golden one: so many times the largest distance.

An error that is spread over a tensor as rounding spreads it stays below four times; a single element
that is far off is a fault however many sound ones surround it."""

GROWTH: Final = 8.0
"""How many times the distance of agreeing inputs an output may differ and still be a slow drift.

Sums that cancel lose three bits as a rule."""

QUANTISED: Final = 2**-4
"""Largest distance of tensors of which one was computed with 8 bits, and the other one was not.

Numbers of 8 bits with a sign have steps of 2^-7 of the largest one; a tensor behind many layers, and one of
mostly small elements, are off by a few of them."""

FEW_BITS: Final = 2**-1
"""The same with fewer than 8 bits: each product of such weights is off by a tenth."""

_BYTE: Final = 8

GAIN: Final = 16.0
"""How many times the distance of its inputs an operator's output inherits; beyond, it amplifies."""

TIED: Final = 1 / 16
"""Share of ids, or of the squares of elements that are given or taken, that agreeing inputs may change."""

DISCONTINUOUS: Final = frozenset(
    {
        *("MaxPoolGrad", "MaxPool1DGrad", "MaxPool3DGrad", "MaxPoolGradWithArgmax", "MaxUnpool"),
        *("ReluGrad", "ReLU6Grad", "ReduceMaxGrad", "MinimumGrad", "MaximumGrad", "FakeQuantPerLayer"),
        *("Floor", "Ceil", "Round", "Rint", "Trunc", "Sign", "Mod", "FloorMod", "FloorDiv"),
        *("Shrink", "HShrink", "ThresholdedRelu"),
    }
)
"""Types whose real numbers jump where an input passes an edge: a difference far within the limits decides."""

NONEXPANSIVE: Final = frozenset(
    {
        *("Add", "AddV2", "Sub", "BiasAdd", "AddN", "Neg", "Abs", "ReLU", "ReLU6", "LeakyReLU", "Maximum"),
        *("Minimum", "Clip", "ClipByValue", "Sigmoid", "Tanh", "Softmax", "Sin", "Cos", "ReduceMean", "Mean"),
        *("AvgPool", "AvgPool1D", "AvgPool3D", "AdaptiveAvgPool2D", "AdaptiveAvgPool3D"),
        *("ReduceMax", "ReduceMin", "HSigmoid", "Softsign", "SoftShrink"),
        *("Slice", "StridedSlice", "Split", "Gather", "GatherD", "GatherNd", "Compress", "PadV3", "Concat"),
        *("Mod", "FloorMod"),
    }
)
"""Types whose output moves no further than their inputs together, in absolute numbers.

Where the output is small beside the inputs, as a difference of nearly equal tensors or a part of a tensor is,
its relative distance means nothing. Broadcast inputs move more elements than they have; their distance counts
less, not more."""

BOUNDED: Final = NONEXPANSIVE - {"Mod", "FloorMod", "Gather", "GatherD", "GatherNd", "Compress", "Sin", "Cos"}
"""Types with elements that are off by no more than those of the inputs: a larger error is their own."""

SUMS: Final = frozenset({"ReduceSum", "ReduceSumD", "SumExt", "BiasAddGrad"})
"""Types whose outputs are sums of elements, which may cancel to nothing but rounding."""

SOFTMAX: Final = frozenset({"Softmax", "SoftmaxV2"})
"""Types that turn every very low element into zero."""

TO_SOFTMAX: Final = frozenset(
    {
        *("Add", "AddN", "AddV2", "Sub", "Select", "SelectV2", "Where", "MaskedFill", "Maximum"),
        *("Cast", "TransData", "Identity", "Load", "Depend", "Reshape", "Transpose", "Squeeze", "Unsqueeze"),
        *("ExpandDims", "Flatten", "BroadcastTo", "Expand", "Tile", "Slice", "StridedSlice", "Split"),
        *("Concat", "ConcatD", "Gather", "GatherV2", "GatherD", "GatherNd", "Tril", "Triu", "Trilu"),
    }
)
"""Types between an attention mask and the softmax: a very low element stays very low or is left out."""

PRODUCTS: Final = frozenset(
    {"MatMul", "MatMulV2", "BatchMatMul", "BatchMatMulV2", "Dense", "Conv1D", "Conv2D", "Conv3D"}
)
"""Types whose outputs are sums of products of their first two inputs."""

VALUE_SHAPED: Final = frozenset(
    {"NonMaxSuppression", "NonMaxSuppressionV3", "NonZero", "Unique", "UniqueConsecutive", "NMSWithMask"}
)
"""Types whose output has as many elements as real numbers that they read select."""

DIFFERENCES: Final = frozenset({"Elu", "Selu", "SeLU", "Celu", "CeLU"})
"""Types whose kernels take 1 from an exponential: however small the result, it has the precision of 1."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of agreement."""

    cosine: float = COSINE  # least cosine similarity
    distance: float | None = None  # largest relative Euclidean distance, None: by the element type
    explanation: str = ""  # cause of that distance, "8 bits"; "" if the user set it
    # coarsest element type that a side computes in, from the first operator on; "": the tensors decide
    precision: str = ""
    peak: float = PEAK  # largest allowed difference of an element, in multiples of the allowed distance
    # largest distance of an output that agreeing inputs explain, in multiples of their distance
    growth: float = GROWTH
    # largest distance of an output that is inherited, in multiples of the inputs' distance
    gain: float = GAIN
    types: Mapping[str, TypeLimits] = field(default_factory=lambda: TYPES)  # limits by element type
    # largest relative difference of a statistic by category; others are limited as tensors are
    statistics: Mapping[str, float] = field(default_factory=dict)

    @property
    def explained(self) -> str:
        """Beginning of a sentence on a distance that the limits explain.

        >>> Limits().explained, Limits(distance=0.1).explained
        ('the limit of rounding is', 'the given limit is')
        """
        if self.distance is None:
            return "the limit of rounding is"
        return f"the limit of {self.explanation} is" if self.explanation else "the given limit is"

    def of_bits(self, bits: int, reason: str) -> tuple[Limits, str]:
        """Return the limits of two models with other numbers of so few bits, and a sentence on them."""
        distance = FEW_BITS if bits < _BYTE else QUANTISED
        wider = replace(self, distance=distance, explanation=f"{bits} bits")
        return wider, f"{reason}: the limit of the relative distance is {distance:g} (--distance)"

    def allowed(self, dtypes: Iterable[str], coarsest: str) -> float | None:
        """Return the largest allowed distance of two tensors, None if they must be the same.

        >>> Limits().allowed(("float32", "float16"), ""), Limits().allowed(("int32", "int32"), "float16")
        (0.00390625, None)

        Args:
            dtypes: Their element types.
            coarsest: The coarsest type that they may have been computed from, "" for none.
        """
        if self.distance is not None:
            return self.distance
        # Types that are not rounded have to be the same, whatever they were computed from.
        own = coarser(*dtypes)
        return self.types[coarser(own, coarsest)].distance if own else None

    def units(self, dtypes: Iterable[str]) -> float:
        """Return how many units of the last place the elements of two tensors may differ."""
        own = coarser(*dtypes)
        return self.types[own].ulps if own else 0.0

    def floor(self, dtypes: Iterable[str], op_type: str = "") -> float:
        """Return the absolute difference that rounding explains between elements of any size.

        The subnormal numbers of a type are equally spaced: half their spacing, times the allowed units of the
        last place.

        >>> Limits().floor(("float32", "float16")) == 2.0**-24
        True

        Args:
            dtypes: Types that the elements have, or were computed in.
            op_type: Type of the operator, if each side ran a kernel of another type; "": the same kernel.
        """
        own = coarser(*dtypes)
        if not own:
            return 0.0
        return self.types[own].ulps * (epsilon(own) if op_type in DIFFERENCES else smallest(own) / 2)


_KINDS: Final = {
    "float": "float",
    "bfloat": "float",
    "complex": "complex",
    "int": "int",
    "uint": "int",
    "bool": "bool",
}
_MOST_BITS: Final = 16
"""Bits of the widest integers that a scale divides real numbers into; wider ones count or name things."""


def kind(dtype: str) -> str:
    """Return the kind of numbers of an element type, "" of an unknown one.

    >>> kind("bfloat16"), kind("uint8"), kind("bool"), kind("99")
    ('float', 'int', 'bool', '')
    """
    return next((each for prefix, each in _KINDS.items() if dtype.startswith(prefix)), "")


def steps_of(dtype: str) -> int:
    """Return the number of intervals into which an integer type of few bits divides a range; else 0.

    >>> steps_of("uint8"), steps_of("int16"), steps_of("int64")
    (255, 65535, 0)
    """
    bits = dtype.removeprefix("u").removeprefix("int")
    return (1 << int(bits)) - 1 if bits.isdecimal() and int(bits) <= _MOST_BITS else 0


@cache
def smallest(dtype: str) -> float:
    """Return the smallest subnormal number of a rounded type; of a complex type, that of its parts."""
    if dtype == TENSOR_FLOAT:  # only inputs of products are rounded, and keep float32's range
        dtype = "float32"
    return float(_numbers(dtype).smallest_subnormal)


@cache
def epsilon(dtype: str) -> float:
    """Return the distance from 1 to the next number of a rounded type; of a complex type, of its parts."""
    return float(_numbers(dtype).eps)


def _numbers(dtype: str) -> Any:
    if dtype == TENSOR_FLOAT:  # the spacing of its numbers is float16's
        dtype = "float16"
    numbers = element_types.from_name(dtype).numpy
    if numbers.kind == "c":
        numbers = np.dtype(f"f{numbers.itemsize // 2}")
    return ml_dtypes.finfo(numbers)  # type: ignore[no-untyped-call]


@cache
def coarser(*dtypes: str) -> str:
    """Return the coarsest of several element types, "" if no type among them is rounded.

    >>> coarser("float32", "float16", "int8"), coarser("int32")
    ('float16', '')
    """
    return max((dtype for dtype in dtypes if dtype in TYPES), key=_COARSENESS.__getitem__, default="")


# By the distances of TYPES, not by limits that a user sets; types with equal ones in the order of TYPES.
_COARSENESS: Final = {name: (limits.distance, -place) for place, (name, limits) in enumerate(TYPES.items())}


_NUMBERS: Final = ("cosine", "distance", "peak", "growth", "gain")
_OF_TYPE: Final = tuple(each.name for each in fields(TypeLimits) if each.name != "source")


def read_limits(path: str) -> Limits:
    """Return the limits of a file; keys that it lacks keep their defaults.

        {"cosine": 0.99, "growth": 8, "types": {"float16": {"distance": 0.01}}, "statistics": {"max": 0.001}}

    Raises:
        ToolError: The file cannot be read, or a key or value is not allowed.
    """
    try:
        settings = read_json(path)
    except DumpReadError as error:
        raise ToolError(ReturnCode.PATH, str(error)) from error
    file = _LimitsFile(path)
    file.check_keys("$", settings, (*_NUMBERS, "precision", "types", "statistics"))
    precision = settings.get("precision", "")
    if precision:
        file.check_choice("$.precision", precision, TYPES)
    types = settings.get("types", {})
    statistics = file.numbers("$.statistics", settings.get("statistics", {}), BY_CATEGORY)
    file.check_keys("$.types", types, TYPES)
    own = {
        name: replace(TYPES[name], source=path, **file.numbers(f"$.types.{name}", types[name], _OF_TYPE))
        for name in types
    }
    limits = Limits(precision=precision, types={**TYPES, **own}, statistics=statistics)
    numbers = {key: file.number(f"$.{key}", settings[key]) for key in _NUMBERS if key in settings}
    return replace(limits, **numbers)  # type: ignore[arg-type]  # mypy takes the keys for any of its fields


class _LimitsFile:
    """Checks the values of a file; errors name the file and the place in it."""

    def __init__(self, path: str) -> None:
        self._path = path

    def check_keys(self, place: str, settings: Any, allowed: Iterable[str]) -> None:
        if not isinstance(settings, dict):
            raise self._fault(place, f"is {settings!r}, but must be an object")
        for key in settings:
            self.check_choice(place, key, allowed)

    def check_choice(self, place: str, name: Any, allowed: Iterable[str]) -> None:
        names = [*allowed]
        if name not in names:
            near = difflib.get_close_matches(str(name), names, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise self._fault(place, f"{name!r} is not one of {', '.join(names)}{hint}")

    def number(self, place: str, value: Any) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value < math.inf:
            raise self._fault(place, f"is {value!r}, but must be a number of at least 0")
        return float(value)

    def numbers(self, place: str, settings: Any, allowed: Iterable[str]) -> dict[str, float]:
        self.check_keys(place, settings, allowed)
        return {key: self.number(f"{place}.{key}", settings[key]) for key in settings}

    def _fault(self, place: str, fault: str) -> ToolError:
        return ToolError(ReturnCode.PARAMETER, f"{self._path}: {place}: {fault}")
