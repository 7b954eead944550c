"""Small file systems for tests that fill one."""

import shutil
import subprocess
from contextlib import contextmanager

import pytest


@contextmanager
def mounted(folder, size):
    """Give a new directory that is a file system of a size, ``512k``; skip where none can be mounted."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small file system is not permitted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
