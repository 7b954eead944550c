"""Learning rates: one number, or one for each step, of all parameters or of a group of them.

Names and operators are as in MindSpore's ``Optimizer``: a list is a variable, of which each step gathers the
element with the number of the steps so far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from msdump.errors import InputError
from msdump.graph.primitives import op
from msdump.training import options
from msdump.training.variables import Variables
from msdump.training.writer import StepTensor

Rate = float | Sequence[float]
"""A learning rate, or the rates of the steps."""

RATE: Final = options.each(options.at_least(0.0))

COMMON: Final = "learning_rate"
"""Name of the variable of parameters in no group with a rate of its own."""


@dataclass(frozen=True, slots=True)
class LearningRate:
    """A learning rate, and the name of its variable."""

    name: str
    value: Rate


def write_rates(
    rates: Sequence[LearningRate], step: StepTensor, state: Variables
) -> Mapping[str, StepTensor]:
    """Write the operators of the learning rates of a step; return scalars by the names of the variables.

    Raises:
        InputError: Lists of different lengths.
    """
    names = [rate.name for rate in rates]
    arrays = {rate.name: np.array(rate.value, np.float32) for rate in rates}
    lengths = {array.size for array in arrays.values() if array.ndim}
    if len(lengths) > 1:
        raise InputError(
            f"lists of learning rates have {', '.join(map(str, sorted(lengths)))} elements: groups of one "
            "optimizer need lists of one length"
        )
    scalars: dict[str, StepTensor] = {}
    for name, array in arrays.items():
        variable = scalars[name] = state(name, array, is_input=True)
        place, cell = op.place, COMMON
        if set(names) != {COMMON}:
            # a list of cells, one for each parameter; equal ones are one, under the number of the first
            place, cell = place.inside((COMMON, "CellList")), str(names.index(name))
        if variable.rank:
            with op.at(place.inside((cell, "_IteratorLearningRate"))):
                element = op.Gather(variable, step, axis=0)
            scalars[name] = op.call("Reshape", element, like=element.shaped(()), shape=())
        elif lengths:  # vendor: a number beside lists is a schedule too, and may change in the last bit
            with op.at(place.inside((cell, "_ConvertToCell"))):
                scalars[name] = variable + 1.0 - 1.0
    return scalars
