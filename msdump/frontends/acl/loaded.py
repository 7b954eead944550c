"""A model that pyACL has loaded: bytes in, bytes out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from msdump import dtypes
from msdump.config.acl.codes import AclCode
from msdump.dtypes import STRING, DType
from msdump.encode import packing
from msdump.errors import AclError
from msdump.frontends.acl.usage import Usage
from msdump.graph.graph import Value
from msdump.session import Network

_IMAGE: Final = 4
_NCHW: Final = 0
_ND: Final = 2
_UNDEFINED_TYPE: Final = -1
_UNKNOWN_RANK: Final = (-2,)


@dataclass(slots=True)
class LoadedModel:
    """One loaded model.

    Attributes:
        model_id: Its number, from 1.
        network: The network that runs it.
        usage: Counts what was loaded and run under its configuration.
        shapes: Shapes of its outputs in the last run.
    """

    model_id: int
    network: Network
    usage: Usage = field(default_factory=Usage)
    shapes: list[tuple[int, ...]] = field(default_factory=list)

    @property
    def inputs(self) -> tuple[Value, ...]:
        """Inputs of the model, in order."""
        return self.network.graph.inputs

    @property
    def outputs(self) -> tuple[Value, ...]:
        """Outputs of the model, in order."""
        return self.network.graph.outputs

    def execute(
        self, inputs: Sequence[memoryview], shapes: Mapping[int, tuple[int, ...]]
    ) -> list[np.ndarray]:
        """Run once; return the outputs, packed where their type shares bytes.

        Args:
            inputs: Bytes of each input.
            shapes: Shapes of inputs that the model leaves open, by index.

        Raises:
            AclError: Inputs that are too many, too few, or too small.
            MsdumpError: As for ``Network.run``.
        """
        if len(inputs) != len(self.inputs):
            raise AclError(
                AclCode.MODEL_INPUT_NOT_MATCH,
                f"model {self.model_id} has {len(self.inputs)} inputs, the dataset has {len(inputs)}",
            )
        arrays_by_name = {
            value.name: _from_bytes(value, view, shapes.get(index))
            for index, (value, view) in enumerate(zip(self.inputs, inputs, strict=True))
        }
        if self.network.plan is not None:
            self.usage.ran(self.network.runs, self.network.plan)
        results = self.network.run(arrays_by_name)
        arrays = [_tensor(name, item) for name, item in results.items()]
        self.shapes = [array.shape for array in arrays]
        return [_packed(array) for array in arrays]

    def output_shape(self, index: int) -> tuple[int, ...]:
        """Return the shape of an output: of the last run, else what the model says."""
        return self.shapes[index] if self.shapes else declared_shape(self.outputs[index])


def declared_shape(value: Value) -> tuple[int, ...]:
    """Return the shape of an input or output as GE writes it.

    -1 stands for a dimension that the model leaves open, -2 alone for all of them, their number too.
    """
    shape = value.type.shape
    return _UNKNOWN_RANK if shape is None else tuple(dim if isinstance(dim, int) else -1 for dim in shape)


def nbytes(dtype: DType | None, shape: Sequence[int]) -> int:
    """Return the bytes of a tensor, 0 where the type or a dimension is not known.

    >>> nbytes(dtypes.from_name("float16"), (2, 2)), nbytes(dtypes.from_name("int4"), (3,))
    (8, 2)
    """
    if dtype is None or dtype is STRING or any(dim < 0 for dim in shape):
        return 0
    return -(-math.prod(shape) // dtype.per_byte) * dtype.numpy.itemsize


def acl_type(dtype: DType | None) -> int:
    """Return the number of an element type in aclDataType, -1 where there is none.

    >>> acl_type(dtypes.from_name("float32")), acl_type(dtypes.from_name("bfloat16")), acl_type(None)
    (0, 27, -1)
    """
    return _UNDEFINED_TYPE if dtype is None or dtype.acl is None else dtype.acl


def acl_format(shape: Sequence[int]) -> int:
    """Return the number in aclFormat of a tensor as the host has it."""
    return _NCHW if len(shape) == _IMAGE else _ND


def to_array(view: memoryview, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Return bytes as a tensor: a view, or an array of its own where elements share bytes."""
    if dtype.per_byte > 1:
        return packing.unpack(np.frombuffer(view, np.uint8), dtype, shape)
    if not math.prod(shape):
        return np.empty(shape, dtype.numpy)
    return np.frombuffer(view, dtype.numpy, math.prod(shape)).reshape(shape)


def _from_bytes(value: Value, view: memoryview, set_shape: tuple[int, ...] | None) -> np.ndarray:
    """Return the tensor of an input; of the shape that the dataset sets, else of the model's."""
    dtype = value.type.dtype
    if dtype is None or dtype is STRING or value.type.kind != "tensor":
        raise AclError(
            AclCode.UNSUPPORTED_DATA_TYPE,
            f"input {value.name!r} is no tensor of numbers; memory cannot hold it",
        )
    shape = _shape_of(value, dtype, len(view)) if set_shape is None else set_shape
    if len(view) < nbytes(dtype, shape):  # a larger buffer is none of the model's business
        raise AclError(
            AclCode.MODEL_INPUT_NOT_MATCH,
            f"input {value.name!r} of shape {shape} needs {nbytes(dtype, shape)} bytes,"
            f" its buffer has {len(view)}",
        )
    return to_array(view, dtype, shape)


def _shape_of(value: Value, dtype: DType, size: int) -> tuple[int, ...]:
    """Return the shape of an input; one open dimension follows from the size of its buffer."""
    shape = declared_shape(value)
    fixed = math.prod(dim for dim in shape if dim >= 0) * dtype.numpy.itemsize
    elements = size * dtype.per_byte
    if shape == _UNKNOWN_RANK or shape.count(-1) > 1 or (-1 in shape and (not fixed or elements % fixed)):
        raise AclError(
            AclCode.MODEL_INPUT_NOT_MATCH,
            f"input {value.name!r}: shape {value.type.shape} is open, and a buffer of {size} bytes does not"
            " tell it; describe it with acl.mdl.set_dataset_tensor_desc",
        )
    return tuple(elements // fixed if dim < 0 else dim for dim in shape)


def _tensor(name: str, item: Any) -> np.ndarray:
    if not isinstance(item, np.ndarray) or item.dtype.kind == "O":
        raise AclError(
            AclCode.UNSUPPORTED_DATA_TYPE, f"output {name!r} is no tensor of numbers; memory cannot hold it"
        )
    return item


def _packed(array: np.ndarray) -> np.ndarray:
    dtype = dtypes.from_numpy(array.dtype)
    return packing.pack(array, dtype) if dtype.per_byte > 1 else array
