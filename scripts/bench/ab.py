"""Two commits beside each other: ``python -m scripts.bench.ab COMMIT_A COMMIT_B [--only NAMES]``.

Both are checked out into temporary worktrees and measured with this bench on the same networks, in turns.
A line has the median of B's figures as shares of A's, and between which shares the rounds lie. Ends with 1
where B is worse in every round by more than ``--tolerance``.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from scripts.bench import run, work
from scripts.bench.goals import Goal
from scripts.bench.measure import UnavailableError

ROUNDS: Final = 5
SECONDS: Final = 4.0
TOLERANCE: Final = 0.02

_ROOT: Final = Path(__file__).resolve().parents[2]
_MEASURING: Final = ("scripts/bench", "sample_nets")
"""Folders taken from here for both commits: jobs and networks must be the same."""

_WIDTH: Final = 130


@dataclass(frozen=True, slots=True)
class Change:
    """A goal's figure under B as a share of that under A.

    Attributes:
        a: Median figure of A.
        b: Median figure of B.
        share: Median over the rounds of b / a; where more is better, of a / b.
        least: The smallest share.
        most: The largest one.
    """

    a: float
    b: float
    share: float
    least: float
    most: float

    @classmethod
    def of(cls, pairs: Sequence[tuple[float, float]], *, is_floor: bool) -> Change:
        """Return the change that the figures (A, B) of the rounds show."""
        shares = [a / b if is_floor else b / a for a, b in pairs]
        a, b = (statistics.median(side) for side in zip(*pairs, strict=True))
        return cls(a, b, statistics.median(shares), min(shares), max(shares))

    def verdict(self, tolerance: float) -> str:
        """Return "worse" or "better" where all rounds agree in it by more than a tolerance."""
        if self.least > 1 + tolerance:
            return "worse"
        return "better" if self.most < 1 - tolerance else ""


@contextlib.contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Check a commit out into a temporary worktree with this bench in it; it is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="msdump-ab-") as parent:
        tree = Path(parent) / "tree"
        _git("worktree", "add", "--quiet", "--detach", str(tree), commit)
        try:
            for part in _MEASURING:
                shutil.rmtree(tree / part, ignore_errors=True)
                shutil.copytree(
                    _ROOT / part, tree / part, ignore=shutil.ignore_patterns(".cache", "__pycache__")
                )
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def compared(goal: Goal, trees: tuple[Path, Path], rounds: int, seconds: float) -> Change:
    """Measure a goal with both trees in turns.

    Raises:
        UnavailableError: One of them lacks a library or program.
        JobError: The job fails with one of them.
    """
    pairs = []
    for turn in range(rounds):
        figures = {tree: _figure(goal, tree, seconds) for tree in (trees if turn % 2 else trees[::-1])}
        pairs.append((figures[trees[0]], figures[trees[1]]))
    return Change.of(pairs, is_floor=goal.row.is_floor)


def _figure(goal: Goal, tree: Path, seconds: float) -> float:
    environment = {**os.environ, "PYTHONPATH": str(tree)}  # before the installed package
    given = run.case(goal, seconds)
    return work.measured(goal.row.job, given, directory=tree, environment=environment).value


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 where B is worse."""
    parser = argparse.ArgumentParser(prog="python -m scripts.bench.ab", description=__doc__)
    parser.add_argument("a", metavar="COMMIT_A")
    parser.add_argument("b", metavar="COMMIT_B")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of both commits (%(default)s)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of one figure (%(default)s)")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, help="of a share (%(default)s)")
    options, picked = run.parsed(parser, arguments)
    work.end_on_signals()
    console = Console(width=_WIDTH)
    table = Table("measured", "A", "B", "B as a share of A", "least to most", "")
    is_worse = False
    run.build(picked)
    with checked_out(options.a) as first, checked_out(options.b) as second:
        for goal in picked:
            try:
                change = compared(goal, (first, second), options.rounds, options.seconds)
            except (UnavailableError, work.JobError) as error:
                table.add_row(str(goal), "", "", "", "", str(error))
                continue
            told = change.verdict(options.tolerance)
            is_worse |= told == "worse"
            texts = (f"{change.a:.4g}", f"{change.b:.4g}", f"{change.share:.3f}")
            table.add_row(str(goal), *texts, f"{change.least:.3f} to {change.most:.3f}", told)
    console.print(table)
    return int(is_worse)


if __name__ == "__main__":
    sys.exit(main())
