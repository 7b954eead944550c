"""Runs of the emulated device with some operators kept, from the first one that a change touches."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from msdump.errors import InputError
from msdump.tools.advise.variants import Values, Variants
from msdump.tools.judge.errors import measure

_CUTS: Final = 24  # places of a network at which a run can be taken up again
_CUT_BYTES: Final = 256 << 20  # of values that are kept at them, for all inputs


Truth = Callable[[Values], Values]
"""Returns the outputs, by name, that are right for inputs."""


@dataclass(frozen=True, slots=True)
class Example:
    """One input of the network, and the truth for it.

    Attributes:
        name: What messages call it: a file, or how it was made up.
        feeds: The inputs by name, as they are fed.
        golden: The true outputs, by name.
    """

    name: str
    feeds: Values
    golden: Values


@dataclass(slots=True)
class _Cut:
    """Where a run can be taken up again.

    Attributes:
        kept: What was kept before it.
        values: What is still needed there.
    """

    kept: frozenset[int]
    values: Values


@dataclass(slots=True)
class DeviceRuns:
    """Measures how far the device's outputs are from the truth when some operators are kept.

    Attributes:
        variants: The network.
        examples: The inputs.
        cuts: Positions before which runs are taken up again.
        spent: Operators that ran so far.
    """

    variants: Variants
    examples: list[Example]
    cuts: tuple[int, ...] = ()
    spent: int = 0
    _saved: dict[tuple[int, int], _Cut] = field(default_factory=dict)
    _saved_bytes: int = 0

    def __post_init__(self) -> None:
        """Spread the places at which runs are taken up again over the network."""
        count = len(self.variants.graph.nodes)
        step = max(1, count // _CUTS)
        self.cuts = self.cuts or tuple(range(step, count, step))

    def errors(self, example: int, kept: frozenset[int]) -> dict[str, float]:
        """Return the error of every output of one input.

        Args:
            example: Index of the input.
            kept: Positions of the operators that are kept.
        """
        golden = self.examples[example].golden
        outputs = self._outputs(example, kept)
        return {name: distance(outputs[name], array) for name, array in golden.items()}

    def worst(self, kept: frozenset[int], enough: float = math.inf) -> float:
        """Return the largest error of any output of any input; stop at the first one above a bound."""
        worst = 0.0
        for example in range(len(self.examples)):
            worst = max(worst, *self.errors(example, kept).values())
            if not worst <= enough:
                break
        return worst

    def _outputs(self, example: int, kept: frozenset[int]) -> Values:
        start, values = self._begin(example, kept)
        outputs = {value.name for value in self.variants.graph.outputs}
        for position in range(start, len(self.variants.graph.nodes)):
            if position in self.cuts:
                self._save(example, position, kept, values)
            values |= self.variants.run(position, values, is_kept=position in kept)
            self.spent += 1
            for name in self.variants.dead[position]:
                if name not in outputs:
                    values.pop(name, None)
        return values_of(self.variants, outputs, values)

    def _begin(self, example: int, kept: frozenset[int]) -> tuple[int, Values]:
        for position in reversed(self.cuts):
            cut = self._saved.get((example, position))
            if cut is not None and cut.kept == _before(kept, position):
                return position, dict(cut.values)
        return 0, dict(self.examples[example].feeds)

    def _save(self, example: int, position: int, kept: frozenset[int], values: Values) -> None:
        replaced = self._saved.pop((example, position), None)
        self._saved_bytes -= nbytes(replaced.values) if replaced is not None else 0
        size = nbytes(values)
        if self._saved_bytes + size <= _CUT_BYTES:
            self._saved[example, position] = _Cut(_before(kept, position), dict(values))
            self._saved_bytes += size


def golden(name: str, feeds: Values, truth: Truth) -> Example:
    """Return an input with the true outputs for it.

    Raises:
        InputError: They are not finite: nothing can be near them.
    """
    outputs = truth(feeds)
    for output, array in outputs.items():
        count = int(np.size(array) - np.isfinite(array).sum()) if _is_float(array) else 0
        if count:
            raise InputError(
                f"{name}: on the golden side, output {output!r} has NaN or infinity in {count} of"
                f" {np.size(array)} elements: no precision of the other side brings anything near them"
            )
    return Example(name, feeds, outputs)


def values_of(variants: Variants, names: Collection[str], values: Mapping[str, Any]) -> Values:
    """Return some values of a run; a graph may hand its weights and inputs on as outputs."""
    weights = variants.graph.weights
    return {name: values[name] if name in values else weights[name] for name in names}


def distance(mine: Any, golden: Any) -> float:
    """Return how far an output is from the truth.

    Of floating-point tensors the norm of the difference, divided by the norm of the truth; of others the
    share of elements that differ; infinite where NaN or infinities stand in other places.
    """
    if not isinstance(golden, np.ndarray) or not isinstance(mine, np.ndarray) or mine.shape != golden.shape:
        return 0.0 if mine is golden else math.inf
    if not _is_float(golden):
        return float(np.mean(mine != golden)) if golden.size else 0.0
    error = measure(mine, golden)
    return 0.0 if error.is_same else float(error.distance)


def nbytes(values: Mapping[str, Any]) -> int:
    """Return the bytes of the arrays among some values."""
    return sum(array.nbytes for array in values.values() if isinstance(array, np.ndarray))


def _before(kept: frozenset[int], position: int) -> frozenset[int]:
    return frozenset(each for each in kept if each < position)


def _is_float(array: Any) -> bool:
    return isinstance(array, np.ndarray) and (array.dtype.kind == "f" or "float" in array.dtype.name)
