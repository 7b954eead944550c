"""What the tests of ``msdump report`` share: dumps by hand, and reports as documents and pages."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from msdump.cli import main

HEAD = (
    "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,"
    "Max Value,Min Value,L2Norm Value"
)


@pytest.fixture(autouse=True)
def _fresh(fresh):
    """Let each test begin as a new process."""


@pytest.fixture
def put(tmp_path):
    """Return a function that writes the statistics of an iteration: names of operators and extremes."""

    def write(iteration, rows, *, root="dump", rank=0, network="Net"):
        path = tmp_path / root / f"rank_{rank}/{network}/0/{iteration}/statistic.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [HEAD]
        for place, (name, io, slot, high) in enumerate(rows):
            op_type = name.rpartition("_")[2].partition("-")[0]
            time = 1_795_217_009_000_000 + iteration * 1000 + place
            cells = f'{op_type},{name},0,0,{time},{io},{slot},24,float32,"(2,3)",{high},-1,{high}'
            lines.append(cells)
        path.write_text("\n".join((*lines, "")), encoding="utf-8")
        return tmp_path / root

    return write


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Return a function that runs ``msdump report`` in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        return CliRunner().invoke(main, ["report", *map(str, arguments)], catch_exceptions=False)

    return call


@pytest.fixture
def document(run):
    """Return a function that makes a report and returns its document; its faults are in the exit code."""

    def call(*arguments):
        done = run(*arguments, "--json")
        report = json.loads(done.stdout)
        assert int(bool(report["faults"])) == done.exit_code, done.stderr
        return report

    return call


@pytest.fixture
def page(run, tmp_path):
    """Return a function that makes a report which succeeds, and returns its page."""

    def call(*arguments):
        done = run(*arguments, "-o", tmp_path / "page.html")
        assert done.exit_code in (0, 1), done.stderr  # 1: a file cannot be read, the page tells which
        return (tmp_path / "page.html").read_text(encoding="utf-8")

    return call


@pytest.fixture
def plain():
    """Return a function that gives a page as it is read without JavaScript and without style sheets."""

    def strip(text):
        text = re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.DOTALL)
        return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))

    return strip
