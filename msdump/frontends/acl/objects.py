"""The objects that pyACL's handles stand for: buffers, datasets, descriptions, contexts, streams."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np


@dataclass(slots=True)
class DataBuffer:
    """Memory of a tensor.

    Attributes:
        address: Where it begins; 0: the model reserves it when it runs.
        size: Bytes.
    """

    TITLE: ClassVar = "data buffer"

    address: int
    size: int


@dataclass(slots=True)
class Dataset:
    """The inputs or outputs of a model.

    Attributes:
        buffers: Handles of the data buffers.
        shapes: Shapes that a tensor description gave, by index.
    """

    TITLE: ClassVar = "dataset"

    buffers: list[int] = field(default_factory=list)
    shapes: dict[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class ModelDesc:
    """A description of a loaded model.

    Attributes:
        model_id: The model, 0 before ``get_desc``.
    """

    TITLE: ClassVar = "model description"

    model_id: int = 0


@dataclass(frozen=True, slots=True)
class TensorDesc:
    """Type and shape of a tensor of a single operator.

    Attributes:
        dtype: Number in aclDataType.
        shape: Dimensions.
        format: Number in aclFormat.
    """

    TITLE: ClassVar = "tensor description"

    dtype: int
    shape: tuple[int, ...]
    format: int


@dataclass(slots=True)
class OperatorAttributes:
    """Attributes of a single operator by name; tensors are arrays."""

    TITLE: ClassVar = "attribute list"

    values: dict[str, int | float | str | list[Any] | np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AclContext:
    """A context.

    Attributes:
        device_id: Its device.
    """

    TITLE: ClassVar = "context"

    device_id: int


@dataclass(slots=True)
class Stream:
    """A stream.

    Attributes:
        number: Its number in the process, from 0, which is the default stream.
        failure: Code of the first call on it that failed since the last synchronisation.
        tasks: Single operators that it has run.
    """

    TITLE: ClassVar = "stream"

    number: int
    failure: int = 0
    tasks: int = 0
