"""What one call of a GE operator computes: ONNX operators, constants and the types of its outputs."""

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
        dtype: Element type.
        shape: Dimensions.
        format: Memory format as the caller describes it: ``NCHW``, ``NHWC``, ``HWCN``, ``ND``, ...
        value: Its elements, where the operator is built for them.
    """

    dtype: DType
    shape: tuple[int, ...]
    format: str = "ND"
    value: np.ndarray | None = None


Results = str | tuple[str, ...]
"""Names of the values that a body gives."""


@dataclass(frozen=True, slots=True)
class GeOperator:
    """One operator of GE.

    Attributes:
        build: Writes what it computes; returns the names of its outputs.
        attributes: Its attributes with their defaults, ``REQUIRED`` for those without.
        kind: Primitive that tells how the device holds and rounds it; "": the first ONNX operator.
        constants: Inputs that it is built for, since ONNX has them as attributes.
        inputs: Fewest and most inputs.
    """

    build: Callable[[CallBody], Results]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    kind: str = ""
    constants: frozenset[int] = frozenset()
    inputs: tuple[int, int] = (1, 1)


class CallBody:
    """Takes the ONNX operators of one call in order.

    Attributes:
        op_type: The operator's name, for messages.
        inputs: What it reads.
        outputs: What the caller expects.
        nodes: The ONNX operators so far.
        types: Element types of outputs that are not that of the first input, by name.
        kind: Primitive that tells how the device holds and rounds the operator.
    """

    def __init__(
        self,
        op_type: str,
        inputs: Sequence[CallOperand],
        outputs: Sequence[CallOperand],
        attributes: Mapping[str, Any],
    ) -> None:
        """Begin with nothing written; attributes are complete."""
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
        return (FLOAT32 if dtype in HALVES else dtype).numpy

    def node(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Append an operator with one output; return that."""
        return self.several(op_type, 1, *inputs, **attributes)[0]

    def several(self, op_type: str, count: int, *inputs: str, **attributes: Any) -> tuple[str, ...]:
        """Append an operator with several outputs; return them."""
        names = tuple(f"v{len(self.nodes)}_{index}" for index in range(count))
        self.nodes.append(helper.make_node(op_type, list(inputs), list(names), **attributes))
        return names

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        """Append a constant; return its name."""
        array = np.asarray(value, dtype)
        return self.node("Constant", value=numpy_helper.from_array(array))

    def number(self, value: float) -> str:
        """Append a scalar of the type in which the first input is computed."""
        return self.constant(value, self.compute)

    def cast(self, name: str, dtype: DType) -> str:
        """Append a conversion; the value may be an output of that type."""
        made = self.node("Cast", name, to=dtype.onnx)
        self.types[made] = dtype
        return made

    def truth(self, name: str) -> str:
        """Return a value that may be an output, noted to be of bool."""
        self.types[name] = BOOL
        return name

    def value(self, slot: int) -> list[int]:
        """Return the elements of an input that the operator is built for."""
        array = self.inputs[slot].value
        assert array is not None
        return [int(item) for item in np.asarray(array).reshape(-1)]

    def axis(self, number: int, rank: int | None = None) -> int:
        """Return an axis counted from 0.

        Raises:
            InputError: There is no such axis.
        """
        among = self.rank if rank is None else rank
        if not -among <= number < among:
            raise InputError(f"operator {self.op_type!r}: axis {number} of a tensor of {among} dimensions")
        return number % among

    def listed(self, name: str, count: int) -> list[int]:
        """Return an attribute that must be a list of so many numbers.

        Raises:
            InputError: It is none.
        """
        found = self[name]
        if not isinstance(found, list) or len(found) != count:
            raise InputError(
                f"operator {self.op_type!r}: attribute {name!r} = {found!r}: a list of {count} is expected"
            )
        return [int(item) for item in found]
