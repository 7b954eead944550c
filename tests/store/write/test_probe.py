"""Proof that a dump can be written."""

import os
from pathlib import Path

import pytest

from msdump.errors import DumpWriteError
from msdump.store.write import probe


def test_missing_directories_are_made(tmp_path):
    """The root appears with its parents, 0700 and empty."""
    root = tmp_path / "a" / "b"

    probe(str(root))

    assert list(root.iterdir()) == []
    assert [path.stat().st_mode & 0o777 for path in (root, root.parent)] == [0o700, 0o700]


def test_an_existing_directory_stays_as_it_is(tmp_path):
    """A root that exists keeps its mode and its files."""
    tmp_path.chmod(0o755)
    (tmp_path / "x").write_bytes(b"")

    probe(str(tmp_path))

    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert tmp_path.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("below", ["", "/rank_0/x"], ids=["file", "below a file"])
def test_a_file_in_the_way_is_named(tmp_path, below):
    """A file where the root or a parent must be is named as the fault."""
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(DumpWriteError) as raised:
        probe(f"{tmp_path}/file{below}")

    assert (
        f"dump path '{tmp_path}/file{below}' cannot be created ('{tmp_path}/file' is not a directory): "
        "Not a directory; remove the file at the place of the directory, or choose another path"
    ) == str(raised.value)


def _fault(path):
    try:
        probe(path)
    except DumpWriteError as error:
        return error
    return "written"


def test_a_parent_without_permission_is_named(as_user, user_dir):
    """The last directory that exists is named where the user may not write it."""
    user_dir.chmod(0o500)

    message = as_user(_fault, f"{user_dir}/a/b")

    assert (
        f"dump path '{user_dir}/a/b' cannot be created ('{user_dir}' is the last directory that exists): "
        "Permission denied; give the user write permission or choose another path"
    ) == message


def test_a_root_without_permission_is_told(as_user, user_dir):
    """A root that exists and may not be written is reported as such."""
    user_dir.chmod(0o500)

    message = as_user(_fault, str(user_dir))

    assert message.startswith(f"dump path '{user_dir}' cannot be written: Permission denied; give")


def test_a_full_disk_is_told(small_disk):
    """A disk without room for a block is reported before anything runs."""
    size = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
    (small_disk / "filler").write_bytes(bytes(size))

    with pytest.raises(DumpWriteError, match="cannot be written: No space left on device; free space"):
        probe(str(small_disk))

    assert [path.name for path in small_disk.iterdir()] == ["filler"]


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="no /proc on this system")
def test_a_file_system_that_takes_no_directories():
    """A place where the system makes no directories is named."""
    with pytest.raises(DumpWriteError) as raised:
        probe("/proc/x/y")

    assert (
        "dump path '/proc/x/y' cannot be created ('/proc' is the last directory that exists): "
        "No such file or directory; choose another path"
    ) == str(raised.value)
