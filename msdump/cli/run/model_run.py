"""A run of a model: the network, what it is fed, and how far it has come."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.cli import messages
from msdump.communication.world import current
from msdump.execute.feeds import bind
from msdump.execute.training.state import TrainingState
from msdump.frontends import mindspore
from msdump.graph.graph import Graph
from msdump.session import Network
from msdump.tools.preview import archives, inputs
from msdump.tracing import recording

Feed = Callable[[int], dict[str, Any]]
"""Returns the inputs of a step by name."""

_RANK: Final = "{rank}"


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What the command line asks for; of all paths each rank takes its own (``of_rank``).

    Attributes:
        model: Path of the model.
        inputs: An .npz file of all inputs, None: they are made up.
        sizes: Sizes of dynamic dimensions by name, for inputs that are made up.
        seed: The seed of these.
        steps: How often the model runs.
        trains: Whether each run is a step of training.
        load_state: An .npz file of the state to begin with, None: the model's.
        save_state: Where the state goes at the end, None: nowhere.
        save_outputs: Where the outputs of the last step go, None: nowhere.
    """

    model: str
    inputs: str | None
    sizes: dict[str, int]
    seed: int
    steps: int
    trains: bool
    load_state: str | None
    save_state: str | None
    save_outputs: str | None = None

    def feed(self, graph: Graph) -> Feed:
        """Return the function that gives the inputs of a step; every step of training takes the same."""
        if self.inputs is None and not self.trains:
            return lambda step: inputs.made_up(graph, self.sizes, self.seed, step)
        arrays = (
            inputs.made_up(graph, self.sizes, self.seed, 0)
            if self.inputs is None
            else inputs.from_file(graph, of_rank(self.inputs))
        )
        return lambda _step: arrays


@dataclass(slots=True)
class ModelRun:
    """A run and how far it has come.

    Attributes:
        network: The network, or that of its training step.
        feed: Returns the inputs of a step.
        request: What is asked for.
        rank: The rank that it is run by.
        completed: Numbers of the iterations that are complete.
        losses: The loss of each of them, where the step returns one.
        outputs: What the last of them returned, by name.
    """

    network: Network
    feed: Feed
    request: RunRequest
    rank: int = 0
    completed: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    outputs: dict[str, Any] = field(default_factory=dict)

    def step(self) -> None:
        """Run the model once."""
        iteration = self.network.iteration
        if len(self.completed) + 1 == self.request.steps:
            self.network.forget_sessions()
        recording.timed(self._run, "iteration", f"iteration {iteration}")()
        self.completed.append(iteration)

    def _run(self) -> None:
        fed = self.feed(len(self.completed))
        if self.request.trains:
            outputs = self.network.train_step(**fed)
            self.losses += _losses(outputs)
            self.outputs = _named(self.network.graph, outputs)
        else:
            self.outputs = self.network.run(fed)

    def save(self) -> None:
        """Save the state and the outputs where that is asked for; also where a later step failed."""
        if self.request.save_state is not None and self.completed:
            archives.write(of_rank(self.request.save_state), self.network.state())
        if self.request.save_outputs is not None and self.completed:
            archives.write(of_rank(self.request.save_outputs), dict(_savable(self.outputs)))


def load(request: RunRequest) -> ModelRun:
    """Load the model of the thread's rank; wrong inputs are told before anything is written.

    Raises:
        MsdumpError: The model, its configuration or an input is wrong.
    """
    feed: Feed | None = None
    state: Mapping[str, np.ndarray] | None = None

    def check(graph: Graph) -> None:
        nonlocal feed, state
        if request.load_state is not None:
            remedy = "--load-state takes what --save-state wrote, or numpy.savez(path, **network.state())"
            state = archives.read(of_rank(request.load_state), graph.step.type_of, remedy)
            TrainingState(graph).checked(state)
        step = graph.training_step() if request.trains else graph
        feed = request.feed(step)
        bind(step, (), feed(0))

    network = mindspore.load_checked(of_rank(request.model), check)
    assert feed is not None, "the graph was checked"
    if state is not None:
        network.load_state(state)
    return ModelRun(network.training if request.trains else network, feed, request, current().identity.rank)


def of_rank(path: str) -> str:
    """Return the path of a rank's own file: ``{rank}`` stands for its number, unless a file is called so."""
    return path if Path(path).exists() else path.replace(_RANK, str(current().identity.rank))


def _named(graph: Graph, outputs: Any) -> dict[str, Any]:
    """Return what a step of training returned by name: the outputs that are not bound to variables."""
    bound = {*graph.bindings.values()}
    names = [value.name for value in graph.outputs if value.name not in bound]
    return dict(zip(names, outputs if isinstance(outputs, tuple) else (outputs,), strict=True))


def _savable(outputs: dict[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the outputs that an .npz file can hold, types that numpy lacks as dump files have them."""
    for name, value in outputs.items():
        if not isinstance(value, np.ndarray):
            kind = "absent" if value is None else "a sequence, which an .npz file cannot hold"
            messages.say_once(f"warning: output {name!r} is not saved: it is {kind}")
        elif value.dtype.hasobject:
            yield name, value.astype(np.str_)
        else:
            yield name, dtypes.widen(value, dtypes.from_numpy(value.dtype))


def _losses(outputs: Any) -> list[float]:
    """Return the first output of a step that is one number, in a list; nothing where none is."""
    each = outputs if isinstance(outputs, tuple) else (outputs,)
    numbers = (float(item.item()) for item in each if isinstance(item, np.ndarray) and item.size == 1)
    return list(itertools.islice(numbers, 1))
