"""The optimizers of a training step, under MindSpore's class names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msdump.training import options
from msdump.training.optimizers.adam import Adam, AdamWeightDecay
from msdump.training.optimizers.momentum import SGD, Momentum
from msdump.training.optimizers.parameters import Optimizer, Trained, TrainedParameter

__all__ = [
    "OPTIMIZERS",
    "SGD",
    "Adam",
    "AdamWeightDecay",
    "Momentum",
    "Optimizer",
    "Trained",
    "TrainedParameter",
    "optimizer_of",
]

OPTIMIZERS: Final[Mapping[str, Callable[..., Optimizer]]] = {
    "sgd": SGD,
    "momentum": Momentum,
    "adam": Adam,
    "adamw": AdamWeightDecay,
}
"""By the name that ``--optimizer`` takes."""


def optimizer_of(text: str | Optimizer) -> Optimizer:
    """Return an optimizer by its name and options, ``momentum:0.01,0.9`` or ``adamw:0.001,weight_decay=0.1``.

    Raises:
        InputError: An unknown name or option, or a value that an option does not take.
    """
    return options.parsed(text, OPTIMIZERS, "optimizer") if isinstance(text, str) else text
