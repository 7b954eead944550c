"""Matrix products and reductions in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from msdump.execute.operators.float64.definitions import Array, Call, Definition, Kind

_AXES_ARE_INPUTS: Final = {"ReduceSum": 13}
_AXES_ARE_INPUTS_SINCE: Final = 18


def _gemm(call: Call) -> tuple[Array]:
    a, b = (
        call[slot].T if call.attribute(name, 0) else call[slot]
        for slot, name in enumerate(("transA", "transB"))
    )
    y = call.attribute("alpha", 1.0) * (a @ b)
    c = call.optional(2)
    return (y if c is None else y + call.attribute("beta", 1.0) * c,)


def _gemm_terms(call: Call) -> float:
    return float(call[0].shape[0 if call.attribute("transA", 0) else 1])


def _einsum(call: Call) -> tuple[Array]:
    operands = [call[slot] for slot in range(len(call.inputs))]
    return (np.asarray(np.einsum(call.attribute("equation"), *operands, optimize=True)),)


def _einsum_terms(call: Call) -> float:
    return float(max(call[slot].size for slot in range(len(call.inputs))) ** 0.5)


def _axes(call: Call, since: int) -> tuple[int, ...] | None:
    """Return the axes that are reduced, None for none."""
    axes: Any = call.attribute("axes") if call.opset < since else call.optional(1)
    if axes is None or len(axes) == 0:
        rank = call[0].ndim
        return None if call.attribute("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(int(axis) for axis in np.asarray(axes).reshape(-1))


Reduce = Callable[..., Array]


def _reduction(name: str, reduce: Reduce) -> tuple[Callable[[Call], tuple[Array]], Callable[[Call], float]]:
    since = _AXES_ARE_INPUTS.get(name, _AXES_ARE_INPUTS_SINCE)

    def compute(call: Call) -> tuple[Array]:
        axes = _axes(call, since)
        if axes is None:
            return (call[0],)
        return (np.asarray(reduce(call[0], axis=axes, keepdims=bool(call.attribute("keepdims", 1)))),)

    def terms(call: Call) -> float:
        return float(math.prod(call[0].shape[axis] for axis in _axes(call, since) or ()))

    return compute, terms


def _logarithm_of_sum(x: Array, **how: Any) -> Array:
    most = np.max(x, axis=how["axis"], keepdims=True)
    total = np.log(np.sum(np.exp(x - most), **how))
    return np.asarray(total + (most if how["keepdims"] else most.squeeze(how["axis"])))


_REDUCTIONS: Final[Mapping[str, tuple[Reduce, Kind]]] = {
    "ReduceSum": (np.sum, Kind.LINEAR),
    "ReduceMean": (np.mean, Kind.LINEAR),
    "ReduceL1": (lambda x, **how: np.sum(np.abs(x), **how), Kind.LINEAR),
    "ReduceMax": (np.max, Kind.EXACT),
    "ReduceMin": (np.min, Kind.EXACT),
    "ReduceProd": (np.prod, Kind.SMOOTH),
    "ReduceL2": (lambda x, **how: np.sqrt(np.sum(x * x, **how)), Kind.SMOOTH),
    "ReduceSumSquare": (lambda x, **how: np.sum(x * x, **how), Kind.SMOOTH),
    "ReduceLogSum": (lambda x, **how: np.log(np.sum(x, **how)), Kind.SMOOTH),
    "ReduceLogSumExp": (_logarithm_of_sum, Kind.SMOOTH),
}


def _rule(name: str) -> Definition:
    reduce, kind = _REDUCTIONS[name]
    compute, terms = _reduction(name, reduce)
    return Definition(compute, kind, terms)


DEFINITIONS: Final[Mapping[str, Definition]] = {
    "MatMul": Definition(
        lambda call: (np.asarray(call[0] @ call[1]),), Kind.LINEAR, lambda call: float(call[0].shape[-1])
    ),
    "Gemm": Definition(_gemm, Kind.LINEAR, _gemm_terms),
    "Einsum": Definition(_einsum, Kind.LINEAR, _einsum_terms),
    **{name: _rule(name) for name in _REDUCTIONS},
}
"""Operators that add up products, or the elements along axes."""
