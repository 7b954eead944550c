"""How far the result of a right kernel may be from the exact one, as noise of that size.

The errors of one operator are bounded as numerical analysis has it (Higham, Accuracy and Stability of
Numerical Algorithms, chapters 3 and 4; of sums with the square root of the number of terms, since errors
have both signs). What they become in the operators behind it, inside of a function or a fused kernel, is
measured: they are added with random signs (Monte Carlo arithmetic).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from msdump.execute.operators.float64.definitions import Array, Call, Definition, Kind

SINGLE: Final = 2.0**-24
"""Half the distance of float32 numbers around 1."""

_ROUNDINGS: Final = 3
"""Of a term of a sum: both factors and their product."""

_APPROXIMATION: Final = 4
"""Units by which a kernel's exponential, error function or tangent may be off; libraries promise 1 to 4."""

_PARTIAL: Final = 0.25
"""Share of the square root of terms that a mean or a variance is off by: partial sums are in registers."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Disturbs results by what rounding may do to them.

    Attributes:
        unit: Relative error of one rounding of a result: half the distance of its type's numbers around 1.
        inner: The same of the arithmetic between inputs and result.
        floor: Absolute error of one rounding of a result, however small it is: half the type's smallest
            subnormal number.
        seed: Of the signs.
    """

    unit: float = SINGLE
    inner: float = SINGLE
    floor: float = 0.0
    seed: int = 0
    _generator: np.random.Generator = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Begin with the first sign."""
        object.__setattr__(self, "_generator", np.random.default_rng(self.seed))

    def added(self, definition: Definition, call: Call, results: tuple[Array, ...]) -> tuple[Array, ...]:
        """Return results of an operator as a kernel might give them.

        Args:
            definition: The operator.
            call: What it was given.
            results: Its exact results.
        """
        match definition.kind:
            case Kind.EXACT:
                return results
            case Kind.ROUNDED:
                return tuple(self._disturbed(array, self._rounding(array)) for array in results)
            case Kind.LINEAR:
                return self._sums(definition, call, results)
            case Kind.SMOOTH:
                return self._steps(definition, call, results)

    def _sums(self, definition: Definition, call: Call, results: tuple[Array, ...]) -> tuple[Array, ...]:
        magnitudes = definition.compute(replace(call, inputs=[_magnitude(array) for array in call.inputs]))
        share = self.inner * (_ROUNDINGS + np.sqrt(definition.terms(call)))
        return tuple(
            self._disturbed(array, share * np.abs(size) + self._rounding(array))
            for array, size in zip(results, magnitudes, strict=True)
        )

    def _steps(self, definition: Definition, call: Call, results: tuple[Array, ...]) -> tuple[Array, ...]:
        share = self.inner * (1 + _PARTIAL * np.sqrt(definition.terms(call)))
        data = call.inputs[: definition.disturbed]
        inputs = [
            *(None if array is None else self._disturbed(array, share * np.abs(array)) for array in data),
            *call.inputs[len(data) :],
        ]
        moved = definition.compute(replace(call, inputs=inputs))
        own, between = _APPROXIMATION * self.inner, definition.between(call)
        return tuple(
            self._disturbed(other, own * (np.abs(array) + between) + self._rounding(array))
            for array, other in zip(results, moved, strict=True)
        )

    def _rounding(self, result: Array) -> Array:
        return np.asarray(self.unit * np.abs(result) + self.floor)

    def _disturbed(self, array: Array, size: Array) -> Array:
        if array.dtype.kind != "f":
            return array
        signs = self._generator.integers(0, 2, array.shape, dtype=np.int8) * 2 - 1
        return np.asarray(array + signs * size)


def _magnitude(array: Array | None) -> Array | None:
    return np.abs(array) if array is not None and array.dtype.kind == "f" else array
