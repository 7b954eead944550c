"""The ONNX operators that compute one call of a GE operator, and the types of its outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from msdump.dtypes import DType
from msdump.errors import InputError
from msdump.graph.body import BodyValue as Value
from msdump.graph.body import OnnxBody
from msdump.graph.kernel.emulation import FLOAT32, HALVES

REQUIRED: Final = object()
"""The default of an attribute that has none."""


@dataclass(frozen=True, slots=True)
class CallOperand:
    """An input or output of a call of a GE operator."""

    dtype: DType
    shape: tuple[int, ...]
    format: str = "ND"  # memory format as the caller describes it: ``NCHW``, ``NHWC``, ``HWCN``, ``ND``, ..
    # elements of an input that the built operator depends on (``GeOperator.constants``), else None
    value: np.ndarray | None = None


Results = Value | tuple[Value, ...]
"""The outputs of a call, in order."""


@dataclass(frozen=True, slots=True)
class GeOperator:
    """One operator of GE."""

    # appends the ONNX operators of a call to its body; returns the outputs
    build: Callable[[CallBody], Results]
    # defaults of its attributes, ``REQUIRED`` where there is none
    attributes: Mapping[str, Any] = field(default_factory=dict)
    # primitive that decides its formats and rounding on the device; "": the first ONNX operator
    kind: str = ""
    # slots of inputs with elements that ``build`` reads, as they are attributes in ONNX; -1 is the last
    # input
    constants: tuple[int, ...] = ()
    inputs: tuple[int, int] = (1, 1)  # fewest and most inputs


def integers(value: Any) -> list[int]:
    """Return an integer, or the integers of a list or nested lists, as a flat list."""
    if isinstance(value, (list, tuple)):
        return [number for item in value for number in integers(item)]
    return [int(value)]


class CallBody(OnnxBody):
    """The ONNX operators that compute one call, appended in order of execution."""

    def __init__(
        self,
        op_type: str,
        inputs: Sequence[CallOperand],
        outputs: Sequence[CallOperand],
        attributes: Mapping[str, Any],
    ) -> None:
        super().__init__()
        self.op_type = op_type
        self.inputs = inputs
        self.outputs = outputs  # the results that the caller expects
        # element types of outputs that are not that of the first input, by name
        self.types: dict[str, DType] = {}
        # the inputs, named ``x0``, ``x1``, ..
        self.x = tuple(Value(self, f"x{index}") for index in range(len(inputs)))
        self.kind = ""  # primitive by which the device chooses formats and rounding
        self._attributes = attributes

    def __getitem__(self, name: str) -> Any:
        """Return an attribute."""
        return self._attributes[name]

    @property
    def rank(self) -> int:
        """Number of dimensions of the first input."""
        return len(self.inputs[0].shape)

    @property
    def compute(self) -> np.dtype:
        """Numpy type in which the first input is computed: float32 for the small floats."""
        dtype = self.inputs[0].dtype
        # float16 and bfloat16 are widened around the operator (kernel/emulation.py)
        return (FLOAT32 if dtype in HALVES else dtype).numpy

    def number(self, number: float) -> Value:
        """Return a scalar constant of the type in which the first input is computed."""
        return self.constant(np.asarray(number, self.compute))

    def typed(self, value: Value, dtype: DType) -> Value:
        """Register a value as output with an element type other than the first input's; return it."""
        self.types[value.name] = dtype
        return value

    def cast(self, value: Value, dtype: DType) -> Value:
        """Return a value converted to an element type, registered as output of that type."""
        return self.typed(self.Cast(value, to=dtype.onnx), dtype)

    def elements(self, slot: int) -> list[int]:
        """Return the elements of an input that the operator is built for."""
        array = self.inputs[slot].value
        assert array is not None
        return [int(item) for item in np.asarray(array).reshape(-1)]

    def axis(self, number: int) -> int:
        """Return an axis of the first input, counted from 0; a negative one counts from the last."""
        if not -self.rank <= number < self.rank:
            raise self.fault(f"axis {number} of a tensor of {self.rank} dimensions")
        return number % self.rank

    def numbers(self, name: str, slot: int, count: int | None = None) -> list[int]:
        """Return integers: of an input that the call has, else of an attribute, a list of ``count``."""
        if slot < len(self.x):
            return self.elements(slot)
        return integers(self[name]) if count is None else self.integer_list(name, count)

    def integer_list(self, name: str, count: int) -> list[int]:
        """Return an attribute that must be a list of ``count`` integers."""
        numbers = self[name]
        if not isinstance(numbers, list) or len(numbers) != count:
            raise self.fault(f"attribute {name!r} = {numbers!r}: must be a list of {count}")
        return [int(item) for item in numbers]

    def fault(self, message: str) -> InputError:
        """Return the error of a call that cannot be computed."""
        return InputError(f"operator {self.op_type!r}: {message}")
