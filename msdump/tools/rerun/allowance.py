"""How far an output may be from float64 by rounding alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump.dtypes import DType
from msdump.execute.operators.float64.conversions import doubled
from msdump.execute.operators.float64.noise import SINGLE, Noise
from msdump.graph.kernel.emulation import FLOAT32, HALVES
from msdump.tools.judge import errors
from msdump.tools.judge.errors import TensorError
from msdump.tools.rerun.arithmetic import FLOORS, UNITS, Arithmetic
from msdump.tools.rerun.compiled_model import ModelOperator
from msdump.tools.rerun.elements import in_type, narrower
from msdump.tools.rerun.runners import Runners
from msdump.tools.rerun.values import Given

_TRIALS: Final = 2
_OF_ALL: Final = 3
"""By how much the norm of the error may exceed that of the noise."""

_OF_ONE: Final = 12
"""By how much the error of one element may exceed the noise at its place, or the noise of most elements."""

_FAITHFUL: Final = 8
"""Units of its type by which an operator may be off that cannot run in float64."""


@dataclass(frozen=True, slots=True)
class Residue:
    """What is left of an output's error when it is beside float64.

    Attributes:
        error: How far the output is from float64.
        allowed: Relative distance that rounding explains.
        is_explained: Whether the error is no more than that, in all elements and in each.
        note: What the numbers do not tell.
        finite: Relative distance of the elements that are finite on both sides, where others are not and
            rounding does not explain it; else 0.
    """

    error: TensorError
    allowed: float
    is_explained: bool
    note: str = ""
    finite: float = 0.0


class Allowance:
    """Judges the outputs of one operator by float64."""

    def __init__(self, runners: Runners, site: ModelOperator, given: Given, arithmetic: Arithmetic) -> None:
        """Run the operator in float64, once exactly and a few times with noise of the size of rounding.

        Args:
            runners: What runs it.
            site: The operator.
            given: What it read.
            arithmetic: What the examined side computed in.

        Raises:
            MsdumpError: It cannot run in float64.
        """
        types = list(_types(site, arithmetic))
        unit = max(UNITS[name] for name in types)
        floor = max(FLOORS[name] for name in types)
        self._unit = unit
        self._exact = runners.exact(site, given, arithmetic)
        trials = [
            runners.exact(site, given, arithmetic, Noise(unit, min(unit, SINGLE), floor, seed))
            for seed in range(_TRIALS)
        ]
        self._noise = [_spread(exact, each) for exact, *each in zip(self._exact, *trials, strict=True)]

    def explain(self, slot: int, dumped: np.ndarray, dtype: DType) -> Residue | None:
        """Return what rounding explains of an output's error; None where float64 has no such output.

        Args:
            slot: Number of the output.
            dumped: The output.
            dtype: Its element type on the device.
        """
        exact, noise = self._exact[slot], self._noise[slot]
        if exact is None or noise is None or exact.size != dumped.size:
            return None
        exact, noise = exact.reshape(dumped.shape), noise.reshape(dumped.shape)
        if exact.dtype.kind != "f":
            error = errors.measure(dumped, exact.astype(dumped.dtype))
            # what noise changes hangs on the last bit of a comparison or of a number that is truncated
            is_explained = not np.any((dumped != exact) & (noise == 0))
            return Residue(error, 0.0, is_explained)
        exact = _as_held(exact, dtype)
        error = errors.measure(dumped, exact)
        noise = noise + FLOORS.get(dtype.name, 0.0)
        if gap := _gap(dtype, self._unit):
            noise += gap * np.abs(exact)
        return self._weighed(error, doubled(dumped), exact, noise)

    @staticmethod
    def _weighed(error: TensorError, dumped: np.ndarray, exact: np.ndarray, noise: np.ndarray) -> Residue:
        finite = np.isfinite(dumped) & np.isfinite(exact) & np.isfinite(noise)
        difference = np.abs(dumped[finite] - exact[finite])
        distance = float(np.linalg.norm(difference))
        noise = noise[finite]
        size = float(np.linalg.norm(exact[finite]))
        typical = float(np.linalg.norm(noise)) / max(np.sqrt(noise.size), 1)
        allowed = _OF_ALL * float(np.linalg.norm(noise))
        is_near = distance <= allowed
        is_each = bool(np.all(difference <= _OF_ONE * (noise + typical)))
        # an element at the very edge of the type's range may be infinite on one side
        is_placed = not error.misplaced
        relative = allowed / size if size else np.inf
        apart = distance / size if size and not (is_placed or (is_near and is_each)) else 0.0
        return Residue(error, relative, is_near and is_each and is_placed, finite=apart)


def _as_held(exact: np.ndarray, dtype: DType) -> np.ndarray:
    """Return exact values, infinite where the type of the output cannot hold them."""
    if dtype not in (*HALVES, FLOAT32):
        return exact
    held = doubled(in_type(exact, dtype))
    return np.where(np.isinf(held), held, exact)


def _gap(dtype: DType, unit: float) -> float:
    """Return the relative error of bringing a result to the type of its file, where that adds to the unit."""
    own = UNITS.get(dtype.name, 0.0)
    return own if own > unit else 0.0


def _types(site: ModelOperator, arithmetic: Arithmetic) -> Iterator[str]:
    """Yield the names of the types to which an operator rounds its results, float32 at least."""
    node, graph = site.node, site.graph
    declared = [graph.type_of(name).dtype for name in node.outputs if name]
    floats = [dtype for dtype in declared if dtype is not None and dtype.name in UNITS]
    coarsest = floats[0] if floats else FLOAT32
    for dtype in floats[1:]:
        coarsest = narrower(coarsest, dtype)
    yield coarsest.name
    roundings = arithmetic.roundings(node) or ()
    yield from (each.writes.name for each in roundings)
    # between the parts of a kernel what is read is rounded, too, and may fall to the other side
    yield from (each.reads.name for each in roundings[1:])


def _spread(exact: np.ndarray | None, trials: list[np.ndarray | None]) -> np.ndarray | None:
    """Return how far the trials lie from the exact values, the largest for each element."""
    if exact is None or any(trial is None for trial in trials):
        return None
    with np.errstate(all="ignore"):
        if exact.dtype.kind != "f":
            return np.asarray(np.any([trial != exact for trial in trials], axis=0))
        return np.asarray(np.max([np.abs(trial - exact) for trial in trials if trial is not None], axis=0))


def faithful(error: TensorError, dtype: DType) -> Residue:
    """Return what rounding explains of an error where the operator cannot run in float64."""
    allowed = _FAITHFUL * UNITS.get(dtype.name, 0.0)
    is_near = error.ulps <= _FAITHFUL or error.scaled <= allowed  # sums may cancel
    is_relative = error.distance <= allowed and is_near
    is_explained = is_relative or error.largest <= _FAITHFUL * FLOORS.get(dtype.name, 0.0)
    return Residue(error, allowed, is_explained, "cannot run in float64")
