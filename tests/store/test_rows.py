"""Files that grow by whole rows."""

from __future__ import annotations

import os

import pytest

from msdump.store.rows import RowFile


def add(path, rows, header=b""):
    """Open a file, add rows and close it."""
    file = RowFile(str(path), 0o400)
    try:
        file.append(rows, header)
    finally:
        file.close()


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (b"", b"title\nnew\n"),
        (b"title\nold\n", b"title\nold\nnew\n"),
        (b"title\nold\ntor", b"title\nold\nnew\n"),
        (b"tit", b"title\nnew\n"),
        (b"title\n" + b"x" * 100_000, b"title\nnew\n"),
    ],
    ids=["empty", "whole", "torn row", "torn header", "long torn row"],
)
def test_rows_are_added_to_whole_rows(tmp_path, before, expected):
    """What a killed run left of a row is cut off, and an empty file gets its header."""
    path = tmp_path / "s.csv"
    path.write_bytes(before)

    add(path, b"new\n", b"title\n")

    assert expected == path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o400


def test_a_row_that_does_not_fit_leaves_nothing(tmp_path, file_size_limit):
    """A group of rows that the system takes only in part is taken back whole."""
    path = tmp_path / "s.csv"
    add(path, b"1\n", b"title\n")
    file_size_limit(20)

    with pytest.raises(OSError, match="File too large"):
        add(path, b"2" * 50 + b"\n", b"title\n")

    assert path.read_bytes() == b"title\n1\n"


def test_a_group_is_one_call_of_the_system(tmp_path, monkeypatch):
    """Header and rows reach the file together."""
    sizes = []
    write = os.write

    def spy(fd, data):
        sizes.append(len(data))
        return write(fd, data)

    monkeypatch.setattr(os, "write", spy)
    add(tmp_path / "s.csv", b"1\n2\n", b"title\n")

    assert sizes == [10]


def test_a_deleted_file_is_noticed(tmp_path):
    """An open file knows that its name is gone."""
    file = RowFile(str(tmp_path / "s.csv"), 0o400)

    before = file.is_linked()
    (tmp_path / "s.csv").unlink()

    assert (before, file.is_linked()) == (True, False)
    file.close()
