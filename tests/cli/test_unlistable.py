"""A directory of a dump that may not be listed is reported by every command that walks the tree."""

import errno
import json
import os

import numpy as np
import pytest

from tests.world import cli

NAME = "rank_0/Net/0/{}/Add.a{}.0.0.{}.output.0.DefaultFormat.float32.npy"
WARNED, REFUSED = "msdump: warning: ", "msdump: error: "
COMMANDS = {
    "compare": (WARNED, 1, "compare", "mine", "golden", "-out", "out"),
    "compare, as golden": (WARNED, 1, "compare", "golden", "mine", "-out", "out"),
    "report": (WARNED, 1, "report", "mine", "-o", "page.html"),
    "report beside golden": (WARNED, 1, "report", "mine", "golden", "-o", "page.html"),
    "baseline": (WARNED, 1, "baseline", "mine", "-out", "out"),
    "query": (WARNED, 1, "query", "mine", "select count(*) from tensors"),
    "query files": (WARNED, 1, "query", "mine", "select count(*) from files"),
    "pack": (WARNED, 1, "pack", "mine", "-out", "out"),
    "show --json": (WARNED, 1, "show", "mine", "--json"),
    "convert": (REFUSED, 2, "convert", "-d", "mine", "-out", "out"),
    "watch": (REFUSED, 2, "watch", "mine", "--rules", "rules.json"),
    "overflow": (REFUSED, 2, "overflow", "mine"),
    "trend": (REFUSED, 2, "trend", "mine", "a0", "max"),
    "explain": (REFUSED, 2, "explain", "mine", "a0"),
}


@pytest.fixture(autouse=True)
def closed(tmp_path, monkeypatch, fresh):
    """Make two dumps of two iterations; return the directory of one that may not be listed."""
    for side in ("mine", "golden"):
        for iteration in (0, 1):
            for number in (0, 1):
                path = tmp_path / side / NAME.format(iteration, number, 1795219089580885 + number)
                path.parent.mkdir(parents=True, exist_ok=True)
                np.save(path, np.float32([iteration, number]))
    (tmp_path / "rules.json").write_text(json.dumps({"rules": [{"condition": "tensor_overflow"}]}))
    monkeypatch.chdir(tmp_path)
    folder = "mine/rank_0/Net/0/1"
    for name in ("scandir", "listdir"):
        monkeypatch.setattr(os, name, _refusing(getattr(os, name), folder))
    return folder


def _refusing(function, folder):
    def call(path="."):
        if str(path).endswith(folder):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return function(path)

    return call


@pytest.mark.parametrize(
    ("told", "code", "arguments"), [(a, b, c) for a, b, *c in COMMANDS.values()], ids=COMMANDS
)
def test_what_may_not_be_listed_is_told(told, code, arguments, closed):
    """A command says which directory it is, whether it goes on without it or not."""
    done = cli(*arguments)
    assert code == done.exit_code, done.stderr
    assert [] != [
        line for line in done.stderr.splitlines() if line.startswith(told) and f"{closed}: Permission" in line
    ]


def test_the_tree_shows_it_in_its_place():
    """The tree of a dump has a line in place of the directory's contents."""
    done = cli("show", "mine")
    assert 1 == done.exit_code
    lines = list(map(str.strip, done.stdout.splitlines()))
    assert "(Permission denied)" == lines[lines.index("1/") + 1]


def test_a_directory_below_is_told_when_a_dump_is_looked_for(tmp_path, closed):
    """A directory above a dump that cannot be listed is an error that names it."""
    outside = tmp_path / "outside" / closed
    outside.mkdir(parents=True)
    done = cli("query", outside.parent, "select 1")
    assert (2, f"msdump: error: {outside}: Permission denied\n") == (done.exit_code, done.stderr)
