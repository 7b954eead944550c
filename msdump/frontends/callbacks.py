"""Callbacks of training and evaluation, in MindSpore's words: any object with methods such as step_end."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, Self

Callbacks = Any
"""None, an object with some of MindSpore's methods, or several of them in a sequence."""

_OLD_NAMES: Final = {
    "on_train_begin": "begin",
    "on_train_epoch_begin": "epoch_begin",
    "on_train_epoch_end": "epoch_end",
    "on_train_step_begin": "step_begin",
    "on_train_step_end": "step_end",
    "on_train_end": "end",
    "on_eval_begin": "begin",
    "on_eval_epoch_begin": "epoch_begin",
    "on_eval_epoch_end": "epoch_end",
    "on_eval_step_begin": "step_begin",
    "on_eval_step_end": "step_end",
    "on_eval_end": "end",
}
"""The method of an older callback, by that of a newer one, which is asked first."""


@dataclass(slots=True)
class CallbackArguments:
    """What a callback may read of a run, MindSpore's ``cb_params``.

    Attributes:
        mode: "train" or "eval".
        network: The network that runs.
        epoch_num: Number of epochs.
        batch_num: Number of steps of an epoch; 0 where the dataset does not tell.
        cur_epoch_num: The epoch, from 1.
        cur_step_num: The step, from 1, counted over all epochs.
        net_outputs: What the last step returned, such as the loss.
        metrics: The metrics after an evaluation.
    """

    mode: str
    network: Any
    epoch_num: int = 1
    batch_num: int = 0
    cur_epoch_num: int = 0
    cur_step_num: int = 0
    net_outputs: Any = None
    metrics: dict[str, Any] | None = None


class RunContext:
    """What callbacks are called with; within it, callbacks that are context managers are entered."""

    def __init__(self, arguments: CallbackArguments, callbacks: Callbacks) -> None:
        """Begin a run.

        Args:
            arguments: What callbacks may read.
            callbacks: Who is called.
        """
        self._arguments = arguments
        self._callbacks = _listed(callbacks)
        self._is_stopping = False
        self._entered = ExitStack()

    def __enter__(self) -> Self:
        """Enter the callbacks."""
        for callback in self._callbacks:
            if hasattr(callback, "__enter__"):
                self._entered.enter_context(callback)
        return self

    def __exit__(self, *error: object) -> None:
        """Leave them, also where training failed."""
        self._entered.close()

    def original_args(self) -> CallbackArguments:
        """Return what is known of the run."""
        return self._arguments

    def request_stop(self) -> None:
        """End training after this step."""
        self._is_stopping = True

    def get_stop_requested(self) -> bool:
        """Tell whether a callback asked to stop."""
        return self._is_stopping

    def tell(self, moment: str) -> None:
        """Call every callback that wants to know of a moment.

        Args:
            moment: "begin", "epoch_begin", "step_begin", "step_end", "epoch_end" or "end".
        """
        name = f"on_{self._arguments.mode}_{moment}"
        for callback in self._callbacks:
            method = getattr(callback, name, None) or getattr(callback, _OLD_NAMES[name], None)
            if method is not None:
                method(self)


def _listed(callbacks: Callbacks) -> tuple[Any, ...]:
    if callbacks is None:
        return ()
    return tuple(callbacks) if isinstance(callbacks, Iterable) else (callbacks,)
