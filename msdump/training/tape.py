"""``op``: ONNX's operators as Python functions and Python operators, ``dy * (1.0 - op.Exp(x))``.

Calls add operators to the tape that is being written: the body of a MindSpore operator, or a step graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeVar

_written: ContextVar[Tape] = ContextVar("_written")


class Tape:
    """A graph that is being written; any operator of ONNX is a method, which calls ``emit``."""

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        """Return the function that adds an operator of a type: its inputs, attributes by keyword."""
        if op_type.startswith("_"):
            raise AttributeError(op_type)

        def add(*inputs: Any, outputs: Any = 1, **attributes: Any) -> Any:
            return single(self.emit(op_type, inputs, attributes, outputs=outputs))

        return add


class _Operators:
    """Proxy of the tape that is being written: has its methods and attributes."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # inspection by Python, without a tape
            raise AttributeError(name)
        return getattr(_written.get(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_written.get(), name, value)


op: Final[Any] = _Operators()

_Writer = TypeVar("_Writer", bound=Tape)


@contextmanager
def writing(tape: _Writer) -> Iterator[_Writer]:
    """Make ``op`` write to a tape within a context."""
    token = _written.set(tape)
    try:
        yield tape
    finally:
        _written.reset(token)


def _infix(op_type: str, *, is_reflected: bool = False) -> Callable[[Any, Any], Any]:
    def add(value: Any, other: Any) -> Any:
        return getattr(op, op_type)(*((other, value) if is_reflected else (value, other)))

    return add


class Operand:
    """Base of values: arithmetic and comparisons add ONNX's operators."""

    __slots__ = ()

    __add__, __radd__ = _infix("Add"), _infix("Add", is_reflected=True)
    __sub__, __rsub__ = _infix("Sub"), _infix("Sub", is_reflected=True)
    __mul__ = _infix("Mul")
    __truediv__, __rtruediv__ = _infix("Div"), _infix("Div", is_reflected=True)
    __lt__, __gt__ = _infix("Less"), _infix("Greater")

    def __neg__(self) -> Any:
        """Add the operator Neg."""
        return op.Neg(self)


def single(values: Sequence[Any]) -> Any:
    """Return the value itself if there is one, else a tuple of all values."""
    return values[0] if len(values) == 1 else tuple(values)
