"""Work that tests give to other processes."""

from __future__ import annotations

import logging
import os
import signal
import time

LOG = logging.getLogger("msdump.tools")


def placed(number):
    """Return a number, and the process that got it, after a moment in which others get theirs."""
    time.monotonic()
    return number, os.getpid()


def failing(number):
    """Refuse the number 3, and log each."""
    LOG.warning("looks at %d", number)
    if number == 3:
        raise ValueError(f"no {number}")
    return number


def killed(_number):
    """End the process as the system does where memory is short."""
    os.kill(os.getpid(), signal.SIGKILL)


def killed_once(folder, where, number):
    """End the process at some numbers, unless a process has died there before; list the calls in a file."""
    with (folder / "calls").open("a") as file:
        file.write(f"{number}\n")
    if number in where and not (folder / str(number)).exists():
        (folder / str(number)).mkdir()
        killed(number)
    return number


def killed_of_thirteen(number):
    """End the process at one number."""
    return killed(number) if number == 13 else number
