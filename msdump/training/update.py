"""The update of the parameters in a training step."""

from __future__ import annotations

from dataclasses import dataclass

from msdump.graph.primitives import op
from msdump.training.accumulation import Accumulation
from msdump.training.clipping import Clipping
from msdump.training.data_parallel import DataParallel
from msdump.training.overflow_check import OverflowCheck
from msdump.training.parameter_groups import Optimizers
from msdump.training.single_numbers import by_number
from msdump.training.variables import Trained, Variables
from msdump.training.writer import ROOT


@dataclass(frozen=True, slots=True)
class Update:
    """The update of the parameters: the part of a training step between scaled gradients and new variables.

    Its parts follow one another: mean over ranks, check for overflow, accumulation, clipping, optimizer. Loss
    scales write the products and the condition between them.

    Attributes:
        optimizers: Update the parameters.
        parallel: Mean of the gradients over all ranks; None: one rank.
        state: Adds a variable to the step, by name and first value.
        check: Detects overflows of gradients.
        accumulation: Collects the gradients of several steps; None: each step has an update.
        clipping: Limits the gradients that the optimizer takes; None: no limit.
    """

    optimizers: Optimizers
    parallel: DataParallel | None
    state: Variables
    check: OverflowCheck
    accumulation: Accumulation | None
    clipping: Clipping | None

    def reduced(self, trained: Trained) -> Trained:
        """Write the mean of the gradients over all ranks; return the parameters with it."""
        return trained if self.parallel is None else self.parallel.write(trained)

    def write(self, trained: Trained, scale: float = 1.0) -> None:
        """Write the operators behind the check for overflow, the optimizers' last."""
        if scale != 1 and (self.accumulation or self.clipping):
            with op.at(ROOT):
                trained = [(item, by_number("Mul", gradient, 1 / scale)) for item, gradient in trained]
            scale = 1.0
        if self.accumulation is None:
            self._optimize(trained, scale)
        else:
            with op.at(ROOT):
                self.accumulation.write(trained, self.state, self._optimize)

    def _optimize(self, trained: Trained, scale: float = 1.0) -> None:
        if self.clipping is not None and trained:
            with op.at(ROOT):
                limit = self.clipping.write([gradient for _, gradient in trained])
                limited = {item.name: limit(gradient) for item, gradient in self.optimizers.in_order(trained)}
            trained = [(item, limited[item.name]) for item, _ in trained]
        self.optimizers.write(trained, self.state, scale)
