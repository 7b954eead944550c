"""The update of the parameters: the part of a training step between the gradients and the new variables."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from msdump.training.data_parallel import DataParallel
from msdump.training.optimizers import Optimizer, Trained, TrainedParameter, Variables
from msdump.training.overflow_check import OverflowCheck
from msdump.training.tape import op
from msdump.training.writer import ROOT, Place


@dataclass(frozen=True, slots=True)
class Update:
    """The optimizer's update: the part of a training step between scaled gradients and new variables.

    Attributes:
        optimizer: Updates the parameters.
        parallel: Mean of the gradients over all ranks; None: one rank.
        state: Adds a variable to the step, by name and first value.
        normalizing: Names of scales and shifts of normalisations.
        check: Detects overflows of gradients.
    """

    optimizer: Optimizer
    parallel: DataParallel | None
    state: Variables
    normalizing: Collection[str]
    check: OverflowCheck

    @property
    def place(self) -> Place:
        """The optimizer's scope."""
        return ROOT.inside(("optimizer", self.optimizer.cell))

    def reduced(self, trained: Trained) -> Trained:
        """Write the mean of the gradients over all ranks; return the parameters with it."""
        return trained if self.parallel is None else self.parallel.write(trained)

    def write(self, trained: Trained) -> None:
        """Write the optimizer's operators."""
        parameters = [TrainedParameter(item, dy, item.name in self.normalizing) for item, dy in trained]
        with op.at(self.place):
            self.optimizer.write(parameters, self.state)
