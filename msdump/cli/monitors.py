"""Callbacks of ``Model.train`` that print: the loss, and a progress bar on a terminal."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Self

import numpy as np

from msdump.cli import messages
from msdump.errors import InputError


class LossMonitor:
    """Prints the loss of every so many steps, in MindSpore's words."""

    def __init__(self, per_print_times: Any = 1) -> None:
        """Choose how often.

        Args:
            per_print_times: Steps between two lines.

        Raises:
            InputError: It is no integer from 1.
        """
        if isinstance(per_print_times, bool) or not isinstance(per_print_times, int) or per_print_times < 1:
            raise InputError(
                f"LossMonitor: per_print_times = {per_print_times!r}: a number from 1 is expected"
            )
        self._every = per_print_times

    def step_end(self, run_context: Any) -> None:
        """Print the loss of a step; InputError, which ends training, if it is NaN or infinite."""
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
    """Shows on a terminal how many of the steps are done."""

    def __init__(self) -> None:
        """Begin without a bar."""
        self._shown = ExitStack()
        self._advance: Callable[[], None] = lambda: None
        self._done = 0

    def __enter__(self) -> Self:
        """Begin anew."""
        self._done = 0
        return self

    def __exit__(self, *error: object) -> None:
        """Take the bar away, also where training failed."""
        self._shown.close()

    def begin(self, run_context: Any) -> None:
        """Show the bar, where the number of steps is known."""
        arguments = run_context.original_args()
        if arguments.batch_num:
            total = arguments.epoch_num * arguments.batch_num
            self._advance = self._shown.enter_context(messages.bar("steps", total))

    def step_end(self, run_context: Any) -> None:
        """Advance by the steps since the last time."""
        steps = run_context.original_args().cur_step_num
        for _ in range(steps - self._done):
            self._advance()
        self._done = steps
