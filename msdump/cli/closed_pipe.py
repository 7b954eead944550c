"""A reader of our output that goes away early, such as ``| head``, ends the program without a word."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

CLOSED: Final = 141
"""What a shell reports of a program that the closed pipe itself has ended: 128 and SIGPIPE."""


@contextmanager
def quiet() -> Iterator[None]:
    """Exit with ``CLOSED`` where nobody reads standard output any more, whatever was still to be said."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()  # here and not when the interpreter ends, which would complain
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())  # what is left in the buffer goes there
        raise SystemExit(CLOSED) from None
