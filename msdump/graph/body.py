"""Bodies of operators, written as expressions of ONNX's own operators: ``x * op.Sigmoid(1.702 * x)``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Constant = float | int | bool | Sequence[int] | np.ndarray


def _infix(op_type: str) -> Any:
    return (
        lambda value, other: getattr(value.body, op_type)(value, other),
        lambda value, other: getattr(value.body, op_type)(other, value),
    )


def _prefix(op_type: str) -> Any:
    return lambda value: getattr(value.body, op_type)(value)


class Operand:
    """Base of values; arithmetic and comparisons add ONNX's operators to its ``body``, ``dy * (1.0 - y)``."""

    __slots__ = ()

    __add__, __radd__ = _infix("Add")
    __sub__, __rsub__ = _infix("Sub")
    __mul__, __rmul__ = _infix("Mul")
    __truediv__, __rtruediv__ = _infix("Div")
    __lt__, __gt__ = _infix("Less")[0], _infix("Greater")[0]
    __neg__ = _prefix("Neg")


class Tape:
    """A graph that is being written; any operator of ONNX is a method, which calls ``emit``."""

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        """Return the function that adds an operator of a type: its inputs, attributes by keyword."""
        if op_type.startswith("_"):
            raise AttributeError(op_type)

        def add(*inputs: Any, outputs: Any = 1, **attributes: Any) -> Any:
            return single(self.emit(op_type, inputs, attributes, outputs=outputs))

        return add


def single(values: Sequence[Any]) -> Any:
    """Return the value itself if there is one, else a tuple of all values."""
    return values[0] if len(values) == 1 else tuple(values)


class BodyValue(Operand):
    """A value of a body."""

    __slots__ = ("body", "name")

    def __init__(self, body: OnnxBody, name: str) -> None:
        self.body = body
        self.name = name


class OnnxBody(Tape):
    """Collects the nodes of one function.

    Arguments are values, floats (constants of the function's element type), or sequences of integers and
    arrays (constants of their own type). ``outputs`` is the number of results, 1 by default.
    """

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self._constants: dict[tuple[bytes, str, tuple[int, ...]], BodyValue] = {}
        self._count = 0

    def emit(
        self,
        op_type: str,
        inputs: Sequence[BodyValue | Constant | None],
        attributes: Mapping[str, Any],
        *,
        outputs: int = 1,
    ) -> list[BodyValue]:
        """Add an operator of ONNX's; return its results."""
        values = [self._new_value() for _ in range(outputs)]
        arguments = ["" if item is None else self.value(item).name for item in inputs]
        names = [value.name for value in values]
        self.nodes.append(helper.make_node(op_type, arguments, names, **attributes))
        return values

    def value(self, item: BodyValue | Constant) -> BodyValue:
        """Return a value; a number or an array becomes a constant."""
        if isinstance(item, BodyValue):
            return item
        if isinstance(item, float):
            return self.number(item)
        array = array_of(item)
        return self.constant(array if array.dtype != np.int32 else array.astype(np.int64))

    def number(self, number: float) -> BodyValue:
        """Return a scalar constant of the function's element type."""
        return self.constant(np.array(number, np.float32))

    def constant(self, array: np.ndarray) -> BodyValue:
        """Return an array as a constant; equal arrays share one value."""
        key = (array.tobytes(), array.dtype.str, array.shape)
        if key not in self._constants:
            constant = self._constants[key] = self._new_value()
            value = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape))
            self.nodes.append(helper.make_node("Constant", [], [constant.name], value=value))
        return self._constants[key]

    def _new_value(self) -> BodyValue:
        self._count += 1
        return BodyValue(self, f"t{self._count}")


def array_of(item: Constant) -> np.ndarray:
    """Return a constant as an array; an empty sequence becomes an array of int64."""
    array = np.asarray(item)
    return array if array.size or isinstance(item, np.ndarray) else array.astype(np.int64)
