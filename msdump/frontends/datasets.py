"""Datasets as MindSpore's door takes them: whatever can be iterated over, and sinks of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msdump.errors import InputError
from msdump.plan import Tree
from msdump.session import Network
from msdump.threads import new_lock


def data_sink(
    network: Network | Callable[..., Any], dataset: Iterable[Any], sink_size: Any = 1
) -> Callable[[], Any]:
    """Return a function that runs a network on the next elements of a dataset, again and again.

    Args:
        network: The network, or the method ``train_step`` of one: then it trains.
        dataset: Elements that are inputs in order (a tuple), inputs by name (a mapping), or the one
            input; it can be iterated over again and again.
        sink_size: Steps of each call; 1 where a compiled graph is dumped (Ascend O2, GE), whose dump
            is configured anew before each call.

    Raises:
        InputError: Something else than a network; a size that is no number from 1, or more than 1 where
            that is not possible.
    """
    owner = network if isinstance(network, Network) else getattr(network, "__self__", None)
    if not isinstance(owner, Network):
        raise InputError("data_sink: network: a network, or its method train_step, is expected")
    check_sink(owner, "data_sink", sink_size)
    elements = repeated(dataset, "data_sink")
    lock = new_lock()

    def run() -> Any:
        result = None
        for _ in range(sink_size):
            with lock:  # a generator that two threads advance at once raises ValueError
                element = next(elements)
            result = fed(network, element)
        return result

    return run


def check_sink(network: Network, who: str, sink_size: Any) -> None:
    """Make sure that a network can run a number of steps at once.

    Args:
        network: The network.
        who: What has the argument, for messages.
        sink_size: The number.

    Raises:
        InputError: It is no number from 1, or more than 1 where a compiled graph is dumped.
    """
    if isinstance(sink_size, bool) or not isinstance(sink_size, int) or sink_size < 1:
        raise InputError(f"{who}: sink_size = {sink_size!r}: a number from 1 is expected")
    check_compiled_sink(network, who, sink_size)


def check_compiled_sink(network: Network, who: str, size: int) -> None:
    """Make sure that a compiled graph whose dump is configured anew before each call runs single steps.

    Args:
        network: The network.
        who: What has the argument, for messages.
        size: Number of steps; 0: not known.

    Raises:
        InputError: It is not 1.
    """
    plan = network.plan
    if plan is not None and plan.files.tree is not Tree.RANKS and size != 1:
        raise InputError(
            f"{plan.source}: where a compiled graph is dumped (jit_level O2) in data sink mode, "
            f"sink size must be 1, but got {size or 'that of the whole dataset'}; call {who} with sink_size=1"
        )


def repeated(dataset: Iterable[Any], who: str) -> Iterator[Any]:
    """Yield the elements of a dataset over and over.

    Args:
        dataset: The dataset.
        who: What has the argument, for messages.

    Raises:
        InputError: The dataset has no elements, or none a second time.
    """
    while True:
        is_empty = True
        for element in dataset:
            is_empty = False
            yield element
        if is_empty:
            raise InputError(f"{who}: the dataset has no elements left; give one that can be iterated again")


def fed(run: Callable[..., Any], element: Any) -> Any:
    """Run a network, or its training step, on an element: inputs by name, in order, or the one input."""
    if isinstance(element, Mapping):
        return run(**element)
    return run(*element) if isinstance(element, tuple) else run(element)
