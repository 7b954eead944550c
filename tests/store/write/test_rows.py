"""Files that grow by whole rows."""

import os

import pytest

from msdump.plan import OnWriteError
from msdump.store.write import DiskFiles, SyncSink, place


def add(path, rows, header=b""):
    """Open a file, add rows and close it."""
    disk = DiskFiles()
    try:
        disk.append(str(path.parent), path.name, rows, header)
    finally:
        disk.close()


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
    """Half a row of a killed run is cut off, and an empty file gets its header."""
    path = tmp_path / "s.csv"
    path.write_bytes(before)

    add(path, b"new\n", b"title\n")

    assert expected == path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o400


MIXED = {
    "other columns": ([b"title,a\n", b"title,b\n"], b"title,a\n0\ntitle,b\n1\n"),
    "the same again": ([b"title,a\n"] * 3, b"title,a\n0\n1\n2\n"),
    "back again": ([b"title,a\n", b"title,b\n", b"title,a\n"], b"title,a\n0\ntitle,b\n1\ntitle,a\n2\n"),
    "more columns": ([b"title,a\n", b"title,a,b\n", b"title,a,b\n"], b"title,a\n0\ntitle,a,b\n1\n2\n"),
    "no titles": ([b"", b""], b"0\n1\n"),
}


@pytest.mark.parametrize("reopens", [True, False], ids=["one after the other", "side by side"])
@pytest.mark.parametrize(("headers", "expected"), MIXED.values(), ids=MIXED)
def test_rows_with_other_titles_get_theirs(tmp_path, headers, expected, reopens):
    """Rows stand below their own titles; titles that hold are not repeated."""
    path = tmp_path / "s.csv"
    disks = {header: DiskFiles() for header in headers}

    for number, header in enumerate(headers):
        disks[header].append(str(tmp_path), path.name, b"%d\n" % number, header)
        if reopens:
            disks[header].close()

    for disk in disks.values():
        disk.close()
    assert expected == path.read_bytes()


def test_a_row_that_does_not_fit_leaves_nothing(tmp_path, file_size_limit):
    """A group of rows that the system takes only in part is taken back whole."""
    path = tmp_path / "s.csv"
    add(path, b"1\n", b"title\n")
    file_size_limit(20)

    with pytest.raises(OSError, match="File too large"):
        add(path, b"2" * 50 + b"\n", b"title\n")

    assert path.read_bytes() == b"title\n1\n"


def test_rows_of_a_group_that_fit_are_written(tmp_path, file_size_limit):
    """Of several rows a sink writes the ones that fit, and counts the files that lack the others."""
    sink = SyncSink(OnWriteError.WARN)
    file_size_limit(20)

    for name in ("s.csv", "t.csv"):
        sink.append(f"{tmp_path}/{name}", b"1\n" + b"2" * 50 + b"\n3\n" + b"4" * 50 + b"\n", b"title\n")

    assert b"title\n1\n3\n" == (tmp_path / "s.csv").read_bytes()
    assert ({"File too large": 2}, 2, 20) == (sink.summary.lost, sink.summary.files, sink.summary.bytes)


def link(path, victim):
    """Plant a symbolic link."""
    path.symlink_to(victim)


def dangling(path, victim):
    """Plant a link to a file that is yet to be made."""
    path.symlink_to(victim.parent / "new")


def hard_link(path, victim):
    """Plant a second name of a file."""
    path.hardlink_to(victim)


def pipe(path, victim):
    """Plant a pipe."""
    os.mkfifo(path)


def folder(path, victim):
    """Plant a directory."""
    path.mkdir()


PLANTS = {
    "link": (link, "the file is a symbolic link"),
    "dangling link": (dangling, "the file is a symbolic link"),
    "hard link": (hard_link, "2 names"),
    "pipe": (pipe, "not a regular file but a pipe"),
    "directory": (folder, "Is a directory"),
}


@pytest.mark.parametrize("nameless", [True, False], ids=["nameless", "renamed"])
@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("mode", [0o644, 0o400], ids=oct)
def test_rows_go_to_no_planted_file(tmp_path, monkeypatch, plant, mode, nameless):
    """Links and pipes in place of a csv file are refused; the victim keeps its bytes and its mode."""
    if not nameless:
        monkeypatch.setattr(place, "_NAMELESS", 0)
    make, reason = PLANTS[plant]
    victim = tmp_path / "victim"
    victim.write_bytes(b"secret")
    victim.chmod(mode)
    (tmp_path / "dump").mkdir()
    make(tmp_path / "dump" / "s.csv", victim)
    disk = DiskFiles()

    with pytest.raises(OSError, match=reason):
        disk.append(str(tmp_path / "dump"), "s.csv", b"1\n", b"title\n")
    disk.close()

    assert (b"secret", mode) == (victim.read_bytes(), victim.stat().st_mode & 0o777)
    assert ["dump", "victim"] == sorted(path.name for path in tmp_path.iterdir())


def _append_as_user(directory):
    disk = DiskFiles()
    try:
        disk.append(directory, "s.csv", b"1\n", b"title\n")
    except OSError as error:
        return error.strerror
    return "written"


def test_a_read_only_victim_of_ones_own_keeps_its_mode(as_user, user_dir):
    """A read-only file behind a link, which its owner could change, stays read-only."""
    victim = user_dir / "victim"
    victim.write_bytes(b"secret")
    os.chown(victim, user_dir.stat().st_uid, -1)
    victim.chmod(0o400)
    (user_dir / "dump").mkdir()
    os.chown(user_dir / "dump", user_dir.stat().st_uid, -1)
    (user_dir / "dump" / "s.csv").symlink_to(victim)

    assert "the file is a symbolic link" == as_user(_append_as_user, str(user_dir / "dump"))
    assert (b"secret", 0o400) == (victim.read_bytes(), victim.stat().st_mode & 0o777)


@pytest.mark.parametrize("nameless", [True, False], ids=["nameless", "renamed"])
def test_a_full_disk_leaves_no_empty_file(small_disk, monkeypatch, nameless):
    """A csv file is not there at all where its first rows do not fit."""
    if not nameless:
        monkeypatch.setattr(place, "_NAMELESS", 0)
    disk = DiskFiles()
    disk.create(str(small_disk), "before.npy", (b"x",))
    size = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
    (small_disk / "filler").write_bytes(bytes(size))

    with pytest.raises(OSError, match="No space left"):
        disk.append(str(small_disk), "s.csv", b"1\n", b"title\n")
    disk.close()

    assert ["before.npy", "filler"] == sorted(path.name for path in small_disk.iterdir())
