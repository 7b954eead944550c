"""``msdump run``: runs a model for a number of steps, and dumps what the configuration says."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import click
import numpy as np

from msdump import env
from msdump.cli import messages, options
from msdump.cli.program import INTERRUPTED, mark_started
from msdump.communication.world import current
from msdump.execute.feeds import bind
from msdump.frontends import mindspore
from msdump.graph.graph import Graph
from msdump.iterations import IterationSet
from msdump.plan import DumpPlan, Tree
from msdump.session import Network
from msdump.store.layouts import Key, PathKind
from msdump.tools.preview import archives, inputs

_MOST_LOSSES: Final = 10

Feed = Callable[[int], dict[str, Any]]
"""Returns the inputs of a step by name."""


@dataclass(slots=True)
class _Run:
    """A run and how far it has come.

    Attributes:
        network: The network, or that of its training step.
        feed: Returns the inputs of a step.
        trains: Whether each run is a step of training.
        completed: Numbers of the iterations that are complete.
        losses: The loss of each of them, where the step returns one.
    """

    network: Network
    feed: Feed
    trains: bool
    completed: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    def step(self) -> None:
        iteration, inputs = self.network.iteration, self.feed(len(self.completed))
        if self.trains:
            self.losses += _losses(self.network.train_step(**inputs))
        else:
            self.network.run(inputs)
        self.completed.append(iteration)


def _losses(outputs: Any) -> list[float]:
    """Return the first output of a step that is one number, in a list; nothing where none is."""
    each = outputs if isinstance(outputs, tuple) else (outputs,)
    numbers = (float(item.item()) for item in each if isinstance(item, np.ndarray) and item.size == 1)
    return list(itertools.islice(numbers, 1))


@click.command(name="run")
@click.argument("model", type=click.Path())
@click.option(
    "--inputs", "feeds", type=click.Path(), metavar="FILE.npz", help="Inputs by name, for every step."
)
@click.option("--seed", type=click.IntRange(min=0), help="Seed of made-up inputs (default: 0).")
@options.dimensions
@click.option("--steps", type=click.IntRange(min=1), default=1, show_default=True, help="Iterations to run.")
@click.option("--train", is_flag=True, help="Run steps of training, all on one batch, and print the loss.")
@click.option("--save-state", type=click.Path(), metavar="FILE.npz", help="Save what training changed.")
@click.option("--load-state", type=click.Path(), metavar="FILE.npz", help="Begin with a saved state.")
@click.option("--config", type=click.Path(), metavar="FILE.json", help="In place of $MINDSPORE_DUMP_CONFIG.")
@options.context
def command(
    *,
    model: str,
    feeds: str | None,
    seed: int | None,
    dimensions: dict[str, int],
    steps: int,
    train: bool,
    save_state: str | None,
    load_state: str | None,
    config: str | None,
    **context: Any,
) -> None:
    """Run MODEL, an .onnx file, operator by operator and dump what the configuration says.

    Without --inputs the inputs are made up: the same for the same seed and step;
    all steps of --train take those of the first one.
    Options beat environment variables. Exit codes: 0 done, 1 the run failed,
    2 something given is wrong and nothing ran, 130 interrupted.
    """
    if feeds is not None and (seed is not None or dimensions):
        raise click.UsageError("--inputs excludes --seed and --dim, which are for made-up inputs")
    if save_state is not None and not train:
        raise click.UsageError("--save-state needs --train: only training changes a state")
    mindspore.set_options(**context)
    if config is not None:
        mindspore.set_config(config, "--config")
    network = mindspore.load(model)
    if load_state is not None:
        remedy = "--load-state takes what --save-state wrote, or numpy.savez(path, **network.state())"
        network.load_state(archives.read(load_state, network.graph.step.type_of, remedy))
    if train:
        network = network.training
    run = _Run(network, _feed(network.graph, feeds, dimensions, seed or 0, is_fixed=train), train)
    bind(network.graph, (), run.feed(0))  # wrong inputs are told before anything runs
    mark_started(lambda: network.has_run)  # until an operator has run, an error is one of the inputs
    with _reported(run, has_config=bool(config or env.read(env.DUMP_CONFIG))):
        try:
            _run_all(run, steps)
        except KeyboardInterrupt:
            messages.say(
                f"interrupted in iteration {network.iteration}; files that were written are complete"
            )
            click.get_current_context().exit(INTERRUPTED)
        finally:
            if save_state is not None and run.completed:  # also where a later step failed
                archives.write(save_state, network.state())


def _feed(graph: Graph, path: str | None, dimensions: dict[str, int], seed: int, *, is_fixed: bool) -> Feed:
    """Return the function that gives the inputs of a step.

    Args:
        graph: The network.
        path: A file of inputs, None: they are made up.
        dimensions: Sizes of dynamic dimensions.
        seed: Seed of what is made up.
        is_fixed: Every step takes the same.
    """
    if path is None and not is_fixed:
        return lambda step: inputs.made_up(graph, dimensions, seed, step)
    arrays = inputs.made_up(graph, dimensions, seed, 0) if path is None else inputs.from_file(graph, path)
    return lambda _step: arrays


def _run_all(run: _Run, steps: int) -> None:
    with messages.bar("iterations", steps) as advance:
        for _ in range(steps):
            run.step()
            advance()


@contextmanager
def _reported(run: _Run, *, has_config: bool) -> Iterator[None]:
    """Print what a run did, also where it fails or is interrupted."""
    started = time.perf_counter()
    try:
        yield
    finally:
        seconds = time.perf_counter() - started
        mindspore.finish()  # files may still wait in a queue: the numbers below hold when they are written
        print(f"ran      {_iterations(run.completed)} of {run.network.graph.source} in {seconds:.2f} s")
        for line in (*_loss_lines(run.losses), *_dump_lines(run, has_config=has_config)):
            print(line)


def _loss_lines(losses: list[float]) -> Iterator[str]:
    """Yield the line of losses; of many the first and last ones, unless -v asks for all."""
    shown = [f"{loss:.7g}" for loss in losses]
    if len(shown) > _MOST_LOSSES and not messages.verbosity():
        shown = [*shown[: _MOST_LOSSES // 2], "...", *shown[-_MOST_LOSSES // 2 :]]
    if shown:
        yield f"loss     {' '.join(shown)}"


def _dump_lines(run: _Run, *, has_config: bool) -> Iterator[str]:
    """Yield lines on the files that the dump wrote, skipped and lost."""
    plan, summary = run.network.plan, run.network.summary
    if plan is None or summary is None:
        yield f"no dump: {_why_none(run.network, has_config=has_config)}"
        return
    dumped_iterations = _iterations([number for number in run.completed if number in plan.when.iterations])
    yield f"dumped   {dumped_iterations}: {summary.files} files, {summary.bytes:,} bytes"
    yield f"into     {_place(plan)}"
    if summary.skipped:
        yield f"skipped  {_counts(summary.skipped, 'tensor')}"
    if summary.lost:
        yield f"lost     {_counts(summary.lost, 'file')}"


def _place(plan: DumpPlan) -> str:
    root = plan.files.path.rstrip("/")
    return (
        f"{root}/{Key(PathKind.NETWORK, current().identity.rank, plan.files.net_name).path}"
        if plan.files.tree is Tree.RANKS
        else root
    )


def _why_none(network: Network, *, has_config: bool) -> str:
    if not has_config:
        return f"neither --config nor {env.DUMP_CONFIG} is given"
    if not network.graph.nodes:
        return "the model has no operators"
    return "support_device does not hold this device"


def _iterations(numbers: list[int]) -> str:
    if not numbers:
        return "0 iterations"
    ranges = IterationSet.of([(number, number) for number in numbers])
    return f"{len(numbers)} iteration{'s' * (len(numbers) != 1)} ({ranges})"


def _counts(counts: Any, noun: str) -> str:
    """Return ``3 tensors (no elements), 1 tensor (text)``."""
    return ", ".join(f"{count} {noun}{'s' * (count != 1)} ({reason})" for reason, count in counts.items())
