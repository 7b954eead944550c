"""How an operator is computed in float64, and how far a kernel of a narrower type may be from it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray


@dataclass(frozen=True, slots=True)
class Call:
    """One standard operator with its inputs.

    Attributes:
        inputs: Arrays by slot, every floating point one in float64; None for one that is absent.
        attributes: Its attributes.
        opset: Version of ai.onnx.
        outputs: How many outputs are asked for.
    """

    inputs: Sequence[Array | None]
    attributes: Mapping[str, Any]
    opset: int
    outputs: int = 1

    def __getitem__(self, slot: int) -> Array:
        """Return an input that must be there."""
        array = self.inputs[slot]
        assert array is not None
        return array

    def optional(self, slot: int) -> Array | None:
        """Return an input, None for an absent one."""
        return self.inputs[slot] if slot < len(self.inputs) else None

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute, or its default."""
        return self.attributes.get(name, default)


class Kind(enum.Enum):
    """What rounding does to an operator's results."""

    EXACT = enum.auto()
    """Nothing: elements are moved, chosen or compared, and every right kernel gives the same."""
    ROUNDED = enum.auto()
    """The exact result is rounded once."""
    LINEAR = enum.auto()
    """Sums of products, whose terms are rounded and added in any order."""
    SMOOTH = enum.auto()
    """Approximations, and results that are made in several steps."""


def one(_call: Call) -> float:
    """Return that a result depends on one element of each input."""
    return 1.0


def nothing(_call: Call) -> float:
    """Return that no larger numbers stand between the inputs and a result."""
    return 0.0


@dataclass(frozen=True, slots=True)
class Definition:
    """One operator.

    Attributes:
        compute: Returns the outputs of a call.
        kind: What rounding does to them.
        terms: Returns how many elements of the inputs a result is made of.
        disturbed: How many of the inputs, from the first on, hold data; those behind steer, as scales do.
        between: Returns the magnitudes of what kernels take the result for the difference of; 0: of nothing
            that is larger than it.
    """

    compute: Callable[[Call], tuple[Array, ...]]
    kind: Kind
    terms: Callable[[Call], float] = one
    disturbed: int | None = None
    between: Callable[[Call], Array | float] = nothing
