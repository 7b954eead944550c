"""Names of nameless files: which way is taken, and that a failed way is remembered."""

from __future__ import annotations

import ctypes
import errno
import os

import pytest

from msdump.store.write import place
from msdump.store.write.temporaries import Linker

pytestmark = pytest.mark.skipif(not place._NAMELESS, reason="the system has no nameless files")


@pytest.fixture
def directory(tmp_path):
    """Give the descriptor of an open directory."""
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


@pytest.fixture
def nameless(directory):
    """Give the descriptor of a nameless file in the directory."""
    fd = os.open(".", os.O_RDWR | place._NAMELESS, 0o600, dir_fd=directory)
    os.write(fd, b"contents")
    yield fd
    os.close(fd)


def refusal(number, calls):
    """Return a ``linkat`` that notes its calls and always fails with an error number."""

    def link(_fd, _path, _directory, name, _flags):
        calls.append(name)
        ctypes.set_errno(number)
        return -1

    return link


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EPERM, errno.EINVAL, errno.ENOSYS])
def test_a_way_that_the_system_refuses_is_tried_once(tmp_path, directory, nameless, number):
    """Where the first way is refused, this file and all later ones take the path in /proc."""
    calls = []
    linker = Linker(refusal(number, calls))

    linker.give_name(directory, "a.npy", nameless)
    with pytest.raises(FileExistsError):
        linker.give_name(directory, "a.npy", nameless)

    assert [b"a.npy"] == calls
    assert ["a.npy"] == [path.name for path in tmp_path.iterdir()]


def test_a_failure_of_both_ways_is_no_refusal(tmp_path, nameless):
    """Where the path fails too, as in a directory that was removed, the first way is tried again."""
    calls = []
    linker = Linker(refusal(errno.ENOENT, calls))
    (tmp_path / "gone").mkdir()
    gone = os.open(tmp_path / "gone", os.O_RDONLY)
    (tmp_path / "gone").rmdir()

    for name in ("a.npy", "b.npy"):
        with pytest.raises(FileNotFoundError):
            linker.give_name(gone, name, nameless)
    os.close(gone)

    assert [b"a.npy", b"b.npy"] == calls
