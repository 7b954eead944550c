"""pyACL's return conventions as decorators: functions return codes and never raise.

Inside, functions raise the package's errors; the decorators log them and return their codes.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from msdump.config.acl.codes import AclCode
from msdump.errors import (
    AclError,
    DeviceMemoryError,
    DumpWriteError,
    ExecutionError,
    FormatError,
    GraphError,
    InputError,
    MsdumpError,
    NotAvailableError,
)
from msdump.frontends.acl.objects import Stream

_log = logging.getLogger("msdump.acl")

P = ParamSpec("P")
T = TypeVar("T")
N = TypeVar("N")

_CODES: Final[tuple[tuple[type[MsdumpError], AclCode], ...]] = (
    (DumpWriteError, AclCode.WRITE_FILE),
    (GraphError, AclCode.PARSE_MODEL),
    (InputError, AclCode.MODEL_INPUT_NOT_MATCH),
    (DeviceMemoryError, AclCode.BAD_ALLOC),
    (NotAvailableError, AclCode.API_NOT_SUPPORT),
    (FormatError, AclCode.UNSUPPORTED_DATA_TYPE),
    (ExecutionError, AclCode.GE_FAILURE),
)
"""Codes of errors that were not worded for this door; the first that fits counts."""

_recent: list[str] = []


def code(function: Callable[P, None]) -> Callable[P, int]:
    """Make a function return a code alone: 0, or that of the error that it raised."""

    @functools.wraps(function)
    def answer(*arguments: P.args, **named: P.kwargs) -> int:
        return _attempt(function, None, *arguments, **named)[1]

    return answer


def value_and_code(null: N) -> Callable[[Callable[P, T]], Callable[P, tuple[T | N, int]]]:
    """Make a function return its value and a code; the value is ``null`` where it raised an error."""

    def decorate(function: Callable[P, T]) -> Callable[P, tuple[T | N, int]]:
        @functools.wraps(function)
        def answer(*arguments: P.args, **named: P.kwargs) -> tuple[T | N, int]:
            return _attempt(function, null, *arguments, **named)

        return answer

    return decorate


def value(null: N) -> Callable[[Callable[P, T]], Callable[P, T | N]]:
    """Make a function return its value alone, ``null`` where it raised an error."""

    def decorate(function: Callable[P, T]) -> Callable[P, T | N]:
        @functools.wraps(function)
        def answer(*arguments: P.args, **named: P.kwargs) -> T | N:
            return _attempt(function, null, *arguments, **named)[0]

        return answer

    return decorate


def on_stream(stream: Stream, call: Callable[[], None]) -> None:
    """Do a stream's work at once; the code of its first failure stays until the stream is synchronised."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - the stream tells it
        number = code_of(error)  # also of a later failure, which is logged though its code is not kept
        stream.failure = stream.failure or number


def recent_message() -> str:
    """Return the message of the last failure and drop it; "" where nothing failed since the last call."""
    return _recent.pop() if _recent else ""


def code_of(error: Exception) -> int:
    """Log an error and return its code."""
    if isinstance(error, AclError):
        number = error.code
    elif isinstance(error, MemoryError) and not isinstance(error, MsdumpError):
        number = AclCode.BAD_ALLOC
    else:
        codes = (number for kind, number in _CODES if isinstance(error, kind))
        number = next(codes, AclCode.INTERNAL_ERROR)
    is_known = isinstance(error, (MsdumpError, MemoryError))
    message = str(error) if is_known else f"internal error: {type(error).__name__}: {error}"
    _log.error("%s", message, exc_info=None if is_known else error)
    _recent[:] = [message]
    return int(number)


def _attempt(function: Callable[P, T], null: N, *arguments: P.args, **named: P.kwargs) -> tuple[T | N, int]:
    try:
        return function(*arguments, **named), int(AclCode.SUCCESS)
    except Exception as error:  # noqa: BLE001 - pyACL's functions never raise
        return null, code_of(error)
