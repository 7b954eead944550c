"""The frozen values that travel through a dump: operator, tensor, file."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from msdump.dtypes import DType

Buffer = bytes | bytearray | memoryview

DEFAULT_FORMAT = "DefaultFormat"


class IO(enum.StrEnum):
    """Which side of an operator a tensor stands on."""

    INPUT = "input"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class OperatorRef:
    """The identity of an operator, one for the .ir, the csv, the file names and ``kernels``.

    Attributes:
        op_type: MindSpore's primitive name, ``Conv2D``; ``Parameter`` for weights and graph inputs.
        full_name: Scoped name, ``Default/conv1-Conv2d/Conv2D-op0``; a parameter's plain name.
    """

    op_type: str
    full_name: str


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """One tensor of one operator at one moment.

    Attributes:
        operator: The operator that read or wrote it.
        io: Input or output.
        slot: Index among the operator's inputs or outputs.
        dtype: Its original element type.
        array: Its elements, C order; a view that is valid while the operator's step runs.
        timestamp: Microseconds since the epoch, strictly increasing in a process.
        format: Name of the memory format.
    """

    operator: OperatorRef
    io: IO
    slot: int
    dtype: DType
    array: np.ndarray
    timestamp: int
    format: str = DEFAULT_FORMAT


@dataclass(frozen=True, slots=True)
class Artifact:
    """One file to be written, complete.

    Attributes:
        directory: Absolute directory.
        name: File name; a sink gives a stand-in where it is longer than 255 bytes.
        buffers: The contents, to be written one after the other.
        tensor_bytes: Bytes of tensor data among them, for the summary.
    """

    directory: str
    name: str
    buffers: Sequence[Buffer] = field(repr=False)
    tensor_bytes: int = 0
