"""The ONNX operators that compute one call of a GE operator, and the types of its outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from msdump import dtypes
from msdump.dtypes import DType
from msdump.errors import InputError
from msdump.graph.kernel.emulation import FLOAT32, HALVES

REQUIRED: Final = object()
"""The default of an attribute that has none."""

BOOL: Final = dtypes.from_name("bool")


@dataclass(frozen=True, slots=True)
class CallOperand:
    """An input or output of a call.

    Attributes:
        format: Memory format as the caller describes it: ``NCHW``, ``NHWC``, ``HWCN``, ``ND``, ...
        value: Its elements, where the operator is built for them.
    """

    dtype: DType
    shape: tuple[int, ...]
    format: str = "ND"
    value: np.ndarray | None = None


Results = str | tuple[str, ...]
"""Names of the values that are the outputs of a call, in order."""


@dataclass(frozen=True, slots=True)
class GeOperator:
    """One operator of GE.

    Attributes:
        build: Appends the ONNX operators of a call to its body; returns the names of its outputs.
        attributes: Defaults of its attributes, ``REQUIRED`` where there is none.
        kind: Primitive whose formats and rounding the device uses for it; "": the first ONNX operator.
        constants: Slots of inputs that ``build`` needs the elements of, attributes in ONNX; -1 is the
            last input.
        inputs: Fewest and most inputs.
    """

    build: Callable[[CallBody], Results]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    kind: str = ""
    constants: tuple[int, ...] = ()
    inputs: tuple[int, int] = (1, 1)


def integers(value: Any) -> list[int]:
    """Return the integers of a list, of lists in lists in their order, or a single one."""
    if isinstance(value, (list, tuple)):
        return [number for item in value for number in integers(item)]
    return [int(value)]


class CallBody:
    """The ONNX operators that compute one call, appended in order of execution.

    Attributes:
        outputs: The results that the caller expects.
        types: Element types of outputs that are not that of the first input, by name.
        x: Names of the inputs: ``x0``, ``x1``, ...
        kind: Primitive by which the device chooses formats and rounding.
    """

    def __init__(
        self,
        op_type: str,
        inputs: Sequence[CallOperand],
        outputs: Sequence[CallOperand],
        attributes: Mapping[str, Any],
    ) -> None:
        """Start without operators."""
        self.op_type = op_type
        self.inputs = inputs
        self.outputs = outputs
        self.nodes: list[onnx.NodeProto] = []
        self.types: dict[str, DType] = {}
        self.x = tuple(f"x{index}" for index in range(len(inputs)))
        self.kind = ""
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

    def node(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Append an operator with one output; return the output's name."""
        return self.several(op_type, 1, *inputs, **attributes)[0]

    def several(self, op_type: str, count: int, *inputs: str, **attributes: Any) -> tuple[str, ...]:
        """Append an operator with several outputs; return their names."""
        # operators are only appended, so that their number makes names unique
        names = tuple(f"v{len(self.nodes)}_{index}" for index in range(count))
        self.nodes.append(helper.make_node(op_type, list(inputs), list(names), **attributes))
        return names

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        """Append a constant; return its name."""
        array = np.asarray(value, dtype)
        return self.node("Constant", value=numpy_helper.from_array(array))

    def number(self, value: float) -> str:
        """Append a scalar constant of the type in which the first input is computed; return its name."""
        return self.constant(value, self.compute)

    def cast(self, name: str, dtype: DType) -> str:
        """Append a Cast; return its value, noted to be of that type so that it may be an output."""
        converted = self.node("Cast", name, to=dtype.onnx)
        self.types[converted] = dtype
        return converted

    def truth(self, name: str) -> str:
        """Return a value as a possible output, of bool."""
        self.types[name] = BOOL
        return name

    def value(self, slot: int) -> list[int]:
        """Return the elements of an input that the operator is built for."""
        array = self.inputs[slot].value
        assert array is not None
        return [int(item) for item in np.asarray(array).reshape(-1)]

    def axis(self, number: int, rank: int | None = None) -> int:
        """Return an axis counted from 0; a negative one counts from the last."""
        count = self.rank if rank is None else rank
        if not -count <= number < count:
            raise InputError(f"operator {self.op_type!r}: axis {number} of a tensor of {count} dimensions")
        return number % count

    def numbers(self, name: str, slot: int, count: int | None = None) -> list[int]:
        """Return integers: of an input that the call has, else of an attribute, a list of ``count``."""
        if slot < len(self.x):
            return self.value(slot)
        return integers(self[name]) if count is None else self.integer_list(name, count)

    def integer_list(self, name: str, count: int) -> list[int]:
        """Return an attribute that must be a list of ``count`` integers."""
        numbers = self[name]
        if not isinstance(numbers, list) or len(numbers) != count:
            raise InputError(
                f"operator {self.op_type!r}: attribute {name!r} = {numbers!r}: a list of {count} is expected"
            )
        return [int(item) for item in numbers]
