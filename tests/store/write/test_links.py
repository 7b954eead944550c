"""Names of nameless files where the system refuses a link by descriptor."""

from __future__ import annotations

import ctypes
import errno
import os

import pytest

from msdump.store.write import DiskFiles, place, temporaries

pytestmark = pytest.mark.skipif(not place._NAMELESS, reason="the system has no nameless files")


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EPERM, errno.EINVAL, errno.ENOSYS])
def test_a_refused_way_is_tried_once(tmp_path, monkeypatch, number):
    """Where the first way is refused, this file and all later ones take the path in /proc."""
    calls = []

    def link(_fd, _path, _directory, name, _flags):
        calls.append(os.fsdecode(name))
        ctypes.set_errno(number)
        return -1

    monkeypatch.setattr(temporaries, "LINKER", temporaries.Linker(link))
    disk = DiskFiles()

    disk.create(str(tmp_path), "a.npy", (b"x",))
    with pytest.raises(FileExistsError):
        disk.create(str(tmp_path), "a.npy", (b"y",))
    disk.close()

    assert ["a.npy"] == calls
    assert {"a.npy": b"x"} == {path.name: path.read_bytes() for path in tmp_path.iterdir()}
