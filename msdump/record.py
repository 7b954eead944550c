"""The frozen values that travel through a dump: operator, tensor, file."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from msdump.dtypes import DType

Buffer = bytes | bytearray | memoryview
"""The bytes of a file, or some of them; a view of an array's memory is written without a copy."""

DEFAULT_FORMAT = "DefaultFormat"
"""Format of a tensor that lies in memory as on the host, as MindSpore's file names call it."""


class IO(enum.StrEnum):
    """The side of an operator to which a tensor belongs."""

    INPUT = "input"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class OperatorRef:
    """The identity of an operator, one for the .ir, the csv, the file names and ``kernels``.

    Attributes:
        op_type: MindSpore's primitive name, ``Conv2D``; ``Parameter`` for weights and graph inputs.
        full_name: Scoped name, ``Default/conv1-Conv2d/Conv2D-op0``; a parameter's plain name.
        listed: Name in .ir, .pb and csv if MindSpore numbers the operator in another way there, else "".
    """

    op_type: str
    full_name: str
    listed: str = ""

    @property
    def listed_name(self) -> str:
        """Full name in .ir, .pb and csv."""
        return self.listed or self.full_name


def lies_below(scope: str, name: str) -> bool:
    """Tell whether a scope is, or lies below, the named scope or module path.

    >>> scope = "Default/layers-Sequential/0-Dense"
    >>> [lies_below(scope, name) for name in ("Default/layers-Sequential", "layers.0", "layer")]
    [True, True, False]
    """
    if f"{scope}/".startswith(f"{name}/"):
        return True
    modules = [component.rpartition("-")[0] or component for component in scope.split("/")[1:]]
    return f"{'.'.join(modules)}.".startswith(f"{name}.")


def lies_in(name: str, scope: str) -> bool:
    """Tell whether an operator lies in a scope, given with or without class names, whole or in part.

    >>> name = "Default/network-Net/h-CellList/3-Block/MatMul-op0"
    >>> [lies_in(name, scope) for scope in ("Default/network-Net", "h.3", "network.h", "3-Other", "h.30")]
    [True, True, True, False, False]
    >>> lies_in("Default_network-Net_h-CellList_3-Block_MatMul-op0", "network-Net/h-CellList")
    True
    """
    if "/" not in name:  # spelled as in a file: components cannot be separated
        return f"_{scope.strip('/').replace('/', '_').replace('.', '_')}_" in f"_{name.replace('.', '_')}_"
    wanted, components = [*filter(None, scope.split("/"))], name.split("/")[:-1]
    plain = [component.rpartition("-")[0] or component for component in components]
    wanted_plain = [part for component in wanted for part in component.split(".")]
    parts = [part for component in plain for part in component.split(".")]
    return _holds(components, wanted) or _holds(parts, wanted_plain)


def _holds(parts: list[str], wanted: list[str]) -> bool:
    starts = range(len(parts) - len(wanted) + 1)
    return any(parts[start : start + len(wanted)] == wanted for start in starts)


class DevicePart(Protocol):
    """How and where the emulated device holds one tensor; each property is computed when it is read."""

    @property
    def slot(self) -> int:
        """Index among the operator's inputs or outputs, absent ones included."""

    @property
    def format(self) -> str:
        """Name of the tensor's format in device memory; in the default format its layout is the host's."""

    @property
    def groups(self) -> int:
        """Number of groups (of a convolution) for which the format is laid out."""

    @property
    def address(self) -> int:
        """Address of the tensor in device memory in the current run, 0 if it is not known."""

    @property
    def origin(self) -> str:
        """Full name of the operator that gave an output before the graph was compiled, "" for inputs."""

    def element_type(self, host: DType) -> DType:
        """Return the device's element type of the tensor, given its type on the host."""

    def held(self, array: np.ndarray, dtype: DType) -> np.ndarray:
        """Convert an array of the host to the device's element type."""

    def laid_out(self, array: np.ndarray) -> np.ndarray:
        """Convert an array of the host to the device's layout; FormatError if the format cannot hold it."""

    def pinned(self) -> Self:
        """Return a copy that keeps the present address, which a later iteration of a loop may change."""


class TensorRecord(NamedTuple):
    """One tensor of one operator at one moment.

    Each tensor has one, and most steps of a dump make a changed copy. A tuple is made in a third of the time
    that a frozen dataclass takes.
    """

    operator: OperatorRef
    io: IO
    slot: int  # index among the operator's inputs or outputs, as in file names
    # element type of ``array``, packed ones included: the host's, or after ``shown`` the device's
    dtype: DType
    array: np.ndarray  # its elements; a view that is valid while the operator's step runs
    timestamp: int  # microseconds since the epoch, strictly increasing in a process
    format: str = DEFAULT_FORMAT
    device: DevicePart | None = None  # how and where the emulated device holds it; None on CPU and GPU
    # its elements as the host holds them, after ``shown``; None: ``array`` holds them
    host: np.ndarray | None = None

    @property
    def on_host(self) -> np.ndarray:
        """The elements as the host holds them."""
        return self.array if self.host is None else self.host

    def shown(self, array: np.ndarray, dtype: DType, memory_format: str) -> TensorRecord:
        """Return a record with the device's elements in ``array`` and the host's elements in ``host``."""
        operator, io, slot, _, _, timestamp, _, device, _ = self
        return TensorRecord(operator, io, slot, dtype, array, timestamp, memory_format, device, self.on_host)


class Artifact(NamedTuple):
    """One file to be written, complete; a tuple as ``TensorRecord`` is, since each tensor has one."""

    directory: str
    name: str  # file name; a sink gives a stand-in where it is longer than 255 bytes
    buffers: Sequence[Buffer]  # the contents, to be written one after the other
    tensor_bytes: int = 0  # bytes of tensor data among them, for the summary
