"""Ends the program without a message when the reader of its output, such as ``| head``, goes away early."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

CLOSED: Final = 141
"""Exit code that a shell reports for a program that a closed pipe has ended: 128 and SIGPIPE."""


@contextmanager
def quiet() -> Iterator[None]:
    """Exit with ``CLOSED`` as soon as nobody reads standard output any more."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()  # here and not when the interpreter ends, which would complain
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # what is left in the buffer goes there
        raise SystemExit(CLOSED) from None
