"""MindSpore's ``Model`` of training and evaluation, with callbacks, metrics and data sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Protocol, Self

import numpy as np

from msdump.errors import InputError, name_hint
from msdump.frontends import mindspore
from msdump.plan import Tree
from msdump.session import Network
from msdump.threads import new_lock


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
    """The share of samples with the highest score at their label, MindSpore's ``Accuracy``."""

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
    """Return metrics by name, of their names or metrics by name; InputError for an unknown name."""
    if choice is None:
        return {}
    if isinstance(choice, Mapping):
        return dict(choice)
    names = list(choice)
    for name in names:
        if name not in METRICS:
            raise InputError(
                f"Model: unknown metric {name!r}: must be one of "
                f"{', '.join(METRICS)}{name_hint(name, METRICS)}"
            )
    return {name: METRICS[name]() for name in sorted(names)}


Callbacks = Any
"""None, an object with some of MindSpore's methods, or several of them in a sequence."""


@dataclass(slots=True)
class CallbackArguments:
    """Facts of a run for callbacks, MindSpore's ``cb_params``."""

    mode: str  # "train" or "eval"
    network: Any  # the network that runs
    epoch_num: int = 1
    batch_num: int = 0  # number of steps of an epoch; 0 for a dataset without a length
    cur_epoch_num: int = 0
    cur_step_num: int = 0  # the step, from 1, counted over all epochs
    net_outputs: Any = None  # results of the last step, such as the loss
    metrics: dict[str, Any] | None = None  # the metrics after an evaluation


class RunContext:
    """The argument of callbacks; within it, callbacks that are context managers are entered."""

    def __init__(self, arguments: CallbackArguments, callbacks: Callbacks) -> None:
        self._arguments = arguments
        several = isinstance(callbacks, Iterable)
        self._callbacks = () if callbacks is None else tuple(callbacks) if several else (callbacks,)
        self._is_stopping = False
        self._entered = ExitStack()

    def __enter__(self) -> Self:
        """Enter the callbacks."""
        for callback in self._callbacks:
            if hasattr(callback, "__enter__"):
                self._entered.enter_context(callback)
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the callbacks, also where training failed."""
        self._entered.close()

    def original_args(self) -> CallbackArguments:
        """Return the facts of the run."""
        return self._arguments

    def request_stop(self) -> None:
        """End training after this step."""
        self._is_stopping = True

    def get_stop_requested(self) -> bool:
        """Return whether a callback has requested the end."""
        return self._is_stopping

    def notify(self, moment: str) -> None:
        """Call every callback's method for an event: "begin", "epoch_begin", "step_end", ..."""
        name = f"on_{self._arguments.mode}_{moment}"
        for callback in self._callbacks:  # older callbacks have no prefix on_train_
            method = getattr(callback, name, None) or getattr(callback, moment, None)
            if method is not None:
                method(self)


def data_sink(
    network: Network | Callable[..., Any], dataset: Iterable[Any], sink_size: Any = 1
) -> Callable[[], Any]:
    """Return a function that runs a network on the next elements of a dataset at each call.

    Args:
        network: A network, or its method ``train_step`` for training.
        dataset: An iterable that can be repeated. Its elements are inputs in order (a tuple), inputs by
            name (a mapping), or the only input.
        sink_size: Steps per call, from 1; must be 1 for a dump of a compiled graph (Ascend O2, GE).

    Raises:
        InputError: ``network`` is not a network, or ``sink_size`` is not allowed.
    """
    owner = network if isinstance(network, Network) else getattr(network, "__self__", None)
    if not isinstance(owner, Network):
        raise InputError("data_sink: network: must be a network, or its method train_step")
    check_sink(owner, "data_sink", sink_size)
    elements = repeated(dataset, "data_sink")
    lock = new_lock()

    def run() -> Any:
        result = None
        for _ in range(sink_size):
            with lock:  # a generator that two threads advance at once raises ValueError
                element = next(elements)
            result = run_on(network, element)
        return result

    return run


def check_sink(network: Network, who: str, sink_size: Any) -> None:
    """Refuse a number of steps that the network cannot run at once; messages name the function ``who``."""
    if isinstance(sink_size, bool) or not isinstance(sink_size, int) or sink_size < 1:
        raise InputError(f"{who}: sink_size = {sink_size!r}: must be a number from 1")
    check_compiled_sink(network, who, sink_size)


def check_compiled_sink(network: Network, who: str, size: int) -> None:
    """Refuse several steps (0: not known) of a compiled graph: its dump is configured before each call."""
    plan = network.plan
    if plan is not None and plan.files.tree is not Tree.RANKS and size != 1:
        raise InputError(
            f"{plan.source}: where a compiled graph is dumped (jit_level O2) in data sink mode, "
            f"sink size must be 1, but got {size or 'that of the whole dataset'}; call {who} with sink_size=1"
        )


def repeated(dataset: Iterable[Any], who: str) -> Iterator[Any]:
    """Yield the elements of a dataset over and over; InputError if it has none, or none a second time."""
    while True:
        is_empty = True
        for element in dataset:
            is_empty = False
            yield element
        if is_empty:
            raise InputError(
                f"{who}: the dataset has no elements left; give one that can be iterated over again"
            )


def run_on(run: Callable[..., Any], element: Any) -> Any:
    """Run a network, or its training step, on an element: inputs by name, in order, or the one input."""
    if isinstance(element, Mapping):
        return run(**element)
    return run(*element) if isinstance(element, tuple) else run(element)


Sinks = Callable[[], Iterable[Iterable[Any]]]
"""Returns the batches of an epoch in sinks: the steps between two calls of callbacks."""


class Model:
    """Trains a network and evaluates it with the trained variables."""

    def __init__(
        self,
        network: Network,
        eval_network: Any = None,
        metrics: Mapping[str, Metric] | Iterable[str] | None = None,
    ) -> None:
        """Create a model from a network.

        Args:
            network: A network with a training step, as from ``msdump.training.step_graph``.
            eval_network: A network with the outputs loss and scores, or its model
                (``msdump.training.eval_graph``), which is loaded at the first evaluation and shares the
                variables of ``network``. None: ``network`` itself, if its model also has an inference graph.
            metrics: Results of ``eval``: "loss", "accuracy", or, by name, objects with clear, update, eval.

        Raises:
            InputError: An unknown metric.
        """
        self._network = network
        self._eval = eval_network
        self._metrics = metrics_of(metrics)

    @property
    def train_network(self) -> Network:
        """The network of the training step."""
        return self._network.training

    @property
    def eval_network(self) -> Network:
        """The network of the evaluation.

        Raises:
            InputError: It is missing, or does not share the variables of the trained network.
        """
        if self._eval is None:
            if self.train_network is self._network:
                raise InputError(
                    "Model: the network is a training step alone; give eval_network="
                    "msdump.training.eval_graph(model) for the evaluation"
                )
            return self._network
        if not isinstance(self._eval, Network):
            self._eval = mindspore.load(self._eval, state_of=self._network)
        if self._eval.shared is not self._network.shared:
            raise InputError(
                "Model: eval_network has its own state, which training does not change; load it with "
                "msdump.load(model, state_of=network)"
            )
        return self._eval

    def train(
        self,
        epoch: Any,
        train_dataset: Iterable[Any],
        callbacks: Callbacks = None,
        dataset_sink_mode: bool = False,  # noqa: FBT001, FBT002 - MindSpore's signature
        sink_size: int = -1,
    ) -> None:
        """Train for a number of epochs; every step is an iteration of the dump.

        An epoch is one pass over the dataset, or ``sink_size`` steps in sink mode (-1: the whole dataset). In
        sink mode on an Ascend device, callbacks are called only for the last of these steps.

        Args:
            epoch: Number of epochs.
            train_dataset: Batches: inputs of the step in order (a tuple) or by name (a mapping).
            callbacks: Objects with methods such as ``step_end(run_context)``.
            dataset_sink_mode: Whether the device runs several steps per call.
            sink_size: Steps per call; must be 1 for a dump of a compiled graph.

        Raises:
            InputError: A number is not allowed, or the dataset has no batches.
            MsdumpError: As for ``Network.train_step``.
        """
        network = self.train_network
        if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 1:
            raise InputError(f"Model.train: epoch = {epoch!r}: must be a number from 1")
        steps, sinks = _epoch_of(network, train_dataset, sink_size if dataset_sink_mode else None)
        arguments = CallbackArguments("train", network, epoch, steps)
        with RunContext(arguments, callbacks) as context:
            context.notify("begin")
            for number in range(1, epoch + 1):
                arguments.cur_epoch_num = number
                context.notify("epoch_begin")
                before = arguments.cur_step_num
                for sink in sinks():
                    context.notify("step_begin")
                    for element in sink:
                        arguments.net_outputs = run_on(self._network.train_step, element)
                        arguments.cur_step_num += 1
                    context.notify("step_end")
                    if context.get_stop_requested():
                        break
                if arguments.cur_step_num == before:
                    raise InputError(
                        "Model.train: the dataset has no batches left; give one that can be iterated over"
                        " again"
                    )
                context.notify("epoch_end")
                if context.get_stop_requested():
                    break
            context.notify("end")

    def eval(
        self,
        valid_dataset: Iterable[Any],
        callbacks: Callbacks = None,
        dataset_sink_mode: bool = False,  # noqa: FBT001, FBT002 - MindSpore's signature
    ) -> dict[str, Any]:
        """Run the evaluation network on a dataset; return the metrics by name.

        Args:
            valid_dataset: Batches with the labels as last input.
            callbacks: Objects with methods such as ``on_eval_step_end(run_context)``.
            dataset_sink_mode: Has no effect; an evaluation runs one step per call.

        Raises:
            InputError: The evaluation network or the metrics are missing.
            MsdumpError: As for a call of a network.
        """
        del dataset_sink_mode
        if not self._metrics:
            raise InputError("Model.eval: metrics are needed: Model(network, metrics={'loss', 'accuracy'})")
        network = self.eval_network
        arguments = CallbackArguments("eval", network, batch_num=_length(valid_dataset))
        for metric in self._metrics.values():
            metric.clear()
        with RunContext(arguments, callbacks) as context:
            context.notify("begin")
            for element in valid_dataset:
                context.notify("step_begin")
                arguments.net_outputs = run_on(network, element)
                arguments.cur_step_num += 1
                results = arguments.net_outputs
                loss, *others = results if isinstance(results, tuple) else (results,)
                labels = list(element.values() if isinstance(element, Mapping) else element)[-1]
                for name, metric in self._metrics.items():
                    values = (loss,) if name == LOSS else (others[0] if others else loss, labels)
                    metric.update(*values)
                context.notify("step_end")
            if not arguments.cur_step_num:
                raise InputError("Model.eval: the dataset has no batches")
            arguments.metrics = {name: metric.eval() for name, metric in self._metrics.items()}
            context.notify("end")
            return arguments.metrics


def _epoch_of(network: Network, dataset: Iterable[Any], sink_size: Any) -> tuple[int, Sinks]:
    """Return the steps of an epoch, 0 for a dataset without a length, and a function for an epoch's sinks.

    A sink of -1 steps is a whole dataset; None is no sink mode.
    """
    steps, endless = _length(dataset), None
    if sink_size == -1:
        check_compiled_sink(network, "Model.train", steps)
    elif sink_size is not None:
        check_sink(network, "Model.train", sink_size)
        steps, endless = sink_size, repeated(dataset, "Model.train")
    # a CPU runs one step after the other in sink mode, too
    is_whole = sink_size is not None and network.device is not None

    def sinks() -> Iterable[Iterable[Any]]:
        batches = dataset if endless is None else islice(endless, steps)
        return (batches,) if is_whole else ((batch,) for batch in batches)

    return steps, sinks


def _length(dataset: Iterable[Any]) -> int:
    """Return the number of batches of a dataset, 0 if it has no length."""
    if hasattr(dataset, "get_dataset_size"):  # MindSpore's datasets
        return int(dataset.get_dataset_size())
    return len(dataset) if isinstance(dataset, Sized) else 0
