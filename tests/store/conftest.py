"""Ordinary users, small disks and other surroundings of a sink."""

import os
import shutil
import signal
import tempfile
import traceback
from pathlib import Path

import pytest

from tests import disks

NOBODY = 65534


@pytest.fixture
def as_user():
    """Return a function that runs another one as a user without privileges and gives its text."""

    def run(function, *arguments):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            _report(writer, function, arguments)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            text = pipe.read()
        os.waitpid(child, 0)
        assert not text.startswith("Traceback"), text
        return text

    return run


def _report(writer, function, arguments):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    try:
        text = str(function(*arguments))
    except BaseException:  # noqa: BLE001 - the child must end here, whatever happened
        text = traceback.format_exc()
    os.write(writer, text.encode())
    os._exit(0)


@pytest.fixture
def user_dir():
    """Give a directory that belongs to the user of ``as_user``."""
    folder = Path(tempfile.mkdtemp(prefix="msdump-test-"))
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    yield folder
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            path.chmod(0o700)
    shutil.rmtree(folder)


@pytest.fixture
def small_disk(tmp_path):
    """Give the directory of a file system that holds one megabyte."""
    with disks.mounted(tmp_path / "small", "1m") as folder:
        yield folder


@pytest.fixture
def umask():
    """Return a function that sets the umask until the end of the test."""
    before = os.umask(0)
    os.umask(before)
    yield os.umask
    os.umask(before)
