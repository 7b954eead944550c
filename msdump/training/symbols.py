"""Values and operators of a step graph, as the rules of its making see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from msdump import dtypes
from msdump.dtypes import DType
from msdump.errors import GraphError
from msdump.graph.primitives import Use
from msdump.training.scopes import Place

Shape = tuple[int | str | None, ...]


@dataclass(frozen=True, slots=True)
class StepTensor:
    """A value of the step graph.

    Attributes:
        name: Its name.
        dtype: Element type.
        shape: Its dimensions, those of free size by name.
        value: The elements of a constant, else None.
    """

    name: str
    dtype: DType
    shape: Shape
    value: np.ndarray | None = field(default=None, compare=False)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        """Whether it can have a gradient."""
        return self.dtype.numpy.kind == "f" or self.dtype is dtypes.BFLOAT16

    def sizes(self) -> tuple[int, ...]:
        """Return the dimensions.

        Raises:
            GraphError: A dimension is free.
        """
        if all(isinstance(size, int) for size in self.shape):
            return tuple(size for size in self.shape if isinstance(size, int))
        raise GraphError(f"value {self.name!r} has the shape {self.shape}; its gradient needs fixed sizes")

    def sizes_from(self, start: int, stop: int | None = None) -> tuple[int, ...]:
        """Return the dimensions from an axis on, or between two; others may be free.

        Raises:
            GraphError: A dimension is free.
        """
        return StepTensor(self.name, self.dtype, self.shape[start:stop]).sizes()


Item = StepTensor | float | int | bool | Sequence[int] | np.ndarray | None
"""What an operator is given: a value, a number of the first one's type, whole numbers, an array, nothing."""


@dataclass(frozen=True, slots=True)
class StepOperator:
    """An operator of the step graph, as gradient rules see it.

    Attributes:
        name: ONNX node name.
        op_type: ONNX's type, or MindSpore's.
        domain: "" for ONNX's own.
        primitive: MindSpore's name.
        inputs: None for an absent one.
        outputs: All that are there.
        attributes: Attributes, or the structure of one of MindSpore's operators.
        place: Where it stands.
        absent: Slots of optional outputs that the model leaves out.
    """

    name: str
    op_type: str
    domain: str
    primitive: str
    inputs: tuple[StepTensor | None, ...]
    outputs: tuple[StepTensor, ...]
    attributes: Mapping[str, Any]
    place: Place
    absent: tuple[int, ...] = ()

    def output(self, slot: int) -> StepTensor | None:
        """Return the output in a slot, None for an absent one."""
        number = slot - sum(other < slot for other in self.absent)
        return self.outputs[number] if slot not in self.absent and number < len(self.outputs) else None

    def input(self, slot: int) -> StepTensor:
        """Return an input that must be there.

        Raises:
            GraphError: It is absent.
        """
        tensor = self.inputs[slot] if slot < len(self.inputs) else None
        if tensor is None:
            raise GraphError(f"{self.place.path}/{self.primitive}: input {slot} is missing")
        return tensor

    def constant(self, slot: int) -> np.ndarray | None:
        """Return the value of an input that is a constant, None for any other."""
        tensor = self.inputs[slot] if slot < len(self.inputs) else None
        return None if tensor is None else tensor.value

    def attribute(self, name: str, default: Any) -> Any:
        """Return an attribute."""
        return self.attributes.get(name, default)


def absent_slots(names: Sequence[str]) -> tuple[int, ...]:
    """Return the slots of optional values that a node leaves out: they have no name."""
    return tuple(slot for slot, name in enumerate(names) if not name)


def constant_node(tensor: StepTensor) -> onnx.NodeProto:
    """Return the node that gives a constant."""
    assert tensor.value is not None, "only constants have a node of their own"
    value = numpy_helper.from_array(np.ascontiguousarray(tensor.value).reshape(tensor.value.shape))
    return helper.make_node("Constant", [], [tensor.name], name=tensor.name, value=value)


def info(tensor: StepTensor) -> onnx.ValueInfoProto:
    """Return the declaration of a value."""
    return helper.make_tensor_value_info(tensor.name, tensor.dtype.onnx, list(tensor.shape))


def use_of(tensors: Sequence[StepTensor | None], attributes: Mapping[str, Any]) -> Use:
    """Return what the table of MindSpore's names looks at."""
    arrays = [None if tensor is None else tensor.value for tensor in tensors]
    return Use(
        input_ranks=tuple(None if tensor is None else tensor.rank for tensor in tensors),
        attributes=attributes,
        scalars=tuple(
            float(array.reshape(-1)[0])
            if array is not None and array.size == 1 and array.dtype.kind in "biuf"
            else None
            for array in arrays
        ),
    )
