"""``msdump diff --advise`` as a program of its own, its start included."""

from __future__ import annotations

from typing import Final

from tests.bench.case import Case
from tests.bench.measure import Figure
from tests.bench.programs import MSDUMP, Ran, run

_BOUND: Final = "1e-3"
"""Of the outputs' error, which is 1.7e-3 where all operators compute in float16."""


def seconds(case: Case) -> Figure:
    """Time of the command."""
    return Figure.of([_run(case).seconds])


def gigabytes(case: Case) -> Figure:
    """Its peak memory."""
    return Figure.of([_run(case).mib * (1 << 20) / 1e9])


def _run(case: Case) -> Ran:
    done = run(*MSDUMP, "diff", str(case.path), "--mine", "Ascend:force_fp16", "--advise", _BOUND)
    if not any(line.startswith("keep ") for line in done.printed.splitlines()):
        raise RuntimeError(done.printed)
    return done
