"""``op``: ONNX's operators as Python functions and Python operators, ``dy * (1.0 - op.Exp(x))``.

Calls add operators to the tape that is being written: the body of a MindSpore operator, or a step graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from msdump.graph.body import Tape

_written: ContextVar[Tape] = ContextVar("_written")


class _Operators:
    """Proxy of the tape that is being written: has its methods and attributes."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # inspection by Python, without a tape
            raise AttributeError(name)
        return getattr(_written.get(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_written.get(), name, value)


op: Final[Any] = _Operators()


@contextmanager
def writing(tape: Tape) -> Iterator[None]:
    """Make ``op`` write to a tape within a context."""
    token = _written.set(tape)
    try:
        yield
    finally:
        _written.reset(token)
