"""The update of the parameters: the part of a training step between the gradients and the new variables."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from msdump.training.accumulation import Accumulation
from msdump.training.clipping import Clipping
from msdump.training.data_parallel import DataParallel
from msdump.training.optimizers import Optimizer, Trained, TrainedParameter, Variables
from msdump.training.overflow_check import OverflowCheck
from msdump.training.tape import op
from msdump.training.writer import ROOT, Place


@dataclass(frozen=True, slots=True)
class Update:
    """The update of the parameters: the part of a training step between scaled gradients and new variables.

    Its parts follow one another: mean over ranks, check for overflow, accumulation, clipping, optimizer. Loss
    scales write the products and the condition between them.

    Attributes:
        optimizer: Updates the parameters.
        parallel: Mean of the gradients over all ranks; None: one rank.
        state: Adds a variable to the step, by name and first value.
        normalizing: Names of scales and shifts of normalisations.
        check: Detects overflows of gradients.
        accumulation: Collects the gradients of several steps; None: each step has an update.
        clipping: Limits the gradients that the optimizer takes; None: no limit.
    """

    optimizer: Optimizer
    parallel: DataParallel | None
    state: Variables
    normalizing: Collection[str]
    check: OverflowCheck
    accumulation: Accumulation | None = None
    clipping: Clipping | None = None

    @property
    def place(self) -> Place:
        """The optimizer's scope."""
        return ROOT.inside(("optimizer", self.optimizer.cell))

    def reduced(self, trained: Trained) -> Trained:
        """Write the mean of the gradients over all ranks; return the parameters with it."""
        return trained if self.parallel is None else self.parallel.write(trained)

    def write(self, trained: Trained) -> None:
        """Write the operators behind the check for overflow, the optimizer's last."""
        if self.accumulation is None:
            self._optimize(trained)
        else:
            with op.at(ROOT):
                self.accumulation.write(trained, self.state, self._optimize)

    def _optimize(self, trained: Trained) -> None:
        if self.clipping is not None:
            with op.at(ROOT):
                trained = self.clipping.write(trained)
        parameters = [TrainedParameter(item, dy, item.name in self.normalizing) for item, dy in trained]
        with op.at(self.place):
            self.optimizer.write(parameters, self.state)
