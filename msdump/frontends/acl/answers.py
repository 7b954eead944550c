"""How functions answer in pyACL: with return codes, never with exceptions."""

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
    """Let a function answer with a code alone: 0, or why it failed."""

    @functools.wraps(function)
    def answer(*arguments: P.args, **named: P.kwargs) -> int:
        return _attempt(function, None, *arguments, **named)[1]

    return answer


def value_and_code(null: N) -> Callable[[Callable[P, T]], Callable[P, tuple[T | N, int]]]:
    """Let a function answer with a value and a code; the value is ``null`` where it failed."""

    def decorate(function: Callable[P, T]) -> Callable[P, tuple[T | N, int]]:
        @functools.wraps(function)
        def answer(*arguments: P.args, **named: P.kwargs) -> tuple[T | N, int]:
            return _attempt(function, null, *arguments, **named)

        return answer

    return decorate


def value(null: N) -> Callable[[Callable[P, T]], Callable[P, T | N]]:
    """Let a function answer with a value alone, ``null`` where it failed."""

    def decorate(function: Callable[P, T]) -> Callable[P, T | N]:
        @functools.wraps(function)
        def answer(*arguments: P.args, **named: P.kwargs) -> T | N:
            return _attempt(function, null, *arguments, **named)[0]

        return answer

    return decorate


def on_stream(stream: Stream, call: Callable[[], None]) -> None:
    """Do a stream's work at once; what goes wrong is told when the stream is synchronised."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - the stream tells it
        found = code_of(error)
        stream.failure = stream.failure or found


def recent_message() -> str:
    """Return what the last failure said, once; "" where nothing failed since."""
    return _recent.pop() if _recent else ""


def code_of(error: Exception) -> int:
    """Return the code that tells of an error, and log it."""
    if isinstance(error, AclError):
        found = error.code
    elif isinstance(error, MemoryError) and not isinstance(error, MsdumpError):
        found = AclCode.BAD_ALLOC
    else:
        found = next((number for kind, number in _CODES if isinstance(error, kind)), AclCode.INTERNAL_ERROR)
    is_known = isinstance(error, (MsdumpError, MemoryError))
    message = str(error) if is_known else f"internal error: {type(error).__name__}: {error}"
    _log.error("%s", message, exc_info=None if is_known else error)
    _recent[:] = [message]
    return int(found)


def _attempt(function: Callable[P, T], null: N, *arguments: P.args, **named: P.kwargs) -> tuple[T | N, int]:
    try:
        return function(*arguments, **named), int(AclCode.SUCCESS)
    except Exception as error:  # noqa: BLE001 - pyACL's functions never raise
        return null, code_of(error)
