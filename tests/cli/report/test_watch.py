"""``msdump report --watch``: the page of a run that goes on."""

from __future__ import annotations

import pytest

from msdump.cli.report import follow
from msdump.tools.report import columns

NAMES = ("Default_a_Add-op0", "Default_b_Mul-op0")


@pytest.fixture
def moments(monkeypatch):
    """Return a function that lets things happen while the command waits, then ends it as Ctrl-C does."""

    def happen(*events):
        pending = iter(events)

        def wait(_):
            event = next(pending, None)
            if event is None:
                raise KeyboardInterrupt
            event()

        monkeypatch.setattr(follow.time, "sleep", wait)

    return happen


def rows(high):
    """Return rows of two operators."""
    return [(NAMES[0], "output", 0, 1), (NAMES[1], "output", 0, high)]


def test_page_follows(put, run, moments, tmp_path):
    """The page is written when an iteration was dumped, and a headline that changes is told."""
    path = tmp_path / "page.html"
    seen = []
    moments(
        lambda: put(0, rows(1)),
        lambda: seen.append(path.exists()),
        lambda: put(1, rows(2)),
        lambda: put(2, rows("inf")),
        lambda: seen.append(
            f"<h1>{NAMES[1]} (Mul) in iteration 2: infinity begins here</h1>" in path.read_text()
        ),
    )

    done = run(tmp_path / "dump", "--watch", "-o", path)

    assert [True, True] == seen
    assert 130 == done.exit_code
    lines = [line.partition("  (")[0] for line in done.stdout.splitlines()]
    assert ["Nothing wrong was found", f"{NAMES[1]} (Mul) in iteration 2: infinity begins here"] == lines
    assert "waiting for" in done.stderr
    assert 'data-reload="5.0"' in path.read_text()


def test_only_what_changed_is_read(put, run, moments, tmp_path, monkeypatch):
    """A directory that has not changed is not read again."""
    read, paths = columns.read, []
    monkeypatch.setattr(columns, "read", lambda path, fault: paths.append(path) or read(path, fault))
    root = put(0, rows(1))
    moments(lambda: put(1, rows(2)), lambda: None, lambda: put(2, rows(2)))

    run(root, "--watch", "-o", tmp_path / "page.html")

    assert ["0", "1"] == [path.split("/")[-2] for path in paths[:2]]
    assert len({*paths}) == len(paths)


def test_damage_is_told_each_time(put, run, moments, tmp_path):
    """What could not be read stands in every page, also where it is not read again."""
    root = put(0, rows(1))
    path = next(root.rglob("statistic.csv"))
    path.write_bytes(path.read_bytes() + b"torn")
    moments(lambda: put(1, rows(2)), lambda: None)

    run(root, "--watch", "-o", tmp_path / "page.html")

    assert "no line feed yet" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("option", ["--csv", "--json"])
def test_a_page_alone_is_followed(put, run, option):
    """Documents are printed once, and cannot be followed."""
    assert 2 == run(put(0, rows(1)), "--watch", option).exit_code
