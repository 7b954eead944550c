"""MindSpore's ``Model``: the loop over epochs and batches that trains a network, and evaluates one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from itertools import islice
from typing import Any

from msdump.errors import InputError
from msdump.frontends import mindspore
from msdump.frontends.callbacks import CallbackArguments, Callbacks, RunContext
from msdump.frontends.datasets import check_compiled_sink, check_sink, fed, repeated
from msdump.frontends.metrics import LOSS, Metric, metrics_of
from msdump.session import Network


class Model:
    """Trains a network, and evaluates it with the state that training left."""

    def __init__(
        self,
        network: Network,
        eval_network: Any = None,
        metrics: Mapping[str, Metric] | Iterable[str] | None = None,
    ) -> None:
        """Take a network.

        Args:
            network: One with a training step, such as that of ``msdump.training.step_graph``.
            eval_network: What is evaluated: a model (``msdump.training.eval_graph``), which is loaded at the
                first evaluation and reads the state of ``network`` by names, or a network. It gives loss and
                scores. None: ``network`` itself where its model has a graph for inference besides the step.
            metrics: What ``eval`` returns: "loss", "accuracy", or, by name, objects with clear, update, eval.

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
        """The network that is evaluated.

        Raises:
            InputError: There is none, or it has a state of its own.
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
                "Model: eval_network has a state of its own, which training does not change; load it with "
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

        Without sink mode an epoch is one pass over the dataset. In sink mode it is ``sink_size`` steps, the
        whole dataset for -1; on an Ascend callbacks hear of the last of these steps alone.

        Args:
            epoch: Number of epochs.
            train_dataset: Batches: inputs of the step in order (a tuple) or by name (a mapping).
            callbacks: Objects with methods such as ``step_end(run_context)``.
            dataset_sink_mode: Whether steps are run by the device in sinks.
            sink_size: Steps of a sink; 1 where a compiled graph is dumped.

        Raises:
            InputError: A number that cannot be, or a dataset without batches.
            MsdumpError: As for ``Network.train_step``.
        """
        network = self.train_network
        if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 1:
            raise InputError(f"Model.train: epoch = {epoch!r}: a number from 1 is expected")
        passes = _Passes(network, train_dataset, sink_size if dataset_sink_mode else None)
        arguments = CallbackArguments("train", network, epoch, passes.steps)
        with RunContext(arguments, callbacks) as context:
            context.tell("begin")
            for number in range(1, epoch + 1):
                arguments.cur_epoch_num = number
                context.tell("epoch_begin")
                self._train_epoch(passes, context)
                context.tell("epoch_end")
                if context.get_stop_requested():
                    break
            context.tell("end")

    def _train_epoch(self, passes: _Passes, context: RunContext) -> None:
        arguments = context.original_args()
        before = arguments.cur_step_num
        for sink in passes.sinks():
            context.tell("step_begin")
            for element in sink:
                arguments.net_outputs = fed(self._network.train_step, element)
                arguments.cur_step_num += 1
            context.tell("step_end")
            if context.get_stop_requested():
                return
        if arguments.cur_step_num == before:
            raise InputError(
                "Model.train: the dataset has no batches left; give one that can be iterated over again"
            )

    def eval(
        self,
        valid_dataset: Iterable[Any],
        callbacks: Callbacks = None,
        dataset_sink_mode: bool = False,  # noqa: FBT001, FBT002 - MindSpore's signature
    ) -> dict[str, Any]:
        """Run the evaluation network on a dataset; return the metrics by name.

        Args:
            valid_dataset: Batches whose last input is the labels.
            callbacks: Objects with methods such as ``on_eval_step_end(run_context)``.
            dataset_sink_mode: The same in both modes; sinks of an evaluation have one step.

        Raises:
            InputError: There is nothing to evaluate, or no metric was asked for.
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
            context.tell("begin")
            for element in valid_dataset:
                context.tell("step_begin")
                arguments.net_outputs = fed(network, element)
                arguments.cur_step_num += 1
                self._measure(element, arguments.net_outputs)
                context.tell("step_end")
            if not arguments.cur_step_num:
                raise InputError("Model.eval: the dataset has no batches")
            arguments.metrics = {name: metric.eval() for name, metric in self._metrics.items()}
            context.tell("end")
            return arguments.metrics

    def _measure(self, element: Any, outputs: Any) -> None:
        loss, *others = outputs if isinstance(outputs, tuple) else (outputs,)
        labels = list(element.values() if isinstance(element, Mapping) else element)[-1]
        for name, metric in self._metrics.items():
            if name == LOSS:
                metric.update(loss)
            else:
                metric.update(others[0] if others else loss, labels)


class _Passes:
    """The passes over a dataset, one an epoch, cut into what runs between two calls of callbacks.

    Attributes:
        steps: Steps of an epoch; 0 where the dataset does not tell.
    """

    def __init__(self, network: Network, dataset: Iterable[Any], sink_size: Any) -> None:
        """Choose how.

        Args:
            network: What runs.
            dataset: The batches.
            sink_size: Steps of a sink, -1 for the whole dataset; None: no sink mode.

        Raises:
            InputError: The network cannot run so many steps at once.
        """
        self._dataset = dataset
        self._endless: Iterator[Any] | None = None
        self.steps = _length(dataset)
        if sink_size == -1:
            check_compiled_sink(network, "Model.train", self.steps)
        elif sink_size is not None:
            check_sink(network, "Model.train", sink_size)
            self.steps = sink_size
            self._endless = repeated(dataset, "Model.train")
        # a CPU runs one step after the other in sink mode, too
        self._is_whole = sink_size is not None and network.device is not None

    def sinks(self) -> Iterator[Iterable[Any]]:
        """Yield the batches of an epoch by sinks, each batch by itself where nothing sinks."""
        batches = self._dataset if self._endless is None else islice(self._endless, self.steps)
        if self._is_whole:
            yield batches
        else:
            yield from ((batch,) for batch in batches)


def _length(dataset: Iterable[Any]) -> int:
    """Return the number of batches of a dataset, 0 where it does not tell."""
    if hasattr(dataset, "get_dataset_size"):  # MindSpore's datasets
        return int(dataset.get_dataset_size())
    return len(dataset) if isinstance(dataset, Sized) else 0
