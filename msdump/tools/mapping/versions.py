"""What two processes must have in common so that one may do the work of the other."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Final

from msdump import reading

_PACKAGE: Final = Path(__file__).parents[2]
_DIGITS: Final = 8


@functools.cache
def here() -> str:
    """Return the versions of this process: of msdump and its source files, Python and numpy.

    The number of a release alone does not tell two installations from a repository apart.
    """
    # not above: processes of this machine do not ask, and wait for it
    import hashlib
    import platform
    from importlib import metadata

    digest = hashlib.sha1(usedforsecurity=False)
    for path in sorted(_PACKAGE.rglob("*.py")):
        digest.update(path.relative_to(_PACKAGE).as_posix().encode())
        with reading.open_file(path) as file:
            digest.update(file.read())
    python = platform.python_version_tuple()
    return (
        f"msdump {metadata.version('msdump')} ({digest.hexdigest()[:_DIGITS]}), "
        f"Python {python[0]}.{python[1]}, numpy {metadata.version('numpy')}"
    )


def place() -> str:
    """Return the name of this process for messages: ``node7, process 4711``."""
    import socket  # as above

    return f"{socket.gethostname()}, process {os.getpid()}"
