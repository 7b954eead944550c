"""Metrics of an evaluation: MindSpore's ``loss`` and ``accuracy``, and objects like them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

import numpy as np

from msdump.errors import InputError, name_hint


class Metric(Protocol):
    """Collects a number over the batches of an evaluation."""

    def clear(self) -> None:
        """Forget all batches."""

    def update(self, *values: Any) -> None:
        """Take the scores and the labels of a batch; the metric ``loss`` takes the loss."""

    def eval(self) -> Any:
        """Return the number."""


class MeanLoss:
    """The mean of the losses of all batches, MindSpore's ``Loss``."""

    def __init__(self) -> None:
        """Begin without batches."""
        self.clear()

    def clear(self) -> None:
        """Forget all batches."""
        self._losses: list[float] = []

    def update(self, *values: Any) -> None:
        """Take the loss of a batch."""
        self._losses.append(float(np.mean(values[0])))

    def eval(self) -> float:
        """Return the mean."""
        return float(np.mean(self._losses))


class Accuracy:
    """The share of samples whose highest score is that of their label, MindSpore's ``Accuracy``."""

    def __init__(self) -> None:
        """Begin without batches."""
        self.clear()

    def clear(self) -> None:
        """Forget all batches."""
        self._right, self._count = 0, 0

    def update(self, *values: Any) -> None:
        """Take scores (n, classes) and labels (n), or (n, classes) with a 1 at the label."""
        scores, labels = (np.asarray(value) for value in values)
        expected = labels.argmax(-1) if labels.ndim == scores.ndim else labels
        found = scores.argmax(-1)
        self._right += int((found == expected).sum())
        self._count += found.size

    def eval(self) -> float:
        """Return the share."""
        return self._right / self._count


LOSS: Final = "loss"
"""The one metric that is given the loss."""

METRICS: Final[Mapping[str, Callable[[], Metric]]] = {LOSS: MeanLoss, "accuracy": Accuracy, "acc": Accuracy}
"""By the name that ``Model`` takes."""


def metrics_of(choice: Mapping[str, Metric] | Iterable[str] | None) -> dict[str, Metric]:
    """Return metrics by name.

    Args:
        choice: Names of metrics, or metrics by name.

    Raises:
        InputError: An unknown name.
    """
    if choice is None:
        return {}
    if isinstance(choice, Mapping):
        return dict(choice)
    names = list(choice)
    for name in names:
        if name not in METRICS:
            raise InputError(
                f"Model: unknown metric {name!r}: allowed are {', '.join(METRICS)}{name_hint(name, METRICS)}"
            )
    return {name: METRICS[name]() for name in sorted(names)}
