"""Files that are written piece by piece."""

from __future__ import annotations

import errno

import pytest

from msdump.errors import DumpWriteError
from msdump.store.write import write_stream


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
