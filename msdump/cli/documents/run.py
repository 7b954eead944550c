"""The document of ``msdump run --json``."""

from __future__ import annotations

from collections.abc import Sequence

from msdump.cli.documents.document import JsonDocument, Number, Part
from msdump.cli.run import report
from msdump.cli.run.model_run import ModelRun


class DumpedFiles(Part):
    """What a rank's dump has written."""

    path: str
    """Directory of the files."""

    iterations: list[int]
    """Numbers of the dumped iterations that are complete and on disk."""

    dropped: list[int]
    """Numbers of those that are not: no watch rule hit, or the history had no reason to write them."""

    files: int
    """Number of files."""

    bytes: int
    """Bytes in all of them."""

    no_tensors: str | None
    """Why none of the files can hold an operator's tensor; null where they can."""

    skipped: dict[str, int]
    """Number of tensors without a file, by reason."""

    lost: dict[str, int]
    """Number of files that could not be written, by reason."""


class RankRun(Part):
    """What one rank did."""

    rank: int
    """Its number, 0 where it runs alone."""

    model: str
    """File of the model that it ran."""

    iterations: list[int]
    """Numbers of the iterations that are complete."""

    losses: list[Number]
    """The loss of each step of training; none where the steps return none."""

    dump: DumpedFiles | None
    """What it dumped; null where nothing is dumped."""

    no_dump: str | None
    """Why nothing is dumped; null where something is."""


class RunDocument(JsonDocument):
    """What ``msdump run`` did; iterations before an error count."""

    seconds: float
    """How long it took."""

    ranks: list[RankRun]
    """What each rank of this process did, by number."""


def document(runs: Sequence[ModelRun], seconds: float, *, has_config: bool) -> RunDocument:
    """Return what runs did; their files are written.

    Args:
        runs: The runs, one for each rank of this process.
        seconds: How long they took.
        has_config: Whether a configuration was given.
    """
    ranks = [_rank(run, has_config=has_config) for run in runs]
    return RunDocument(seconds=seconds, ranks=ranks)


def _rank(run: ModelRun, *, has_config: bool) -> RankRun:
    dump = _dump(run)
    return RankRun(
        rank=run.rank,
        model=run.network.graph.source,
        iterations=[*run.completed],
        losses=[*run.losses],
        dump=dump,
        no_dump=None if dump else report.why_none(run.network, has_config=has_config),
    )


def _dump(run: ModelRun) -> DumpedFiles | None:
    plan, summary = run.network.plan, run.network.summary
    if plan is None or summary is None:
        return None
    written, dropped = report.iterations(run, plan)
    return DumpedFiles(
        path=report.place(plan, run.rank),
        iterations=written,
        dropped=dropped,
        files=summary.files,
        bytes=summary.bytes,
        no_tensors=report.why_no_tensors(plan),
        skipped={str(reason): count for reason, count in summary.skipped.items()},
        lost={str(reason): count for reason, count in summary.lost.items()},
    )
