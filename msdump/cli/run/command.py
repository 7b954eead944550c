"""The command: a model runs as one rank, as several in this process, or as the one that a launcher says."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from msdump import env
from msdump.cli import messages, options
from msdump.cli.documents import output
from msdump.cli.program import INTERRUPTED, mark_started
from msdump.cli.run import report
from msdump.cli.run.model_run import ModelRun, RunRequest, load, of_rank
from msdump.cli.run.ranks import run_ranks
from msdump.communication.spawning import MOST_RANKS
from msdump.communication.world import current
from msdump.frontends import mindspore
from msdump.store.write.streams import write_stream
from msdump.tracing import chrome, recording


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
@click.option(
    "--save-outputs", type=click.Path(), metavar="FILE.npz", help="Save what the last step returned."
)
@click.option(
    "--ranks",
    type=click.IntRange(min=1, max=MOST_RANKS),
    metavar="N",
    help="Run N ranks in this process; {rank} in paths stands for the number of each.",
)
@click.option(
    "--trace",
    type=click.Path(),
    metavar="FILE.json",
    help="Write when operators ran and files were written, for Perfetto and chrome://tracing.",
)
@click.option("--config", type=click.Path(), metavar="FILE.json", help="In place of $MINDSPORE_DUMP_CONFIG.")
@output.option
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
    save_outputs: str | None,
    ranks: int | None,
    trace: str | None,
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
    _check_ranks(ranks, context["device_id"])
    mindspore.set_options(**context)
    if config is not None:
        mindspore.set_config(config, "--config")
    has_config = bool(config or env.read(env.DUMP_CONFIG))
    request = RunRequest(
        model, feeds, dimensions, seed or 0, steps, train, load_state, save_state, save_outputs
    )
    with contextlib.nullcontext() if trace is None else _traced(trace):
        if ranks is not None:
            run_ranks(request, ranks, has_config=has_config)
        else:
            _run_rank(request, has_config=has_config)


def _run_rank(request: RunRequest, *, has_config: bool) -> None:
    """Run a model as the only rank of this process; print what it did."""
    run = load(request)
    mark_started(lambda: run.network.has_run)  # until an operator has run, an error is one of the inputs
    with _reported(run, has_config=has_config):
        try:
            _run_all(run)
        except KeyboardInterrupt:
            messages.say(
                f"interrupted in iteration {run.network.iteration}; files that were written are complete"
            )
            click.get_current_context().exit(INTERRUPTED)
        finally:
            run.save()


@contextmanager
def _traced(path: str) -> Iterator[None]:
    """Trace what runs in the block, and write the trace, also where it fails or is interrupted."""
    trace = recording.begin()
    try:
        yield
    finally:
        recording.end()
        folder, name = os.path.split(of_rank(path))
        write_stream(folder or ".", name, chrome.pieces(trace, f"msdump, rank {current().identity.rank}"))


def _check_ranks(ranks: int | None, device_id: int | None) -> None:
    """Refuse --ranks where something else says which rank or device this is; name the rank in messages."""
    identity = current().identity
    if ranks is not None and identity.size > 1:
        raise click.UsageError(
            f"--ranks excludes a launcher: {identity.launcher} says that this is rank {identity.rank} of"
            f" {identity.size}"
        )
    if ranks is not None and device_id is not None:
        raise click.UsageError("--ranks excludes --device-id: each rank has the device of its number")
    if identity.size > 1:
        messages.speak_as(f"rank {identity.rank}")


def _run_all(run: ModelRun) -> None:
    with messages.bar("iterations", run.request.steps) as advance:
        for _ in range(run.request.steps):
            run.step()
            advance()


@contextmanager
def _reported(run: ModelRun, *, has_config: bool) -> Iterator[None]:
    """Print what a run did, also where it fails or is interrupted."""
    started = time.perf_counter()
    try:
        yield
    finally:
        seconds = time.perf_counter() - started
        mindspore.finish()  # files may still wait in a queue: the numbers below hold when they are written
        report.tell([run], seconds, has_config=has_config, has_speakers=current().identity.size > 1)
