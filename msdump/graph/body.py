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


class BodyValue:
    """A value of a body; arithmetic and comparisons add ONNX's operators, ``dy * (1.0 - y)``."""

    __slots__ = ("body", "name")

    def __init__(self, body: OnnxBody, name: str) -> None:
        """Create a value with a name in a body."""
        self.body = body
        self.name = name

    __add__, __radd__ = _infix("Add")
    __sub__, __rsub__ = _infix("Sub")
    __mul__, __rmul__ = _infix("Mul")
    __truediv__, __rtruediv__ = _infix("Div")
    __lt__, __gt__ = _infix("Less")[0], _infix("Greater")[0]

    def __neg__(self) -> BodyValue:
        """Add the operator Neg."""
        return self.body.Neg(self)


class OnnxBody:
    """Collects the nodes of one function; any operator of ONNX is a method.

    Arguments are values, floats (constants of the function's element type), or sequences of integers and
    arrays (constants of their own type). ``outputs`` is the number of results, 1 by default.
    """

    def __init__(self) -> None:
        """Begin an empty body."""
        self.nodes: list[onnx.NodeProto] = []
        self._constants: dict[tuple[bytes, str, tuple[int, ...]], BodyValue] = {}
        self._count = 0

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        """Return the function that adds an operator of a type."""
        if op_type.startswith("_"):
            raise AttributeError(op_type)

        def add(*inputs: BodyValue | Constant | None, outputs: int = 1, **attributes: Any) -> Any:
            values = self.emit(op_type, inputs, attributes, outputs=outputs)
            return values[0] if outputs == 1 else tuple(values)

        return add

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
