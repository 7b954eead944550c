"""Runs dumping processes into random faults, and readers into broken files, for a given time.

    make soak SECONDS=1200
    python -m scripts.soak.run --seconds 60 --jobs 2
    python -m scripts.soak.run --subject kills --seed 4711   (one violation again)

Each violation is printed with its subject and seed. The last line is the verdict; the exit code is 1 after a
violation.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import msdump
from scripts.soak import deaths, mutations, threads

ROOT = Path(__file__).resolve().parents[2]

SUBJECTS = {
    "kills": (deaths.kill, 1, 6),
    "signals": (deaths.told_to_end, 1, 2),
    "full disks": (deaths.fill_up, 1, 2),
    "threads": (threads.run, 1, 1),
    "mutated inputs": (mutations.batch, mutations.BATCH, 4),
}
"""Function of a seed and a folder that returns violations, its name in counts, and turns in a round."""


def once(subject, seed):
    """Try a subject once; return its violations."""
    function, _, _ = SUBJECTS[subject]
    folder = Path(tempfile.mkdtemp(prefix="msdump-soak-"))
    try:
        return function(seed, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def work(report, seed, seconds):
    """Go through the subjects in turn until the time is over; report each turn as a line of JSON."""
    end = time.monotonic() + seconds
    turns = [subject for subject, (_, _, turns) in SUBJECTS.items() for _ in range(turns)]
    at = 0
    while time.monotonic() < end or at < len(SUBJECTS):
        subject = turns[at % len(turns)] if at >= len(SUBJECTS) else list(SUBJECTS)[at]
        found = once(subject, seed + at)
        report(json.dumps([subject, seed + at, found]).encode() + b"\n")
        at += 1


def _start(seed, seconds):
    """Fork a worker; return its process and its pipe."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    worker = os.fork()
    if worker == 0:
        os.close(reader)
        try:
            work(lambda data: os.write(writer, data), seed, seconds)
        except BaseException:  # noqa: BLE001 - a worker must end here
            import traceback

            os.write(writer, json.dumps(["soak", seed, [traceback.format_exc()]]).encode() + b"\n")
        finally:
            os._exit(0)
    os.close(writer)
    return worker, os.fdopen(reader, encoding="utf-8")


def soak(seconds, jobs, seed):
    """Run workers side by side; print violations as they come, and the verdict. Return their number."""
    begun = time.monotonic()
    workers = [_start(seed + worker * 10_000_000, seconds) for worker in range(jobs)]
    counts, violations = Counter(), 0
    for _, pipe in workers:
        for line in pipe:
            subject, used, found = json.loads(line)
            counts[subject] += SUBJECTS[subject][1] if subject in SUBJECTS else 0
            violations += len(found)
            for text in found:
                print(f"VIOLATION --subject {subject!r} --seed {used}: {text}", flush=True)
    for worker, _ in workers:  # who calls this may have other children, which go on
        os.waitpid(worker, 0)
    told = ", ".join(f"{counts[subject]:,} {subject}" for subject in SUBJECTS)
    print(f"soak: {told}, {violations:,} violations in {time.monotonic() - begun:,.0f} s", flush=True)
    return violations


def main():
    """Read the options and soak."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=time.time_ns() // 1_000_000_000)
    parser.add_argument("--subject", choices=SUBJECTS, help="Try this subject once, with --seed.")
    given = parser.parse_args()
    _ = msdump.load  # imports the modules of every child
    if given.subject is None:
        return 1 if soak(given.seconds, given.jobs, given.seed) else 0
    found = once(given.subject, given.seed)
    print("\n".join(found) or "no violation")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
