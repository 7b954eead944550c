"""What a run tells at its end: iterations, files, and what has none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from msdump import env
from msdump.cli import messages
from msdump.cli.documents import output
from msdump.cli.run.model_run import ModelRun
from msdump.iterations import IterationSet
from msdump.plan import DumpPlan, Tree
from msdump.selector import DumpMode
from msdump.session import Network
from msdump.store.layouts import Key, PathKind

_MOST_LOSSES: Final = 10
_WHY_DROPPED: Final = "no watch rule hit, and nothing failed"


def tell(runs: Sequence[ModelRun], seconds: float, *, has_config: bool, has_speakers: bool) -> None:
    """Print what runs did, or put the document of it.

    Args:
        runs: The runs of this process, one for each of its ranks; their files are written.
        seconds: How long they took.
        has_config: Whether a configuration was given.
        has_speakers: Whether each line names its rank.
    """
    if output.wanted():
        from msdump.cli.documents.run import document

        output.put(document(runs, seconds, has_config=has_config))
        return
    for run in runs:
        speaker = f"rank {run.rank}: " if has_speakers else ""
        told = lines(run, seconds, has_config=has_config)
        print("\n".join(f"{speaker}{line}" for line in told))  # at once: other processes print, too


def lines(run: ModelRun, seconds: float, *, has_config: bool) -> Iterator[str]:
    """Yield what a run did.

    Args:
        run: The run; its files are written.
        seconds: How long it took.
        has_config: Whether a configuration was given.
    """
    yield f"ran      {_iterations(run.completed)} of {run.network.graph.source} in {seconds:.2f} s"
    yield from _loss_lines(run.losses)
    yield from _dump_lines(run, has_config=has_config)


def _loss_lines(losses: list[float]) -> Iterator[str]:
    """Yield the line of losses; of many the first and last ones, unless -v asks for all."""
    shown = [f"{loss:.7g}" for loss in losses]
    if len(shown) > _MOST_LOSSES and not messages.verbosity():
        shown = [*shown[: _MOST_LOSSES // 2], "...", *shown[-_MOST_LOSSES // 2 :]]
    if shown:
        yield f"loss     {' '.join(shown)}"


def _dump_lines(run: ModelRun, *, has_config: bool) -> Iterator[str]:
    """Yield lines on the files that the dump wrote, skipped and lost."""
    plan, summary = run.network.plan, run.network.summary
    if plan is None or summary is None:
        yield f"no dump: {why_none(run.network, has_config=has_config)}"
        return
    written, dropped = iterations(run, plan)
    yield f"dumped   {_iterations(written)}: {summary.files} files, {summary.bytes:,} bytes"
    yield f"into     {place(plan, run.rank)}"
    if reason := why_no_tensors(plan):
        yield f"no tensors: {reason}"
    if dropped:
        yield f"dropped  {_iterations(dropped)}: {_WHY_DROPPED}"
    if summary.skipped:
        yield f"skipped  {_counts(summary.skipped, 'tensor')}"
    if summary.lost:
        yield f"lost     {_counts(summary.lost, 'file')}"


def iterations(run: ModelRun, plan: DumpPlan) -> tuple[list[int], list[int]]:
    """Return the complete iterations that a dump has written, and those that rules or a history dropped."""
    wanted = [number for number in run.completed if number in plan.when.iterations]
    written = run.network.written_iterations
    return [each for each in wanted if each in written], [each for each in wanted if each not in written]


def place(plan: DumpPlan, rank: int) -> str:
    """Return the directory of the files that a rank dumps."""
    root = plan.files.path.rstrip("/")
    return (
        f"{root}/{Key(PathKind.NETWORK, rank, plan.files.net_name).path}"
        if plan.files.tree is Tree.RANKS
        else root
    )


def why_none(network: Network, *, has_config: bool) -> str:
    """Return why a network that dumps nothing does not."""
    if not has_config:
        return f"neither --config nor {env.DUMP_CONFIG} is given"
    if not network.graph.nodes:
        return "the model has no operators"
    return "support_device does not hold this device"


def why_no_tensors(plan: DumpPlan) -> str | None:
    """Return why a dump that is on can hold no operator's tensors; None where it can."""
    if plan.what.selector.mode is DumpMode.MARKED:
        return "dump_mode 2 dumps what a program marks by msdump.set_dump, and a run marks nothing"
    return None


def _iterations(numbers: list[int]) -> str:
    if not numbers:
        return "0 iterations"
    ranges = IterationSet.of([(number, number) for number in numbers])
    return f"{len(numbers)} iteration{'s' * (len(numbers) != 1)} ({ranges})"


def _counts(counts: Any, noun: str) -> str:
    """Return ``3 tensors (no elements), 1 tensor (text)``."""
    return ", ".join(f"{count} {noun}{'s' * (count != 1)} ({reason})" for reason, count in counts.items())
