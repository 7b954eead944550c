"""Callbacks of ``Model.train`` that print: the loss, and a progress bar on a terminal."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Self

import numpy as np

from msdump.cli import messages
from msdump.errors import InputError


class LossMonitor:
    """Prints the loss at regular steps, with MindSpore's text."""

    def __init__(self, per_print_times: Any = 1) -> None:
        """Set the interval.

        Args:
            per_print_times: Steps between two lines.

        Raises:
            InputError: ``per_print_times`` is not an integer from 1.
        """
        if isinstance(per_print_times, bool) or not isinstance(per_print_times, int) or per_print_times < 1:
            raise InputError(
                f"LossMonitor: per_print_times = {per_print_times!r}: a number from 1 is expected"
            )
        self._every = per_print_times

    def step_end(self, run_context: Any) -> None:
        """Print the loss of a step; raise InputError, which ends the training, if the loss is not finite."""
        arguments = run_context.original_args()
        outputs = arguments.net_outputs
        loss = float(np.mean(outputs[0] if isinstance(outputs, (tuple, list)) else outputs))
        step = arguments.cur_step_num
        in_epoch = (step - 1) % arguments.batch_num + 1 if arguments.batch_num else step
        where = f"epoch: {arguments.cur_epoch_num} step: {in_epoch}"
        if not np.isfinite(loss):
            raise InputError(f"{where}. Invalid loss {loss}, terminating training.")  # MindSpore's words
        if step % self._every == 0:
            print(f"{where}, loss is {np.float32(loss)}")


class ProgressBar:
    """Shows the number of finished steps on a terminal."""

    def __init__(self) -> None:
        """Begin without a bar."""
        self._shown = ExitStack()
        self._advance: Callable[[], None] = lambda: None
        self._done = 0

    def __enter__(self) -> Self:
        """Reset the number of finished steps."""
        self._done = 0
        return self

    def __exit__(self, *error: object) -> None:
        """Remove the bar, also after a failed training."""
        self._shown.close()

    def begin(self, run_context: Any) -> None:
        """Show the bar if the number of steps is known."""
        arguments = run_context.original_args()
        if arguments.batch_num:
            total = arguments.epoch_num * arguments.batch_num
            self._advance = self._shown.enter_context(messages.bar("steps", total))

    def step_end(self, run_context: Any) -> None:
        """Advance by the steps since the last call."""
        steps = run_context.original_args().cur_step_num
        for _ in range(steps - self._done):
            self._advance()
        self._done = steps
