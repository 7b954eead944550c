"""Injects random faults into networks, and counts how often they are named, and nobody else accused.

    python -m tests.faults.run --first 0 --count 200
    python -m tests.faults.run --first 37 --count 1 --keep /tmp/37   (one again, its dumps kept)
    python -m tests.faults.run --check sound

Each answer that is wrong is printed with the seed of its trial. The last line is the count; the exit code
is 1 where an answer is wrong. Checks: "files" (dump beside dump, default limits: the first fault is named,
nobody before it accused), "model" (with re-execution: every fault named, nobody else), "sound" (no faults,
every pair of modes: nobody accused).
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from tests.faults import trials
from tests.faults.dumps import CPU, MODES, PRECISIONS
from tests.faults.networks import NETWORKS, network
from tests.faults.trials import Sides, Trial

CHECKS = ("files", "model", "sound")


def answers(trial: Trial, folder: Path, checks: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """Yield each check and what is wrong with its answer on a trial."""
    sides = trials.dumped(trial, folder)
    for check in checks:
        try:
            found = trials.accused(trials.compare(sides, folder / check, *options(sides, check)), sides)
        except Exception:  # noqa: BLE001 - whatever it raises is an answer
            yield check, [traceback.format_exc(limit=-4)]
        else:
            yield check, trials.violations(trial, found, sides, all_faults=check != "files")


def options(sides: Sides, check: str) -> tuple[str, ...]:
    """Return the options of ``msdump compare`` for a check."""
    if check == "model":
        return "--model", str(sides.golden.model)
    return ()


def sound_pairs() -> Iterator[Trial]:
    """Yield every network without faults, in every mode beside the CPU and beside itself."""
    for name in NETWORKS:
        for mine in (*MODES, *PRECISIONS):
            for golden in (mine, CPU):
                both = (trials.fitting(network(name), mode) for mode in (mine, golden))
                yield Trial(0, network(name), (), *both)


def run(chosen: Iterator[Trial], checks: tuple[str, ...], keep: Path | None) -> int:
    """Hold the answers on trials against what was done; print what is wrong, return its number."""
    begun, wrong, count = time.monotonic(), dict.fromkeys(checks, 0), 0
    for trial in chosen:
        folder = keep or Path(tempfile.mkdtemp(prefix="msdump-faults-"))
        count += 1
        try:
            for check, violations in answers(trial, folder, checks):
                if violations:
                    wrong[check] += 1
                    print("\n    ".join([f"WRONG {check}: {trial}", *violations]), flush=True)
        finally:
            if keep is None:
                shutil.rmtree(folder, ignore_errors=True)
    told = ", ".join(f"{check} {count - number} of {count} right" for check, number in wrong.items())
    print(f"faults: {told}, {time.monotonic() - begun:,.0f} s", flush=True)
    return sum(wrong.values())


def main() -> int:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="seed of the first trial")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--check", choices=CHECKS, action="append", help="default: files and model")
    parser.add_argument("--keep", type=Path, help="folder of the dumps of one trial")
    parser.add_argument("--network", choices=NETWORKS, help="trials of this network alone")
    given = parser.parse_args()
    logging.disable(logging.WARNING)  # a wrong network warns of NaN, as it should
    checks = tuple(given.check or ("files", "model"))
    if "sound" in checks:
        chosen = (trial for trial in sound_pairs() if given.network in {None, trial.net.name})
        return 1 if run(chosen, ("model",) if "model" in checks else ("files",), given.keep) else 0
    seeds = range(given.first, given.first + given.count)
    chosen = (trials.draw(seed) for seed in seeds)
    chosen = (trial for trial in chosen if given.network in {None, trial.net.name})
    return 1 if run(chosen, checks, given.keep) else 0


if __name__ == "__main__":
    sys.exit(main())
