"""The soak itself: it runs, it counts, and it finds violations."""

import re
import subprocess
import sys

import numpy as np
import pytest

from scripts.soak import mutations, wholeness
from tests.world import ROOT

VERDICT = re.compile(
    r"soak: (\d+) kills, (\d+) signals, (\d+) full disks, (\d+) threads, ([\d,]+) mutated inputs, "
    r"(\d+) violations in \d+ s"
)


@pytest.mark.timeout(180)
def test_a_short_soak_ends_clean():
    """Every subject has its turn, the last line is the verdict, and the exit code agrees with it."""
    command = [sys.executable, "-m", "scripts.soak.run", "--seconds", "1", "--jobs", "1", "--seed", "1"]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=170, check=False)

    last = VERDICT.fullmatch(done.stdout.splitlines()[-1])
    assert last, done.stdout + done.stderr
    assert 0 == done.returncode, done.stdout
    *counts, violations = (int(text.replace(",", "")) for text in last.groups())
    assert min(counts) >= 1
    assert 0 == violations


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("a.npy", b"\x93NUMPY", "Error"),
        ("a.json", b'{"a": ', "JSONDecodeError"),
        ("statistic.csv", b"Op Type,Op Name,Max\nAdd,a,1", "the last row is torn"),
        ("statistic.csv", b"Op Type,Op Name,Max\nAdd,a\n", "cells"),
        ("statistic.csv", b"Add,a,1\n", "no header"),
        ("statistic.csv", b"", "empty"),
        ("graph.ir", b"subgraph {", "the text has no end"),
        ("Add.a.1.2.3", b"\x08\x00", "Error"),
        (".msdump-0.tmp", b"x", "a temporary name is left"),
    ],
)
def test_torn_files_are_seen(tmp_path, name, data, told):
    """A file that is not whole is a violation."""
    np.save(tmp_path / "whole.npy", np.zeros((3, 4), np.float32))
    (tmp_path / name).write_bytes(data)

    (found,) = wholeness.violations(tmp_path)

    assert f"{tmp_path / name}: " in found
    assert told in found


def test_readers_that_break_are_seen(tmp_path, monkeypatch):
    """An error that is not msdump's own is a violation that names input and batch."""

    def broken(path):
        raise KeyError(path.name)

    monkeypatch.setattr(mutations, "valid_files", lambda _: [("file", "f", b"abc", broken)])

    found = mutations.batch(7, tmp_path, 3)

    assert [f"input {number} of batch 7: file" for number in range(3)] == [text[:24] for text in found]
    assert all("KeyError: 'f'" in text for text in found)
