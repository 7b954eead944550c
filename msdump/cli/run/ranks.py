"""``msdump run --ranks``: several ranks in one process, each with a network of its own."""

from __future__ import annotations

import time

import click

from msdump.cli import messages
from msdump.cli.program import FAILED, INTERRUPTED, mark_started, message_of
from msdump.cli.run import report
from msdump.cli.run.model_run import RunRequest, load
from msdump.communication.spawning import Outcome, RankThreads
from msdump.communication.world import current
from msdump.frontends import mindspore


def run_ranks(request: RunRequest, ranks: int, *, has_config: bool) -> None:
    """Run a model, or one for each rank, as several ranks; print what each of them did.

    Args:
        request: What is asked for.
        ranks: Number of ranks.
        has_config: Whether a configuration was given.

    Raises:
        MsdumpError: A model, its configuration or an input is wrong; nothing has run then.
    """
    threads = RankThreads(ranks)
    runs = threads.in_turn(lambda: load(request))
    mark_started(lambda: any(run.network.has_run for run in runs))
    started, outcomes = time.perf_counter(), [Outcome() for _ in runs]
    try:
        with messages.bar("iterations", request.steps * ranks) as advance:

            def work() -> None:
                run = runs[current().identity.rank]
                try:
                    while len(run.completed) < request.steps and not threads.is_stopped:
                        run.step()
                        advance()
                finally:
                    mindspore.finish()
                    run.save()

            outcomes = threads.at_once(work)
    except KeyboardInterrupt:
        messages.say("interrupted; files that were written are complete")
        click.get_current_context().exit(INTERRUPTED)
    finally:
        report.tell(runs, time.perf_counter() - started, has_config=has_config, has_speakers=True)
    _end(outcomes, threads.first_failure(outcomes))


def _end(outcomes: list[Outcome], first: int | None) -> None:
    """Print the errors of all ranks, that of the one that failed first before the others; exit with 1."""
    if first is None:
        return
    for rank in sorted(range(len(outcomes)), key=lambda rank: (rank != first, rank)):
        error = outcomes[rank].error
        if error is not None:
            messages.say(f"rank {rank}: {message_of(error)}")
    click.get_current_context().exit(FAILED)
