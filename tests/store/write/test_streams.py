"""Files that are written piece by piece."""

import errno
import os
import socket
import stat

import pytest

from msdump.errors import DumpWriteError
from msdump.store.write import DiskFiles, Root, write_file, write_stream


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), DumpWriteError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
    ids=["full", "interrupted"],
)
def test_nothing_is_half_written(tmp_path, error, raised):
    """Where a piece fails the older file stays, and nothing else is left."""

    def pieces():
        yield b"some"
        raise error

    (tmp_path / "f").write_bytes(b"old")

    with pytest.raises(raised):
        write_stream(str(tmp_path), "f", pieces())

    assert [("f", b"old")] == [(path.name, path.read_bytes()) for path in tmp_path.iterdir()]


def test_a_refused_place_is_named(tmp_path):
    """The message names the path and the reason."""
    (tmp_path / "file").touch()

    with pytest.raises(DumpWriteError, match=r"cannot write '.*/file/f': Not a directory"):
        write_stream(str(tmp_path / "file"), "f", [b""])


def test_a_device_is_written_to(tmp_path):
    """A character device of the name is written to, through a link as well, and stays."""
    device, link = tmp_path / "null", tmp_path / "link"
    try:
        os.mknod(device, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        device.read_bytes()
    except PermissionError:
        pytest.skip("devices cannot be made and opened here")
    link.symlink_to(device)

    assert [3, 3] == [write_file(path, [b"abc"]) for path in (device, link)]
    assert stat.S_ISCHR(device.lstat().st_mode)
    assert link.is_symlink()


@pytest.mark.parametrize("root", [None, "root"])
@pytest.mark.parametrize("kind", ["a pipe", "a socket"])
def test_special_files_are_not_replaced(tmp_path, root, kind):
    """A socket, and below the path of a dump a pipe, is refused; a pipe elsewhere is written to."""
    place = tmp_path / "x"
    if kind == "a pipe":
        os.mkfifo(place)
        reader = os.open(place, os.O_RDONLY | os.O_NONBLOCK)
    else:
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(place))
        server.close()
    before = place.lstat()
    files = DiskFiles(root=Root(str(tmp_path)) if root else None)

    if kind == "a pipe" and root is None:
        assert 3 == files.stream(str(tmp_path), "x", [b"abc"])
        assert b"abc" == os.read(reader, 9)
    else:
        with pytest.raises(OSError, match=f"not a regular file but {kind}"):
            files.stream(str(tmp_path), "x", [b"abc"])

    assert (before.st_ino, before.st_mode) == (place.lstat().st_ino, place.lstat().st_mode)
    assert ["x"] == [path.name for path in tmp_path.iterdir()]


def test_directories_that_are_made(tmp_path):
    """One missing directory is made for a file, below one that exists; a chain of them is an error."""
    write_file(tmp_path / "a" / "f", [b"abc"])

    with pytest.raises(DumpWriteError) as raised:
        write_file(tmp_path / "b" / "c" / "f", [b"abc"])

    message = f"cannot write '{tmp_path}/b/c/f': there is no directory '{tmp_path}/b'; choose another path"
    assert message == str(raised.value)
    assert ["a"] == [path.name for path in tmp_path.iterdir()]
